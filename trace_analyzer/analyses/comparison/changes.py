"""Differences of means over steps, with intervals, and which of them are told from none."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np

from trace_analyzer.analyses.scaling.resampling import (
    RESAMPLES,
    TAIL_PERCENT,
    block_length,
    student,
)
from trace_analyzer.analyses.scaling.series import lag_one_correlation
from trace_analyzer.schema import BoolArray, Float64Array

_NORMAL = 1.959964
_SEED = 9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Changes:
    """Several quantities in two runs; all arrays have one entry a quantity.

    `change` is other minus base; `low` and `high` bound it at 95 %, NaN where one run has a single
    step. `apart` is where zero lies outside.
    """

    base: Float64Array
    other: Float64Array
    change: Float64Array
    low: Float64Array
    high: Float64Array

    @property
    def apart(self) -> BoolArray:
        """Where the interval does not contain zero."""
        return np.asarray((self.low > 0.0) | (self.high < 0.0), dtype=np.bool_)


def changes(base: Float64Array, other: Float64Array) -> Changes:
    """Compare the means of quantities; `base` and `other` have shape (steps, quantities).

    Steps are resampled with all their quantities, in blocks where they resemble each other, and the
    draws widened as Student's t asks for so few of them.
    """
    streams = np.random.SeedSequence(_SEED).spawn(2)
    ours, theirs = (
        _mean_draws(values, np.random.default_rng(stream))
        for values, stream in zip((base, other), streams, strict=True)
    )
    means = base.mean(axis=0), other.mean(axis=0)
    change = means[1] - means[0]
    if ours is None or theirs is None:
        unknown = np.full(len(change), np.nan)
        return Changes(base=means[0], other=means[1], change=change, low=unknown, high=unknown)
    low, high = np.percentile(theirs - ours, [TAIL_PERCENT, 100.0 - TAIL_PERCENT], axis=0)
    return Changes(
        base=means[0], other=means[1], change=change, low=change + low, high=change + high
    )


def _mean_draws(values: Float64Array, generator: np.random.Generator) -> Float64Array | None:
    """Return deviations of resampled means, shape (draws, quantities); None for a single step."""
    steps = len(values)
    if steps < 2:
        return None
    total = values.sum(axis=1)
    correlation = lag_one_correlation(total, np.ones(steps, dtype=np.bool_))
    effective = max(steps * (1.0 - correlation) / (1.0 + correlation), 2.0)
    block = block_length(correlation, steps)
    count = ceil(steps / block)
    start = generator.integers(0, steps, size=(RESAMPLES, count))
    index = (start[:, :, None] + np.arange(block)).reshape(RESAMPLES, -1)[:, :steps] % steps
    weight = np.zeros((RESAMPLES, steps))
    np.add.at(weight, (np.arange(RESAMPLES)[:, None], index), 1.0 / steps)
    draws = weight @ values - values.mean(axis=0)
    # A resampled mean varies by sqrt((n - 1) / n) too little, and blocks hide correlation.
    factor = sqrt(effective / (effective - 1.0)) * student(effective - 1.0) / _NORMAL
    if block == 1:
        factor *= sqrt(steps / effective)
    widened: Float64Array = factor * draws
    return widened
