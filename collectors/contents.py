"""Which files of a folder belong to a recording, by their names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trace_analyzer.bundle import MANIFEST_NAME, BundleFile, Role, describe_file, read_manifest
from trace_analyzer.errors import UnreadableInputError

_PATTERNS: tuple[tuple[Role, str], ...] = (
    (Role.KINETO, r"rank(?P<rank>\d+)\.pt\.trace\.json(?:\.gz)?"),
    (Role.NSYS, r"(?:rank(?P<rank>\d+)|.+)\.sqlite"),
    (Role.TIMER, r"steps_rank(?P<rank>\d+)(?:_nsys)?\.jsonl"),
    (Role.ENVIRONMENT, r"env_rank(?P<rank>\d+)\.json"),
    (Role.CALIBRATION, r"calibration_rank(?P<rank>\d+)\.json"),
    (Role.SAMPLER, r"gpu\d+\.(?:parquet|csv)"),
    (Role.BENCH, r"bench_.+\.json"),
    (Role.NCCL_LOG, r"nccl_(?P<pid>\d+)\.log"),
    (Role.FLIGHT_RECORDER, r"flight_rank(?P<rank>\d+)\.pkl"),
)
# Half of a calibration, between the two runs of a recording with nsys.
CALIBRATION_HALVES = ".calibration_rank*.json"
# Made by a recording, whatever manifest there is. Exports and benches have names of the user's
# choice: only a manifest makes them part of a recording that may be replaced.
_CHOSEN_NAMES = {Role.NSYS, Role.BENCH}


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What a file's name says."""

    role: Role
    rank: int | None = None
    pid: int | None = None
    under_nsys: bool = False


def named(name: str) -> Named | None:
    """Return what a file of a recording holds, None for any other file."""
    for role, pattern in _PATTERNS:
        match = re.fullmatch(pattern, name)
        if match:
            rank, pid = (match.groupdict().get(key) for key in ("rank", "pid"))
            return Named(
                role=role,
                rank=None if rank is None else int(rank),
                pid=None if pid is None else int(pid),
                under_nsys="_nsys." in name,
            )
    return None


def holds_recording(folder: Path) -> bool:
    """Whether a folder holds files of a recording."""
    return folder.is_dir() and bool(_recorded(folder))


def remove_recording(folder: Path, *, rank: int | None = None) -> None:
    """Remove the files of a recording, or those of one rank; all other files stay."""
    if not folder.is_dir():
        return
    for path in _recorded(folder):
        found = named(path.name)
        if rank is None or (found is not None and found.rank == rank):
            path.unlink(missing_ok=True)


def _recorded(folder: Path) -> list[Path]:
    manifest = folder / MANIFEST_NAME
    paths = [
        path
        for path in folder.iterdir()
        if (found := named(path.name)) is not None and found.role not in _CHOSEN_NAMES
    ]
    if manifest.exists():
        paths.append(manifest)
        try:
            listed = [folder / item.path for item in read_manifest(manifest).files]
        except UnreadableInputError:
            listed = []
        for path in listed:
            report = path.with_suffix(".nsys-rep")  # what the export was made from
            paths += [item for item in (path, report) if item.exists() and item not in paths]
    return paths


def described(folder: Path) -> Iterator[BundleFile]:
    """Return the manifest entries of a folder's recording, with the process of each file."""
    found = [(path, named(path.name)) for path in sorted(folder.iterdir()) if path.is_file()]
    pids: dict[tuple[int | None, bool], int] = {}
    for path, name in found:
        if name is not None and name.role is Role.TIMER:
            pid = header(path).get("pid")
            if isinstance(pid, int):
                pids[name.rank, name.under_nsys] = pid
    ranks = {pid: rank for (rank, _), pid in pids.items()}
    for path, name in found:
        if name is None:
            continue
        rank, pid = name.rank, name.pid
        if name.role is Role.NCCL_LOG:
            rank = None if pid is None else ranks.get(pid)
        elif name.role is Role.TIMER:
            pid = pids.get((rank, name.under_nsys))
        elif rank is not None:  # the recorded run's files; a timing run leaves step times alone
            pid = pids.get((rank, True), pids.get((rank, False)))
        yield describe_file(folder, path, name.role, rank=rank, pid=pid)


def header(path: Path) -> dict[str, Any]:
    """Return the first line of a step file; empty where it was cut off."""
    with path.open(encoding="utf-8") as stream:
        line = stream.readline()
    try:
        first = json.loads(line)
    except ValueError:
        return {}
    return first if isinstance(first, dict) else {}
