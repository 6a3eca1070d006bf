"""What `batch --list` prints: the runs of an archive, found but not analysed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass

from trace_analyzer.batch.driver import Settings, pool_of
from trace_analyzer.batch.index import Index
from trace_analyzer.batch.output import INDEX
from trace_analyzer.batch.storage import place
from trace_analyzer.batch.tasks import (
    Limits,
    RunResult,
    Sealed,
    Task,
    TaskFile,
    UnitResult,
    opened,
    run_id,
    shown,
)
from trace_analyzer.batch.units import Unit
from trace_analyzer.batch.whole import cores, list_archive


@dataclass(frozen=True, slots=True)
class Listed:
    """A run, or a unit without one. `state` is new, done, failed, or nothing."""

    name: str
    state: str
    described: str
    bytes: int


def listed_runs(settings: Settings) -> Iterator[Listed]:
    """Yield the runs of an archive in order of unit. Errors are those of `run_batch`."""
    out = place(settings.out) if settings.out else None
    archive = list_archive(settings.archive, out)
    stored = _stored(settings.out)
    with pool_of(settings, cores()) as pool:
        waiting: deque[tuple[Unit, Future[Sealed]]] = deque()
        limits = Limits(
            time_s=settings.time_s, memory_bytes=settings.memory_bytes, share=pool.share
        )
        for unit in archive.plan.units:
            task = Task(
                archive=archive.place.url,
                out="",
                unit=unit.name,
                kind=unit.kind,
                files=[TaskFile(file.name, file.bytes) for file in unit.files],
                limits=limits,
                list_only=True,
            )
            waiting.append((unit, pool.submit(task)))
            if len(waiting) > pool.window:
                yield from _listed(*waiting.popleft(), stored)
        while waiting:
            yield from _listed(*waiting.popleft(), stored)


def _listed(unit: Unit, future: Future[Sealed], stored: dict[str, str]) -> Iterator[Listed]:
    result = opened(future.result(), UnitResult)
    key = run_id(shown(unit.name))
    done = bool(unit.fingerprint) and stored.get(key) == unit.fingerprint
    if not result.runs:
        yield Listed(shown(unit.name) or ".", "nothing", result.nothing, unit.bytes)
    for run in result.runs:
        yield _row(run, done=done)


def _row(run: RunResult, *, done: bool) -> Listed:
    name = shown(run.found.name) or "."
    if run.rows is not None:  # it could not be opened
        return Listed(name, "failed", run.rows.run.reason, run.found.bytes)
    return Listed(name, "done" if done else "new", shown(run.found.described), run.found.bytes)


def _stored(out: str) -> dict[str, str]:
    """Return unit id → fingerprint of a local output's index, nothing where there is none."""
    where = place(out).path if out else None
    if where is None or not (where / INDEX).exists():
        return {}
    with Index(where / INDEX, out) as index:
        return index.fingerprints()


__all__ = ["Listed", "listed_runs"]
