from __future__ import annotations

from collections.abc import Sequence

import pytest

from trace_analyzer.collectors.boundaries import AnchorFinder


def boundaries(calls: Sequence[str], rounds: int = 3) -> list[int]:
    """Positions of the calls that end a step."""
    finder = AnchorFinder(rounds=rounds)
    return [position for position, name in enumerate(calls) if finder.ends_step(name)]


def test_one_optimizer_ends_every_step_once_it_is_known() -> None:
    assert boundaries(["a"] * 8) == [3, 4, 5, 6, 7]


def test_two_optimizers_in_turn_end_a_step_together_at_the_last_one() -> None:
    calls = ["generator", "discriminator"] * 6
    assert boundaries(calls) == [7, 9, 11]


def test_the_rarer_optimizer_is_the_round() -> None:
    round_ = ["critic"] * 5 + ["generator"]
    found = boundaries(round_ * 6, rounds=10)
    assert found == [17, 23, 29, 35]


def test_an_optimizer_of_many_parts_is_one_step() -> None:
    parts = [f"parameter {number}" for number in range(20)]
    assert boundaries(parts * 5) == [79, 99]


def test_an_optimizer_inside_another_one_is_counted_once() -> None:
    assert boundaries(["inner", "outer"] * 5) == [7, 9]


def test_a_call_at_set_up_is_no_step() -> None:
    assert boundaries(["warm", "main", "warm", "main", "main", "main", "main", "main"]) == []
    assert boundaries(["main", "rare", "main", "main", "main", "main"]) == [4, 5]


@pytest.mark.parametrize("skip", [0, 1, 2])
def test_at_least_two_rounds_are_watched(skip: int) -> None:
    assert boundaries(["a"] * 4, rounds=skip) == [2, 3]
