"""Where the level of a series of step times changes for good.

The cut whose two sides differ most in mean is taken if they differ by more than chance would make of
steps that resemble their neighbours, and by enough to matter; then both sides are searched again.
Where no cut of the whole is told, halves and quarters are searched, which overlap each other: a
stretch that is slow for a while has the same level before and after.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from trace_analyzer.schema import Float64Array

# A level is told from at least this many steps.
LEAST_SEGMENT_STEPS = 10
# Smaller changes of level are left in: they move a median less than two runs differ.
LEAST_CHANGE_SHARE = 0.02
# Standard errors by which two sides must differ. The largest of all cuts is tested, so that this
# stands above the 2 or 3 of a single test; tests/benchmarks/bench_scaling.py has the false alarms.
LEAST_STANDARD_ERRORS = 5.0
_PARTS = (1, 2, 4)
_MOST_CORRELATION = 0.95


def level_changes(values: Float64Array) -> list[int]:
    """Return the positions at which a new level begins, in order; `values` without outliers."""
    found: list[int] = []
    todo = [(0, len(values))]
    while todo:
        first, last = todo.pop()
        cut = _best_cut(values, first, last)
        if cut is not None:
            found.append(cut)
            todo += [(first, cut), (cut, last)]
    return sorted(found)


def _best_cut(values: Float64Array, first: int, last: int) -> int | None:
    """Return the clearest cut of a stretch: of the whole, else of its halves, of its quarters."""
    length = last - first
    for parts in _PARTS:
        window = length // parts
        if window < 2 * LEAST_SEGMENT_STEPS:
            return None
        starts = range(first, last - window + 1, max(window // 2, 1))
        cuts = [
            (clearness, start + cut)
            for start in starts
            if (told := _cut(values[start : start + window])) is not None
            for clearness, cut in [told]
            if min(start + cut - first, last - start - cut) >= LEAST_SEGMENT_STEPS
        ]
        if cuts:
            return max(cuts)[1]
    return None


def _cut(values: Float64Array) -> tuple[float, int] | None:
    """Return (standard errors, position) of the cut with the largest difference, if it is told."""
    count = len(values)
    cuts = np.arange(LEAST_SEGMENT_STEPS, count - LEAST_SEGMENT_STEPS + 1)
    total = np.cumsum(values)
    left = total[cuts - 1] / cuts
    right = (total[-1] - total[cuts - 1]) / (count - cuts)
    weight = np.sqrt(cuts * (count - cuts) / count)
    best = int(np.argmax(np.abs(right - left) * weight))
    cut, change = int(cuts[best]), abs(float(right[best] - left[best]))
    if change < LEAST_CHANGE_SHARE * min(left[best], right[best]):
        return None
    rest = values - np.where(np.arange(count) < cut, left[best], right[best])
    error = _long_run_deviation(rest) / float(weight[best])
    if change < LEAST_STANDARD_ERRORS * error:
        return None
    return (change / error if error > 0.0 else np.inf), cut


def _long_run_deviation(rest: Float64Array) -> float:
    """Return the deviation that counts for means of steps that resemble their neighbours."""
    count = len(rest)
    variance = float(rest @ rest) / (count - 2)
    if variance <= 0.0:
        return 0.0
    raw = float(rest[1:] @ rest[:-1]) / float(rest @ rest)
    correlation = min(max((count * raw + 2.0) / (count - 4), 0.0), _MOST_CORRELATION)
    return sqrt(variance * (1.0 + correlation) / (1.0 - correlation))
