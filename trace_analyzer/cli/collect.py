"""`trace-analyzer collect`."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trace_analyzer.cli.group import InputError, debug_option

if TYPE_CHECKING:
    from trace_analyzer.collectors.finish import Summary
    from trace_analyzer.collectors.options import Options

_LOW_SPACE_BYTES = 2 << 30
_COMMAND = {"ignore_unknown_options": True}


@click.group(
    short_help="Run training and record a bundle.",
    epilog="Example: trace-analyzer collect torch -o bundle -- torchrun --nproc-per-node 2 train.py",
)
def collect() -> None:
    """Run training and record a bundle, or record this machine's environment.

    The command after -- is run as it is; every rank is watched from inside. Its steps are timed
    before and after the profiled ones, its exit code is passed on.
    """


def _counts(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that torch and nsys share."""
    for option in (
        click.option(
            "-o",
            "--output",
            default="bundle",
            show_default=True,
            type=click.Path(file_okay=False, path_type=Path),
            help="Folder of the bundle.",
        ),
        click.option("--force", is_flag=True, help="Replace a recording in that folder."),
        click.option(
            "--skip", default=10, show_default=True, help="Steps left alone at the start."
        ),
        click.option(
            "--unprofiled",
            default=30,
            show_default=True,
            help="Steps timed without a profiler before the profiled ones, and again after.",
        ),
        click.option(
            "--warmup", default=3, show_default=True, help="Steps the profiler warms up in."
        ),
        click.option("--steps", default=10, show_default=True, help="Steps to profile."),
        click.option(
            "--sample-seconds",
            type=float,
            help="Profile as many steps as fit into this time, instead of --steps.",
        ),
        click.option(
            "--stop-when-done",
            is_flag=True,
            help="End training (exit code 0) once everything is recorded.",
        ),
        click.option("--no-sampler", is_flag=True, help="No clocks and power beside the run."),
        click.option("--no-nccl-log", is_flag=True, help="No NCCL log."),
        debug_option,
        click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED),
    )[::-1]:
        function = option(function)
    return function


@collect.command(
    short_help="Record with torch.profiler.",
    context_settings=_COMMAND,
    epilog="Example: trace-analyzer collect torch -- torchrun --nproc-per-node 2 train.py",
)
@_counts
@click.option("--shapes", is_flag=True, help="Record tensor shapes (costs more a step).")
@click.option("--stacks", is_flag=True, help="Record Python stacks (costs much more a step).")
@click.option("--no-calibration", is_flag=True, help="Do not measure what the profiler costs.")
@click.pass_context
def torch(
    ctx: click.Context,
    /,
    *,
    command: tuple[str, ...],
    shapes: bool,
    stacks: bool,
    no_calibration: bool,
    **given: Any,  # noqa: ANN401
) -> None:
    """Run COMMAND with torch.profiler in every rank.

    A step ends where the optimizer steps; gradient accumulation and several optimizers are
    understood. A loop without an optimizer of torch needs the two-line API,
    trace_analyzer.collectors.record.
    """
    from trace_analyzer.collectors import launch
    from trace_analyzer.collectors.options import Mode

    launch.check(command)
    with _bundle(given, command) as bundle:
        options = bundle.options(
            Mode.TORCH,
            record_shapes=shapes,
            with_stack=stacks,
            calibrate=not no_calibration,
            stop_when_done=given["stop_when_done"],
        )
        with bundle.sampling():
            bundle.code = launch.run(command, launch.environment(options, bundle.variables()))
    ctx.exit(bundle.code)


@collect.command(
    short_help="Record with Nsight Systems.",
    context_settings=_COMMAND,
    epilog="Example: trace-analyzer collect nsys -- torchrun --nproc-per-node 2 train.py",
)
@_counts
@click.option("--graph-nodes", is_flag=True, help="Show kernels inside CUDA graphs (costs more).")
@click.option("--per-rank", is_flag=True, help="One report for every rank instead of one a node.")
@click.option(
    "--no-timing-run",
    is_flag=True,
    help="Do not run COMMAND a first time to time its steps without nsys.",
)
@click.pass_context
def nsys(
    ctx: click.Context,
    /,
    *,
    command: tuple[str, ...],
    graph_nodes: bool,
    per_rank: bool,
    no_timing_run: bool,
    **given: Any,  # noqa: ANN401
) -> None:
    """Run COMMAND twice: to time its steps, then under nsys.

    nsys slows a process that it started also while it does not collect, so step times are taken
    in a run without it, which ends as soon as enough steps are timed. Needs nsys on PATH, under
    /usr/local/cuda* or /opt/nvidia, or named in TRACE_ANALYZER_NSYS.
    """
    from trace_analyzer.collectors import launch, nsys_run, nsys_tool
    from trace_analyzer.collectors.options import Mode

    launch.check(command)
    tool = nsys_tool.find()
    with _bundle(given, command, {"nsys": tool.version}) as bundle:
        if not no_timing_run:
            click.echo("timing steps without nsys", err=True)
            options = bundle.options(Mode.TIMER, calibrate=False, stop_when_done=True)
            bundle.code = launch.run(command, launch.environment(options, {}))
        if not bundle.code:
            click.echo(f"recording with nsys {tool.version} ({tool.program})", err=True)
            options = bundle.options(
                Mode.NSYS, calibrate=False, stop_when_done=given["stop_when_done"]
            )
            with bundle.sampling():
                bundle.code = nsys_run.run(
                    tool,
                    command,
                    options,
                    bundle.variables(),
                    graph_nodes=graph_nodes,
                    per_rank=per_rank,
                )
            bundle.problems += nsys_run.collect_reports(tool, bundle.folder)
    ctx.exit(bundle.code)


