"""DATA002: batches copied from pageable memory, pinned in the step, or waited for."""

from __future__ import annotations

import pytest

from tests.rules.loop import Loop, diagnosed, recoverable_ms, single
from trace_analyzer.rules.pageable_copy import RULE
from trace_analyzer.tables import HostCategory

PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
PINNED = "Memcpy HtoD (Pinned -> Device)"


def test_pageable_batches_gain_bandwidth_and_the_wait() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.copy(PAGEABLE, 8_000, 64_000_000, blocking=True)
        loop.copy(PINNED, 50, 2_500_000)  # 50 GB/s
        loop.launches(20, 100)

    found = diagnosed(RULE, single(body))
    (finding,) = found.findings
    # 64 MB in 1.28 ms instead of 8 ms; then launches no longer start from an empty queue.
    assert recoverable_ms(found) == pytest.approx(6.8, abs=0.3)
    assert "64.0 MB a step" in finding.title
    assert "pinned copies of this run" in finding.edit


def test_pinning_in_the_step_and_waiting_for_the_copy() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.event("aten::_pin_memory", 4_000, category=HostCategory.OPERATOR)
        loop.copy(PINNED, 640, 32_000_000)
        loop.wait()
        loop.launches(20, 100)

    found = diagnosed(RULE, single(body))
    (finding,) = found.findings
    assert "pins its batches itself" in finding.title
    # 4.9 ms of the host become 2.6 ms of the GPU.
    assert recoverable_ms(found) == pytest.approx(2.2, abs=0.2)


def test_small_copies_and_pinned_ones_that_nobody_waits_for_are_fine() -> None:
    def body(loop: Loop, _: int) -> None:
        for _ in range(4):
            loop.copy(PAGEABLE, 4, 16 << 10, blocking=True)
        loop.copy(PINNED, 1_300, 64_000_000)
        loop.launches(40, 100)

    assert not diagnosed(RULE, single(body)).findings


def test_a_thread_that_copies_beside_the_step_costs_nothing() -> None:
    def body(loop: Loop, _: int) -> None:
        before, free = loop.now, loop.free
        loop.thread = 1
        loop.free = 0
        loop.launch(PAGEABLE, 3_000, kind=1, size=32_000_000, blocking=True, stream=45)  # type: ignore[arg-type]
        loop.thread, loop.now, loop.free = 0, before, free
        loop.launches(40, 100)

    assert not diagnosed(RULE, single(body)).findings
