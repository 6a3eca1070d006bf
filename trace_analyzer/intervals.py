"""Sets of half-open intervals over int64 nanoseconds: the one kernel of every time account.

An `Intervals` is normalised: sorted by start, disjoint, not touching, none empty. Every function
takes and returns normalised sets, costs O(n log n) or less, and is exact: no floating point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from trace_analyzer.schema import BoolArray, Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """A normalised set of intervals [start, end); both arrays have the same length."""

    start: Int64Array
    end: Int64Array

    def __len__(self) -> int:
        return len(self.start)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Intervals):
            return NotImplemented
        return np.array_equal(self.start, other.start) and np.array_equal(self.end, other.end)

    __hash__ = None  # type: ignore[assignment]

    @property
    def length(self) -> Int64Array:
        """Length of every interval, ns."""
        return self.end - self.start

    @property
    def total(self) -> int:
        """Length of the set, ns."""
        return int(np.sum(self.end - self.start))


def empty() -> Intervals:
    """Return the empty set."""
    nothing = np.empty(0, dtype=np.int64)
    return Intervals(nothing, nothing)


def single(start: int, end: int) -> Intervals:
    """Return [start, end), or the empty set where end <= start."""
    if end <= start:
        return empty()
    return Intervals(np.array([start], dtype=np.int64), np.array([end], dtype=np.int64))


def union(start: Int64Array, end: Int64Array) -> Intervals:
    """Return the set covered by any of the intervals, in any order; empty and reversed ones are ignored.

    Touching intervals merge.
    """
    keep = end > start
    if not bool(np.all(keep)):
        start, end = start[keep], end[keep]
    if len(start) == 0:
        return empty()
    if bool(np.any(start[1:] < start[:-1])):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.empty(len(start), dtype=np.bool_)
    first[0] = True
    np.greater(start[1:], reach[:-1], out=first[1:])
    last = np.empty(len(start), dtype=np.bool_)
    last[-1] = True
    last[:-1] = first[1:]
    return Intervals(start[first], reach[last])


def merge(*sets: Intervals) -> Intervals:
    """Return the set covered by any of the sets."""
    if not sets:
        return empty()
    return union(np.concatenate([s.start for s in sets]), np.concatenate([s.end for s in sets]))


def _combine(a: Intervals, b: Intervals, keep: Literal["both", "only-a"]) -> Intervals:
    """Sweep over all boundaries: +1 at a start, -1 at an end, one running count a set.

    Between two neighbouring boundaries both counts are constant (0 or 1), so that the wanted
    stretches are those whose counts satisfy the condition.
    """
    times = np.concatenate([a.start, a.end, b.start, b.end])
    in_a = np.zeros(len(times), dtype=np.int8)
    in_b = np.zeros(len(times), dtype=np.int8)
    n, m = len(a), len(b)
    in_a[:n] = 1
    in_a[n : 2 * n] = -1
    in_b[2 * n : 2 * n + m] = 1
    in_b[2 * n + m :] = -1
    order = np.argsort(times, kind="stable")
    times = times[order]
    inside_a: BoolArray = np.cumsum(in_a[order], dtype=np.int32) > 0
    inside_b: BoolArray = np.cumsum(in_b[order], dtype=np.int32) > 0
    wanted = inside_a & inside_b if keep == "both" else inside_a & ~inside_b
    if len(times) < 2:
        return empty()
    return union(times[:-1][wanted[:-1]], times[1:][wanted[:-1]])


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """Return the set covered by both."""
    return _combine(a, b, "both")


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """Return the set covered by `a` but not by `b`."""
    return _combine(a, b, "only-a")


def complement(a: Intervals, start: int, end: int) -> Intervals:
    """Return the gaps of `a` inside [start, end)."""
    return subtract(single(start, end), a)


def clip(a: Intervals, start: int, end: int) -> Intervals:
    """Return the part of `a` inside [start, end)."""
    low = int(np.searchsorted(a.end, start, side="right"))
    high = int(np.searchsorted(a.start, end, side="left"))
    if high <= low or end <= start:
        return empty()
    return Intervals(np.maximum(a.start[low:high], start), np.minimum(a.end[low:high], end))


def covered_before(a: Intervals, times: Int64Array) -> Int64Array:
    """Return, for each time, how many ns of `a` lie before it; shape of `times`."""
    if len(a) == 0:
        return np.zeros(len(times), dtype=np.int64)
    before = np.zeros(len(a) + 1, dtype=np.int64)
    np.cumsum(a.end - a.start, out=before[1:])
    last = np.searchsorted(a.start, times, side="right") - 1
    row = np.maximum(last, 0)
    inside = np.minimum(times, a.end[row]) - a.start[row]
    return np.where(last < 0, 0, before[row] + inside).astype(np.int64)


def coverage(a: Intervals, start: Int64Array, end: Int64Array) -> Int64Array:
    """Return, for each window [start, end), how many ns of it `a` covers; shape of `start`.

    Windows may overlap and come in any order; a reversed window counts 0.
    """
    covered = covered_before(a, end) - covered_before(a, start)
    return np.where(end > start, covered, 0).astype(np.int64)


def outermost(start_ns: Int64Array, end_ns: Int64Array) -> BoolArray:
    """Return which intervals, ordered by start (outer first), lie in no earlier one."""
    free = np.ones(len(start_ns), dtype=np.bool_)
    if len(start_ns):
        reach = np.maximum.accumulate(end_ns)
        free[1:] = start_ns[1:] >= reach[:-1]
    return free
