"""STEP002: steps that become longer and stay so."""

from __future__ import annotations

import pytest

from tests.rules.loop import Loop, diagnosed, recoverable_ms, single
from trace_analyzer.rules import periodic_stall
from trace_analyzer.rules.step_drift import RULE


def usual(loop: Loop, us: float = 100) -> None:
    for number in range(40):
        loop.launch(f"layer {number}", us)


def test_more_work_from_some_step_on() -> None:
    def body(loop: Loop, number: int) -> None:
        usual(loop)
        if number >= 7:
            loop.launches(10, 120, "extra")

    run = single(body, steps=13)
    found = diagnosed(RULE, run)
    (finding,) = found.findings
    # 1.2 ms more in 6 of 12 steps.
    assert recoverable_ms(found) == pytest.approx(0.6, abs=0.1)
    assert "From step 7 on" in finding.title
    assert "10 kernels more" in finding.proof
    assert not diagnosed(periodic_stall.RULE, run).findings


def test_longer_kernels_from_some_step_on() -> None:
    run = single(lambda loop, number: usual(loop, 100 if number < 7 else 125), steps=13)
    assert recoverable_ms(diagnosed(RULE, run)) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("case", ["spikes", "faster", "small"])
def test_near_misses(case: str) -> None:
    def body(loop: Loop, number: int) -> None:
        if case == "spikes":
            usual(loop, 130 if number % 3 == 0 else 100)
        elif case == "faster":
            usual(loop, 130 if number < 7 else 100)
        else:
            usual(loop, 105 if number >= 7 else 100)

    assert not diagnosed(RULE, single(body, steps=13)).findings
