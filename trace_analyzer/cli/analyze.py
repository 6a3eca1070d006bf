"""`trace-analyzer analyze`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from trace_analyzer.cli.group import EXIT_FINDINGS, InputError, debug_option
from trace_analyzer.cli.outputs import Output, check_outputs, refuse_inputs, write
from trace_analyzer.cli.progress import ProgressLine
from trace_analyzer.cli.settings_file import ConfiguredCommand
from trace_analyzer.cli.terminal import needs_plain, text_width, use_color
from trace_analyzer.cli.values import (
    SEVERITIES,
    Codes,
    Megabytes,
    Milliseconds,
    Ranks,
    StepRange,
)

if TYPE_CHECKING:
    from trace_analyzer.analyses.study import Study
    from trace_analyzer.assembly import Options
    from trace_analyzer.findings import Report
    from trace_analyzer.model import Run


@click.command(
    cls=ConfiguredCommand,
    short_help="Say where the time of a run went, and why.",
    epilog="Example: trace-analyzer analyze runs/healthy --html report.html",
)
@click.argument("run")
@click.option("--html", metavar="F", help="Write the report as one HTML file; - is stdout.")
@click.option("--json", "json_", metavar="F", help="Write the report as JSON; - is stdout.")
@click.option("--markdown", metavar="F", help="Write a summary as Markdown; - is stdout.")
@click.option(
    "--unprofiled-step-ms",
    type=Milliseconds(),
    metavar="X",
    help="Time of a step without a profiler, ms.",
)
@click.option("--step-range", metavar="NAME", help="Name of the range that repeats once a step.")
@click.option(
    "--steps", type=StepRange(), metavar="A:B", help="Use steps A to B only, both included."
)
@click.option("--ranks", type=Ranks(), metavar="LIST", help="Read these ranks only, as in 0,2-5.")
@click.option(
    "--what-if",
    metavar="SPEC",
    multiple=True,
    help="Replay the step with a change: bandwidth=2, launch=0, host=0.5, kernels=0.5, "
    "contention=0, perfect-overlap or no-straggler; may be repeated.",
)
@click.option(
    "--select",
    type=Codes(),
    metavar="CODE",
    multiple=True,
    help="Look only for causes whose code begins with CODE, as in GPU; may be repeated.",
)
@click.option(
    "--ignore",
    type=Codes(),
    metavar="CODE",
    multiple=True,
    help="Do not look for causes whose code begins with CODE; may be repeated.",
)
@click.option(
    "--fail-on",
    type=click.Choice([*SEVERITIES, "never"]),
    default="never",
    show_default=True,
    help="Exit with 1 on a finding of at least this severity.",
)
@click.option(
    "--max-html-mb",
    type=Megabytes(),
    metavar="X",
    help="Most MB of the HTML report, 3 by default: detail of its timeline is reduced to fit.",
)
@click.option("--redact", is_flag=True, help="Leave out names of hosts, files and users.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("-q", "--quiet", is_flag=True, help="Write nothing on stderr but errors.")
@debug_option
@click.pass_context
def analyze(  # noqa: PLR0913 (one parameter an option)
    ctx: click.Context,
    *,
    run: str,
    html: str | None,
    json_: str | None,
    markdown: str | None,
    unprofiled_step_ms: float | None,
    step_range: str | None,
    steps: tuple[int, int] | None,
    ranks: tuple[int, ...] | None,
    what_if: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fail_on: str,
    max_html_mb: float | None,
    redact: bool,
    force: bool,
    quiet: bool,
) -> None:
    """Say where the time of each step went, per rank, and what would give it back.

    RUN is a trace file, a folder of them, a .zip or .tar, or a URL. The verdict is printed unless
    another output takes stdout.

    Defaults of --select, --ignore, --fail-on, --unprofiled-step-ms and --step-range may stand in
    trace-analyzer.toml, or under [tool.trace-analyzer] in pyproject.toml, in the current folder or one
    above.
    """
    asked = (("--html", html), ("--json", json_), ("--markdown", markdown))
    outputs = [Output(option, target) for option, target in asked if target is not None]
    if max_html_mb is not None and html is None:
        raise click.UsageError("--max-html-mb limits the HTML report; add --html F")
    check_outputs(outputs, force=force)
    _check_codes("--select", select)
    _check_codes("--ignore", ignore)
    from trace_analyzer.assembly import Options
    from trace_analyzer.readers.discovery import open_run

    with ProgressLine(quiet=quiet) as progress:
        recorded = open_run(run, ranks=ranks, progress=progress, jobs=None)
    refuse_inputs(outputs, run, [source.path for source in recorded.sources])
    options = Options(
        unprofiled_step_ms=unprofiled_step_ms,
        step_range=step_range,
        steps=steps,
        ranks=ranks,
        redact=redact,
        what_if=what_if,
        select=select,
        ignore=ignore,
        fail_on=None if fail_on == "never" else fail_on,
    )
    report = report_run(recorded, options, outputs, quiet=quiet, max_html_mb=max_html_mb)
    if not any(output.to_stdout for output in outputs):
        print_verdict(report)
    failing = _failing(report, fail_on)
    if failing:
        if not quiet:
            click.echo(f"--fail-on {fail_on}: {', '.join(failing)}", err=True)
        ctx.exit(EXIT_FINDINGS)


def _check_codes(option: str, codes: Sequence[str]) -> None:
    """Refuse beginnings that no rule's code has: nobody means to look for nothing."""
    if not codes:
        return
    from trace_analyzer.rules.catalogue import rules

    for code in codes:
        if any(rule.code.startswith(code) for rule in rules()):
            continue
        if "TRC".startswith(code[:3]):
            raise InputError(f"{option} {code}: warnings about the data are always shown")
        raise InputError(
            f"{option} {code}: no cause has such a code; trace-analyzer rules lists all"
        )


