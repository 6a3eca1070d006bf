"""HOST003: hosts that stand still, in every step or now and then."""

from __future__ import annotations

import pytest

from tests.rules.loop import Loop, diagnosed, recoverable_ms, single
from trace_analyzer.rules.host_pause import RULE
from trace_analyzer.tables import HostCategory


def test_a_sleep_in_every_step() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.silent(6_000)
        loop.launches(20, 100)

    found = diagnosed(RULE, single(body))
    (finding,) = found.findings
    # 6 ms of pause and 0.2 ms of launches become 2 ms of kernels.
    assert recoverable_ms(found) == pytest.approx(4.2, abs=0.2)
    assert "in every step on rank 0: 6.0 ms a step" in finding.title


def test_collections_that_come_and_go_count_as_a_mean() -> None:
    def body(loop: Loop, number: int) -> None:
        loop.launches(20, 100)
        if number % 4 == 2:
            loop.inside("train_epoch", lambda: loop.silent(240_000))

    found = diagnosed(RULE, single(body, steps=20))
    (finding,) = found.findings
    # Five pauses of 240 ms in 20 steps; a queue of under 2 ms hides next to nothing.
    assert recoverable_ms(found) == pytest.approx(60, rel=0.15)
    assert "up to 240 ms at once" in finding.title
    assert "train_epoch" in finding.proof
    assert "gc.freeze()" in finding.actions[0]


def test_pauses_that_the_queue_hides_are_no_finding() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.silent(3_000)
        loop.launches(60, 100)

    assert not diagnosed(RULE, single(body)).findings


@pytest.mark.parametrize("filled", ["operator", "call", "loader"])
def test_what_is_recorded_is_no_pause(filled: str) -> None:
    def body(loop: Loop, _: int) -> None:
        if filled == "operator":
            loop.event("aten::sort", 6_000, category=HostCategory.OPERATOR)
        elif filled == "call":
            loop.call("cudaMalloc", 6_000)
        else:
            loop.event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 6_000)
        loop.launches(20, 100)

    found = diagnosed(RULE, single(body))
    assert not found.findings
    assert "0.00 ms" in found.checks[0].reason


@pytest.mark.parametrize(("walk_us", "pauses"), [(1_500, False), (4_000, True)])
def test_an_optimizer_that_walks_through_its_parameters(walk_us: float, *, pauses: bool) -> None:
    def update(loop: Loop) -> None:
        loop.silent(walk_us)
        loop.launches(4, 100, "multi_tensor_apply_kernel<FusedAdamMathFunctor>")

    def body(loop: Loop, _: int) -> None:
        loop.launches(10, 100)
        loop.inside("Optimizer.step#AdamW.step", lambda: update(loop))

    assert bool(diagnosed(RULE, single(body)).findings) == pauses
