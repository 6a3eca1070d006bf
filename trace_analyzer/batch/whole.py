"""A whole batch: listed, planned, carried out, and shown."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from trace_analyzer import __version__
from trace_analyzer.batch.driver import Batch, Progress, Settings, Tally, pool_of, todo
from trace_analyzer.batch.index import Index
from trace_analyzer.batch.output import INDEX, Output, opened_output
from trace_analyzer.batch.pages import pages
from trace_analyzer.batch.storage import Place, place
from trace_analyzer.batch.tasks import run_id, shown
from trace_analyzer.batch.units import ListedFile, Plan, split
from trace_analyzer.errors import TraceAnalyzerError, UnreadableInputError
from trace_analyzer.readers.remote import is_url, without_credentials
from trace_analyzer.reports import archive_html

_LISTED_CLOSED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """How a batch ended; counts of runs. `seconds` is how long it took."""

    runs: int
    analysed: int
    failed: int
    with_cause: int
    gone: int
    severities: frozenset[str]  # of findings in runs that were analysed now
    seconds: float
    page: str

    @property
    def unchanged(self) -> int:
        """Runs that needed no work."""
        return max(self.runs - self.analysed, 0)


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive that was listed: where it lies and what units it has."""

    place: Place
    title: str
    plan: Plan
    closed: tuple[str, ...]


def list_archive(target: str, out: Place | None = None) -> Archive:
    """List an archive. Raises `UnreadableInputError` where there is none, or it has no files."""
    if target in {"", "-"}:
        raise UnreadableInputError(target or "an empty name", "no archive", "give a folder or URL")
    archive = place(target)
    closed: list[str] = []
    file = archive.as_file()
    if file is not None:
        archive, one = file
        files: Iterable[ListedFile] = [one]
    else:
        without = None if out is None else out.path
        if without is not None and without == archive.path:
            raise TraceAnalyzerError(f"{target}: is the archive; give another folder with -o")
        files = archive.listing(without=without, closed=closed)
    plan = split(files, archive.read_all)
    if not plan.units:
        raise UnreadableInputError(
            without_credentials(target) if is_url(target) else target,
            f"none of its {plan.ignored} files is named like a trace",
            "batch --list says which names are",
        )
    title = PurePosixPath(archive.shown.rstrip("/")).name if file is None else file[1].name
    return Archive(archive, title or archive.shown, plan, tuple(closed))


def run_batch(
    settings: Settings, progress: Progress, say: Callable[[str], None] = lambda _: None
) -> Summary:
    """Analyse what has changed in an archive and return how it ended.

    `say` gets notes for the user. What is done when an exception ends it is in the index.
    """
    begun_s = time.monotonic()
    out = place(settings.out)
    archive = list_archive(settings.archive, out)
    if archive.closed:
        say(_not_opened(archive.closed))
    # Places that mean the same in every process.
    settings = replace(settings, archive=archive.place.url, out=out.url)
    with opened_output(out) as output, Index(output.index, f"{out.shown}/{INDEX}") as index:
        units = todo(archive.plan.units, index, settings)
        output.log(
            "start",
            archive=archive.place.shown,
            version=__version__,
            units=len(archive.plan.units),
            units_with_work=len(units),
            ignored_files=archive.plan.ignored,
            jobs=settings.jobs,
            on_cluster=settings.scheduler is not None,
        )
        tally = Tally()
        finished = False
        try:
            if units:
                with pool_of(settings, cores()) as pool:
                    Batch(settings, index, output, pool, tally).run(units, len(units), progress)
            finished = True
            for name in index.settle(run_id(shown(unit.name)) for unit in archive.plan.units):
                output.remove_run(name)
        finally:
            output.log("end", finished=finished, analysed=tally.analysed, failed=tally.failed)
            _show(index, output, archive.title)
        return _summary(index, tally, out, time.monotonic() - begun_s)


def _not_opened(closed: Sequence[str]) -> str:
    more = len(closed) - _LISTED_CLOSED
    listed = ", ".join(closed[:_LISTED_CLOSED])
    return f"not opened: {listed}" + (f" and {more} more folders" if more > 0 else "")


def _show(index: Index, output: Output, title: str) -> None:
    """Write the pages over all that the index holds, and bring the index to its place."""
    for name, page in pages(index.connection, title):
        output.place.write(name, archive_html.render(page).encode(errors="replace"))
    output.write_metadata()
    output.upload(now=True)


def _summary(index: Index, tally: Tally, out: Place, seconds: float) -> Summary:
    runs, failed, with_cause, gone = index.connection.execute(
        "SELECT COALESCE(SUM(present), 0), COALESCE(SUM(present AND state = 'failed'), 0), "
        "COALESCE(SUM(present AND cause IS NOT NULL), 0), COALESCE(SUM(NOT present), 0) FROM runs"
    ).fetchone()
    return Summary(
        runs=runs,
        analysed=tally.analysed,
        failed=failed,
        with_cause=with_cause,
        gone=gone,
        severities=frozenset(tally.severities),
        seconds=seconds,
        page=f"{out.shown.rstrip('/')}/index.html",
    )


def cores() -> int:
    """Return how many processes this machine can run at once."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


__all__ = ["Archive", "Summary", "cores", "list_archive", "run_batch"]
