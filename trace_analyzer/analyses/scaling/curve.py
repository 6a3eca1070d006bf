"""The step time as a curve over the number of ranks, and what it says of more of them.

T(n) = a + b / n. For strong scaling b is work that is shared, and a what stays: serial work, and
ring communication, whose volume a rank sends, proportional to (n - 1) / n, is of the same form. For
weak scaling a is the step that many ranks approach. Amdahl's law is the case without communication.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.scaling.efficiency import Mode, Point
from trace_analyzer.analyses.scaling.resampling import TAIL_PERCENT
from trace_analyzer.schema import Float64Array

LEAST_POINTS = 3
# A curve that misses a measured point by more does not describe the runs, and nothing is projected.
MOST_MISFIT = 0.05
_PROJECTED_FACTORS = (2, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Projected:
    """What the curve gives at a number of ranks that was not measured."""

    ranks: int
    step_ms: float
    interval_ms: tuple[float, float] | None
    efficiency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The fit; `fixed_share` is a / (a + b), what of one rank's step does not shrink with ranks.

    `fixed_ms` is a, `shared_ms` is b. `misfit` is the largest relative error at a measured point.
    `projected` is empty where the curve does not fit.
    """

    fixed_ms: float
    shared_ms: float
    fixed_share: float
    fixed_share_interval: tuple[float, float] | None
    misfit: float
    projected: tuple[Projected, ...]

    @property
    def fits(self) -> bool:
        """Whether the curve describes the measured points."""
        return self.misfit <= MOST_MISFIT


def fit(measured: Sequence[Point], mode: Mode) -> Curve | None:
    """Fit the curve to points of at least three numbers of ranks; None with fewer.

    All points weigh alike, relative to their step.
    """
    if len(measured) < LEAST_POINTS:
        return None
    ranks = np.array([point.ranks for point in measured], dtype=np.float64)
    steps = np.array([point.step_ms for point in measured])
    fixed, shared = _line(ranks, steps[:, None])
    a, b = float(fixed[0]), float(shared[0])
    known = [point.steady.log_draws for point in measured]
    drawn = [draws for draws in known if draws is not None]
    fixed_draws = shared_draws = None
    if len(drawn) == len(known):
        fixed_draws, shared_draws = _line(ranks, np.exp(np.stack(drawn)))
    misfit = float(np.abs((a + b / ranks) / steps - 1.0).max())
    projected: tuple[Projected, ...] = ()
    if misfit <= MOST_MISFIT:
        projected = tuple(
            _project(a, b, int(ranks[-1]) * factor, measured[0], mode, fixed_draws, shared_draws)
            for factor in _PROJECTED_FACTORS
        )
    return Curve(
        fixed_ms=a,
        shared_ms=b,
        fixed_share=a / (a + b),
        fixed_share_interval=(
            None
            if fixed_draws is None or shared_draws is None
            else _interval(fixed_draws / (fixed_draws + shared_draws))
        ),
        misfit=misfit,
        projected=projected,
    )


def _line(ranks: Float64Array, steps: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return a and b of T = a + b / n; `steps` has shape (points, draws)."""
    x = (1.0 / ranks)[:, None]
    weight = 1.0 / steps**2
    total = weight.sum(axis=0)
    mean_x, mean_t = (weight * x).sum(axis=0) / total, (weight * steps).sum(axis=0) / total
    slope = (weight * (x - mean_x) * steps).sum(axis=0) / (weight * (x - mean_x) ** 2).sum(axis=0)
    return mean_t - slope * mean_x, slope


def _project(
    fixed: float,
    shared: float,
    ranks: int,
    base: Point,
    mode: Mode,
    fixed_draws: Float64Array | None,
    shared_draws: Float64Array | None,
) -> Projected:
    step = fixed + shared / ranks
    divisor = ranks / base.ranks if mode == "strong" else 1.0
    return Projected(
        ranks=ranks,
        step_ms=step,
        interval_ms=(
            None
            if fixed_draws is None or shared_draws is None
            else _interval(fixed_draws + shared_draws / ranks)
        ),
        efficiency=base.step_ms / divisor / step,
    )


def _interval(draws: Float64Array) -> tuple[float, float]:
    low, high = np.percentile(draws, [TAIL_PERCENT, 100.0 - TAIL_PERCENT])
    return float(low), float(high)
