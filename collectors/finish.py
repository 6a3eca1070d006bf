"""Closes a bundle: compresses what a killed rank left, lists the files, and says what is in it.

Standard library only. Runs after training, in the process that started it, also when training
failed: what was recorded is kept and listed.
"""

from __future__ import annotations

import datetime as dt
import os
import shlex
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from trace_analyzer import __version__
from trace_analyzer.before_after import unlike
from trace_analyzer.bundle import BundleFile, Manifest, Role, read_json_object, write_manifest
from trace_analyzer.collectors import compressing, environment, nccl_log, timed_steps
from trace_analyzer.collectors.commands import shown_command
from trace_analyzer.collectors.contents import CALIBRATION_HALVES, described
from trace_analyzer.collectors.timed_steps import TimedSteps
from trace_analyzer.errors import UnreadableInputError


@dataclass(slots=True, kw_only=True)
class Summary:
    """What a bundle holds, for the one who recorded it."""

    files: tuple[BundleFile, ...]
    complete_ranks: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    world_size: int | None = None
    unprofiled_ms: dict[int, float] = field(default_factory=dict)  # median a rank
    notes: list[str] = field(default_factory=list)

    def count(self, role: Role) -> int:
        """Return the number of files of a role."""
        return sum(1 for item in self.files if item.role is role)


def now() -> str:
    """Return the time as the manifest writes it: ISO 8601, UTC."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def write(
    folder: Path,
    *,
    started: str,
    world_size: int | None = None,
    command: Sequence[str] = (),
    job_name: str = "",
    extra_versions: Mapping[str, str] | None = None,
) -> Summary:
    """Complete the files of a bundle and write its manifest; return what it holds.

    Raises `OSError` where the folder cannot be written.
    """
    notes: list[str] = []
    for plain in sorted(folder.glob("rank*.pt.trace.json")):
        try:
            compressing.compress(plain)
        except OSError as error:
            notes.append(f"{plain.name} stays uncompressed: {error.strerror}")
    for log in sorted(folder.glob("nccl_*.log")):
        dropped = nccl_log.shorten(log)
        if dropped:
            notes.append(f"{log.name}: {dropped:,} repeated lines left out")
    for half in folder.glob(CALIBRATION_HALVES):
        half.unlink()  # of a calibration that was never finished
    files = tuple(described(folder))
    timed: dict[int, list[TimedSteps]] = {}
    for item in files:
        if item.role is Role.TIMER:
            timed.setdefault(item.rank or 0, []).append(timed_steps.read(folder / item.path))
    environments = list(_documents(folder, files, Role.ENVIRONMENT))
    summary = Summary(files=files, notes=notes)
    _summarize(timed, summary)
    summary.notes += environment.differences(environments)
    sizes = {steps.world_size for row in timed.values() for steps in row if steps.world_size}
    summary.world_size = world_size or max(sizes, default=None)
    versions = {"trace-analyzer": __version__, **_versions(environments), **(extra_versions or {})}
    write_manifest(
        folder,
        Manifest(
            job_name=job_name or _job_name(command, folder),
            job_id=_job_id(timed),
            started=started,
            files=files,
            world_size=summary.world_size,
            command=shlex.join(shown_command(command)),
            commit=_commit(),
            tool_versions=versions,
        ),
    )
    return summary


def _job_id(timed: Mapping[int, Sequence[TimedSteps]]) -> str:
    """Return what the ranks agreed on: bundles of a job's other nodes then have the same."""
    groups = {steps.group for files in timed.values() for steps in files if steps.group}
    # A timing run has a group of its own: every node takes the same one of the two.
    return min(groups, default="") or os.environ.get("SLURM_JOB_ID") or uuid.uuid4().hex


def _summarize(timed: Mapping[int, Sequence[TimedSteps]], summary: Summary) -> None:
    """Add what the step files of each rank say."""
    everything = [steps for files in timed.values() for steps in files]
    if everything and all(steps.clock == "host" for steps in everything):
        summary.notes.append(
            "no rank uses CUDA: steps are timed by the host's clock, and no trace holds GPU work"
        )
    rows = {}
    for rank, files in timed.items():
        summary.notes += [f"rank {rank}: {note}" for steps in files for note in steps.notes]
        rows[rank] = (
            [ms for steps in files for ms in steps.before_ms],
            [ms for steps in files for ms in steps.after_ms],
        )
    summary.ranks = tuple(sorted(timed))
    summary.complete_ranks = tuple(
        rank for rank in summary.ranks if all(steps.complete for steps in timed[rank])
    )
    differing = {rank: found for rank, row in rows.items() if (found := unlike(*row)) is not None}
    if differing:
        rank, found = max(differing.items(), key=lambda item: item[1].after_ms)
        summary.notes.append(f"{found.text()} (rank {rank}): only those before count")
    for rank, (before, after) in rows.items():
        times = before if differing else before + after
        if times:
            summary.unprofiled_ms[rank] = median(times)


def _documents(folder: Path, files: Sequence[BundleFile], role: Role) -> Iterator[dict[str, Any]]:
    for item in files:
        if item.role is role:
            try:
                yield read_json_object(folder / item.path)
            except UnreadableInputError:
                continue  # cut off with its process; the readers warn about it


def _versions(environments: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for document in environments:
        for name in ("torch", "cuda", "nccl", "driver"):
            value = document.get("versions", {}).get(name)
            if value and name not in found:
                found[name] = value
    return found


def _job_name(command: Sequence[str], folder: Path) -> str:
    scripts = [word for word in command if word.endswith(".py")]
    return Path(scripts[0]).stem if scripts else folder.name


def _commit() -> str:
    git = shutil.which("git")
    if git is None:
        return ""
    done = subprocess.run(  # noqa: S603  # fixed arguments
        [git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""
