"""What a step of a run is made of, for comparing it with a step of another number of ranks.

One rank stands for the run: the one that waits least for its peers. What makes the job slow shows in
its own parts, where the others show only that they wait. Parts are means over steady steps and sum
to the rank's mean step.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.contention import matrix_names
from trace_analyzer.analyses.study import RankStudy, Study
from trace_analyzer.schema import Float64Array, Int64Array, is_na
from trace_analyzer.tables import OperationKind, WorkClass

_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Parts of one rank's mean step, in ms; they sum to the step.

    `kernels` is compute as if no communication ran beside it; `beside_transfer` and `beside_wait`
    is what communication adds to it while it moves data and while it waits. `unsplit` is exposed
    communication of which waiting and moving are not told apart. `gaps` are hand-over between
    operations and other idle time that no late launch explains; `host` is idle time before late
    launches.
    """

    kernels: float
    beside_transfer: float
    beside_wait: float
    transfer: float
    wait: float
    unsplit: float
    copies: float
    gaps: float
    host: float

    @property
    def step_ms(self) -> float:
        """Sum of the parts."""
        return float(sum(getattr(self, item.name) for item in fields(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """The parts of the rank that stands for a run; `contention_known` says whether it was measured."""

    rank: int
    parts: Parts
    contention_known: bool
    communicates: bool


def run_parts(study: Study) -> RunParts | None:
    """Return the parts of a run; None where no steady step was recorded."""
    found = {
        number: _rank_parts(study, item)
        for number, item in study.ranks.items()
        if bool(item.steady.any())
    }
    if not found:
        return None

    def standing(number: int) -> tuple[float, float, int]:
        parts = found[number]
        return (parts.wait + parts.beside_wait, -parts.step_ms, number)

    rank = min(found, key=standing)
    communicates = len(study.ranks[rank].busy.comm) > 0
    return RunParts(
        rank=rank,
        parts=found[rank],
        contention_known=not communicates or _alpha_known(study),
        communicates=communicates,
    )


def _alpha_known(study: Study) -> bool:
    return any(value is not None for value in study.contention.alpha.values())


def _rank_parts(study: Study, item: RankStudy) -> Parts:
    chosen = item.steady
    count = int(chosen.sum())

    def mean(values: Int64Array) -> float:
        return int(values[chosen].sum()) / count / _NS_PER_MS

    split = None if study.cross is None else study.cross.ranks[item.rank.rank]
    compute = mean(item.parts.compute_ns)
    beside_transfer, beside_wait = (share / _NS_PER_MS for share in _contention_ns(study, item))
    transfer = wait = 0.0
    unsplit = mean(item.parts.comm_exposed_ns)
    if split is not None and split.matched > 0:
        transfer, wait = mean(split.exposed_transfer_ns), mean(split.exposed_wait_ns)
        unsplit = mean(split.exposed_unsplit_ns)
    return Parts(
        kernels=compute - beside_transfer - beside_wait,
        beside_transfer=beside_transfer,
        beside_wait=beside_wait,
        transfer=transfer,
        wait=wait,
        unsplit=unsplit,
        copies=mean(item.parts.copy_exposed_ns),
        gaps=mean(item.idle.latency_ns) + mean(item.idle.other_ns),
        host=mean(item.idle.launch_ns),
    )


def _contention_ns(study: Study, item: RankStudy) -> tuple[float, float]:
    """Return what communication adds to compute a steady step: while moving data, while waiting.

    A kernel of which communication covers the share f takes 1 + alpha f times its own time. Where
    kernels overlap each other, the sum is scaled down to their union.
    """
    operations, steps = item.rank.operations, item.steps
    row = np.searchsorted(steps.start_ns, operations.start_ns, side="right") - 1
    inside = (row >= 0) & (operations.start_ns < steps.end_ns[np.maximum(row, 0)])
    kernels = np.flatnonzero(
        (operations.kind == OperationKind.KERNEL)
        & (operations.work == WorkClass.COMPUTE)
        & inside
        & item.steady[np.maximum(row, 0)]
    )
    if len(kernels) == 0:
        return 0.0, 0.0
    start, end = operations.start_ns[kernels], operations.end_ns[kernels]
    duration: Float64Array = np.maximum(end - start, 1).astype(np.float64)
    matrix = matrix_names(item.rank)[operations.name[kernels]]
    known = study.contention.alpha
    alpha = np.where(matrix, known["matrix"] or 0.0, known["other"] or 0.0)
    beside = intervals.coverage(item.busy.comm, start, end) / duration
    moving = intervals.coverage(_moving(study, item), start, end) / duration
    added = duration * alpha / (1.0 + alpha * beside)  # times a share gives that share's part
    count = int(item.steady.sum())
    union = float(item.parts.compute_ns[item.steady].sum())
    scale = min(union / float(duration.sum()), 1.0) / count
    return (
        float((added * moving).sum()) * scale,
        float((added * np.maximum(beside - moving, 0.0)).sum()) * scale,
    )


def _moving(study: Study, item: RankStudy) -> intervals.Intervals:
    """Return when the rank's communication moves data; what is not matched counts as moving."""
    operations = item.rank.operations
    rows = np.flatnonzero(operations.work == WorkClass.COMM)
    start, end = operations.start_ns[rows], operations.end_ns[rows]
    if study.cross is not None:
        change = study.cross.ranks[item.rank.rank].transfer_start_ns[rows]
        start = np.where(is_na(change), start, change)
    return intervals.union(start, end)
