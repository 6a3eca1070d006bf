"""DATA003: large copies from the GPU that the host waits for."""

from __future__ import annotations

import pytest

from tests.rules.loop import Loop, diagnosed, recoverable_ms, single
from trace_analyzer.rules import pageable_copy, periodic_stall
from trace_analyzer.rules.blocking_device_copy import RULE

TO_HOST = "Memcpy DtoH (Device -> Pageable)"
BACK = "Memcpy HtoD (Pageable -> Device)"
SIZE = 16_000_000


def test_a_large_tensor_logged_in_every_step() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.launches(20, 100)
        loop.copy(TO_HOST, 1_300, SIZE, blocking=True)
        loop.silent(600)

    found = diagnosed(RULE, single(body))
    # 1.3 ms of copy and 0.6 ms in which the queue is empty.
    assert recoverable_ms(found) == pytest.approx(1.9, abs=0.15)
    assert "16.0 MB a step from the GPU on rank 0." in found.findings[0].title


def test_parameters_that_visit_the_host_are_no_batches() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.copy(TO_HOST, 1_300, SIZE, blocking=True)
        loop.copy(BACK, 2_300, SIZE, blocking=True)
        loop.launches(20, 100)

    run = single(body)
    found = diagnosed(RULE, run)
    assert recoverable_ms(found) == pytest.approx(3.6, abs=0.3)
    assert "16.0 MB come back" in found.findings[0].title
    assert not diagnosed(pageable_copy.RULE, run).findings


@pytest.mark.parametrize("case", ["rare", "not waited for", "small"])
def test_near_misses(case: str) -> None:
    def body(loop: Loop, number: int) -> None:
        loop.launches(20, 100)
        if case == "rare" and number == 4:
            loop.copy(TO_HOST, 1_300, SIZE, blocking=True)
        elif case == "not waited for":
            loop.copy("Memcpy DtoH (Device -> Pinned)", 300, SIZE)
        elif case == "small":
            loop.copy(TO_HOST, 3, 4, blocking=True)

    assert not diagnosed(RULE, single(body)).findings


def test_a_checkpoint_in_every_third_step_is_no_habit() -> None:
    def save(loop: Loop) -> None:
        for _ in range(8):
            loop.copy(TO_HOST, 1_300, SIZE, blocking=True)
        loop.silent(2_000)

    def body(loop: Loop, number: int) -> None:
        loop.launches(20, 100)
        if number % 3 == 2:
            save(loop)

    run = single(body)
    assert not diagnosed(RULE, run).findings
    assert [item.code for item in diagnosed(periodic_stall.RULE, run).findings] == ["STEP001"]
