"""Efficiency: its definition, its interval, and what is too little for a verdict."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from tests.comparisons import series
from trace_analyzer.analyses.scaling import resampling
from trace_analyzer.analyses.scaling.efficiency import (
    Efficiency,
    Measurement,
    Mode,
    Point,
    efficiency,
    points,
)
from trace_analyzer.analyses.scaling.resampling import block_length, interval, student
from trace_analyzer.analyses.scaling.series import clean


def stated(
    ranks: int, ms: float, deviation: float | None = None, count: int | None = None
) -> Measurement:
    return Measurement(
        ranks=ranks, basis="given", stated_ms=ms, stated_deviation_ms=deviation, stated_count=count
    )


def timed(ranks: int, seed: int, count: int = 60, **options: float) -> Measurement:
    values = series(np.random.default_rng(seed), count, **options)
    return Measurement(ranks=ranks, basis="unprofiled", series=clean(values))


def of_two(found: list[Point]) -> Efficiency:
    base, other = found
    return efficiency(base, other, "strong")


@pytest.mark.parametrize(
    ("mode", "one", "several", "expected"),
    [
        ("strong", 100.0, 100.0, 0.5),  # half efficiency on two cards is no gain at all
        ("strong", 100.0, 75.0, 2 / 3),  # time down to 75 % is a third more than ideal, not half
        ("strong", 100.0, 100 / 1.68, 0.84),  # 1.68 times the throughput is above 80 %
        ("weak", 100.0, 125.0, 0.8),  # the batch of a rank kept: the step alone is compared
        ("weak", 100.0, 100.0, 1.0),
    ],
)
def test_the_folklore_examples_come_out_right(
    mode: Mode, one: float, several: float, expected: float
) -> None:
    base, two = points([stated(1, one), stated(2, several)])
    assert efficiency(base, two, mode).steady == pytest.approx(expected)


def test_throughput_and_time_are_the_same_thing_said_twice() -> None:
    base, two = points([stated(1, 100.0), stated(2, 100 / 1.68)])
    found = efficiency(base, two, "strong")
    assert found.speed_up == pytest.approx(1.68)
    assert two.step_ms / base.step_ms - 1 == pytest.approx(-0.405, abs=0.0005)
    assert found.steady > 0.8


def test_a_compiled_base_makes_the_efficiency_look_lower_not_higher() -> None:
    eager, two = points([stated(1, 100.0), stated(2, 60.0)])
    compiled, _ = points([stated(1, 80.0), stated(2, 60.0)])
    assert efficiency(compiled, two, "strong").steady < efficiency(eager, two, "strong").steady


def test_loss_and_ideal() -> None:
    base, two = points([stated(1, 43.311), stated(2, 25.735)])
    found = efficiency(base, two, "strong")
    assert found.steady == pytest.approx(0.8415, abs=0.0001)
    assert (found.ideal_ms, found.loss_ms) == pytest.approx((21.6555, 4.0795))
    assert found.steady_interval is None
    assert found.wallclock is None


def test_a_base_of_several_ranks() -> None:
    base, more = points([stated(2, 50.0), stated(8, 15.0)])
    found = efficiency(base, more, "strong")
    assert (found.steady, found.ideal_ms) == pytest.approx((50 / 4 / 15, 12.5))


def test_rare_long_steps_are_in_the_wallclock_efficiency_only() -> None:
    one, two = series(np.random.default_rng(1), 60), series(np.random.default_rng(2), 60) / 2
    two[[20, 40]] *= 4
    measured = [
        Measurement(ranks=n, basis="unprofiled", series=clean(values))
        for n, values in ((1, one), (2, two))
    ]
    found = of_two(points(measured))
    assert found.steady == pytest.approx(1.0, abs=0.02)
    assert found.wallclock == pytest.approx(one.mean() / 2 / two.mean())
    assert found.wallclock is not None
    assert found.wallclock < 0.95
    assert found.wallclock_interval is not None
    assert found.wallclock_interval[0] < found.wallclock < found.wallclock_interval[1]


def test_the_interval_holds_the_value_and_repeats() -> None:
    found = [of_two(points([timed(1, 1), timed(2, 2)])).steady_interval for _ in range(2)]
    assert found[0] == found[1]
    assert found[0] is not None
    assert found[0][0] < 0.5 < found[0][1]


def test_steps_that_resemble_each_other_widen_the_interval() -> None:
    widths = []
    for correlation in (0.0, 0.6):
        base, two = points(
            [timed(1, 5, 80, correlation=correlation), timed(2, 6, 80, correlation=correlation)]
        )
        bounds = efficiency(base, two, "strong").steady_interval
        assert bounds is not None
        widths.append(bounds[1] - bounds[0])
    assert widths[1] > 1.4 * widths[0]


def test_without_ten_steps_there_is_no_interval() -> None:
    base, two = points([timed(1, 1, 9), timed(2, 2, 60)])
    found = efficiency(base, two, "strong")
    assert found.steady_interval is None
    assert "9 steady steps" in base.steady.reason


@pytest.mark.parametrize(
    ("measurement", "reason"),
    [
        (timed(1, 1, 12), "12 steps"),
        (timed(1, 1, 29), "29 steps"),
        (timed(1, 1, 60), ""),
        (stated(1, 43.3), "a number alone"),
        (stated(1, 43.3, 0.4, 60), ""),
        (stated(1, 43.3, 0.4, 20), "20 steps"),
    ],
)
def test_the_least_evidence_for_a_verdict(measurement: Measurement, reason: str) -> None:
    assert measurement.enough() == reason


def test_many_steps_that_are_worth_few_are_too_few() -> None:
    found = timed(1, 12, 40, correlation=0.9)
    assert found.effective is not None
    assert found.effective < 10
    assert "worth" in found.enough()


def test_a_stated_spread_gives_the_interval_of_a_median() -> None:
    base, two = points([stated(1, 50.0, 1.0, 100), stated(2, 25.0, 0.5, 100)])
    bounds = efficiency(base, two, "strong").steady_interval
    assert bounds is not None
    # Two medians, each known to 1.2533 · 2 % / 10.
    expected = 1.96 * np.sqrt(2) * 1.2533 * 0.02 / 10
    assert bounds[1] - 1.0 == pytest.approx(expected, rel=0.15)


def test_three_runs_of_each_put_the_spread_between_starts_into_the_interval() -> None:
    levels = (24.0, 25.0, 26.0)
    several = [timed(1, seed, median_ms=ms, variation=0.002) for seed, ms in enumerate(levels)]
    several += [
        timed(2, 10 + seed, median_ms=ms, variation=0.002) for seed, ms in enumerate(levels)
    ]
    base, two = points(several)
    found = efficiency(base, two, "strong")
    assert len(base.runs) == 3
    assert base.step_ms == pytest.approx(np.exp(np.mean(np.log(levels))), rel=0.002)
    assert found.steady_interval is not None
    assert found.steady_interval[1] - found.steady_interval[0] > 0.05
    alone = of_two(points([several[1], several[4]])).steady_interval
    assert alone is not None
    assert alone[1] - alone[0] < 0.005


@pytest.mark.parametrize(
    ("degrees", "expected"), [(1, 12.706), (4, 2.776), (9, 2.262), (20, 2.086), (100, 1.984)]
)
def test_quantiles_of_student(degrees: float, expected: float) -> None:
    assert student(degrees) == pytest.approx(expected, rel=0.001)


def test_blocks_reach_as_far_as_the_correlation() -> None:
    assert block_length(0.05, 60) == 1
    assert block_length(0.5, 60) == 4
    assert block_length(0.9, 60) == 10  # never more than a sixth
    assert interval(None) is None
    assert interval(np.full(100, log(2.0))) == pytest.approx((2.0, 2.0))


@pytest.mark.parametrize(
    ("count", "correlation"), [(60, 0.0), (60, 0.3), (60, 0.5), (120, 0.5), (30, 0.0)]
)
def test_the_interval_covers_the_truth(
    count: int, correlation: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bounded version of tests/benchmarks/bench_scaling.py, which has 2,000 repetitions."""
    monkeypatch.setattr(resampling, "RESAMPLES", 200)
    generator = np.random.default_rng(7)
    covered = 0
    repetitions = 120
    for _ in range(repetitions):
        measured = [
            Measurement(
                ranks=n,
                basis="unprofiled",
                series=clean(
                    series(generator, count, correlation=correlation, outliers=0.03, median_ms=ms)
                ),
            )
            for n, ms in ((1, 50.0), (2, 31.25))
        ]
        base, two = points(measured)
        bounds = efficiency(base, two, "strong").steady_interval
        assert bounds is not None
        covered += bounds[0] <= 0.8 <= bounds[1]
    assert covered >= 0.93 * repetitions
