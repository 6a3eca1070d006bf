"""How fast one rank's kernels run against the same kernels of its peers, and against its own.

Kernels are compared one by one, in the order of their streams inside a step, where ranks launch the
same ones. A communication kernel that waits takes its share of a device, so that only kernels with
none beside them, on any of the ranks, count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.contention import ALONE, matrix_names, resident_share
from trace_analyzer.analyses.study import RankStudy
from trace_analyzer.analyses.unequal_work import LEAST_LARGER, Work, line_up
from trace_analyzer.schema import BoolArray, Float64Array, Int64Array

# GPUs of one model differ by about 8 % on average in large clusters, by power and cooling (Sinha et
# al., SC 2022); two healthy H200 of one host differed by up to 4 % (measured). Up to that, a rank's
# GPU is as fast as the others.
USUAL_SPREAD = 0.08
# Kernels below this vary by themselves.
LEAST_NS = 20_000
# Below this many compared kernels nothing is said.
LEAST_KERNELS = 20
# No clock and no neighbour on the same multiprocessors makes a kernel take this many times as long;
# waiting while another process has the GPU does.
SEVERAL_TIMES = 2.0
# The median of this many peers stands for all.
MOST_PEERS = 7
# Durations of one kernel over steps, of which this quantile is what it takes undisturbed.
UNDISTURBED = 0.25
LEAST_STEPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much longer a rank's kernels take than the reference does: 1.0 is equally long.

    `overall` is the ratio of sums, `matrix` and `other` that of each class (None with too few
    kernels), `middle` and `highest` the median and the 99th percentile of single kernels.
    """

    kernels: int
    overall: float
    matrix: float | None
    other: float | None
    middle: float
    highest: float

    @property
    def irregular(self) -> bool:
        """Whether some kernels take several times as long and most hardly longer."""
        return self.highest >= SEVERAL_TIMES and self.middle - 1.0 < (self.overall - 1.0) / 3.0

    @property
    def clock(self) -> bool:
        """Whether mathematics is slower and memory is not, as under a lower clock."""
        if self.matrix is None or self.other is None or self.irregular:
            return False
        return self.other - 1.0 < (self.matrix - 1.0) / 2.0


def against_peers(ranks: Mapping[int, RankStudy], work: Mapping[int, Work]) -> dict[int, Pace]:
    """Return each rank's pace against the median of its peers, where enough compares."""
    alone = {rank: _alone(ranks[rank], work[rank]) for rank in work}
    length = {rank: _lengths(ranks[rank], work[rank]) for rank in work}
    found: dict[int, Pace] = {}
    for number, own in work.items():
        peers = _peers(number, list(work))
        reference = np.full((len(peers), len(own.row)), np.nan)
        kept = alone[number].copy()
        for place, peer in enumerate(peers):
            mine, theirs = _same(own, work[peer])
            reference[place, mine] = length[peer][theirs]
            kept[mine] &= alone[peer][theirs]
        kept &= ~np.isnan(reference).all(axis=0)
        if not bool(kept.any()):
            continue
        usual = np.nanmedian(reference[:, kept], axis=0)
        long = usual >= LEAST_NS
        matrix = _matrix(ranks[number], own)[kept][long]
        pace = _pace(length[number][kept][long], usual[long], matrix)
        if pace is not None:
            found[number] = pace
    return found


def _peers(number: int, ranks: list[int]) -> list[int]:
    """Return the ranks to compare with: all others, or some of many, evenly spread."""
    others = [rank for rank in ranks if rank != number]
    if len(others) <= MOST_PEERS:
        return others
    at = np.linspace(0, len(others) - 1, MOST_PEERS).round().astype(np.int64)
    return [others[place] for place in at.tolist()]


