"""Which NCCL call a GPU operation executes.

A launch call that lies in an NCCL range on the same thread belongs to that range. Calls between
`ncclGroupStart` and `ncclGroupEnd` are launched inside the outermost `ncclGroupEnd`; they are
matched to its kernels by order, by kind of kernel and by communicator, and several may be fused
into one kernel. Where that leaves more than one way, the kernels stay without call. Matching by
order is right as far as NCCL launches in the order of the calls, which it promises nowhere.

Copies between devices that are launched inside an NCCL call are the work of NCCL's copy engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trace_analyzer.nccl_names import operation_of, type_of
from trace_analyzer.readers.nsys_payload import range_operation
from trace_analyzer.schema import BoolArray, Int64Array

GROUP_START = "ncclGroupStart"
GROUP_END = "ncclGroupEnd"
NONE = -1  # inside this module only: "belongs to no unit"

_POINT_TO_POINT = frozenset({"send", "recv", "alltoall", "gather", "scatter"})
TYPED_OPERATIONS = frozenset({"allreduce", "reducescatter", "reduce"})
# torch's names of element types, as torch.profiler writes them, and their width in bytes. NCCL
# shows signed integers as unsigned: the width is sure, the sign is not.
_TYPES = {
    "f8e4m3": ("Float8_e4m3fn", 1),
    "f8e5m2": ("Float8_e5m2", 1),
    "f16": ("Half", 2),
    "half": ("Half", 2),
    "bf16": ("BFloat16", 2),
    "__nv_bfloat16": ("BFloat16", 2),
    "f32": ("Float", 4),
    "float": ("Float", 4),
    "f64": ("Double", 8),
    "double": ("Double", 8),
    "u8": ("Byte", 1),
    "uint8_t": ("Byte", 1),
    "i8": ("Char", 1),
    "int8_t": ("Char", 1),
    "u32": ("Int", 4),
    "i32": ("Int", 4),
    "uint32_t": ("Int", 4),
    "int32_t": ("Int", 4),
    "u64": ("Long", 8),
    "i64": ("Long", 8),
    "uint64_t": ("Long", 8),
    "int64_t": ("Long", 8),
}


def kernel_type(name: str) -> tuple[str, int] | None:
    """Return element type and width in bytes that the name of a reducing kernel tells.

    Other kernels move bytes whatever the type is, and name none or a meaningless one.
    """
    if operation_of(name) not in TYPED_OPERATIONS:
        return None
    return _TYPES.get((type_of(name) or "").lower())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calls:
    """NCCL ranges of one process in order of start, and the communication they may have launched.

    `label` gives the position of each range's name in `labels`; `communicator` is −1 where unknown.
    Operations are the candidates only, NCCL kernels and copies between devices, in order of their
    launch. `family` is a kernel's operation by its name ("" unknown), or "copy".
    """

    labels: Sequence[str]
    label: Int64Array
    thread: Int64Array
    start: Int64Array
    end: Int64Array
    communicator: Int64Array
    launch_thread: Int64Array
    launch_start: Int64Array
    family: Sequence[str]

    def named(self, *names: str) -> BoolArray:
        """Return which ranges have one of these names."""
        return _lookup([text in names for text in self.labels], self.label)


def _lookup(by_label: list[bool], label: Int64Array) -> BoolArray:
    return np.array(by_label, dtype=np.bool_)[label]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Units:
    """What was launched together: a unit is one or several calls executed by the same work.

    `of_range` and `of_operation` hold the unit or −1. `in_call` tells which operations were
    launched inside a call that moves data or ends a group, also where no unit is known.
    """

    count: int
    of_range: Int64Array
    of_operation: Int64Array
    in_call: BoolArray
    ambiguous: int  # operations of groups whose calls could not be told apart


def match(calls: Calls) -> Units:
    """Return the units of one process."""
    ranges = len(calls.label)
    of_range = np.full(ranges, NONE, dtype=np.int64)
    of_operation = np.full(len(calls.launch_start), NONE, dtype=np.int64)
    moves = _lookup([bool(range_operation(text)) for text in calls.labels], calls.label)
    closes = calls.named(GROUP_END)
    outer, depth = _outermost(calls, calls.named(GROUP_START), closes)
    container = _container(calls, outer)
    inside = container != NONE
    in_call = inside.copy()
    in_call[inside] = (moves | closes)[container[inside]]

    alone = moves & outer & (depth == 0)
    count = int(np.count_nonzero(alone))
    of_range[alone] = np.arange(count)
    of_operation[inside] = of_range[container[inside]]

    ambiguous = 0
    launched: dict[int, list[int]] = {}
    for row in np.flatnonzero(in_call & (of_operation == NONE)).tolist():
        launched.setdefault(int(container[row]), []).append(row)
    grouped = moves & outer & (depth > 0)
    for end_row, members in _groups(calls, grouped, closes & outer & (depth == 0)):
        work = list(launched.pop(end_row, ()))
        for member in members:  # a call inside a group may still launch by itself
            work += launched.pop(member, ())
        work.sort()
        assigned = _assign(
            [calls.family[row] for row in work],
            [range_operation(calls.labels[calls.label[member]]) for member in members],
            calls.communicator[members].tolist(),
        )
        for rows, parts in assigned:
            of_range[[members[part] for part in parts]] = count
            of_operation[[work[row] for row in rows]] = count
            count += 1
        ambiguous += len(work) - sum(len(rows) for rows, _ in assigned)
    for row in np.flatnonzero(moves & outer & (of_range == NONE)).tolist():
        of_range[row] = count  # a call whose work was not found is still a call
        count += 1
    return Units(
        count=count,
        of_range=of_range,
        of_operation=of_operation,
        in_call=in_call,
        ambiguous=ambiguous,
    )


def _outermost(calls: Calls, opens: BoolArray, closes: BoolArray) -> tuple[BoolArray, Int64Array]:
    """Return which ranges lie in no other NCCL range, and the group depth after each of those.

    Before NCCL 2.25 a send opened and closed a group of its own inside its range.
    """
    outer = np.zeros(len(calls.label), dtype=np.bool_)
    depth = np.zeros(len(calls.label), dtype=np.int64)
    for thread in np.unique(calls.thread).tolist():
        rows = np.flatnonzero(calls.thread == thread)
        before = np.maximum.accumulate(calls.end[rows])[:-1]
        top = np.ones(len(rows), dtype=np.bool_)
        top[1:] = calls.start[rows][1:] >= before
        rows = rows[top]
        outer[rows] = True
        level = np.cumsum(opens[rows].astype(np.int64) - closes[rows].astype(np.int64))
        # A group that was opened before the recording closes without an opening.
        depth[rows] = level - min(int(level.min(initial=0)), 0)
    return outer, depth


def _container(calls: Calls, outer: BoolArray) -> Int64Array:
    """Return for every operation the outermost NCCL range in which it was launched, or −1."""
    container = np.full(len(calls.launch_start), NONE, dtype=np.int64)
    for thread in np.unique(calls.thread).tolist():
        rows = np.flatnonzero((calls.thread == thread) & outer)
        mine = np.flatnonzero(calls.launch_thread == thread)
        at = np.searchsorted(calls.start[rows], calls.launch_start[mine], side="right") - 1
        hit = (at >= 0) & (calls.launch_start[mine] < calls.end[rows[np.maximum(at, 0)]])
        container[mine[hit]] = rows[at[hit]]
    return container


def _groups(calls: Calls, grouped: BoolArray, ends: BoolArray) -> list[tuple[int, list[int]]]:
    """Return the row of every outermost ncclGroupEnd, and the rows of the calls in its group."""
    groups: list[tuple[int, list[int]]] = []
    for thread in np.unique(calls.thread).tolist():
        rows = np.flatnonzero((calls.thread == thread) & (grouped | ends))
        bounds = np.flatnonzero(ends[rows])
        first = 0
        for last in bounds.tolist():
            groups.append((int(rows[last]), rows[first:last].tolist()))
            first = last + 1
    return groups


def _assign(
    kernels: Sequence[str], operations: Sequence[str], communicators: Sequence[int]
) -> list[tuple[list[int], list[int]]]:
    """Return pairs (positions of GPU work, positions of calls) that belong together.

    Only pairs without an alternative are returned.
    """
    work = list(range(len(kernels)))
    calls = list(range(len(operations)))
    if not work or not calls:
        return []
    if len(calls) == 1:
        return [(work, calls)]
    if len(work) == 1:
        return [(work, calls)]
    if "copy" in kernels:  # one call makes several copies
        return []
    if "" in kernels:
        return [([row], [row]) for row in work] if len(work) == len(calls) else []
    pairs: list[tuple[list[int], list[int]]] = []
    for family in dict.fromkeys(kernels):
        mine = [row for row in work if kernels[row] == family]
        theirs = [row for row in calls if _runs_as(operations[row], family)]
        by_communicator: dict[int, list[int]] = {}
        for row in theirs:
            by_communicator.setdefault(communicators[row], []).append(row)
        if len(mine) == len(theirs):
            pairs += [([row], [call]) for row, call in zip(mine, theirs, strict=True)]
        elif len(mine) == 1 and theirs:
            pairs.append((mine, theirs))
        elif len(mine) == len(by_communicator):
            pairs += [
                ([row], group) for row, group in zip(mine, by_communicator.values(), strict=True)
            ]
    return pairs


def _runs_as(operation: str, family: str) -> bool:
    if family == "sendrecv":
        return operation in _POINT_TO_POINT
    return operation == family
