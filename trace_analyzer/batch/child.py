"""The process that opens a unit and analyses its run.

`isolate` starts it, with a task as the first line on its standard input, and reads the result from
a file. What it finds wrong with a run it returns; what it dies of, `isolate` sees.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path

from trace_analyzer import __version__
from trace_analyzer.batch.confine import confine, peak_bytes
from trace_analyzer.batch.contents import Contents, NothingInsideError, find, hashed, open_unit
from trace_analyzer.batch.failed import failed_rows, failed_unit, lacks_memory, no_memory
from trace_analyzer.batch.kept import keep, kept_rows
from trace_analyzer.batch.report_rows import rows_of
from trace_analyzer.batch.rows import RunRow, RunRows
from trace_analyzer.batch.storage import Place, StorageError, place
from trace_analyzer.batch.tasks import (
    PASSING,
    Failure,
    Limits,
    RunFound,
    RunResult,
    Sealed,
    Task,
    UnitResult,
    opened,
    run_folder,
    shown,
)
from trace_analyzer.errors import TraceAnalyzerError, UnreadableInputError
from trace_analyzer.readers.loading import NO_MEMORY
from trace_analyzer.readers.workspace import Workspace


def main(result: str) -> None:
    """Read a task from standard input, carry it out, and write its result into a file."""
    task = opened(sys.stdin.buffer.readline(), Task)
    confine(task.limits, sys.stdin.buffer)
    done = perform(task, Path(result).parent)
    unfinished = Path(f"{result}.unfinished")
    unfinished.write_bytes(Sealed.of(done))
    unfinished.replace(result)
    # Nothing is left to be done, and a large heap takes a second to take apart.
    os._exit(0)


def perform(task: Task, scratch: Path) -> UnitResult:
    """Carry out a task; `scratch` is for what is fetched and unpacked. Raises nothing."""
    started_s = time.monotonic()
    runs: list[RunResult] = []
    nothing = ""
    with Workspace() as workspace:
        try:
            found = find(task, open_unit(task, scratch, workspace))
            runs = _results(task, found, workspace)
        except NothingInsideError as error:
            nothing = str(error)
        except Exception as error:  # noqa: BLE001 (a bad unit never stops the rest)
            runs = [_failed_unit(task, error)]
    seconds = time.monotonic() - started_s
    return UnitResult(version=__version__, runs=runs, nothing=nothing, seconds=seconds)


def _results(task: Task, found: list[Contents], workspace: Workspace) -> list[RunResult]:
    if task.list_only:
        return [RunResult(found=item.found) for item in found]
    known: list[Contents] = []
    left: list[Contents] = []
    for item in found:
        stored = task.known.get(item.found.id)
        if stored is None:
            left.append(item)
        elif stored.fingerprint and stored.fingerprint == item.found.fingerprint:
            known.append(item)
        else:
            now = hashed(item)  # its files were touched: are they other ones?
            (known if now.found.digest == stored.digest else left).append(now)
    results = [RunResult(found=item.found, known=True) for item in known]
    if len(left) != 1:
        return results + [RunResult(found=item.found) for item in left]
    one = left[0] if left[0].found.digest else hashed(left[0])
    return [*results, _result(task, one, workspace)]


def _result(task: Task, item: Contents, workspace: Workspace) -> RunResult:
    started_s = time.monotonic()
    out = place(task.out)
    run = _run_row(task, item)
    detail, rows = "", None
    try:
        rows = kept_rows(out, item.found, version=task.version, failures=not task.retry)
        was_kept = rows is not None
        if rows is None:
            rows = _analysed(item, run, out, workspace)
    except Exception as error:  # noqa: BLE001 (a bad run never stops the rest)
        failure, reason, detail = explain(error, task.limits)
        was_kept = False
        rows = failed_rows(run, failure, reason, item.rows)
        if failure not in PASSING:
            _keep_failure(out, item.found, rows)
    return RunResult(
        found=item.found,
        rows=rows,
        kept=was_kept,
        seconds=time.monotonic() - started_s,
        peak_bytes=peak_bytes(),
        detail=detail,
    )


def _analysed(item: Contents, run: RunRow, out: Place, workspace: Workspace) -> RunRows:
    from trace_analyzer.assembly import Options
    from trace_analyzer.assembly.report import analyse, build_report
    from trace_analyzer.assembly.timeline import build_timeline
    from trace_analyzer.readers.discovery import open_files
    from trace_analyzer.reports import html, json

    recorded = open_files(item.run, jobs=1, workspace=workspace)
    if any(NO_MEMORY in warning.message for warning in recorded.warnings):
        raise MemoryError  # a run without the ranks that did not fit would be another run
    options = Options()
    studied = analyse(recorded, options)
    report = build_report(recorded, options, studied=studied)
    page = html.render(report, timeline=build_timeline(studied, redact=False))
    folder = run_folder(item.found.name)
    out.write(f"{folder}/report.json", json.render(report))
    out.write(f"{folder}/report.html", page.encode(errors="replace"))
    rows = rows_of(report, run, item.rows)
    keep(out, item.found, rows)
    return rows


def _keep_failure(out: Place, found: RunFound, rows: RunRows) -> None:
    try:
        for name in ("report.html", "report.json"):
            out.remove(f"{run_folder(found.name)}/{name}")
        keep(out, found, rows)
    except StorageError:
        return  # the failure is recorded in the index all the same


def _run_row(task: Task, item: Contents) -> RunRow:
    manifest = item.run.manifest
    return RunRow(
        id=item.found.id,
        name=shown(item.found.name),
        unit=shown(task.unit),
        state="failed",
        title=shown(item.run.title),
        report=f"{run_folder(item.found.name)}/report.html",
        job=manifest.job_name if manifest else "",
        job_id=manifest.job_id if manifest else "",
        commit=manifest.commit if manifest else "",
        started=(manifest.started or None) if manifest else None,
        bytes=item.found.bytes,
        digest=item.found.digest,
        tool_version=__version__,
    )


def explain(error: BaseException, limits: Limits) -> tuple[Failure, str, str]:
    """Return the kind of a failure, one line, and what the log should know."""
    line = shown(" ".join(str(error).split()))
    if isinstance(error, MemoryError) or NO_MEMORY in line:
        return Failure.MEMORY, no_memory(limits), ""
    if isinstance(error, StorageError):
        return Failure.UNREACHABLE, line, ""
    if isinstance(error, TraceAnalyzerError):
        unreachable = isinstance(error, UnreadableInputError) and "cannot be fetched" in line
        return Failure.UNREACHABLE if unreachable else Failure.UNREADABLE, line, ""
    detail = "".join(traceback.format_exception(error))
    if isinstance(error, ImportError) and lacks_memory(line):
        return Failure.MEMORY, no_memory(limits), detail
    if isinstance(error, OSError):  # readers say in words of their own what is wrong with a file
        return Failure.UNREACHABLE, line, detail
    return Failure.DEFECT, f"defect in trace-analyzer: {type(error).__name__}: {line}", detail


def _failed_unit(task: Task, error: Exception) -> RunResult:
    failure, reason, detail = explain(error, task.limits)
    return failed_unit(task, failure, reason, detail=detail)


__all__ = ["explain", "main", "perform"]
