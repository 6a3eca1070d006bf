"""One run against several that came before, and whether it is outside what they differ by.

The base is the median of the earlier runs. The interval is one for a further run of the same kind:
it covers where the next run would lie, so that what differs from start to start is in it.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from trace_analyzer.analyses.comparison.changes import Changes
from trace_analyzer.analyses.scaling.resampling import student
from trace_analyzer.schema import Float64Array

# Earlier runs from which their spread can be told.
LEAST_RUNS = 3


def against_history(past: Float64Array, value: Float64Array) -> Changes:
    """Compare quantities of one run with those of earlier ones; `past` has shape (runs, quantities).

    Bounds are NaN with fewer than three earlier runs.
    """
    base = np.median(past, axis=0)
    change = value - base
    runs = len(past)
    half = np.full(len(change), np.nan)
    if runs >= LEAST_RUNS:
        half = student(runs - 1) * past.std(axis=0, ddof=1) * sqrt(1.0 + 1.0 / runs)
    return Changes(base=base, other=value, change=change, low=change - half, high=change + half)
