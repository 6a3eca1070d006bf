"""Tracks on which slices are nested or disjoint, never overlapping in part.

Trace viewers draw slices of one track as a stack. Where two overlap in part (kernels of one stream
under programmatic launch, ranges that are opened and closed in any order), the later one is
dropped by some viewers and cut by others, so here it moves to a lane of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trace_analyzer.schema import AnyArray, Int32Array, Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """`track` has one entry a row: a position in `keys`, whose entries are (key, lane)."""

    track: Int32Array
    keys: list[tuple[int, int]]


def divide(key: AnyArray, start_ns: Int64Array, end_ns: Int64Array) -> Lanes:
    """Give every row a track: one for every key, and more where rows of a key overlap in part.

    Rows come in any order; of rows with the same start and end the earlier one is the outer.
    Tracks are ordered by key, then by lane.
    """
    values, of_row = np.unique(key, return_inverse=True)
    of_row = of_row.reshape(-1)
    order = np.lexsort((-end_ns, start_ns, of_row))
    bounds = np.searchsorted(of_row[order], np.arange(len(values) + 1))
    track = np.empty(len(key), dtype=np.int32)
    keys: list[tuple[int, int]] = []
    for position, value in enumerate(values.tolist()):
        rows = order[bounds[position] : bounds[position + 1]]
        start, end = start_ns[rows], end_ns[rows]
        lane = np.zeros(len(rows), dtype=np.int32) if nests(start, end) else _lanes(start, end)
        track[rows] = len(keys) + lane
        keys += [(int(value), number) for number in range(int(lane.max()) + 1)]
    return Lanes(track, keys)


def nests(start_ns: Int64Array, end_ns: Int64Array) -> bool:
    """Tell whether intervals, ordered by start and the outer before the inner, are all nested.

    They are if each is closed at the depth at which it was opened. Of intervals that do overlap in
    part, the first is closed while one is open that began inside it.
    """
    lasting = end_ns > start_ns
    start, end = start_ns[lasting], end_ns[lasting]
    if len(start) < 2 or bool(np.all(start[1:] >= end[:-1])):
        return True
    rows = np.arange(len(start))
    opened_at = rows - np.searchsorted(np.sort(end), start, side="right")
    closing = np.empty(len(start), dtype=np.int64)
    closing[np.lexsort((-rows, end))] = rows
    closed_at = np.searchsorted(start, end, side="left") - closing - 1
    return bool(np.array_equal(opened_at, closed_at))


def _lanes(start_ns: Int64Array, end_ns: Int64Array) -> Int32Array:
    """Return the first lane of each interval in which it is nested; only for the few such tracks."""
    lanes: list[list[int]] = []  # the ends of what is open
    found = np.empty(len(start_ns), dtype=np.int32)
    for row, (start, end) in enumerate(zip(start_ns.tolist(), end_ns.tolist(), strict=True)):
        number = 0
        while number < len(lanes) and not _fits(lanes[number], start, end):
            number += 1
        if number == len(lanes):
            lanes.append([])
        lanes[number].append(end)
        found[row] = number
    return found


def _fits(stack: list[int], start_ns: int, end_ns: int) -> bool:
    while stack and stack[-1] <= start_ns:
        stack.pop()
    return not stack or stack[-1] >= end_ns