@collect.command(short_help="Record this machine's environment alone.")
@click.option("-o", "--output", default="-", help="File to write; - is stdout.", type=click.Path())
@click.option("--force", is_flag=True, help="Replace that file.")
@debug_option
def env(*, output: str, force: bool) -> None:
    """Print GPUs, their links, versions, limits and allow-listed variables as JSON."""
    import importlib.util

    from trace_analyzer.cli.outputs import Output, check_outputs
    from trace_analyzer.collectors import environment, host
    from trace_analyzer.collectors.ranks import rank_of_process

    check_outputs([Output("--output", output)], force=force)
    if importlib.util.find_spec("torch") is not None:
        from trace_analyzer.collectors import torch_facts  # noqa: F401  # imports torch: asked for its versions
    document = environment.read(rank_of_process(), host.gather())
    text = json.dumps(document, indent=1) + "\n"
    if output == "-":
        click.echo(text, nl=False)
    else:
        Path(output).write_text(text, encoding="utf-8")


class _Bundle:
    """The folder that a command records into, from start to manifest."""

    def __init__(self, given: dict[str, Any], command: Sequence[str], facts: Path) -> None:
        self.folder: Path = given["output"].absolute()
        self.command = command
        self.code = 0
        self.problems: list[str] = []
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
        import os

        from trace_analyzer.collectors import nccl_log

        found = nccl_log.flight_recorder_variables(os.environ)
        if not self._given["no_nccl_log"]:
            found |= nccl_log.variables(self.folder, os.environ)
        return found

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
def _bundle(
    given: dict[str, Any], command: Sequence[str], versions: dict[str, str] | None = None
) -> Iterator[_Bundle]:
    """Make the folder, let the command run, and list what was recorded in any case."""
    from trace_analyzer.collectors import finish, host
    from trace_analyzer.collectors.options import Mode

    with tempfile.NamedTemporaryFile("w", suffix=".json") as facts:
        bundle = _Bundle(given, command, Path(facts.name))
        try:
            bundle.options(Mode.TORCH)
        except ValueError as error:
            raise InputError(str(error)) from error
        _prepare(bundle.folder, force=given["force"])
        json.dump(host.gather(), facts)
        facts.flush()
        started = finish.now()
        try:
            yield bundle
        finally:
            try:
                summary = finish.write(
                    bundle.folder, started=started, command=command, extra_versions=versions
                )
            except OSError as error:
                click.echo(
                    f"{bundle.folder}: no manifest: {error.strerror}; the files are kept and can "
                    "be analyzed without it",
                    err=True,
                )
            else:
                _say(bundle, summary)


def _prepare(folder: Path, *, force: bool) -> None:
    from trace_analyzer.collectors import contents

    if contents.holds_recording(folder):
        if not force:
            raise InputError(
                f"{folder}: holds a recording already; choose another folder with -o, or --force"
            )
        contents.remove_recording(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass  # raises where the folder cannot be written
    free = shutil.disk_usage(folder).free
    if free < _LOW_SPACE_BYTES:
        click.echo(f"warning: {free >> 20:,} MiB free on the disk of {folder}", err=True)


def _say(bundle: _Bundle, summary: Summary) -> None:
    from trace_analyzer.bundle import Role

    for note in [*bundle.problems, *summary.notes]:
        click.echo(f"note: {note}", err=True)
    if not summary.ranks:
        click.echo(
            "nothing was recorded: no process of the command stepped a torch optimizer often "
            "enough. Check --skip, or use trace_analyzer.collectors.record in the script",
            err=True,
        )
    traces = summary.count(Role.KINETO) + summary.count(Role.NSYS)
    ranks = len(summary.ranks)
    line = f"{bundle.folder}: {ranks} rank{'s' if ranks != 1 else ''}, {traces} trace"
    line += "s" if traces != 1 else ""
    if summary.unprofiled_ms:
        line += f", unprofiled step {max(summary.unprofiled_ms.values()):.2f} ms"
    if bundle.code:
        line += f"; the command ended with exit code {bundle.code}"
    click.echo(line, err=True)
    if traces:
        click.echo(f"next: trace-analyzer analyze {bundle.folder} --html report.html", err=True)
    sys.stderr.flush()
