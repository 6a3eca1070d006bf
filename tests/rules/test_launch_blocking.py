"""HOST005: blocking launches, and anomaly detection left on."""

from __future__ import annotations

import pytest

from tests.rules.loop import Loop, diagnosed, recoverable_ms, single
from trace_analyzer.rules.launch_blocking import RULE
from trace_analyzer.tables import HostCategory, OperationKind

OPERATOR = HostCategory.OPERATOR


def test_launches_that_wait_for_their_kernels() -> None:
    def body(loop: Loop, _: int) -> None:
        for _ in range(20):
            loop.silent(50)
            loop.launch("gemm", 100, blocking=True)

    found = diagnosed(RULE, single(body))
    # Each kernel of 0.1 ms takes 0.157 ms; without the waiting only the kernels are left.
    assert recoverable_ms(found) == pytest.approx(20 * 0.055, rel=0.1)
    assert found.findings[0].title == "Every launch waits for its kernel on rank 0."


def test_short_kernels_that_end_before_their_call_returns_are_fine() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.launches(50, 3, host_us=12)
        loop.launches(20, 100)

    assert not diagnosed(RULE, single(body)).findings


def checked(loop: Loop) -> None:
    """One node of backward, with its check."""

    def check() -> None:
        loop.inside("aten::isnan", lambda: loop.launch("ne", 3), category=OPERATOR)

        def read() -> None:
            loop.launch("Memcpy DtoH (Device -> Pinned)", 1, kind=OperationKind.MEMCPY, size=1)
            loop.wait()

        loop.inside("aten::item", read, category=OPERATOR)

    def node() -> None:
        loop.launch("gemm", 100)
        check()

    loop.inside("autograd::engine::evaluate_function: MmBackward0", node, category=OPERATOR)


def test_anomaly_detection_costs_checks_and_stacks() -> None:
    def forward(loop: Loop) -> None:
        loop.silent(180)  # keeping the stack
        loop.launch("gemm", 100)

    def body(loop: Loop, _: int) -> None:
        for _ in range(10):
            loop.inside("aten::mm", lambda: forward(loop), category=OPERATOR)
        for _ in range(10):
            checked(loop)

    found = diagnosed(RULE, single(body))
    (finding,) = found.findings
    assert "anomaly detection" in finding.title
    # Recorded: 1.9 ms forward and 1.3 ms backward; 2 ms of kernels stay.
    assert recoverable_ms(found) == pytest.approx(1.1, abs=0.3)


def test_one_check_a_step_is_no_anomaly_detection() -> None:
    def body(loop: Loop, _: int) -> None:
        node = "autograd::engine::evaluate_function: MmBackward0"
        for _ in range(20):
            loop.inside(node, lambda: loop.launch("gemm", 100), category=OPERATOR)
        checked(loop)

    found = diagnosed(RULE, single(body))
    assert not found.findings
    assert found.checks[0].state == "passed"
