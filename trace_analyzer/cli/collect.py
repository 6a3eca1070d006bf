"""`trace-analyzer collect`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from trace_analyzer.cli.collect_bundle import open_bundle
from trace_analyzer.cli.group import debug_option

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
            help="Folder of the bundle; on several nodes, one for each (bundle/$(hostname)).",
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


_calibration = click.option(
    "--no-calibration", is_flag=True, help="Do not measure what the profiler costs."
)


@collect.command(
    short_help="Record with torch.profiler.",
    context_settings=_COMMAND,
    epilog="Example: trace-analyzer collect torch -- torchrun --nproc-per-node 2 train.py",
)
@_counts
@click.option("--shapes", is_flag=True, help="Record tensor shapes (costs more a step).")
@click.option("--stacks", is_flag=True, help="Record Python stacks (costs much more a step).")
@_calibration
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
    with open_bundle(given, command) as bundle:
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
@_calibration
@click.pass_context
def nsys(
    ctx: click.Context,
    /,
    *,
    command: tuple[str, ...],
    graph_nodes: bool,
    per_rank: bool,
    no_timing_run: bool,
    no_calibration: bool,
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
    calibrate = not (no_calibration or no_timing_run)  # it compares the two runs
    with open_bundle(given, command, {"nsys": tool.version}) as bundle:
        if not bundle.sees_gpu:
            click.echo(
                "warning: no NVIDIA GPU is seen here, and nsys records nothing of a process without "
                "one; on a CPU use collect torch",
                err=True,
            )
        if not no_timing_run:
            click.echo("timing steps without nsys", err=True)
            options = bundle.options(Mode.TIMER, calibrate=calibrate, stop_when_done=True)
            bundle.code = launch.run(command, launch.environment(options, bundle.trail_variable()))
        if not bundle.code:
            click.echo(f"recording with nsys {tool.version} ({tool.program})", err=True)
            options = bundle.options(
                Mode.NSYS, calibrate=calibrate, stop_when_done=given["stop_when_done"]
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
