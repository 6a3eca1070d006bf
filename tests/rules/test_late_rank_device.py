"""RANK002: the same kernels take longer on one rank."""

from __future__ import annotations

import pytest

from tests.rules.loop import diagnosed, recoverable_ms
from tests.rules.ranks import Ranks
from tests.rules.recorded import diagnosed_recording
from trace_analyzer.model import Run
from trace_analyzer.rules.late_rank_device import RULE

MB = 1_000_000


def trained(slower: float, world: int = 2, pause_us: float = 0.0) -> Run:
    """Return a run whose last rank's kernels take `slower` times as long."""
    ranks = Ranks(world=world)
    for _ in range(6):
        ranks.step()
        ranks.silent(pause_us, world - 1)
        for rank in range(world):
            factor = slower if rank == world - 1 else 1.0
            ranks.kernels(20, 200 * factor, "forward", rank)
            ranks.kernels(10, 400 * factor, "backward", rank)
        ranks.collective(8 * MB)
        ranks.join()
        for rank in range(world):
            ranks.kernels(1, 500 * (slower if rank == world - 1 else 1.0), "adam", rank)
    return ranks.run()


@pytest.mark.parametrize("world", [2, 4])
def test_a_slow_gpu_costs_what_its_kernels_take_longer(world: int) -> None:
    found = diagnosed(RULE, trained(1.3, world))
    (finding,) = found.findings
    assert finding.kind == "fault"
    assert finding.ranks == [world - 1]
    assert "30 % longer for the same kernels" in finding.title
    assert recoverable_ms(found) == pytest.approx(0.3 * 8.5, abs=0.1)


def test_gpus_of_one_model_differ_a_little() -> None:
    found = diagnosed(RULE, trained(1.05))
    assert not found.findings
    assert found.checks[0].state == "passed"
    assert "5.0 % longer" in found.checks[0].reason


def test_a_late_host_is_no_slow_gpu() -> None:
    assert not diagnosed(RULE, trained(1.0, pause_us=3_000)).findings


def test_two_healthy_gpus_under_power_limit_are_left_alone() -> None:
    found = diagnosed_recording(RULE, "gpt-large-ddp.healthy_1.kineto")
    assert not found.findings
    assert "rank 1's kernels take 4." in found.checks[0].reason
