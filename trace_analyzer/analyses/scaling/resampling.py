"""Intervals by resampling: in blocks where steps resemble each other, over runs where there are several.

Draws are kept as logarithms, because what is compared are ratios: the logarithm of an efficiency is
a difference, and its interval that of independent differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, log, sqrt

import numpy as np

from trace_analyzer.analyses.scaling.series import CleanSeries, lag_one_correlation
from trace_analyzer.schema import Float64Array

RESAMPLES = 2000
# With fewer steady steps the median itself is too uncertain for an interval around it.
LEAST_STEPS = 10
# Runs from which the spread between runs can be told.
LEAST_RUNS = 3
TAIL_PERCENT = 2.5
_NORMAL = 1.959964
# 97.5 % quantiles of Student's t for 1 to 10 degrees of freedom; above, a series in 1/df holds.
_STUDENT = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
_BLOCK_ENDS_BELOW = 0.1  # correlation at which a step counts as independent of another
_LEAST_BLOCKS = 6

Statistic = Callable[..., Float64Array]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draws:
    """A value and resampled ones, as logarithms; `log_draws` is None where no interval can be given.

    `reason` says why not.
    """

    log_value: float
    log_draws: Float64Array | None
    reason: str = ""


def student(degrees: float) -> float:
    """Return the 97.5 % quantile of Student's t (degrees of freedom at least 1, rounded down)."""
    whole = max(int(degrees), 1)
    if whole <= len(_STUDENT):
        return _STUDENT[whole - 1]
    z = _NORMAL
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / degrees + second / degrees**2


def block_length(correlation: float, count: int) -> int:
    """Return the steps of a block: as far as the correlation reaches, at most a sixth of all."""
    if correlation <= _BLOCK_ENDS_BELOW:
        return 1
    reach = ceil(log(_BLOCK_ENDS_BELOW) / log(correlation))
    return max(1, min(reach, count // _LEAST_BLOCKS))


def resampled(
    values: Float64Array, block: int, generator: np.random.Generator, statistic: Statistic
) -> Float64Array:
    """Return `RESAMPLES` values of a statistic of resampled steps; blocks wrap around the end."""
    count = len(values)
    blocks = ceil(count / block)
    start = generator.integers(0, count, size=(RESAMPLES, blocks))
    index = (start[:, :, None] + np.arange(block)).reshape(RESAMPLES, -1)[:, :count] % count
    return statistic(values[index], axis=1)


def median_draws(
    series: CleanSeries, generator: np.random.Generator, *, least: int = LEAST_STEPS
) -> Draws:
    """Return the median of the steady steps, and draws of it from `least` steps on."""
    value = log(series.median_ms)
    steady = series.steady_ms
    if len(steady) < least:
        return Draws(
            log_value=value,
            log_draws=None,
            reason=f"{len(steady)} steady steps: an interval needs {least}",
        )
    return _widened(steady, value, series.correlation, series.effective, generator, np.median)


def mean_draws(series: CleanSeries, generator: np.random.Generator) -> Draws:
    """Return the mean of all steps after warm-up, and draws of it."""
    running = series.running_ms
    value = log(series.mean_ms)
    if len(running) < LEAST_STEPS:
        return Draws(log_value=value, log_draws=None, reason=f"{len(running)} steps")
    correlation = lag_one_correlation(running, np.ones(len(running), dtype=np.bool_))
    effective = len(running) * (1.0 - correlation) / (1.0 + correlation)
    return _widened(running, value, correlation, effective, generator, np.mean)


def _widened(
    values: Float64Array,
    log_value: float,
    correlation: float,
    effective: float,
    generator: np.random.Generator,
    statistic: Statistic,
) -> Draws:
    """Return block draws, widened to what so few independent steps allow.

    Blocks of a short series hold only a part of the correlation, and a bootstrap takes the sample's
    own spread for the truth: the first is made up by the number of effective steps, the second by
    Student's t. A series of few effective steps gets a wide interval, never none: leaving those out
    would keep the ones whose resemblance was underestimated.
    """
    block = block_length(correlation, len(values))
    draws = np.log(resampled(values, block, generator, statistic)) - log_value
    alone = draws if block == 1 else np.log(resampled(values, 1, generator, statistic)) - log_value
    spread, wanted = float(draws.std()), float(alone.std()) * sqrt(len(values) / effective)
    factor = max(1.0, wanted / spread) if spread > 0.0 else 1.0
    factor *= student(effective - 1.0) / _NORMAL
    return Draws(log_value=log_value, log_draws=log_value + factor * draws)


def stated_draws(
    value_ms: float,
    deviation_ms: float | None,
    count: int | None,
    generator: np.random.Generator,
) -> Draws:
    """Return draws of the median of `count` steps of which only the deviation is known."""
    value = log(value_ms)
    if deviation_ms is None or count is None:
        return Draws(
            log_value=value, log_draws=None, reason="a number alone: the spread is not known"
        )
    if count < LEAST_STEPS:
        return Draws(
            log_value=value,
            log_draws=None,
            reason=f"{count} steps: an interval needs {LEAST_STEPS}",
        )
    # The median of a normal sample varies by sqrt(pi/2) more than its mean.
    error = sqrt(np.pi / 2 / count) * deviation_ms / value_ms * student(count - 1) / _NORMAL
    return Draws(log_value=value, log_draws=value + error * generator.standard_normal(RESAMPLES))


def over_runs(runs: Sequence[Draws], generator: np.random.Generator) -> Draws:
    """Return the geometric mean over repeated runs.

    From three runs on, runs are resampled too, so that what differs from start to start is in the
    interval; with two it is not, and the caller says so.
    """
    if len(runs) == 1:
        return runs[0]
    values = np.array([run.log_value for run in runs])
    mean = float(values.mean())
    missing = next((run for run in runs if run.log_draws is None), None)
    if missing is not None:
        return Draws(log_value=mean, log_draws=None, reason=missing.reason)
    within = np.stack([run.log_draws - run.log_value for run in runs if run.log_draws is not None])
    count = len(runs)
    if count < LEAST_RUNS:
        return Draws(log_value=mean, log_draws=mean + within.mean(axis=0))
    pick = generator.integers(0, count, size=(RESAMPLES, count))
    between = values[pick].mean(axis=1) - mean
    between *= sqrt(count / (count - 1)) * student(count - 1) / _NORMAL
    inside = within[pick, np.arange(RESAMPLES)[:, None]].mean(axis=1)
    return Draws(log_value=mean, log_draws=mean + between + inside)


def interval(log_draws: Float64Array | None) -> tuple[float, float] | None:
    """Return the central 95 % of draws, no longer as logarithms."""
    if log_draws is None:
        return None
    low, high = np.percentile(log_draws, [TAIL_PERCENT, 100.0 - TAIL_PERCENT])
    return float(np.exp(low)), float(np.exp(high))
