from __future__ import annotations

import numpy as np
import pytest

from trace_analyzer.collectors.faultlab.statistics import present_share, truth_of

RANDOM = np.random.default_rng(5)


def segments(base_ms: float, count: int, noise: float, drift: float = 0.0) -> list[np.ndarray]:
    """Return segments of two ranks and 20 steps; the second rank needs 1 ms more."""
    return [
        base_ms + drift * index + np.array([[0.0], [1.0]]) + noise * RANDOM.standard_normal((2, 20))
        for index in range(count)
    ]


def test_cost_is_the_difference_of_the_slower_ranks() -> None:
    truth = truth_of(segments(20, 4, 0.0), segments(23, 4, 0.0), mean=False)
    assert truth.healthy.step_ms == 21
    assert truth.faulty.step_ms == 24
    assert truth.cost_ms == 3
    assert truth.interval_ms == (3, 3)
    assert truth.cost_share == pytest.approx(3 / 24)


def test_interval_covers_the_cost_and_shrinks_with_noise() -> None:
    wide = truth_of(segments(20, 6, 1.0), segments(23, 6, 1.0), mean=False)
    narrow = truth_of(segments(20, 6, 0.1), segments(23, 6, 0.1), mean=False)
    assert wide.interval_ms[0] < 3 < wide.interval_ms[1]
    assert narrow.half_width_ms < wide.half_width_ms / 4


def test_drift_common_to_both_states_cancels_in_pairs() -> None:
    truth = truth_of(segments(20, 6, 0.05, 0.5), segments(23, 6, 0.05, 0.5), mean=False)
    spread = truth.healthy.interval_ms[1] - truth.healthy.interval_ms[0]
    assert spread > 0.8
    assert truth.half_width_ms < 0.3


def test_a_segment_that_differs_widens_the_interval() -> None:
    odd = segments(20, 4, 0.01)
    odd[1] = odd[1] + 1.0
    assert truth_of(odd, segments(20, 4, 0.01), mean=True).half_width_ms > 0.2


def test_pauses_count_in_means_only() -> None:
    paused = segments(20, 4, 0.0)
    for segment in paused:
        segment[:, ::5] += 10
    healthy = segments(20, 4, 0.0)
    assert truth_of(healthy, paused, mean=True, block_steps=5).cost_ms == pytest.approx(2)
    assert truth_of(healthy, paused, mean=False).cost_ms == 0


def test_states_of_different_rank_counts_compare() -> None:
    alone = [segment[:1] for segment in segments(30, 4, 0.0)]
    assert truth_of(segments(20, 4, 0.0), alone, mean=False).cost_ms == 9


def test_segments_must_pair() -> None:
    with pytest.raises(ValueError, match="2 healthy and 3 faulty"):
        truth_of(segments(20, 2, 0), segments(20, 3, 0), mean=False)


def test_document_holds_every_step() -> None:
    document = truth_of(segments(20, 3, 0.1), segments(20, 3, 0.1), mean=False).healthy.document()
    assert document["steps"] == 60
    assert np.shape(document["step_times_ms"]) == (3, 2, 20)
    assert len(document["segment_step_ms"]) == 3


def test_a_fault_that_has_worn_off_is_seen() -> None:
    truth = truth_of(segments(20, 4, 0.0), segments(23, 4, 0.0), mean=False)
    assert present_share(truth, [[23.0, 23.0], [24.0, 24.0]], mean=False) == pytest.approx(1)
    assert present_share(truth, [[20.0, 20.0], [21.0, 21.0]], mean=False) == pytest.approx(0)
    nothing = truth_of(segments(20, 4, 0.1), segments(20, 4, 0.1), mean=False)
    assert present_share(nothing, [[20.0], [21.0]], mean=False) is None
