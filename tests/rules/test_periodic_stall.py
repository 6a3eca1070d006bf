"""STEP001: checkpoints and evaluations that training waits for."""

from __future__ import annotations

import pytest

from tests.rules.loop import Loop, diagnosed, recoverable_ms, single
from trace_analyzer.rules import host_pause
from trace_analyzer.rules.periodic_stall import RULE
from trace_analyzer.tables import HostCategory


def usual(loop: Loop) -> None:
    for number in range(40):
        loop.launch(f"layer {number}", 100)


def test_a_checkpoint_every_third_step() -> None:
    def body(loop: Loop, number: int) -> None:
        usual(loop)
        if number % 3 == 2:
            for _ in range(10):
                loop.copy("Memcpy DtoH (Device -> Pageable)", 800, 10_000_000, blocking=True)
            loop.silent(60_000)

    run = single(body, steps=12)
    found = diagnosed(RULE, run)
    (finding,) = found.findings
    # Four times 68 ms in 11 steps, and the queue that each empties.
    assert recoverable_ms(found) == pytest.approx(4 * 68 / 11, rel=0.15)
    assert "saves from the GPU in 4 of 11 steps on rank 0" in finding.title
    assert "100.0 MB" in finding.proof
    assert "every 3 steps" in finding.proof
    # The write to disk after the copies is a part of it, not a pause of its own.
    assert not diagnosed(host_pause.RULE, run).findings


def test_an_evaluation_now_and_then() -> None:
    def evaluation(loop: Loop) -> None:
        for _ in range(4):
            loop.launches(10, 100, "forward")

    def body(loop: Loop, number: int) -> None:
        usual(loop)
        if number in {3, 8}:
            loop.inside("evaluation", lambda: evaluation(loop))

    found = diagnosed(RULE, single(body, steps=12))
    (finding,) = found.findings
    assert recoverable_ms(found) == pytest.approx(2 * 4.0 / 11, rel=0.15)
    assert "does extra work" in finding.title
    assert "`evaluation`" in finding.proof


@pytest.mark.parametrize("case", ["once", "optimizer", "shapes"])
def test_near_misses(case: str) -> None:
    def body(loop: Loop, number: int) -> None:
        if case == "shapes":  # every step is another sequence
            for layer in range(40 + number):
                loop.launch(f"layer {layer + number}", 100)
            return
        usual(loop)
        if case == "once" and number == 4:
            loop.launches(40, 100, "forward")
        if case == "optimizer" and number % 2:  # a step is half a batch
            for _ in range(8):
                loop.launch("multi_tensor_apply_kernel<FusedAdamMathFunctor>", 300)
        if case == "once":
            loop.event("aten::log", 1, category=HostCategory.OPERATOR)

    found = diagnosed(RULE, single(body, steps=12))
    assert not found.findings
    assert found.checks[0].state == "passed"
