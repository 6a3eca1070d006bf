"""Step times sorted: warm-up, level changes, outliers, resemblance."""

from __future__ import annotations

import numpy as np
import pytest

from tests.comparisons import series
from trace_analyzer.analyses.scaling.changes import level_changes
from trace_analyzer.analyses.scaling.series import clean, lag_one_correlation
from trace_analyzer.schema import Float64Array


def made(count: int, seed: int = 1, **options: float) -> Float64Array:
    return series(np.random.default_rng(seed), count, **options)


def test_steady_steps_are_all_of_a_quiet_series() -> None:
    values = made(40, variation=0.01)
    found = clean(values)
    assert (found.warm_up, found.outliers, len(found.segments)) == (0, 0, 1)
    assert found.steady.all()
    assert found.median_ms == pytest.approx(np.median(values))
    assert found.mean_ms == pytest.approx(values.mean())


def test_long_steps_at_the_beginning_are_warm_up_and_count_nowhere() -> None:
    values = np.concatenate([[90.0, 40.0], made(40, variation=0.01)])
    found = clean(values)
    assert found.warm_up == 2
    assert not found.steady[:2].any()
    assert found.median_ms == pytest.approx(np.median(values[2:]))
    assert found.mean_ms == pytest.approx(values[2:].mean())


def test_a_long_step_in_the_middle_is_an_outlier_of_the_median_only() -> None:
    values = made(40, variation=0.01)
    values[20] = 60.0
    found = clean(values)
    assert (found.warm_up, found.outliers) == (0, 1)
    assert len(found.steady_ms) == 39
    assert found.mean_ms == pytest.approx(values.mean())


def test_a_change_of_level_is_cut_and_the_longest_stretch_counts() -> None:
    values = np.concatenate([made(20, variation=0.01), made(40, 2, variation=0.01) * 1.1])
    found = clean(values)
    assert [(part.first, part.last) for part in found.segments] == [(0, 20), (20, 60)]
    assert found.chosen == 1
    assert found.segments[0].median_ms == pytest.approx(25.0, rel=0.01)
    assert found.median_ms == pytest.approx(27.5, rel=0.01)
    assert found.mean_ms == pytest.approx(values.mean())


def test_of_two_equal_stretches_the_later_counts() -> None:
    values = np.concatenate([made(30, variation=0.01), made(30, 2, variation=0.01) * 1.2])
    assert clean(values).chosen == 1


def test_two_changes_of_level_are_both_found() -> None:
    quiet = made(90, variation=0.005)
    quiet[30:60] *= 1.08
    assert level_changes(quiet) == [30, 60]


@pytest.mark.parametrize("share", [0.0, 0.01, 0.015])
def test_changes_of_level_that_do_not_matter_are_left_in(share: float) -> None:
    values = made(60, variation=0.002)
    values[30:] *= 1 + share
    assert level_changes(values) == []


def test_a_level_needs_ten_steps() -> None:
    values = made(40, variation=0.002)
    values[35:] *= 1.05
    assert level_changes(values[:36]) == []
    assert len(clean(values).segments) <= 2


@pytest.mark.parametrize(("correlation", "most"), [(0.0, 0.01), (0.3, 0.03), (0.5, 0.05)])
def test_steps_that_resemble_their_neighbours_are_seldom_cut(
    correlation: float, most: float
) -> None:
    generator = np.random.default_rng(3)
    cut = sum(
        bool(level_changes(series(generator, 60, correlation=correlation))) for _ in range(200)
    )
    assert cut <= most * 200


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_resemblance_is_measured_in_spite_of_outliers(correlation: float) -> None:
    generator = np.random.default_rng(4)
    found = [
        clean(series(generator, 300, correlation=correlation, outliers=0.03)).correlation
        for _ in range(20)
    ]
    assert np.mean(found) == pytest.approx(correlation, abs=0.08)


def test_effective_steps() -> None:
    found = clean(made(200, variation=0.01, correlation=0.6))
    expected = len(found.steady_ms) * (1 - found.correlation) / (1 + found.correlation)
    assert found.effective == pytest.approx(expected)
    assert 20 < found.effective < 100


def test_too_few_steps_tell_no_resemblance() -> None:
    rising = np.arange(1.0, 9.0)
    assert lag_one_correlation(rising, np.ones(8, dtype=np.bool_)) == 0.0
    assert clean([25.0]).median_ms == 25.0
    assert clean([25.0, 25.0, 25.0]).effective == 3


def test_equal_steps_have_no_resemblance_to_measure() -> None:
    found = clean([25.0] * 50)
    assert (found.correlation, found.effective) == (0.0, 50)
