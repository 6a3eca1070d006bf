"""The folder that `trace-analyzer collect` records into, from its making to its manifest."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trace_analyzer.cli.group import InputError

if TYPE_CHECKING:
    from trace_analyzer.collectors.finish import Summary
    from trace_analyzer.collectors.options import Options

_LOW_SPACE_BYTES = 2 << 30


class Bundle:
    """The folder of one recording; `given` are the options of the command line."""

    def __init__(self, given: Mapping[str, Any], command: Sequence[str], facts: Path) -> None:
        self.folder: Path = given["output"].absolute()
        self.command = command
        self.code = 0
        self.problems: list[str] = []
        self.sees_gpu = False
        self._given = given
        self._facts = facts

    def options(self, mode: Any, **more: Any) -> Options:  # noqa: ANN401
        """Return what the ranks must know."""
        from trace_analyzer.collectors.options import Options, Schedule, package_root

        given = self._given
        return Options(
            folder=str(self.folder),
            mode=mode,
            schedule=Schedule(
                skip=given["skip"],
                unprofiled=given["unprofiled"],
                after=given["unprofiled"],
                warmup=given["warmup"],
                active=given["steps"],
                sample_seconds=given["sample_seconds"],
            ),
            reset_peak=False,  # the script's own view of its memory stays as it was
            host_facts=str(self._facts),
            package_root=package_root(),
            **more,
        )

    def variables(self) -> dict[str, str]:
        """Return variables that make NCCL and its Flight Recorder leave their records."""
        from trace_analyzer.collectors import nccl_log

        found = nccl_log.flight_recorder_variables(os.environ) | self.trail_variable()
        if not self._given["no_nccl_log"]:
            found |= nccl_log.variables(self.folder, os.environ)
        return found

    @property
    def trail(self) -> Path:
        """The file in which the processes of the command say how far they came."""
        return self._facts.with_suffix(".trail")

    def trail_variable(self) -> dict[str, str]:
        """Return what makes them say it."""
        from trace_analyzer.collectors import trail

        return {trail.VARIABLE: str(self.trail)}

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Sample the GPUs beside what runs inside."""
        from trace_analyzer.collectors import sampler

        process = None if self._given["no_sampler"] else sampler.start_process(self.folder)
        try:
            yield
        finally:
            if process is not None and not sampler.stop_process(process):
                self.problems.append("the GPU sampler failed; its rows so far are kept")


@contextmanager
def open_bundle(
    given: Mapping[str, Any], command: Sequence[str], versions: Mapping[str, str] | None = None
) -> Iterator[Bundle]:
    """Make the folder, let the command run, and list what was recorded in any case."""
    from trace_analyzer.collectors import finish, host
    from trace_analyzer.collectors.options import Mode

    with tempfile.TemporaryDirectory(prefix="trace-analyzer-") as scratch:
        facts = Path(scratch) / "host.json"
        bundle = Bundle(given, command, facts)
        try:
            bundle.options(Mode.TORCH)
        except ValueError as error:
            raise InputError(str(error)) from error
        bundle.folder.mkdir(parents=True, exist_ok=True)
        with _locked(bundle.folder):
            _prepare(bundle.folder, force=given["force"])
            found = host.gather()
            bundle.sees_gpu = bool(found.get("gpus"))
            facts.write_text(json.dumps(found), encoding="utf-8")
            started = finish.now()
            try:
                yield bundle
            finally:
                _finish(bundle, started, versions)


def _finish(bundle: Bundle, started: str, versions: Mapping[str, str] | None) -> None:
    from trace_analyzer.collectors import finish

    try:
        summary = finish.write(
            bundle.folder, started=started, command=bundle.command, extra_versions=versions
        )
    except OSError as error:
        click.echo(
            f"{bundle.folder}: no manifest: {error.strerror}; the files are kept and can be "
            "analyzed without it",
            err=True,
        )
    else:
        _say(bundle, summary)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Take the folder for this process: two recordings in one would mix, also from two nodes."""
    lock = folder / ".collecting"
    own = f"{platform.node()} {os.getpid()}"
    for _ in range(2):
        try:
            with lock.open("x", encoding="utf-8") as stream:
                stream.write(own)
        except FileExistsError:
            host, _, pid = lock.read_text(encoding="utf-8").partition(" ")
            if host != platform.node() or not pid.isdecimal() or Path(f"/proc/{pid}").exists():
                raise InputError(
                    f"{folder}: process {pid or '?'} on {host or '?'} records into it; give each "
                    f"node a folder of its own (-o bundle/$(hostname)), or remove {lock} where "
                    "that process has ended"
                ) from None
            lock.unlink(missing_ok=True)  # it was killed
        else:
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
            return
    raise InputError(f"{folder}: other processes record into it; give each a folder of its own")


def _prepare(folder: Path, *, force: bool) -> None:
    from trace_analyzer.collectors import contents

    if contents.holds_recording(folder):
        if not force:
            raise InputError(
                f"{folder}: holds a recording already; choose another folder with -o, or --force"
            )
        contents.remove_recording(folder)
    with tempfile.TemporaryFile(dir=folder):
        pass  # raises where the folder cannot be written
    free = shutil.disk_usage(folder).free
    if free < _LOW_SPACE_BYTES:
        click.echo(f"warning: {free >> 20:,} MiB free on the disk of {folder}", err=True)


def _say(bundle: Bundle, summary: Summary) -> None:
    from trace_analyzer.bundle import Role
    from trace_analyzer.collectors import trail

    for note in [*bundle.problems, *summary.notes]:
        click.echo(f"note: {note}", err=True)
    if not summary.ranks:
        click.echo(f"nothing was recorded: {trail.reason(bundle.trail)}", err=True)
    traces = summary.count(Role.KINETO) + summary.count(Role.NSYS)
    ranks = len(summary.ranks)
    line = f"{bundle.folder}: {ranks} rank{'s' if ranks != 1 else ''}, {traces} trace"
    line += "s" if traces != 1 else ""
    if summary.unprofiled_ms:
        line += f", unprofiled step {max(summary.unprofiled_ms.values()):.2f} ms"
    if bundle.code:
        line += f"; the command ended with exit code {bundle.code}"
    click.echo(line, err=True)
    if summary.world_size and 0 < ranks < summary.world_size:
        click.echo(
            f"the run has {summary.world_size} ranks: put the bundles of all its nodes into one "
            "folder, and analyze that",
            err=True,
        )
    elif traces:
        click.echo(f"next: trace-analyzer analyze {bundle.folder} --html report.html", err=True)
    sys.stderr.flush()
