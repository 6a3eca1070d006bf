"""A batch from its beginning to its end: what is to be done, done, and put into the index."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from trace_analyzer import __version__
from trace_analyzer.batch.executors import Pool, cluster_pool, is_lost_worker, local_pool
from trace_analyzer.batch.failed import failed_unit
from trace_analyzer.batch.index import FinishedUnit, Index
from trace_analyzer.batch.isolate import StoppedError
from trace_analyzer.batch.output import Output
from trace_analyzer.batch.tasks import (
    Failure,
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
from trace_analyzer.batch.units import Unit
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
        self._waiting: deque[_Job] = deque()
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
                job = self._waiting.popleft() if self._waiting else self._first(coming)
                if job is None:
                    break
                self._running[self._pool.submit(job.task)] = job
            if not self._running:
                return
            done, _ = wait(self._running, timeout=_WAIT_S, return_when=FIRST_COMPLETED)
            self._take([(self._running.pop(future), future) for future in done])
            self._output.upload()
            progress(self.tally)

    def _first(self, coming: Iterable[Unit]) -> _Job | None:
        unit = next(iter(coming), None)
        return None if unit is None else _Job(_Open(unit), self._task(unit))

    def _task(self, unit: Unit, run: RunFound | None = None) -> Task:
        settings = self._settings
        known = self._index.known(unit.name, retry=settings.retry_failed, version=settings.version)
        files = unit.files
        if run is not None:
            wanted = {f"{unit.name}/{name}".lstrip("/") for name in run.files}
            # A member of an archive stands for its archive.
            wanted |= {str(above) for name in wanted for above in Path(name).parents}
            files = tuple(file for file in files if file.name in wanted)
        return Task(
            archive=settings.archive,
            out=settings.out,
            unit=unit.name,
            kind=unit.kind,
            files=[TaskFile(file.name, file.bytes) for file in files],
            limits=Limits(
                time_s=settings.time_s, memory_bytes=settings.memory_bytes, share=self._pool.share
            ),
            only=None if run is None else run.name,
            known=known,
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
                self._waiting.extend(
                    _Job(unit, self._task(unit.unit, run.found), run.found) for run in left
                )
                self.tally.tasks += len(left)
            else:
                unit.left -= 1
            if not unit.left:
                finished.append(
                    FinishedUnit(
                        unit.unit.name, unit.unit.fingerprint, tuple(unit.runs), unit.nothing
                    )
                )
            runs += [_of_content(run, job.run) for run in result.runs if run.rows is not None]
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
    """Return a result with the run's content, where its process died before it could say."""
    if found is None or result.rows is None or result.rows.run.digest:
        return result
    run = msgspec.structs.replace(result.rows.run, digest=found.digest)
    return msgspec.structs.replace(result, rows=msgspec.structs.replace(result.rows, run=run))


def todo(units: Iterable[Unit], index: Index, settings: Settings) -> list[Unit]:
    """Return the units that have changed since the index was written, or have runs to try again."""
    stored = index.fingerprints()
    again = index.unfinished_units(retry=settings.retry_failed, version=settings.version)
    return [unit for unit in units if _has_work(unit, stored, again)]


def _has_work(unit: Unit, stored: dict[str, str], again: set[str]) -> bool:
    key = run_id(shown(unit.name))
    return key in again or not unit.fingerprint or stored.get(key) != unit.fingerprint


__all__ = ["Batch", "Progress", "Settings", "Tally", "pool_of", "todo"]
