"""What the index page of an archive shows: plain data, already ordered and counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRun:
    """One row of the table. `report` is relative to the page, empty where there is none.

    Times are ms a step; None is unknown. `step_basis` says what `step_ms` is: measured, given or
    predicted without a profiler, or profiled.
    """

    name: str
    report: str
    state: Literal["fault", "likely", "nothing", "no-verdict", "failed"]
    reason: str
    present: bool
    ranks: int
    gpu: str | None
    step_ms: float | None
    step_basis: str
    steps_ms: tuple[float, ...]
    cause: str | None
    cause_kind: str | None
    cause_name: str
    cause_ranks: tuple[int, ...]
    recoverable_ms: float | None
    recoverable_interval_ms: tuple[float, float] | None
    warnings: tuple[str, ...]
    job: str
    commit: str
    started: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseCount:
    """How often a cause was found in the archive; gains are ms a step of single runs."""

    code: str
    name: str
    kind: str
    runs: int
    main_in: int
    largest_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """One run of a job. `change` is its step over that of the run before, less 1."""

    name: str
    report: str
    started: str
    commit: str
    step_ms: float
    change: float | None
    state: str
    cause: str | None
    cause_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHistory:
    """The runs of one job on the same number and kind of GPUs, in order of time.

    `earlier` runs before the first one shown are left out.
    """

    job: str
    ranks: int
    gpu: str | None
    step_basis: str
    runs: tuple[JobRun, ...]
    earlier: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counts over the whole archive. `judged` runs have a verdict; `gone` ones were there before."""

    runs: int
    judged: int
    with_cause: int
    not_judged: int
    failed: int
    gone: int
    largest: ArchiveRun | None  # by gain


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePage:
    """One page of the index; `pages` are the file names of all, in order."""

    title: str
    version: str
    number: int  # from 1
    pages: tuple[str, ...]
    totals: Totals
    runs: tuple[ArchiveRun, ...]
    causes: tuple[CauseCount, ...] = ()
    jobs: tuple[JobHistory, ...] = ()
    more_jobs: int = 0


__all__ = [
    "ArchivePage",
    "ArchiveRun",
    "CauseCount",
    "JobHistory",
    "JobRun",
    "Totals",
]
