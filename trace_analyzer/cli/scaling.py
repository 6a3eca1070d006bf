"""`trace-analyzer scaling`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from trace_analyzer.cli.group import debug_option
from trace_analyzer.cli.outputs import Output, check_outputs, refuse_inputs, write
from trace_analyzer.cli.progress import ProgressLine
from trace_analyzer.cli.terminal import needs_plain, text_width, use_color

if TYPE_CHECKING:
    from trace_analyzer.scaling_document import ScalingReport


@click.command(
    short_help="Say what several GPUs give against one, and where the loss goes.",
    epilog="Example: trace-analyzer scaling runs/t1 runs/healthy --html scaling.html",
)
@click.argument("runs", nargs=-1, required=True, metavar="T1 TN...")
@click.option(
    "--mode",
    type=click.Choice(["strong", "weak"]),
    help="strong: same global batch; weak: same batch a rank. Default: what the traces show.",
)
@click.option("--html", metavar="F", help="Write the result as one HTML file; - is stdout.")
@click.option("--json", "json_", metavar="F", help="Write the result as JSON; - is stdout.")
@click.option("--markdown", metavar="F", help="Write a summary as Markdown; - is stdout.")
@click.option("--step-range", metavar="NAME", help="Name of the range that repeats once a step.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("-q", "--quiet", is_flag=True, help="Write nothing on stderr but errors.")
@debug_option
def scaling(
    *,
    runs: tuple[str, ...],
    mode: str | None,
    html: str | None,
    json_: str | None,
    markdown: str | None,
    step_range: str | None,
    force: bool,
    quiet: bool,
) -> None:
    """Say what several GPUs give against one, how sure that is, and where the loss goes.

    T1, TN … are runs of different numbers of ranks: traces or bundles, step-timer files
    (steps_rank0.jsonl, or a folder of them), or numbers: 1=43.3 is 43.3 ms on one rank,
    2=25.7±0.4x60 a median of 60 steps with their standard deviation, 2=25.6,25.8,25.7 the steps
    themselves. N=RUN says how many ranks a run has. Several runs of the same number are
    repetitions.
    """
    asked = (("--html", html), ("--json", json_), ("--markdown", markdown))
    outputs = [Output(option, target) for option, target in asked if target is not None]
    check_outputs(outputs, force=force)
    from trace_analyzer.assembly.scaling import build_scaling
    from trace_analyzer.cli import scaling_inputs

    given = scaling_inputs.parse(runs)
    inputs = []
    with ProgressLine(quiet=quiet) as progress:
        for item in given:
            found, paths = scaling_inputs.read(item, step_range=step_range, progress=progress)
            if paths:
                refuse_inputs(outputs, item.value, paths)
            inputs.append(found)
    options = {"runs": list(runs), "mode": mode, "step_range": step_range}
    report = build_scaling(
        scaling_inputs.with_primary(inputs),
        mode,  # type: ignore[arg-type]
        {name: value for name, value in options.items() if value is not None},
    )
    for output in outputs:
        place = write(output, _rendered(output, report))
        if not output.to_stdout and not quiet:
            click.echo(f"Wrote {place}", err=True)
    if not any(output.to_stdout for output in outputs):
        _print(report)


def _rendered(output: Output, report: ScalingReport) -> str | bytes:
    if output.option == "--html":
        from trace_analyzer.reports import scaling_html

        return scaling_html.render(report)
    if output.option == "--json":
        from trace_analyzer.findings import encode

        return encode(report)
    from trace_analyzer.reports import scaling_markdown

    return scaling_markdown.render(report)


def _print(report: ScalingReport) -> None:
    from trace_analyzer.reports import scaling_terminal

    color = use_color(sys.stdout)
    width = text_width(sys.stdout)
    text = scaling_terminal.render(report, color=color, width=width, plain=needs_plain(sys.stdout))
    click.echo(text.rstrip("\n"), color=color)
