"""`trace-analyzer batch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from trace_analyzer.cli.group import EXIT_FINDINGS, debug_option
from trace_analyzer.cli.progress import RateLine
from trace_analyzer.cli.values import Duration, MemorySize

if TYPE_CHECKING:
    from trace_analyzer.batch.driver import Settings, Tally
    from trace_analyzer.batch.whole import Summary

_SEVERITIES = ("low", "medium", "high")


@click.command(
    short_help="Analyze every run of an archive and index them.",
    epilog="Example: trace-analyzer batch s3://traces/2026 -o reports",
)
@click.argument("archive")
@click.option("-o", "--output", metavar="OUT", help="Folder or URL of the reports and the index.")
@click.option(
    "--jobs",
    type=click.IntRange(1, 4096),
    metavar="N",
    help="Runs at once. Default: one a core; on a cluster, what its workers take.",
)
@click.option("--scheduler", metavar="ADDR", help="Dask scheduler that has the work done.")
@click.option("--list", "list_", is_flag=True, help="Print the runs and the rules; analyze none.")
@click.option("--retry-failed", is_flag=True, help="Try runs again that failed before.")
@click.option(
    "--refresh",
    is_flag=True,
    help="Analyze runs again whose report another version of trace-analyzer wrote.",
)
@click.option(
    "--fail-on",
    type=click.Choice([*_SEVERITIES, "never"]),
    default="never",
    show_default=True,
    help="Exit with 1 if a run that was analyzed now has a finding of at least this severity.",
)
@click.option(
    "--time-limit",
    type=Duration(),
    default="1h",
    show_default=True,
    metavar="T",
    help="Time for each run, as in 90s, 30m, 2h; 0 is none.",
)
@click.option(
    "--memory-limit",
    type=MemorySize(),
    metavar="SIZE",
    help="Memory for each run, as in 4G. Default: 80 % of the machine's, divided by --jobs.",
)
@click.option("-q", "--quiet", is_flag=True, help="Write nothing on stderr but errors.")
@debug_option
@click.pass_context
def batch(  # noqa: PLR0913 (one parameter an option)
    ctx: click.Context,
    *,
    archive: str,
    output: str | None,
    jobs: int | None,
    scheduler: str | None,
    list_: bool,
    retry_failed: bool,
    refresh: bool,
    fail_on: str,
    time_limit: float | None,
    memory_limit: int | None,
    quiet: bool,
) -> None:
    """Analyze every run of an archive: a report each, an index page, and a database.

    ARCHIVE is a folder, a .zip or .tar, or a URL (s3://, gs://, file://). Each run is analyzed in a
    process of its own. Runs that have not changed are skipped, so that the same command goes on
    after an interruption, and does only what is new the next day. A run that fails is recorded
    with its reason and never stops the others.
    """
    if output is None and not list_:
        raise click.UsageError("Missing option '-o': where the reports and the index go.")
    from trace_analyzer.batch.driver import Settings

    settings = Settings(
        archive=archive,
        out=output or "",
        jobs=jobs,
        scheduler=scheduler,
        retry_failed=retry_failed,
        refresh=refresh,
        time_s=time_limit,
        memory_bytes=memory_limit,
    )
    if list_:
        _print_list(settings)
        return
    summary = _run(settings, quiet=quiet)
    click.echo(_line(summary))
    if fail_on != "never" and set(_SEVERITIES[_SEVERITIES.index(fail_on) :]) & summary.severities:
        ctx.exit(EXIT_FINDINGS)


def _run(settings: Settings, *, quiet: bool) -> Summary:
    from trace_analyzer.batch.whole import run_batch

    def say(note: str) -> None:
        if not quiet:
            click.echo(note, err=True)

    with RateLine(quiet=quiet) as line:

        def progress(tally: Tally) -> None:
            failed = f" · {tally.failed:,} failed" if tally.failed else ""
            line(failed, tally.tasks_done, tally.tasks)

        return run_batch(settings, progress, say)


def _line(summary: Summary) -> str:
    """Return the one line that says how it ended."""
    parts = [
        f"{summary.runs:,} runs: {summary.analysed:,} analyzed now, {summary.unchanged:,} unchanged",
        f"{summary.with_cause:,} with a cause",
        f"{summary.failed:,} failed",
    ]
    if summary.gone:
        parts.append(f"{summary.gone:,} no longer in the archive")
    return f"{', '.join(parts)}; {summary.seconds:.1f} s; {summary.page}"


def _print_list(settings: Settings) -> None:
    from trace_analyzer.batch.listing import listed_runs
    from trace_analyzer.batch.units import RULES
    from trace_analyzer.reports.names import visible
    from trace_analyzer.reports.units import size

    click.echo("\n".join(("What counts as a run:", *(f"- {rule}" for rule in RULES), "")))
    count = 0
    for run in listed_runs(settings):
        count += run.state != "nothing"
        about = f"{size(run.bytes)}, {run.described}"
        click.echo(f"{run.state:8} {visible(run.name)}  ({visible(about)})")
    click.echo(f"\n{count:,} runs")
