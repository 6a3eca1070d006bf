"""Host time that exists only to launch given GPU operations: that of whole operators."""

from __future__ import annotations

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.intervals import Intervals
from trace_analyzer.model import Rank
from trace_analyzer.schema import AnyArray, Int64Array
from trace_analyzer.tables import HostCategory


def sole_launches(rank: Rank, op_rows: AnyArray) -> Int64Array:
    """Return the calls (rows) that launch some of the given GPU operations and nothing else."""
    launch = rank.operations.launch
    known = launch >= 0
    total = np.bincount(launch[known], minlength=len(rank.calls))
    chosen = np.zeros(len(launch), dtype=np.bool_)
    chosen[op_rows] = True
    mine = np.bincount(launch[known & chosen], minlength=len(rank.calls))
    return np.flatnonzero((mine > 0) & (mine == total))


def has_operators(rank: Rank) -> bool:
    """Return whether operators were recorded, so that host time can be told by operator."""
    return bool(np.any(rank.events.category == HostCategory.OPERATOR))


def spans_of_launches(rank: Rank, calls: Int64Array) -> Intervals:
    """Return the times of operators in which these calls, and no other launches, are made."""
    launch = rank.operations.launch
    every = np.unique(launch[launch >= 0]).astype(np.int64)
    operator = np.flatnonzero(rank.events.category == HostCategory.OPERATOR)
    thread = rank.events.thread[operator]
    starts: list[Int64Array] = []
    ends: list[Int64Array] = []
    for value in np.unique(rank.calls.thread[calls]).tolist():
        here = operator[thread == value]
        start, end = rank.events.start_ns[here], rank.events.end_ns[here]
        count = _inside(rank, every, value, start, end)
        sole = _inside(rank, calls, value, start, end)
        whole = (sole > 0) & (sole == count)
        starts.append(start[whole])
        ends.append(end[whole])
    if not starts:
        return intervals.empty()
    return intervals.union(np.concatenate(starts), np.concatenate(ends))


def _inside(
    rank: Rank, calls: Int64Array, thread: int, start: Int64Array, end: Int64Array
) -> Int64Array:
    """Return how many of some calls of a thread begin in each of its operators."""
    times = np.sort(rank.calls.start_ns[calls[rank.calls.thread[calls] == thread]])
    found: Int64Array = np.searchsorted(times, end) - np.searchsorted(times, start)
    return found
