"""HOST006: compilation and graph capture in the middle of training."""

from __future__ import annotations

import pytest

from tests.rules.loop import Loop, diagnosed, recoverable_ms, single
from trace_analyzer.rules.recompilation import RULE
from trace_analyzer.tables import HostCategory


def test_a_new_shape_every_few_steps_compiles_again() -> None:
    def body(loop: Loop, number: int) -> None:
        loop.launches(20, 100)
        if number % 4 == 3:
            loop.event("entire_frame_compile", 400_000, category=HostCategory.OPERATOR)
        loop.launches(20, 100)

    found = diagnosed(RULE, single(body, steps=12))
    (finding,) = found.findings
    # Three times 400 ms in the 11 steps that follow the first.
    assert recoverable_ms(found) == pytest.approx(3 * 398 / 11, rel=0.05)
    assert finding.recoverable_interval_ms is not None
    assert finding.recoverable_interval_ms[0] > 0
    assert "compiles again in 3 of 11 steps on rank 0, 400 ms each time" in finding.title


def test_cuda_graphs_that_are_recorded_again() -> None:
    def body(loop: Loop, number: int) -> None:
        loop.launches(20, 100)
        if number % 3 == 2:
            loop.call("cudaStreamBeginCapture", 10)
            loop.silent(90_000)
            loop.call("cudaGraphInstantiate", 5_000)

    (finding,) = diagnosed(RULE, single(body, steps=12)).findings
    assert "records CUDA graphs again" in finding.title


def test_warm_up_is_no_recompilation() -> None:
    def body(loop: Loop, number: int) -> None:
        loop.launches(20, 100)
        if number == 1:
            loop.event("entire_frame_compile", 400_000, category=HostCategory.OPERATOR)

    found = diagnosed(RULE, single(body))
    assert not found.findings
    assert found.checks[0].state == "passed"
