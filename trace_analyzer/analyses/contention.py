"""How much slower kernels run while a communication kernel is resident on their device.

The same kernel (name, launch shape, position in the step) is compared with and without one. A
resident NCCL kernel takes its share of the device also while it only waits for a peer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.partition import Busy
from trace_analyzer.analyses.runs import place_in_run
from trace_analyzer.analyses.steps import DeviceSteps
from trace_analyzer.kernels import category
from trace_analyzer.model import Rank
from trace_analyzer.schema import BoolArray, Float64Array, Int64Array, widened
from trace_analyzer.tables import OperationKind, WorkClass

# Shares of a kernel's time from which it counts as run beside communication, or alone.
BESIDE, ALONE = 0.98, 0.02
# Pairs of the same kernel beside and alone below which no factor is given.
LEAST_PAIRS = 5
# Steps that have this share of launches in common do the same work; a library's choice of kernels
# differs in few. With another batch size most element-wise launches are of another size.
LEAST_ALIKE = 0.9
MOST_KINDS = 32
MATRIX_CLASSES = frozenset({"matmul", "attention", "convolution"})
CLASSES = ("matrix", "other")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """Slow-down of kernels beside communication, by class.

    `alpha[class]` is the added share: a kernel takes 1 + alpha times as long while communication
    is resident; None where too few kernels were seen both ways. `pairs` counts those.
    """

    alpha: Mapping[str, float | None]
    pairs: Mapping[str, int]


def resident_share(rank: Rank, work: Busy) -> Float64Array:
    """Return, for each GPU operation, the share of its time in which communication is resident."""
    operations = rank.operations
    duration = np.maximum(operations.end_ns - operations.start_ns, 1)
    beside = intervals.coverage(work.comm, operations.start_ns, operations.end_ns)
    share: Float64Array = beside / duration
    return share


def matrix_names(rank: Rank) -> BoolArray:
    """Return, for each name of a rank, whether it is a matrix product of some kind."""
    return np.fromiter(
        (category(name) in MATRIX_CLASSES for name in rank.names),
        dtype=np.bool_,
        count=len(rank.names),
    )


def position_in_step(codes: Int64Array, steps: Int64Array) -> Int64Array:
    """Return how many operations of the same code came before in the same step; in order of time."""
    order = np.lexsort((np.arange(len(codes)), codes, steps))
    position = np.empty(len(codes), dtype=np.int64)
    position[order] = place_in_run(steps[order], codes[order])
    return position


def contention(
    ranks: Mapping[int, Rank], steps: Mapping[int, DeviceSteps], work: Mapping[int, Busy]
) -> Contention:
    """Return the slow-down of a run, from all ranks and steps together.

    A factor is the ratio of the summed median durations of the kernels that were seen both ways,
    so that long kernels, which matter, determine it. Where only ranks or steps of another size saw
    them alone, those are scaled by what the same kernels take alone on both sides.
    """
    texts: dict[tuple[str, int, int], int] = {}
    codes_of: list[Int64Array] = []
    steps_of: list[Int64Array] = []
    durations: list[Int64Array] = []
    shares: list[Float64Array] = []
    matrices: list[BoolArray] = []
    for number, rank in ranks.items():
        operations = rank.operations
        rows = np.flatnonzero(
            (operations.kind == OperationKind.KERNEL)
            & (operations.work == WorkClass.COMPUTE)
            & (steps[number].operation_step >= 0)
        )
        config = widened(operations.launch_config[rows])
        pairs, inverse = np.unique(
            np.stack([operations.name[rows], config]), axis=1, return_inverse=True
        )
        shape = rank.configs
        codes = np.array(
            [
                texts.setdefault(
                    (
                        rank.names[name],
                        int(shape.grid_x[row]) if row >= 0 else 0,
                        int(shape.block_x[row]) if row >= 0 else 0,
                    ),
                    len(texts),
                )
                for name, row in pairs.T.tolist()
            ],
            dtype=np.int64,
        )[inverse.reshape(-1)]
        codes_of.append(codes)
        steps_of.append(steps[number].operation_step[rows].astype(np.int64))
        durations.append((operations.end_ns - operations.start_ns)[rows])
        shares.append(resident_share(rank, work[number])[rows])
        matrices.append(matrix_names(rank)[operations.name[rows]])
    if not codes_of:
        return Contention(alpha=dict.fromkeys(CLASSES), pairs=dict.fromkeys(CLASSES, 0))
    kind, place = _places(codes_of, steps_of)
    duration = np.concatenate(durations)
    share, matrix = np.concatenate(shares), np.concatenate(matrices)
    alpha: dict[str, float | None] = {}
    counts: dict[str, int] = {}
    for name, chosen in zip(CLASSES, (matrix, np.logical_not(matrix)), strict=True):
        alpha[name], counts[name] = _factor(
            kind[chosen], place[chosen], duration[chosen], share[chosen]
        )
    return Contention(alpha=alpha, pairs=counts)


def _places(codes: list[Int64Array], steps: list[Int64Array]) -> tuple[Int64Array, Int64Array]:
    """Return for each kernel a number of its step's work, and one of its place in the step.

    `codes` and `steps` are those of each rank's kernels. A rank that launches a kernel more often
    has others at the same places, and one with larger tensors computes more in a launch that looks
    alike (a kernel with one block a multiprocessor, a sum over rows): only where both numbers are
    equal is it surely the same.
    """
    first = np.cumsum([0, *(int(step.max(initial=-1)) + 1 for step in steps)])
    code = np.concatenate(codes)
    step = np.concatenate([own + first[rank] for rank, own in enumerate(steps)])
    width = int(code.max(initial=-1)) + 1
    table = np.bincount(step * width + code, minlength=int(first[-1]) * width)
    table = table.reshape(int(first[-1]), width).astype(np.int64)
    count, place = table[step, code], position_in_step(code, step)
    most = int(count.max(initial=0)) + 1
    return _alike(table)[step], (code * most + count) * most + place


def _alike(table: Int64Array) -> Int64Array:
    """Return a number for each step, equal for steps of the same work.

    `table[step, code]` counts launches. A step that has all launches of another and some besides
    does the same work there. Steps beyond so many kinds of work are like none.
    """
    # Rows are told apart by a sum with random weights: sorting whole rows takes long.
    weights = np.random.default_rng(0).integers(1, 1 << 62, table.shape[1])
    _, first, kind = np.unique(table @ weights, return_index=True, return_inverse=True)
    kinds = table[first]
    total = kinds.sum(axis=1)
    leaders: list[int] = []
    number = np.arange(len(kinds), dtype=np.int64) + MOST_KINDS
    for row in np.argsort(total, kind="stable").tolist():
        common = np.minimum(kinds[leaders], kinds[row]).sum(axis=1)
        near = np.flatnonzero(common >= LEAST_ALIKE * total[leaders])
        if len(near):
            number[row] = near[0]
        elif len(leaders) < MOST_KINDS:
            number[row] = len(leaders)
            leaders.append(row)
    found: Int64Array = number[kind.reshape(-1)]
    return found


def _factor(
    kind: Int64Array, place: Int64Array, duration: Int64Array, share: Float64Array
) -> tuple[float | None, int]:
    width = int(place.max(initial=0)) + 1
    beside = _medians((kind * width + place)[share >= BESIDE], duration[share >= BESIDE])
    alone = _medians((kind * width + place)[share <= ALONE], duration[share <= ALONE])
    left, right = _common(beside[0], alone[0])
    if len(left) < LEAST_PAIRS:
        return _scaled(beside, alone, width, len(left))
    ratio = float(beside[1][left].sum() / max(float(alone[1][right].sum()), 1.0))
    return max(ratio - 1.0, 0.0), len(left)


def _scaled(
    beside: tuple[Int64Array, Float64Array],
    alone: tuple[Int64Array, Float64Array],
    width: int,
    few: int,
) -> tuple[float | None, int]:
    """Return the factor of the work that was beside longest, against the most like other work.

    Keys are work times `width` plus place. By how much the other's kernels take longer where both
    are alone, so much less they would take beside with this work.
    """
    own = beside[0] // width
    if not len(own):
        return None, few
    number = int(np.argmax(np.bincount(own, weights=beside[1])))
    slowed = beside[0][own == number] % width, beside[1][own == number]
    mine = alone[0] // width == number
    best: tuple[float | None, int] = None, few
    for other in np.unique(alone[0][~mine] // width).tolist():
        theirs = alone[0] // width == other
        free = alone[0][theirs] % width, alone[1][theirs]
        same, there = _common(alone[0][mine] % width, free[0])
        left, right = _common(slowed[0], free[0])
        if min(len(same), len(left)) < max(LEAST_PAIRS, best[1] + 1):
            continue
        larger = float(free[1][there].sum() / max(float(alone[1][mine][same].sum()), 1.0))
        ratio = larger * float(slowed[1][left].sum() / max(float(free[1][right].sum()), 1.0))
        best = max(ratio - 1.0, 0.0), len(left)
    return best


def _common(one: Int64Array, other: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return where the numbers that both have stand in each."""
    _, left, right = np.intersect1d(one, other, assume_unique=True, return_indices=True)
    return left, right


def _medians(key: Int64Array, values: Int64Array) -> tuple[Int64Array, Float64Array]:
    """Return the distinct keys and the (lower) median of each one's values."""
    if len(key) == 0:
        return key, np.empty(0, dtype=np.float64)
    order = np.lexsort((values, key))
    key, values = key[order], values[order]
    distinct, first, count = np.unique(key, return_index=True, return_counts=True)
    return distinct, values[first + (count - 1) // 2].astype(np.float64)
