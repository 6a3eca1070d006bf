"""Host time that exists only to launch given GPU operations: that of whole operators."""

from __future__ import annotations

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.intervals import Intervals
from trace_analyzer.model import Rank
from trace_analyzer.schema import AnyArray, BoolArray, Int64Array
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


def launched_inside(rank: Rank, op_rows: AnyArray, named: BoolArray) -> BoolArray:
    """Return which GPU operations were launched inside host events of some names, on their thread.

    `named` has one entry a name of the rank.
    """
    events, launch = rank.events, rank.operations.launch[op_rows]
    outer = np.flatnonzero(named[events.name])
    found = np.zeros(len(launch), dtype=np.bool_)
    known = np.flatnonzero(launch >= 0)
    if not len(outer) or not len(known):
        return found
    thread, begun = rank.calls.thread[launch[known]], rank.calls.start_ns[launch[known]]
    for value in np.unique(thread).tolist():
        here = outer[events.thread[outer] == value]
        if not len(here):
            continue
        mine = thread == value
        reach = np.maximum.accumulate(events.end_ns[here])
        at = np.searchsorted(events.start_ns[here], begun[mine], side="right") - 1
        found[known[mine]] = (at >= 0) & (begun[mine] < reach[np.maximum(at, 0)])
    return found


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


def spans_of_runs(rank: Rank, calls: Int64Array) -> Intervals:
    """Return the times from the first to the last of these calls that follow each other.

    Calls follow each other if their thread launches nothing else in between; operators that make
    one of them, and no other launches, belong to the run. So does the silent time right before it,
    in which no operator or call begins or ends: what prepares the run.
    """
    launch = rank.operations.launch
    every = np.unique(launch[launch >= 0]).astype(np.int64)
    begin, end = rank.calls.start_ns, rank.calls.end_ns
    whole = intervals.merge(
        spans_of_launches(rank, calls), intervals.union(begin[calls], end[calls])
    )
    found: list[Intervals] = []
    for value in np.unique(rank.calls.thread[calls]).tolist():
        here = every[rank.calls.thread[every] == value]
        here = here[np.argsort(begin[here], kind="stable")]
        mine = np.isin(here, calls)
        edge = np.diff(np.concatenate([[0], mine.astype(np.int8), [0]]))
        first, last = here[np.flatnonzero(edge == 1)], here[np.flatnonzero(edge == -1) - 1]
        left = np.searchsorted(whole.start, begin[first], side="right") - 1
        right = np.searchsorted(whole.start, begin[last], side="right") - 1
        begun = last_boundary(rank, value, whole.start[left])
        found.append(intervals.union(begun, whole.end[right]))
    return intervals.merge(*found)


def last_boundary(rank: Rank, thread: int, times: Int64Array) -> Int64Array:
    """Return when an event or a call of a thread last began or ended before each time.

    A time before which there is none stays itself.
    """
    edges = np.sort(
        np.concatenate(
            [
                side[table.thread == thread]
                for table in (rank.events, rank.calls)
                for side in (table.start_ns, table.end_ns)
            ]
        )
    )
    if not len(edges):
        return times
    at = np.searchsorted(edges, times, side="left") - 1
    return np.where(at >= 0, edges[np.maximum(at, 0)], times).astype(np.int64)


def _inside(
    rank: Rank, calls: Int64Array, thread: int, start: Int64Array, end: Int64Array
) -> Int64Array:
    """Return how many of some calls of a thread begin in each of its operators."""
    times = np.sort(rank.calls.start_ns[calls[rank.calls.thread[calls] == thread]])
    found: Int64Array = np.searchsorted(times, end) - np.searchsorted(times, start)
    return found
