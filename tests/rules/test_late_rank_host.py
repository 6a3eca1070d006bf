"""RANK001: a host that is slower than its peers', beyond what healthy hosts differ by."""

from __future__ import annotations

import pytest

from tests.rules.loop import Loop, diagnosed, ranks, recoverable_ms, single
from trace_analyzer.rules.late_rank_host import RULE


def slower(factor: float) -> object:
    """Return a step of 100 launches whose host takes `factor` times as long on rank 1."""

    def body(loop: Loop, _: int) -> None:
        loop.launches(100, 20, host_us=40.0 * (factor if loop.rank == 1 else 1.0))

    return body


def test_a_host_of_twice_the_time_is_blamed_for_the_difference() -> None:
    found = diagnosed(RULE, ranks(slower(2.0)))  # type: ignore[arg-type]
    # 100 launches of 40 µs more; the profiler's cost is taken out of both hosts alike.
    assert 2.0 < recoverable_ms(found) < 4.2
    assert found.findings[0].ranks == [1]
    assert found.findings[0].title.startswith("Rank 1's host is slower")


@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_hosts_that_differ_as_healthy_ones_do_are_not(factor: float) -> None:
    assert not diagnosed(RULE, ranks(slower(factor))).findings  # type: ignore[arg-type]


def test_ranks_that_are_late_in_turn_are_not_slower() -> None:
    # Every step waits for another rank: the median step is long, and no host is longer than others.
    def body(loop: Loop, number: int) -> None:
        slow = number % 2 == loop.rank
        loop.launches(100, 20, host_us=120.0 if slow else 40.0)

    found = diagnosed(RULE, ranks(body))
    assert not found.findings
    assert "in turn" in found.checks[0].reason


def test_a_late_host_that_the_gpu_hides_costs_nothing() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.launches(100, 200, host_us=80.0 if loop.rank == 1 else 40.0)

    assert not diagnosed(RULE, ranks(body)).findings


def test_one_rank_alone_is_not_judged() -> None:
    found = diagnosed(RULE, single(lambda loop, _: loop.launches(50, 20)))
    assert [(check.code, check.state) for check in found.checks] == [("RANK001", "not-applicable")]
