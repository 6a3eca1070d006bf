"""`trace-analyzer compare`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trace_analyzer.cli.group import debug_option
from trace_analyzer.cli.outputs import Output, check_outputs, refuse_inputs, write
from trace_analyzer.cli.progress import ProgressLine
from trace_analyzer.cli.terminal import needs_plain, text_width, use_color

if TYPE_CHECKING:
    from trace_analyzer.comparison_document import ComparisonReport
    from trace_analyzer.model import Run


@click.command(
    short_help="Say what changed from one run to another.",
    epilog="Example: trace-analyzer compare runs/last_week runs/today --html compare.html",
)
@click.argument("base")
@click.argument("slow")
@click.option("--html", metavar="F", help="Write the result as one HTML file; - is stdout.")
@click.option("--json", "json_", metavar="F", help="Write the result as JSON; - is stdout.")
@click.option("--markdown", metavar="F", help="Write a summary as Markdown; - is stdout.")
@click.option("--step-range", metavar="NAME", help="Name of the range that repeats once a step.")
@click.option(
    "--last",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="Where BASE is an archive's index.db: how many of its last runs.",
)
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("-q", "--quiet", is_flag=True, help="Write nothing on stderr but errors.")
@debug_option
def compare(  # noqa: PLR0913 (one parameter an option)
    *,
    base: str,
    slow: str,
    html: str | None,
    json_: str | None,
    markdown: str | None,
    step_range: str | None,
    last: int,
    force: bool,
    quiet: bool,
) -> None:
    """Say what changed from BASE to SLOW: step, parts, kernels, collectives, findings, settings.

    Both are runs as `analyze` takes them. BASE may also be the index.db of an archive (`batch`): then
    the base is the median of the last runs with the same GPU, number of ranks and kernels. Where runs
    cannot be compared (another GPU model, number of ranks, or other work), their numbers stand side
    by side, and the reason is named.
    """
    asked = (("--html", html), ("--json", json_), ("--markdown", markdown))
    outputs = [Output(option, target) for option, target in asked if target is not None]
    check_outputs(outputs, force=force)
    from trace_analyzer.readers.archive_index import is_index
    from trace_analyzer.readers.discovery import open_run

    history = is_index(Path(base))
    runs = []
    with ProgressLine(quiet=quiet) as progress:
        for target in (slow,) if history else (base, slow):
            run = open_run(target, progress=progress, jobs=None)
            refuse_inputs(outputs, target, [source.path for source in run.sources])
            runs.append(run)
    options: dict[str, Any] = {"base": base, "slow": slow}
    if step_range is not None:
        options["step_range"] = step_range
    if history:
        refuse_inputs(outputs, base, [])
        report = _against_history(Path(base), runs[0], last, {**options, "last": last})
    else:
        report = _compared(runs, options)
    for output in outputs:
        place = write(output, _rendered(output, report))
        if not output.to_stdout and not quiet:
            click.echo(f"Wrote {place}", err=True)
    if not any(output.to_stdout for output in outputs):
        _print(report)


def _compared(runs: list[Run], options: dict[str, Any]) -> ComparisonReport:
    from trace_analyzer.assembly.compare import ComparedRun, build_comparison
    from trace_analyzer.assembly.options import Options
    from trace_analyzer.assembly.report import analyse, build_report

    asked = Options(step_range=options.get("step_range"))
    compared = []
    for run, name in zip(runs, _names(runs), strict=True):
        studied = analyse(run, asked)
        report = build_report(run, asked, studied=studied)
        compared.append(ComparedRun(study=studied, report=report, name=name))
    return build_comparison(compared[0], compared[1], options)


def _against_history(index: Path, run: Run, last: int, options: dict[str, Any]) -> ComparisonReport:
    from trace_analyzer.assembly.compare_history import NewRun, build_history_comparison
    from trace_analyzer.assembly.options import Options
    from trace_analyzer.assembly.report import analyse, build_report
    from trace_analyzer.readers.archive_index import archived_runs

    asked = Options(step_range=options.get("step_range"))
    studied = analyse(run, asked)
    report = build_report(run, asked, studied=studied)
    past = archived_runs(
        index,
        world_size=report.run.world_size,
        gpu=report.run.gpu,
        before=report.run.started,
        without={source.sha256 for source in run.sources if source.gpu_operations},
    )
    new = NewRun(study=studied, report=report, name=run.name)
    return build_history_comparison(str(index), past, last, new, options)


def _names(runs: list[Run]) -> list[str]:
    """Return what the runs are called; two of the same name are told apart."""
    if runs[0].name != runs[1].name:
        return [run.name for run in runs]
    recorders = [run.ranks[0].source.value if run.ranks else "" for run in runs]
    marks = recorders if recorders[0] != recorders[1] else ["base", "slow"]
    return [f"{run.name} ({mark})" for run, mark in zip(runs, marks, strict=True)]


def _rendered(output: Output, report: ComparisonReport) -> str | bytes:
    if output.option == "--html":
        from trace_analyzer.reports import compare_html

        return compare_html.render(report)
    if output.option == "--json":
        from trace_analyzer.findings import encode

        return encode(report)
    from trace_analyzer.reports import compare_markdown

    return compare_markdown.render(report)


def _print(report: ComparisonReport) -> None:
    from trace_analyzer.reports import compare_terminal

    color = use_color(sys.stdout)
    width = text_width(sys.stdout)
    text = compare_terminal.render(report, color=color, width=width, plain=needs_plain(sys.stdout))
    click.echo(text.rstrip("\n"), color=color)
