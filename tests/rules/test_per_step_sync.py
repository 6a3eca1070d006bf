"""HOST002: values that the host reads in every step."""

from __future__ import annotations

import pytest

from tests.rules.loop import Loop, diagnosed, recoverable_ms, single
from trace_analyzer.rules.per_step_sync import RULE
from trace_analyzer.tables import HostCategory, OperationKind

OPERATOR = HostCategory.OPERATOR


def read(loop: Loop) -> None:
    """Read one value, as `.item()` does."""

    def copied() -> None:
        loop.launch(
            "Memcpy DtoH (Device -> Pinned)", 1, kind=OperationKind.MEMCPY, size=4, host_us=6
        )
        loop.wait()

    loop.inside("aten::item", copied, category=OPERATOR)


def work(loop: Loop, count: int) -> None:
    """Launch kernels of 100 µs, with Python between them."""
    for _ in range(count):
        loop.event("aten::mul", 60, category=OPERATOR)
        loop.launch("gemm", 100)


def test_reads_empty_the_queue_and_cost_the_refill() -> None:
    def body(loop: Loop, _: int) -> None:
        for _ in range(4):
            work(loop, 10)
            read(loop)
            loop.silent(300)

    found = diagnosed(RULE, single(body))
    (finding,) = found.findings
    # After each of four reads the GPU has nothing for 0.3 ms and the first launches.
    assert recoverable_ms(found) == pytest.approx(4 * 0.37, rel=0.2)
    assert "4 times a step on rank 0" in finding.title


def test_waiting_for_an_old_event_costs_nothing() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.launches(40, 100)
        begin = loop.now
        loop.now += 3_000  # the event has passed long ago
        loop.builder.call("cudaEventSynchronize", begin, loop.now)

    assert not diagnosed(RULE, single(body)).findings


@pytest.mark.parametrize("case", ["rare", "batch"])
def test_near_misses(case: str) -> None:
    def body(loop: Loop, number: int) -> None:
        loop.launches(40, 100)
        if case == "rare" and number % 4 == 0:
            read(loop)
        if case == "batch":
            loop.copy("Memcpy HtoD (Pageable -> Device)", 500, 4_000_000, blocking=True)

    found = diagnosed(RULE, single(body))
    assert not found.findings
    assert found.checks[0].state == "passed"
