"""From the index to the pages that people look at first."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from trace_analyzer import __version__
from trace_analyzer.archive import (
    ArchivePage,
    ArchiveRun,
    CauseCount,
    JobHistory,
    JobRun,
    Totals,
)

_ON_ONE_PAGE = 2000
_A_PAGE = 1000
_MOST_JOBS = 50
_MOST_JOB_RUNS = 200
# The largest gain first; then causes of unknown gain, runs without one, not judged, failed.
_ORDER = """CASE WHEN state = 'failed' THEN 4 WHEN state = 'no-verdict' THEN 3
    WHEN cause IS NULL THEN 2 WHEN recoverable_ms IS NULL THEN 1 ELSE 0 END,
    recoverable_ms DESC, name"""
_COLUMNS = """name, report, state, reason, present, world_size, recorded_ranks, gpu, step_ms, step_basis,
    steps_ms, cause, cause_kind, cause_name, cause_ranks, recoverable_ms, recoverable_low_ms,
    recoverable_high_ms, warning_codes, job, "commit", started"""


def pages(connection: sqlite3.Connection, title: str) -> Iterator[tuple[str, ArchivePage]]:
    """Yield file names and pages; only one page is in memory at a time."""
    totals = _totals(connection)
    count = totals.runs + totals.gone
    size = count if count <= _ON_ONE_PAGE else _A_PAGE
    numbers = range(1, max(-(-count // size), 1) + 1) if size else range(1, 2)
    names = tuple("index.html" if n == 1 else f"index-{n}.html" for n in numbers)
    jobs, more_jobs = _jobs(connection)
    for number in numbers:
        first = number == 1
        yield (
            names[number - 1],
            ArchivePage(
                title=title,
                version=__version__,
                number=number,
                pages=names,
                totals=totals,
                runs=_runs(
                    connection, f"ORDER BY {_ORDER} LIMIT ? OFFSET ?", size, (number - 1) * size
                ),
                causes=_causes(connection) if first else (),
                jobs=jobs if first else (),
                more_jobs=more_jobs if first else 0,
            ),
        )


def _totals(connection: sqlite3.Connection) -> Totals:
    runs, judged, with_cause, not_judged, failed = connection.execute(
        "SELECT COUNT(*), COALESCE(SUM(state IN ('fault', 'likely', 'nothing')), 0), "
        "COALESCE(SUM(state IN ('fault', 'likely', 'nothing') AND cause IS NOT NULL), 0), "
        "COALESCE(SUM(state = 'no-verdict'), 0), COALESCE(SUM(state = 'failed'), 0) "
        "FROM runs WHERE present"
    ).fetchone()
    gone = connection.execute("SELECT COUNT(*) FROM runs WHERE NOT present").fetchone()[0]
    largest = _runs(
        connection,
        "WHERE present AND recoverable_ms IS NOT NULL ORDER BY recoverable_ms DESC, name LIMIT 1",
    )
    return Totals(
        runs=runs,
        judged=judged,
        with_cause=with_cause,
        not_judged=not_judged,
        failed=failed,
        gone=gone,
        largest=largest[0] if largest else None,
    )


def _runs(
    connection: sqlite3.Connection, clause: str, *arguments: object
) -> tuple[ArchiveRun, ...]:
    rows = connection.execute(f"SELECT {_COLUMNS} FROM runs {clause}", arguments)  # noqa: S608 (ours)
    names = [column[0] for column in rows.description]
    return tuple(_run(dict(zip(names, row, strict=True))) for row in rows)


def _run(row: dict[str, Any]) -> ArchiveRun:
    low, high = row.pop("recoverable_low_ms"), row.pop("recoverable_high_ms")
    world, recorded = row.pop("world_size"), row.pop("recorded_ranks")
    warnings = _list(row.pop("warning_codes"))
    row |= {name: _list(row[name]) for name in ("steps_ms", "cause_ranks")}
    return ArchiveRun(
        **{**row, "present": bool(row["present"])},
        ranks=world or recorded,
        recoverable_interval_ms=None if low is None or high is None else (low, high),
        warnings=warnings,
    )


def _list(text: str) -> tuple[Any, ...]:
    return tuple(msgspec.json.decode(text))


def _causes(connection: sqlite3.Connection) -> tuple[CauseCount, ...]:
    rows = connection.execute(
        "SELECT code, name, kind, runs, main_in_runs, largest_recoverable_ms FROM causes "
        "ORDER BY main_in_runs DESC, runs DESC, code"
    )
    return tuple(
        CauseCount(code=code, name=name, kind=kind, runs=runs, main_in=main_in, largest_ms=largest)
        for code, name, kind, runs, main_in, largest in rows
    )


def _jobs(connection: sqlite3.Connection) -> tuple[tuple[JobHistory, ...], int]:
    """Return the jobs with the most runs, of those with at least two, and how many are left out."""
    found = connection.execute(
        "SELECT job, world_size, gpu, step_basis, COUNT(*) AS runs FROM runs "
        "WHERE present AND job != '' AND started IS NOT NULL AND step_ms IS NOT NULL "
        "GROUP BY job, world_size, gpu, step_basis HAVING runs > 1 ORDER BY runs DESC, job"
    ).fetchall()
    jobs = tuple(_history(connection, *key) for key in found[:_MOST_JOBS])
    return tuple(sorted(jobs, key=lambda job: (job.job, job.ranks))), len(found) - len(jobs)


def _history(
    connection: sqlite3.Connection,
    job: str,
    world_size: int | None,
    gpu: str | None,
    step_basis: str,
    count: int,
) -> JobHistory:
    newest = connection.execute(
        'SELECT name, report, started, "commit", step_ms, state, cause, cause_name FROM runs '
        "WHERE present AND job = ? AND world_size IS ? AND gpu IS ? AND step_basis = ? "
        "AND started IS NOT NULL AND step_ms IS NOT NULL "
        "ORDER BY started DESC, name DESC LIMIT ?",
        (job, world_size, gpu, step_basis, _MOST_JOB_RUNS + 1),
    ).fetchall()
    rows = newest[::-1]
    before = [None, *(row[4] for row in rows)]
    runs = [_job_run(row, step_before) for row, step_before in zip(rows, before, strict=False)]
    shown = runs[-_MOST_JOB_RUNS:]
    return JobHistory(
        job=job,
        ranks=world_size or 0,
        gpu=gpu,
        step_basis=step_basis,
        runs=tuple(shown),
        earlier=count - len(shown),
    )


def _job_run(row: Sequence[Any], before_ms: float | None) -> JobRun:
    name, report, started, commit, step_ms, state, cause, cause_name = row
    return JobRun(
        name=name,
        report=report,
        started=started,
        commit=commit,
        step_ms=step_ms,
        change=step_ms / before_ms - 1.0 if before_ms else None,
        state=state,
        cause=cause,
        cause_name=cause_name,
    )


__all__ = ["pages"]
