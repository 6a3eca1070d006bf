"""MEM001: driver calls for memory in every step."""

from __future__ import annotations

import pytest

from tests.rules.loop import Loop, diagnosed, recoverable_ms, single
from trace_analyzer.rules.allocator_churn import RULE
from trace_analyzer.tables import HostCategory


def churning(loop: Loop, _: int) -> None:
    loop.launches(20, 100)
    # What torch.cuda.empty_cache() does: the first free waits for the GPU.
    loop.wait("cudaFree")
    for _ in range(9):
        loop.call("cudaFree", 100)
    loop.call("cudaMalloc", 500)


def test_emptying_the_cache_in_every_step_costs_the_calls_and_the_queue() -> None:
    found = diagnosed(RULE, single(churning))
    (finding,) = found.findings
    # 2 ms of kernels stay; 1.4 ms of calls, and the wait that emptied the queue, go.
    assert recoverable_ms(found) == pytest.approx(1.5, abs=0.3)
    assert "11 times a step on rank 0" in finding.title
    assert "empty_cache" in finding.actions[0]


def test_frees_inside_operators_point_to_short_memory() -> None:
    def body(loop: Loop, number: int) -> None:
        loop.inside("aten::empty", lambda: churning(loop, number), category=HostCategory.OPERATOR)

    (finding,) = diagnosed(RULE, single(body)).findings
    assert finding.actions[0].startswith("Use less memory")


def test_warm_up_and_pinning_do_not_count() -> None:
    def body(loop: Loop, number: int) -> None:
        if number == 0:
            loop.call("cudaMalloc", 900)
        loop.call("cudaHostAlloc", 900)
        loop.launches(20, 100)

    found = diagnosed(RULE, single(body))
    assert not found.findings
    assert found.checks[0].state == "passed"
