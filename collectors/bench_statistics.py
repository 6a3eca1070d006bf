"""Medians, ratios and the α-β fit of repeated measurements, each with a 95 % interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]

RESAMPLES = 2000
TAIL_PERCENT = 2.5


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its interval, in the unit of what was measured."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Estimate:
        """Return the estimate in another unit."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def inverted(self, factor: float) -> Estimate:
        """Return `factor` over the estimate: a rate from a time."""
        return Estimate(factor / self.value, factor / self.high, factor / self.low)

    @property
    def interval(self) -> list[float]:
        """Return [low, high], rounded to six significant digits."""
        return [significant(self.low), significant(self.high)]


def significant(value: float, digits: int = 6) -> float:
    """Return a number rounded to significant digits, for JSON."""
    return float(f"{value:.{digits}g}")


def median_draws(values: Float64Array, generator: np.random.Generator) -> Float64Array:
    """Return medians of resampled repetitions; `values` has shape (repetitions,)."""
    index = generator.integers(0, len(values), size=(RESAMPLES, len(values)))
    return np.asarray(np.median(values[index], axis=1), dtype=np.float64)


def estimate(value: float, draws: Float64Array) -> Estimate:
    """Return a value with the percentile interval of its draws."""
    low, high = np.percentile(draws, [TAIL_PERCENT, 100 - TAIL_PERCENT])
    return Estimate(float(value), float(low), float(high))


def median(values: Float64Array, seed: int = 0) -> Estimate:
    """Return the median of repetitions with its bootstrap interval."""
    return estimate(float(np.median(values)), median_draws(values, np.random.default_rng(seed)))


def nested_median(rounds: Sequence[Float64Array], seed: int = 0) -> tuple[float, Float64Array]:
    """Return the median of medians over rounds, and draws that resample rounds and repetitions.

    A round is one start of the processes; what differs from start to start is in the draws.
    """
    generator = np.random.default_rng(seed)
    value = float(np.median([np.median(values) for values in rounds]))
    by_round = np.stack([median_draws(values, generator) for values in rounds], axis=1)
    pick = generator.integers(0, len(rounds), size=(RESAMPLES, len(rounds)))
    draws = np.median(np.take_along_axis(by_round, pick, axis=1), axis=1)
    return value, np.asarray(draws, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Fit:
    """time = latency + bytes / rate."""

    latency_s: Estimate
    rate_bytes_per_s: Estimate
    largest_relative_residual: float


def fit_line(sizes_bytes: Sequence[int], times_s: Sequence[Float64Array], seed: int = 0) -> Fit:
    """Fit the α-β model to medians, every size with the same relative weight.

    `times_s` holds the repetitions of each size. Real libraries change protocol between sizes, so
    the residual says how far a straight line is from the truth. Raises `ValueError` for fewer
    than two sizes.
    """
    if len(sizes_bytes) < 2:
        raise ValueError("a line needs two sizes")
    generator = np.random.default_rng(seed)
    sizes = np.asarray(sizes_bytes, dtype=np.float64)
    medians = np.array([np.median(values) for values in times_s])
    draws = np.stack([median_draws(values, generator) for values in times_s])  # sizes, resamples
    latency, slope = _weighted_line(sizes, medians[:, None])
    latency_draws, slope_draws = _weighted_line(sizes, draws)
    predicted = latency[0] + sizes * slope[0]
    return Fit(
        latency_s=estimate(float(latency[0]), latency_draws),
        rate_bytes_per_s=estimate(float(slope[0]), slope_draws).inverted(1.0),
        largest_relative_residual=float(np.abs(predicted / medians - 1).max()),
    )


def _weighted_line(sizes: Float64Array, times: Float64Array) -> tuple[Float64Array, Float64Array]:
    weights = 1 / times**2
    total = weights.sum(axis=0)
    mean_size = (weights * sizes[:, None]).sum(axis=0) / total
    mean_time = (weights * times).sum(axis=0) / total
    centred = sizes[:, None] - mean_size
    slope = (weights * centred * times).sum(axis=0) / (weights * centred**2).sum(axis=0)
    return mean_time - slope * mean_size, slope
