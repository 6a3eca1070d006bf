"""Scaling efficiency of measured step times, with intervals and with what they rest on.

With b ranks as the base and n more: strong scaling keeps the global batch, E = b T_b / (n T_n); weak
scaling keeps the batch of a rank, E = T_b / T_n. E_steady takes medians of steady steps; E_wallclock
means of all steps after warm-up, so that checkpoints and other rare long steps count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import exp, log
from typing import Literal

import numpy as np

from trace_analyzer.analyses.scaling.resampling import (
    LEAST_RUNS,
    Draws,
    interval,
    mean_draws,
    median_draws,
    over_runs,
    stated_draws,
)
from trace_analyzer.analyses.scaling.series import CleanSeries
from trace_analyzer.schema import Float64Array

Mode = Literal["strong", "weak"]
Basis = Literal["unprofiled", "profiled", "given"]

# What a verdict needs on each side: steps, and how many they are worth.
VERDICT_STEPS = 30
VERDICT_EFFECTIVE = 10.0
_SEED = 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measurement:
    """The step time of one run of n ranks: a series, or a number (`stated_*`, ms) without one."""

    ranks: int
    basis: Basis
    series: CleanSeries | None = None
    stated_ms: float | None = None
    stated_deviation_ms: float | None = None
    stated_count: int | None = None

    @property
    def step_ms(self) -> float:
        """Median of the steady steps, or the stated number."""
        if self.series is not None:
            return self.series.median_ms
        if self.stated_ms is None:
            msg = "a measurement has a series or a number"
            raise ValueError(msg)
        return self.stated_ms

    @property
    def steady_count(self) -> int | None:
        """Steady steps, or the stated count; None for a number alone."""
        return self.stated_count if self.series is None else len(self.series.steady_ms)

    @property
    def effective(self) -> float | None:
        """How many independent steps they are worth."""
        return self.stated_count if self.series is None else self.series.effective

    def enough(self) -> str:
        """Return why this is too little for a verdict; "" where it is enough."""
        count, effective = self.steady_count, self.effective
        if count is None or effective is None:
            return "a number alone"
        if count < VERDICT_STEPS:
            return f"{count} steps"
        if effective < VERDICT_EFFECTIVE:
            return f"{count} steps that are worth {effective:.0f} independent ones"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Point:
    """All runs of n ranks. `steady` and `running` hold T_n and the mean of all steps, in ms."""

    ranks: int
    runs: tuple[Measurement, ...]
    steady: Draws
    running: Draws

    @property
    def step_ms(self) -> float:
        """T_n: the median steady step, over several runs their geometric mean."""
        return exp(self.steady.log_value)

    @property
    def step_interval_ms(self) -> tuple[float, float] | None:
        """95 % interval of T_n."""
        return interval(self.steady.log_draws)

    def lacking(self) -> list[str]:
        """Return why the runs are too little for a verdict; empty where they are enough.

        Three runs are: what their steps have in common is in the spread between them.
        """
        if len(self.runs) >= LEAST_RUNS and self.steady.log_draws is not None:
            return []
        return [reason for run in self.runs if (reason := run.enough())]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Efficiency:
    """E of one point against the base; intervals are 95 %, None where they cannot be given."""

    point: Point
    base: Point
    mode: Mode
    steady: float
    steady_interval: tuple[float, float] | None
    wallclock: float | None
    wallclock_interval: tuple[float, float] | None
    ideal_ms: float
    loss_ms: float
    loss_interval_ms: tuple[float, float] | None
    log_draws: Float64Array | None

    @property
    def speed_up(self) -> float:
        """Work in a given time, over that of the base."""
        return self.steady * self.point.ranks / self.base.ranks


def points(measurements: Sequence[Measurement]) -> list[Point]:
    """Return the points by number of ranks; draws of different runs are independent."""
    streams = np.random.SeedSequence(_SEED).spawn(2 * len(measurements) + 2)
    generators = iter([np.random.default_rng(stream) for stream in streams])
    ordered = sorted(measurements, key=lambda item: item.ranks)
    found = []
    for ranks, members in groupby(ordered, key=lambda item: item.ranks):
        runs = tuple(members)
        steady = [_steady(run, next(generators)) for run in runs]
        running = [_running(run, next(generators)) for run in runs]
        resampler = np.random.default_rng(_SEED + ranks)
        found.append(
            Point(
                ranks=ranks,
                runs=runs,
                steady=over_runs(steady, resampler),
                running=over_runs(running, resampler),
            )
        )
    return found


def _steady(run: Measurement, generator: np.random.Generator) -> Draws:
    if run.series is not None:
        return median_draws(run.series, generator)
    return stated_draws(run.step_ms, run.stated_deviation_ms, run.stated_count, generator)


def _running(run: Measurement, generator: np.random.Generator) -> Draws:
    if run.series is not None:
        return mean_draws(run.series, generator)
    return Draws(log_value=log(run.step_ms), log_draws=None, reason="a number alone")


def share(base: Point, point: Point, mode: Mode) -> float:
    """Return what the base's step is divided by to give the ideal step of the point."""
    return point.ranks / base.ranks if mode == "strong" else 1.0


def efficiency(base: Point, point: Point, mode: Mode) -> Efficiency:
    """Return E of a point."""
    divisor = share(base, point, mode)
    ideal = base.step_ms / divisor
    draws = _difference(base.steady, point.steady)
    log_e = None if draws is None else draws - log(divisor)
    # A number alone says nothing of rare long steps.
    both = all(run.series is not None for run in (*base.runs, *point.runs))
    slow = _difference(base.running, point.running)
    return Efficiency(
        point=point,
        base=base,
        mode=mode,
        steady=ideal / point.step_ms,
        steady_interval=interval(log_e),
        wallclock=exp(base.running.log_value - point.running.log_value) / divisor if both else None,
        wallclock_interval=interval(None if slow is None else slow - log(divisor)),
        ideal_ms=ideal,
        loss_ms=point.step_ms - ideal,
        loss_interval_ms=_loss(base, point, divisor),
        log_draws=log_e,
    )


def _difference(one: Draws, other: Draws) -> Float64Array | None:
    if one.log_draws is None or other.log_draws is None:
        return None
    return one.log_draws - other.log_draws


def _loss(base: Point, point: Point, divisor: float) -> tuple[float, float] | None:
    if base.steady.log_draws is None or point.steady.log_draws is None:
        return None
    loss = np.exp(point.steady.log_draws) - np.exp(base.steady.log_draws) / divisor
    low, high = np.percentile(loss, [2.5, 97.5])
    return float(low), float(high)
