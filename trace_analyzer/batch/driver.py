"""A batch from its beginning to its end: what is to be done, done, and put into the index."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import msgspec

from trace_analyzer import __version__
from trace_analyzer.batch.contents import inside
from trace_analyzer.batch.executors import Pool, cluster_pool, is_lost_worker, local_pool
from trace_analyzer.batch.failed import failed_unit
from trace_analyzer.batch.index import FinishedUnit, Index
from trace_analyzer.batch.isolate import StoppedError
from trace_analyzer.batch.output import Output
from trace_analyzer.batch.tasks import (
    Failure,
    Known,
    Limits,
    RunFound,
    RunResult,
    Sealed,
    Task,
    TaskFile,
    UnitResult,
    opened,
    run_id,
    shown,
)
from trace_analyzer.batch.units import ListedFile, Unit
from trace_analyzer.errors import TraceAnalyzerError

_WAIT_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a user asks of a batch."""

    archive: str
    out: str
    jobs: int | None = None
    scheduler: str | None = None
    retry_failed: bool = False
    refresh: bool = False
    time_s: float | None = None
    memory_bytes: int | None = None

    @property
    def version(self) -> str | None:
        """The only version whose results count, None where any does."""
        return __version__ if self.refresh else None


@dataclass(slots=True)
class Tally:
    """What became of the runs that had work."""

    tasks: int = 0
    tasks_done: int = 0
    analysed: int = 0
    failed: int = 0
    severities: Counter[str] = field(default_factory=Counter)


Progress = Callable[[Tally], None]


def pool_of(settings: Settings, cores: int) -> AbstractContextManager[Pool]:
    """Return where the tasks of a batch run."""
    if settings.scheduler is not None:
        return cluster_pool(settings.scheduler, settings.jobs)
    return local_pool(settings.jobs or cores)


@dataclass(slots=True)
class _Open:
    """A unit under way: its runs, and how many of them are still to come."""

    unit: Unit
    runs: list[str] = field(default_factory=list)
    left: int = 0
    nothing: str = ""
    files: dict[str, ListedFile] = field(default_factory=dict)  # by path inside it, when needed


@dataclass(frozen=True, slots=True)
class _Job:
    """A task, the unit that it belongs to, and its run where that was found before."""

    unit: _Open
    task: Task
    run: RunFound | None = None


