"""What a gap is too short for is taken from its neighbours, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trace_analyzer.analyses.replay.costs import DEFAULT_KINETO, SILENT_NS, _left

COSTS = replace(DEFAULT_KINETO, floor=0.25, call_floor=0.25, neighbours=4)


def left(gap: list[float], task: list[float], spent: list[float]) -> tuple[np.ndarray, np.ndarray]:
    had = np.array(gap), np.array(task)
    return _left(had, had, (np.array(spent), np.zeros(len(gap))), COSTS)


def test_nothing_is_moved_where_every_gap_holds_its_costs() -> None:
    gap, task = left([40.0, 40.0, 40.0, 40.0], [8.0] * 4, [10.0, 20.0, 30.0, 0.0])
    assert gap.tolist() == [30.0, 20.0, 10.0, 40.0]
    assert task.tolist() == [8.0] * 4


def test_what_is_over_comes_out_of_the_neighbours() -> None:
    gap, task = left([40.0, 40.0, 40.0, 40.0], [8.0] * 4, [50.0, 10.0, 10.0, 10.0])
    assert gap[0] == 10.0  # the floor
    assert gap.sum() + task.sum() == pytest.approx(160 + 32 - 80)
    assert (gap[1:] > 10.0).all()
    assert (gap[1:] < 30.0).all()


def test_the_floor_holds_for_all_of_them() -> None:
    gap, task = left([40.0, 40.0, 40.0, 40.0], [8.0] * 4, [1e6] * 4)
    assert gap.tolist() == [10.0] * 4
    assert task.tolist() == [2.0] * 4


def test_other_neighbours_and_silent_gaps_keep_their_time() -> None:
    silent = 2.0 * SILENT_NS
    gap, _ = left([40.0, silent, 40.0, 40.0, 40.0], [0.0] * 5, [100.0, 0.0, 0.0, 0.0, 0.0])
    assert gap.tolist() == pytest.approx([10.0, silent, 10.0, 10.0, 40.0])


def test_an_empty_rank_has_nothing_to_move() -> None:
    gap, task = left([], [], [])
    assert len(gap) == len(task) == 0
