"""A series of step times before anything is computed of it: warm-up, level changes, outliers.

What is left are the *steady* steps of the longest stretch at one level. Neighbouring steps resemble
each other (a thermal state, a loader that fills up), so that n steps are worth fewer independent
ones; `effective` says how many, and intervals are widened by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from trace_analyzer.analyses.scaling.changes import LEAST_SEGMENT_STEPS, level_changes
from trace_analyzer.analyses.steady import outlier_limit
from trace_analyzer.schema import BoolArray, Float64Array

# A correlation of 1 would mean that all steps are worth one; more is never claimed to be known.
MOST_CORRELATION = 0.98
# In a shorter series what looks like resemblance is noise.
_LEAST_PAIRS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Steps [first, last) of a series at one level."""

    first: int
    last: int
    median_ms: float

    def __len__(self) -> int:
        return self.last - self.first


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CleanSeries:
    """A series of step times, sorted into what counts and what does not.

    `values_ms` and `steady` have one entry a step, in order of time. `warm_up` steps at the
    beginning count nowhere. `chosen` is the segment that the steady steps are taken from.
    """

    values_ms: Float64Array
    steady: BoolArray
    warm_up: int
    segments: tuple[Segment, ...]
    chosen: int
    outliers: int
    correlation: float
    effective: float

    @property
    def steady_ms(self) -> Float64Array:
        """The steady steps, in order."""
        return self.values_ms[self.steady]

    @property
    def running_ms(self) -> Float64Array:
        """All steps after warm-up: outliers and every level included."""
        return self.values_ms[self.warm_up :]

    @property
    def median_ms(self) -> float:
        """Median of the steady steps."""
        return float(np.median(self.steady_ms))

    @property
    def mean_ms(self) -> float:
        """Mean of all steps after warm-up."""
        return float(np.mean(self.running_ms))


def clean(values_ms: Sequence[float] | Float64Array) -> CleanSeries:
    """Sort a series of step times (ms, in order of time, at least one, all positive).

    Warm-up are the outliers that lead the series. What follows is cut where the level changes; of
    the longest segment (the last of equal ones) the outliers are set aside, by the rule of
    `analyses.steady`.
    """
    values = np.asarray(values_ms, dtype=np.float64)
    limit = outlier_limit(values)
    above = values > limit
    warm_up = int(np.argmin(above)) if not bool(above.all()) else 0
    if warm_up >= LEAST_SEGMENT_STEPS:
        warm_up = 0  # long enough to be a level of its own
    running = values[warm_up:]
    cuts = [0, *level_changes(np.minimum(running, outlier_limit(running))), len(running)]
    segments = tuple(
        Segment(
            first=warm_up + first,
            last=warm_up + last,
            median_ms=float(np.median(running[first:last])),
        )
        for first, last in pairwise(cuts)
    )
    chosen = max(range(len(segments)), key=lambda item: (len(segments[item]), item))
    segment = segments[chosen]
    inside = values[segment.first : segment.last]
    kept = inside <= outlier_limit(inside)
    steady = np.zeros(len(values), dtype=np.bool_)
    steady[segment.first : segment.last] = kept
    correlation = lag_one_correlation(inside, kept)
    return CleanSeries(
        values_ms=values,
        steady=steady,
        warm_up=warm_up,
        segments=segments,
        chosen=chosen,
        outliers=int(np.count_nonzero(~kept)),
        correlation=correlation,
        effective=int(np.count_nonzero(kept)) * (1.0 - correlation) / (1.0 + correlation),
    )


def lag_one_correlation(values: Float64Array, kept: BoolArray) -> float:
    """Return how much neighbouring steps resemble each other, from 0 to `MOST_CORRELATION`.

    `kept` has one entry a value; a pair counts where both are kept, so that rare outliers do not
    hide the correlation of the others. The small-sample bias (the estimate of a short series is
    too low) is taken out; negative correlation counts as none, which keeps intervals wide.
    """
    count = len(values)
    pairs = int(np.count_nonzero(kept[1:] & kept[:-1]))
    if pairs < _LEAST_PAIRS:
        return 0.0
    centred = np.where(kept, values - values[kept].mean(), 0.0)
    variance = float(centred @ centred) / int(np.count_nonzero(kept))
    if variance <= 0.0:
        return 0.0
    raw = float(centred[1:] @ centred[:-1]) / pairs / variance
    corrected = (count * raw + 1.0) / (count - 3)
    # A raw value at the noise of an uncorrelated series is no correlation.
    if raw <= 0.0:
        return 0.0
    return min(max(corrected, 0.0), MOST_CORRELATION)
