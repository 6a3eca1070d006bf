"""The step over the number of ranks: T(n) = a + b / n, and what it may be used for."""

from __future__ import annotations

import numpy as np
import pytest

from trace_analyzer.analyses.scaling.curve import fit
from trace_analyzer.analyses.scaling.efficiency import Measurement, Point, points


def measured(steps: dict[int, float], deviation: float | None = None) -> list[Point]:
    return points(
        [
            Measurement(
                ranks=ranks,
                basis="given",
                stated_ms=ms,
                stated_deviation_ms=None if deviation is None else deviation * ms,
                stated_count=None if deviation is None else 100,
            )
            for ranks, ms in steps.items()
        ]
    )


def test_a_serial_part_is_found_again() -> None:
    found = fit(measured({n: 10.0 + 90.0 / n for n in (1, 2, 4, 8)}), "strong")
    assert found is not None
    assert (found.fixed_ms, found.shared_ms) == pytest.approx((10.0, 90.0))
    assert found.fixed_share == pytest.approx(0.1)
    assert found.misfit == pytest.approx(0.0, abs=1e-9)
    assert [item.ranks for item in found.projected] == [16, 32]
    assert found.projected[0].step_ms == pytest.approx(10.0 + 90.0 / 16)
    assert found.projected[0].efficiency == pytest.approx(100 / 16 / 15.625)
    assert found.projected[0].interval_ms is None


def test_ring_communication_is_of_the_same_form() -> None:
    """(n - 1) / n of a constant: part of what does not shrink, and taken off what is shared."""
    found = fit(measured({n: 80.0 / n + 6.0 * (n - 1) / n for n in (1, 2, 4, 8)}), "strong")
    assert found is not None
    assert (found.fixed_ms, found.shared_ms) == pytest.approx((6.0, 74.0))


def test_weak_scaling_approaches_a_limit() -> None:
    found = fit(measured({n: 50.0 + 5.0 * (n - 1) / n for n in (1, 2, 4)}), "weak")
    assert found is not None
    assert found.fixed_ms == pytest.approx(55.0)
    assert found.projected[-1].efficiency == pytest.approx(50 / (50 + 5 * 15 / 16))


def test_two_points_make_no_curve() -> None:
    assert fit(measured({1: 43.3, 2: 25.7}), "strong") is None


def test_nothing_is_projected_from_a_curve_that_does_not_fit() -> None:
    found = fit(measured({1: 100.0, 2: 50.0, 4: 45.0, 8: 70.0}), "strong")
    assert found is not None
    assert not found.fits
    assert found.misfit > 0.05
    assert found.projected == ()


def test_the_interval_of_the_serial_part_covers_it() -> None:
    generator = np.random.default_rng(5)
    covered = 0
    for _ in range(60):
        steps = {
            n: (10.0 + 90.0 / n) * float(np.exp(0.0125 * generator.standard_normal() / 10))
            for n in (1, 2, 4, 8)
        }
        found = fit(measured(steps, deviation=0.01), "strong")
        assert found is not None
        assert found.fixed_share_interval is not None
        covered += found.fixed_share_interval[0] <= 0.1 <= found.fixed_share_interval[1]
        assert found.projected[0].interval_ms is not None
    assert covered >= 55
