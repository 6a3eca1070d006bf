"""Sets of kernels that a rule is about: how long they take, how they are listed and marked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.operator_spans import (
    has_operators,
    sole_launches,
    spans_of_launches,
    spans_of_runs,
)
from trace_analyzer.findings import Evidence, Range
from trace_analyzer.rules.context import Context
from trace_analyzer.schema import AnyArray, BoolArray, Float64Array, Int64Array
from trace_analyzer.tables import OperationKind, WorkClass

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit

Rows = Mapping[int, Int64Array]  # rows of a rank's GPU operations, by rank
LARGEST_ROWS = 8
LONGEST_NAME = 60
_NAMESPACES = re.compile(r"^(?:void\s+)?(?:(?:\(anonymous namespace\)|<unnamed>|\w+)::)*")
_ARGUMENT = re.compile(
    r"(\w*Functor\w*|\w*_kernel_cuda|cutlass_\w+|fmha_\w+|\w+(?:Backward|Forward)\w*)"
)


def computing(context: Context, number: int) -> BoolArray:
    """Return which GPU operations of a rank are kernels that compute."""
    operations = context.study.ranks[number].rank.operations
    found: BoolArray = (operations.kind == OperationKind.KERNEL) & (
        operations.work == WorkClass.COMPUTE
    )
    return found


def kernel_codes(context: Context, number: int) -> Int64Array:
    """Return a number for each GPU operation of a rank, equal for the same kernel and launch shape."""
    rank = context.study.ranks[number].rank
    width = len(rank.configs) + 1
    config = rank.operations.launch_config.astype(np.int64)
    return rank.operations.name.astype(np.int64) * width + np.where(config < 0, width - 1, config)


def busy_ns(context: Context, number: int, rows: AnyArray) -> float:
    """Return how long at least one of some GPU operations runs, ns a steady step."""
    operations = context.study.ranks[number].rank.operations
    covered = intervals.union(operations.start_ns[rows], operations.end_ns[rows])
    inside = intervals.intersect(covered, context.steady_windows(number))
    return context.per_step_ns(number, inside.total)


def take_out(
    context: Context, change: Edit, number: int, rows: AnyArray, *, runs: bool = False
) -> None:
    """Take GPU operations out of a replay, with the host time that exists only to launch them.

    With recorded operators that is the time of those which launch nothing else, and the launch
    calls themselves in others; without them, the launch calls and what precedes each. With `runs`,
    all from the first to the last of operations that are launched one after the other: a part of
    the program is gone.
    """
    rank = context.study.ranks[number].rank
    if runs:
        change.remove(number, rows, launch=False)
        change.host(number, spans_of_runs(rank, sole_launches(rank, rows)))
        return
    if not has_operators(rank):
        change.remove(number, rows)
        return
    calls = sole_launches(rank, rows)
    change.remove(number, rows, launch=False)
    made = intervals.union(rank.calls.start_ns[calls], rank.calls.end_ns[calls])
    change.host(number, intervals.merge(spans_of_launches(rank, calls), made))


def worst(context: Context, chosen: Rows) -> tuple[int, float]:
    """Return the rank on which the operations take longest, and how long, ns a steady step."""
    times = {number: busy_ns(context, number, rows) for number, rows in chosen.items()}
    number = max(times, key=lambda key: times[key])
    return number, times[number]


def saved_ns(context: Context, number: int, rows: Int64Array, after_ns: AnyArray) -> float:
    """Return the sum of what operations take less after a fix, ns a steady step."""
    operations = context.study.ranks[number].rank.operations
    inside = context.in_steady(number)[rows]
    less = (operations.end_ns - operations.start_ns)[rows] - after_ns
    return context.per_step_ns(number, float(np.sum(less[inside])))


def short_name(name: str) -> str:
    """Return a kernel's name without namespaces and arguments, with what tells it from its like."""
    bare = _NAMESPACES.sub("", name.replace("at::native::", ""))
    head = re.split(r"[<(]", bare, maxsplit=1)[0] or bare
    found = _ARGUMENT.search(name[name.find(head) + len(head) :])
    text = head if found is None else f"{head} ‹{found[1]}›"
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


def listed(
    context: Context, number: int, rows: Int64Array, after_ns: AnyArray | None, title: str
) -> Evidence:
    """Return a table of one rank's operations by name, the longest first.

    `after_ns` is what each would take after the fix, where the rule says it; means a steady step.
    """
    rank = context.study.ranks[number].rank
    operations = rank.operations
    kept = context.in_steady(number)[rows]
    rows = rows[kept]
    names, inverse = np.unique(operations.name[rows], return_inverse=True)
    length = (operations.end_ns - operations.start_ns)[rows].astype(np.float64)
    columns = ["kernel", "launches a step", "ms a step"]
    values: list[Float64Array] = [
        np.bincount(inverse, minlength=len(names)).astype(np.float64),
        _sums(inverse, length / 1e6, len(names)),
    ]
    if after_ns is not None:
        columns.append("ms a step after the fix")
        weights = np.asarray(after_ns, dtype=np.float64)[kept] / 1e6
        values.append(_sums(inverse, weights, len(names)))
    order = np.argsort(-values[1], kind="stable")[:LARGEST_ROWS]
    steps = context.steady_count(number)
    return Evidence(
        title=title,
        columns=columns,
        rows=[
            [short_name(rank.names[int(names[at])])]
            + [round(float(value[at]) / steps, 3) for value in values]
            for at in order.tolist()
        ],
    )


def _sums(group: Int64Array, values: Float64Array, count: int) -> Float64Array:
    return np.bincount(group, weights=values, minlength=count).astype(np.float64)


def marked(context: Context, chosen: Rows, label: str) -> tuple[Range, ...]:
    """Return the longest of some operations in steady steps, as ranges of the timeline."""
    found: list[Range] = []
    for number, rows in chosen.items():
        operations = context.study.ranks[number].rank.operations
        kept = rows[context.in_steady(number)[rows]]
        start, end = operations.start_ns[kept], operations.end_ns[kept]
        found += context.ranges(number, start, end, label)[:6]
    return tuple(found)
