"""What some steps do beyond the usual one: a checkpoint, an evaluation, a report.

The usual step is the sequence of computing operations and copies that most steps launch. A step
that launches this sequence with one block more in it does something extra; the block, with the host
time between its neighbours, is what.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.steps import DeviceSteps
from trace_analyzer.intervals import Intervals
from trace_analyzer.kernels import category
from trace_analyzer.model import Rank
from trace_analyzer.schema import AnyArray, BoolArray, Int64Array, is_na
from trace_analyzer.tables import OperationKind, WorkClass

# A block of fewer operations is a value that is read now and then.
LEAST_OPERATIONS = 5
# The rest of the step has to be the usual step but for this much.
LEAST_SHARED = 0.9
# Below this many steps no step is the usual one.
LEAST_STEPS = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExtraWork:
    """Blocks of extra work of one rank; arrays have one entry a block, in order.

    `step` is the position of its step; `start_ns`, `end_ns` the host time from the last usual launch
    before it to the first one after it; `operations` the rows of its GPU operations; `copied_bytes`
    what it copies to the host; `kernels` how many kernels it launches.
    """

    step: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    operations: tuple[Int64Array, ...]
    copied_bytes: Int64Array
    kernels: Int64Array

    def __len__(self) -> int:
        return len(self.step)

    @property
    def spans(self) -> Intervals:
        """Host time of all blocks."""
        return intervals.union(self.start_ns, self.end_ns)

    def take(self, chosen: BoolArray) -> ExtraWork:
        """Return some of the blocks."""
        return ExtraWork(
            step=self.step[chosen],
            start_ns=self.start_ns[chosen],
            end_ns=self.end_ns[chosen],
            operations=tuple(
                rows for rows, kept in zip(self.operations, chosen.tolist(), strict=True) if kept
            ),
            copied_bytes=self.copied_bytes[chosen],
            kernels=self.kernels[chosen],
        )


def extra_work(rank: Rank, steps: DeviceSteps, usual_steps: slice = slice(None)) -> ExtraWork:
    """Return the blocks that some steps of a rank have and most of `usual_steps` have not.

    Blocks with an optimizer's kernels are left out: there a step is a part of a batch, and the
    optimizer runs once in several.
    """
    operations, calls = rank.operations, rank.calls
    parts = launched_in_steps(rank, steps)
    usual = _usual([operations.name[part] for part in parts[usual_steps]])
    found: list[tuple[int, int, int, Int64Array]] = []
    for number, part in enumerate(parts):
        if usual is None or len(part) < len(usual) + LEAST_OPERATIONS:
            continue
        names = operations.name[part]
        before = _shared(names, usual)
        after = min(_shared(names[::-1], usual[::-1]), len(usual) - before)
        if before + after < LEAST_SHARED * len(usual):
            continue
        block = part[before : len(part) - after]
        launch = operations.launch[part]
        begin = (
            int(calls.end_ns[launch[before - 1]]) if before else int(steps.host_start_ns[number])
        )
        end = (
            int(calls.start_ns[launch[len(part) - after]])
            if after
            else int(steps.host_end_ns[number])
        )
        if not _has_optimizer(rank, block):
            found.append((number, begin, max(end, begin), block))
    return _joined(rank, found)


def launched_in_steps(rank: Rank, steps: DeviceSteps) -> list[Int64Array]:
    """Return the rows of computing operations and copies of each step, in order of their launch."""
    operations = rank.operations
    counted = np.flatnonzero(
        (operations.work != WorkClass.COMM)
        & ~is_na(operations.launch)
        & (steps.operation_step >= 0)
    )
    order = np.argsort(rank.calls.start_ns[operations.launch[counted]], kind="stable")
    rows = counted[order].astype(np.int64)
    step = steps.operation_step[rows]
    by_step = np.argsort(step, kind="stable")
    return np.split(rows[by_step], np.searchsorted(step[by_step], np.arange(1, len(steps))))


def _usual(sequences: list[AnyArray]) -> AnyArray | None:
    """Return the sequence that half of the steps or more have in length; None without one."""
    if len(sequences) < LEAST_STEPS:
        return None
    length, count = np.unique([len(part) for part in sequences], return_counts=True)
    common = int(length[np.argmax(count)])
    # A few operations come and go in some programs; the most frequent length decides.
    same = [part for part in sequences if len(part) == common]
    return same[len(same) // 2] if common and 2 * len(same) >= len(sequences) - 1 else None


def _shared(left: AnyArray, right: AnyArray) -> int:
    """Return how many entries two sequences share from their begin on."""
    count = min(len(left), len(right))
    different = np.flatnonzero(left[:count] != right[:count])
    return int(different[0]) if len(different) else count


def _has_optimizer(rank: Rank, rows: Int64Array) -> bool:
    names = np.unique(rank.operations.name[rows]).tolist()
    return any(category(rank.names[name]) == "optimizer" for name in names)


def _joined(rank: Rank, found: list[tuple[int, int, int, Int64Array]]) -> ExtraWork:
    operations = rank.operations
    to_host = np.array(["DtoH" in text for text in rank.names], dtype=np.bool_)

    def copied(rows: Int64Array) -> int:
        chosen = rows[to_host[operations.name[rows]] & ~is_na(operations.bytes[rows])]
        return int(operations.bytes[chosen].sum())

    return ExtraWork(
        step=np.array([item[0] for item in found], dtype=np.int64),
        start_ns=np.array([item[1] for item in found], dtype=np.int64),
        end_ns=np.array([item[2] for item in found], dtype=np.int64),
        operations=tuple(item[3] for item in found),
        copied_bytes=np.array([copied(item[3]) for item in found], dtype=np.int64),
        kernels=np.array(
            [int(np.sum(operations.kind[item[3]] == OperationKind.KERNEL)) for item in found],
            dtype=np.int64,
        ),
    )