def _same(own: Work, other: Work) -> tuple[Int64Array, Int64Array]:
    """Return positions of the kernels that both launch, with the same size, step by step.

    Steps in which one has larger launches are left out: it computes more in the others too, where
    a launch does not show it (a kernel with one block a multiprocessor, a sum over rows).
    """
    left: list[Int64Array] = []
    right: list[Int64Array] = []
    known: dict[tuple[bytes, bytes], tuple[Int64Array, Int64Array]] = {}
    for step in np.intersect1d(own.step, other.step).tolist():
        a, b = own.of_step(step), other.of_step(step)
        key = (own.name[a].tobytes(), other.name[b].tobytes())
        if key not in known:
            known[key] = line_up(own.name[a], other.name[b])
        here, there = known[key]
        mine, theirs = int(own.blocks[a][here].sum()), int(other.blocks[b][there].sum())
        if abs(mine - theirs) >= LEAST_LARGER * theirs:
            continue
        equal = (own.name[a][here] == other.name[b][there]) & (
            own.blocks[a][here] == other.blocks[b][there]
        )
        left.append(here[equal] + a.start)
        right.append(there[equal] + b.start)
    nothing = np.empty(0, dtype=np.int64)
    return np.concatenate([nothing, *left]), np.concatenate([nothing, *right])


def against_itself(item: RankStudy, own: Work) -> tuple[Pace | None, Float64Array]:
    """Return a rank's pace against its own undisturbed kernels, and their durations.

    Undisturbed is a low quantile of what the kernel at the same place of other steps takes. The
    array has one duration for each of the work's kernels; its own where steps do not compare.
    """
    length = _lengths(item, own)
    undisturbed = length.copy()
    steps = np.unique(own.step).tolist()
    parts = [own.of_step(step) for step in steps]
    alike = [part for part in parts if _equal(own, part, parts[-1])]
    if len(alike) < LEAST_STEPS:
        return None, undisturbed
    table = np.stack([length[part] for part in alike])
    quiet = np.quantile(table, UNDISTURBED, axis=0, method="lower")
    alone = np.stack([_alone(item, own)[part] for part in alike])
    for part in alike:
        undisturbed[part] = np.minimum(quiet, length[part])
    matrix = _matrix(item, own)[alike[0]]
    kept = alone.all(axis=0) & (quiet >= LEAST_NS)
    count = len(alike)
    return (
        _pace(
            table[:, kept].ravel(),
            np.tile(quiet[kept], count),
            np.tile(matrix[kept], count),
        ),
        undisturbed,
    )


def _equal(own: Work, one: slice, other: slice) -> bool:
    """Return whether two steps launch the same kernels with the same sizes."""
    return np.array_equal(own.name[one], own.name[other]) and np.array_equal(
        own.blocks[one], own.blocks[other]
    )


def _pace(mine: Float64Array, reference: Float64Array, matrix: BoolArray) -> Pace | None:
    if len(mine) < LEAST_KERNELS:
        return None
    single = mine / reference

    def ratio(chosen: BoolArray) -> float | None:
        if int(chosen.sum()) < LEAST_KERNELS:
            return None
        return float(mine[chosen].sum() / reference[chosen].sum())

    middle, highest = np.quantile(single, [0.5, 0.99])
    return Pace(
        kernels=len(mine),
        overall=float(mine.sum() / reference.sum()),
        matrix=ratio(matrix),
        other=ratio(~matrix),
        middle=float(middle),
        highest=float(highest),
    )


def _lengths(item: RankStudy, own: Work) -> Float64Array:
    operations = item.rank.operations
    found: Float64Array = (operations.end_ns - operations.start_ns)[own.row].astype(np.float64)
    return found


def _matrix(item: RankStudy, own: Work) -> BoolArray:
    found: BoolArray = matrix_names(item.rank)[item.rank.operations.name[own.row]]
    return found


def _alone(item: RankStudy, own: Work) -> BoolArray:
    share: Float64Array = resident_share(item.rank, item.busy)[own.row]
    found: BoolArray = share <= ALONE
    return found


def beside_own(item: RankStudy, own: Work) -> Int64Array:
    """Return the computing kernels (rows) that run while one of another stream does."""
    operations = item.rank.operations
    start, end = operations.start_ns[own.row], operations.end_ns[own.row]
    found = np.zeros(len(own.row), dtype=np.bool_)
    stream = operations.stream[own.row]
    for value in np.unique(stream).tolist():
        here = stream == value
        others = intervals.union(start[~here], end[~here])
        found[here] = intervals.coverage(others, start[here], end[here]) > 0
    return own.row[found]