def report_run(
    run: Run,
    options: Options,
    outputs: Sequence[Output],
    *,
    quiet: bool,
    max_html_mb: float | None = None,
) -> Report:
    """Analyze a run, write the outputs, and return the report."""
    from trace_analyzer.assembly.report import analyse, build_report

    studied = analyse(run, options)
    report = build_report(run, options, studied=studied)
    for output in outputs:
        place = write(output, _rendered(output, report, studied, max_html_mb))
        if not output.to_stdout and not quiet:
            click.echo(f"Wrote {place}", err=True)
    return report


def _rendered(
    output: Output, report: Report, studied: Study, max_html_mb: float | None
) -> str | bytes:
    if output.option == "--html":
        from trace_analyzer.assembly.timeline import build_timeline
        from trace_analyzer.reports import html

        redacted = bool(report.tool.options.get("redact"))
        most = html.MOST_BYTES if max_html_mb is None else int(max_html_mb * 1e6)
        timeline = build_timeline(studied, redact=redacted)
        return html.render(report, timeline=timeline, most_bytes=most)
    if output.option == "--json":
        from trace_analyzer.reports import json

        return json.render(report)
    from trace_analyzer.reports import markdown

    return markdown.render(report)


def print_verdict(report: Report) -> None:
    """Print the report for the terminal on stdout."""
    from trace_analyzer.reports import terminal

    color = use_color(sys.stdout)
    width = text_width(sys.stdout)
    text = terminal.render(report, color=color, width=width, plain=needs_plain(sys.stdout))
    click.echo(text.rstrip("\n"), color=color)


def _failing(report: Report, fail_on: str) -> list[str]:
    """Return the findings that are at least as severe, as "HOST002 (high)"."""
    if fail_on == "never":
        return []
    least = SEVERITIES.index(fail_on)
    return [
        f"{finding.code} ({finding.severity})"
        for finding in report.findings
        if SEVERITIES.index(finding.severity) >= least
    ]
