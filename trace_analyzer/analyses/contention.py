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
    so that long kernels, which matter, determine it.
    """
    texts: dict[tuple[str, int, int], int] = {}
    keys: list[Int64Array] = []
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
        place = position_in_step(codes, steps[number].operation_step[rows].astype(np.int64))
        keys.append(codes * (1 << 32) + place)
        durations.append((operations.end_ns - operations.start_ns)[rows])
        shares.append(resident_share(rank, work[number])[rows])
        matrices.append(matrix_names(rank)[operations.name[rows]])
    if not keys:
        return Contention(alpha=dict.fromkeys(CLASSES), pairs=dict.fromkeys(CLASSES, 0))
    key, duration = np.concatenate(keys), np.concatenate(durations)
    share, matrix = np.concatenate(shares), np.concatenate(matrices)
    alpha: dict[str, float | None] = {}
    counts: dict[str, int] = {}
    for name, chosen in zip(CLASSES, (matrix, np.logical_not(matrix)), strict=True):
        alpha[name], counts[name] = _factor(key[chosen], duration[chosen], share[chosen])
    return Contention(alpha=alpha, pairs=counts)


def _factor(key: Int64Array, duration: Int64Array, share: Float64Array) -> tuple[float | None, int]:
    beside = _medians(key[share >= BESIDE], duration[share >= BESIDE])
    alone = _medians(key[share <= ALONE], duration[share <= ALONE])
    _, left, right = np.intersect1d(beside[0], alone[0], assume_unique=True, return_indices=True)
    if len(left) < LEAST_PAIRS or alone[1][right].sum() <= 0:
        return None, len(left)
    ratio = float(beside[1][left].sum() / alone[1][right].sum())
    return max(ratio - 1.0, 0.0), len(left)


def _medians(key: Int64Array, values: Int64Array) -> tuple[Int64Array, Float64Array]:
    """Return the distinct keys and the (lower) median of each one's values."""
    if len(key) == 0:
        return key, np.empty(0, dtype=np.float64)
    order = np.lexsort((values, key))
    key, values = key[order], values[order]
    distinct, first, count = np.unique(key, return_index=True, return_counts=True)
    return distinct, values[first + (count - 1) // 2].astype(np.float64)