class Batch:
    """Hands units to the pool and puts what comes back into the index."""

    def __init__(
        self, settings: Settings, index: Index, output: Output, pool: Pool, tally: Tally
    ) -> None:
        self._settings = settings
        self._index = index
        self._output = output
        self._pool = pool
        self._waiting: deque[tuple[_Open, RunFound]] = deque()
        self._running: dict[Future[Sealed], _Job] = {}
        self.tally = tally

    def run(self, units: Iterable[Unit], count: int, progress: Progress) -> None:
        """Do all that is to be done. `count` is the number of units.

        Raises `TraceAnalyzerError` where the pool or the output is lost; what is done is kept.
        """
        self.tally.tasks = count
        coming = iter(units)
        while True:
            while len(self._running) < self._pool.window:
                job = self._next(coming)
                if job is None:
                    break
                self._running[self._pool.submit(job.task)] = job
            if not self._running:
                return
            done, _ = wait(self._running, timeout=_WAIT_S, return_when=FIRST_COMPLETED)
            self._take([(self._running.pop(future), future) for future in done])
            self._output.upload()
            progress(self.tally)

    def _next(self, coming: Iterator[Unit]) -> _Job | None:
        if self._waiting:
            unit, found = self._waiting.popleft()
            return _Job(unit, self._task_of_run(unit, found), found)
        new = next(coming, None)
        if new is None:
            return None
        settings = self._settings
        known = self._index.known(new.name, retry=settings.retry_failed, version=settings.version)
        return _Job(_Open(new), self._task(new, new.files, known=known))

    def _task_of_run(self, unit: _Open, found: RunFound) -> Task:
        """Return the task of one of several runs of a unit: it gets the files of this run alone."""
        if not unit.files:
            unit.files = {inside(unit.unit.name, file.name): file for file in unit.unit.files}
        names = {place for name in found.files for place in (name, *_above(name))}
        files = [unit.files[name] for name in sorted(names) if name in unit.files]
        return self._task(unit.unit, files, only=found.name)

    def _task(
        self,
        unit: Unit,
        files: Sequence[ListedFile],
        *,
        known: dict[str, Known] | None = None,
        only: str | None = None,
    ) -> Task:
        settings = self._settings
        return Task(
            archive=settings.archive,
            out=settings.out,
            unit=unit.name,
            kind=unit.kind,
            files=[TaskFile(file.name, file.bytes, file.stamp) for file in files],
            limits=Limits(
                time_s=settings.time_s, memory_bytes=settings.memory_bytes, share=self._pool.share
            ),
            only=only,
            known=known or {},
            version=settings.version,
            retry=settings.retry_failed,
        )

    def _take(self, done: Iterable[tuple[_Job, Future[Sealed]]]) -> None:
        runs: list[RunResult] = []
        finished: list[FinishedUnit] = []
        for job, future in done:
            result = self._result(job, future)
            self.tally.tasks_done += 1
            left = [run for run in result.runs if run.rows is None and not run.known]
            unit = job.unit
            if job.task.only is None:
                unit.runs = [run.found.id for run in result.runs]
                unit.left = len(left)
                unit.nothing = result.nothing
                self._waiting.extend((unit, run.found) for run in left)
                self.tally.tasks += len(left)
            else:
                unit.left -= 1
            if not unit.left:
                finished.append(
                    FinishedUnit(
                        unit.unit.name, unit.unit.fingerprint, tuple(unit.runs), unit.nothing
                    )
                )
            runs += [_of_content(run, job.run) for run in result.runs if run.known or run.rows]
            self._note(job, result)
        if runs or finished:
            self._index.write(runs, finished)

    def _result(self, job: _Job, future: Future[Sealed]) -> UnitResult:
        try:
            result = opened(future.result(), UnitResult)
        except (CancelledError, StoppedError) as error:
            raise TraceAnalyzerError(
                f"the scheduler {self._settings.scheduler} is gone; what is done is kept: give the "
                "same command again to go on"
            ) from error
        except Exception as error:
            if is_lost_worker(error):
                reason = "the workers that had it died, one after the other; give them more memory"
                failed = failed_unit(job.task, Failure.KILLED, reason)
                return UnitResult(version=__version__, runs=[failed])
            raise TraceAnalyzerError(
                f"a worker cannot do its work: {type(error).__name__}: {error}; it needs "
                f"trace-analyzer {__version__} and the packages of this machine"
            ) from error
        if result.version != __version__:
            raise TraceAnalyzerError(
                f"a worker has trace-analyzer {result.version}, this is {__version__}; "
                "install the same version everywhere"
            )
        return result

    def _note(self, job: _Job, result: UnitResult) -> None:
        if result.nothing:
            self._output.log("nothing", unit=shown(job.unit.unit.name), reason=result.nothing)
        for run in result.runs:
            if run.rows is None:
                continue
            row = run.rows.run
            self.tally.analysed += 1
            self.tally.failed += row.state == "failed"
            if row.severity:
                self.tally.severities[row.severity] += 1
            facts = {
                "run": row.name,
                "state": row.state,
                "cause": row.cause,
                "seconds": round(run.seconds, 3),
                "peak_bytes": run.peak_bytes,
                "attempts": run.attempts,
            }
            if row.failure:
                facts |= {"failure": row.failure, "reason": row.reason, "detail": run.detail}
            self._output.log("kept" if run.kept else "run", **facts)


def _of_content(result: RunResult, found: RunFound | None) -> RunResult:
    """Return a result with the fingerprint that the run had when it was found.

    Where its process died before it could say what it holds, a run is the same by this alone.
    """
    if found is None or result.found.fingerprint:
        return result
    named = msgspec.structs.replace(result.found, fingerprint=found.fingerprint)
    return msgspec.structs.replace(result, found=named)


def _above(name: str) -> Iterator[str]:
    """Yield the places above a file: a member of an archive comes with its archive."""
    return (above.as_posix() for above in PurePosixPath(name).parents)


def todo(units: Iterable[Unit], index: Index, settings: Settings) -> list[Unit]:
    """Return the units that have changed since the index was written, or have runs to try again."""
    stored = index.fingerprints()
    again = index.unfinished_units(retry=settings.retry_failed, version=settings.version)
    return [unit for unit in units if _has_work(unit, stored, again)]


def _has_work(unit: Unit, stored: dict[str, str], again: set[str]) -> bool:
    key = run_id(shown(unit.name))
    return key in again or not unit.fingerprint or stored.get(key) != unit.fingerprint


__all__ = ["Batch", "Progress", "Settings", "Tally", "pool_of", "todo"]
