"""GPU006: a part of the forward pass that runs again in the backward pass."""

from __future__ import annotations

import pytest

from tests.rules.loop import Loop, diagnosed, recoverable_ms, single
from tests.rules.recorded import diagnosed_recording
from trace_analyzer.rules.recomputation import RULE
from trace_analyzer.tables import HostCategory

LAYER = ("norm", "cast", "qkv_gemm", "attention", "out_gemm", "add")
BACK = ("attention_bwd", "norm_bwd", "dgrad_gemm", "wgrad_gemm", "cast", "accumulate")


def layer(loop: Loop, names: tuple[str, ...], us: float = 50) -> None:
    for name in names:
        begin = loop.now
        loop.silent(5)
        loop.launch(name, us, host_us=5)
        loop.builder.event(
            f"aten::{name}", begin, loop.now, category=HostCategory.OPERATOR, thread=loop.thread
        )


def trained(loop: Loop, *, again: bool, micro_batches: int = 1, alone: bool = False) -> None:
    """Run four layers forward and backward; `alone` lets one thread launch everything."""
    for _ in range(micro_batches):
        for _ in range(4):
            layer(loop, LAYER)
        loop.thread = 0 if alone else 1
        for _ in range(4):
            if again:
                loop.silent(40)  # what prepares the part
                layer(loop, LAYER[:5])
            layer(loop, BACK, 100)
        loop.thread = 0


def test_activations_that_were_not_kept_are_computed_again() -> None:
    found = diagnosed(RULE, single(lambda loop, _: trained(loop, again=True)))
    (finding,) = found.findings
    assert finding.kind == "opportunity"
    assert finding.title.startswith("20 kernels of the forward pass run a second time")
    # The GPU decides: 4 × 5 kernels of 50 µs.
    assert recoverable_ms(found) == pytest.approx(1.0, abs=0.1)


def test_what_prepares_the_part_goes_too_where_the_host_decides() -> None:
    def body(loop: Loop, _: int) -> None:
        trained(loop, again=True)
        loop.silent(3_000)
        loop.wait()

    found = diagnosed(RULE, single(body))
    # Kernels of 1 ms end earlier, and the host is ahead of the GPU until it waits.
    assert recoverable_ms(found) >= 1.0


@pytest.mark.parametrize(
    "options",
    [
        {"again": False},
        {"again": False, "micro_batches": 3},  # forward passes of the program's own thread
        {"again": True, "alone": True},  # one thread: not told from micro-batches
    ],
)
def test_what_is_no_recomputation(options: dict[str, bool]) -> None:
    found = diagnosed(RULE, single(lambda loop, _: trained(loop, **options)))
    assert not found.findings
    assert found.checks[0].state == "passed"


def test_recorded_healthy_run_keeps_its_activations() -> None:
    found = diagnosed_recording(RULE, "gpt-small-single.healthy_1.kineto")
    assert not found.findings
    assert found.checks[0].state == "passed"
