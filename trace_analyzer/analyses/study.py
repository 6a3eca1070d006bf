"""Everything that is computed of a run, once: rules and reports read from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trace_analyzer.analyses.contention import Contention, contention
from trace_analyzer.analyses.cross_rank import CrossRank, cross_rank
from trace_analyzer.analyses.hang_facts import HangReport
from trace_analyzer.analyses.hangs import find_hangs
from trace_analyzer.analyses.idle import Gaps, IdleParts, find_gaps, idle_parts
from trace_analyzer.analyses.kernel_table import KernelRow, kernel_table
from trace_analyzer.analyses.late_ranks import LateRank, late_ranks
from trace_analyzer.analyses.nccl_table import CollectiveRow, nccl_table
from trace_analyzer.analyses.partition import Busy, Partition, busy, partition, partition_window
from trace_analyzer.analyses.steady import Steady, run_step_ns, steady_steps
from trace_analyzer.analyses.steps import DeviceSteps, device_steps
from trace_analyzer.model import Rank, Run
from trace_analyzer.schema import BoolArray


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """What a user may set about the steps."""

    step_range: str | None = None
    steps: tuple[int, int] | None = None  # first and last step number to use


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankStudy:
    """The results of one rank that has GPU operations."""

    rank: Rank
    steps: DeviceSteps
    steady: BoolArray  # one entry a step
    busy: Busy
    window: Partition  # one row
    parts: Partition  # one row a step
    gaps: Gaps
    idle: IdleParts  # one row a step


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Study:
    """The results of a run. `ranks` holds only those with GPU operations."""

    run: Run
    options: StudyOptions
    ranks: Mapping[int, RankStudy]
    steady: Steady
    step_ns: float | None  # T: maximum over ranks of the median steady step
    step_mean_ns: float | None
    kernels: list[KernelRow]
    collectives: list[CollectiveRow]
    cross: CrossRank | None  # None with fewer than two ranks that communicate
    late: list[LateRank]
    contention: Contention
    hangs: HangReport | None  # None without a Flight Recorder dump


def study(run: Run, options: StudyOptions | None = None) -> Study:
    """Analyse a run."""
    options = options or StudyOptions()
    steps: dict[int, DeviceSteps] = {}
    work: dict[int, Busy] = {}
    for rank in run.ranks:
        found = device_steps(rank, options.step_range)
        if found is not None:
            steps[rank.rank] = found
            work[rank.rank] = busy(rank)
    steady = steady_steps(steps, options.steps)
    step_ns, mean_ns = run_step_ns(steps, steady)
    ranks = {
        rank.rank: _study_rank(rank, steps[rank.rank], work[rank.rank], steady)
        for rank in run.ranks
        if rank.rank in steps
    }
    recorded = {number: item.rank for number, item in ranks.items()}
    cross = cross_rank(recorded, steps, work, run.flight)
    return Study(
        run=run,
        options=options,
        ranks=ranks,
        steady=steady,
        step_ns=step_ns,
        step_mean_ns=mean_ns,
        kernels=kernel_table(run, steps, steady.mask),
        collectives=nccl_table(run, work, steps, steady.mask),
        cross=cross,
        late=[] if cross is None else _late(cross, ranks),
        contention=contention(recorded, steps, work),
        hangs=find_hangs(run.flight) if run.flight else None,
    )


def _late(cross: CrossRank, ranks: Mapping[int, RankStudy]) -> list[LateRank]:
    return late_ranks(
        cross,
        {number: (item.steps, item.steady, item.busy, item.gaps) for number, item in ranks.items()},
    )


def _study_rank(rank: Rank, steps: DeviceSteps, work: Busy, steady: Steady) -> RankStudy:
    since = int(steps.start_ns[0]) if steps.partial else None
    gaps = find_gaps(rank, work, since)
    return RankStudy(
        rank=rank,
        steps=steps,
        steady=steady.mask[rank.rank],
        busy=work,
        window=partition_window(work, steps.window_start_ns, steps.window_end_ns),
        parts=partition(work, steps.start_ns, steps.end_ns),
        gaps=gaps,
        idle=idle_parts(gaps, steps.start_ns, steps.end_ns),
    )
