"""HOST001: GPUs that wait for launches; and what the replay says they wait for."""

from __future__ import annotations

import pytest

from tests.rules.loop import Loop, context_of, diagnosed, ranks, recoverable_ms, single
from trace_analyzer import intervals
from trace_analyzer.model import Run
from trace_analyzer.rules.launch_bound_step import RULE
from trace_analyzer.rules.micro_batches import FIXED_KERNEL_NS
from trace_analyzer.tables import HostCategory

OPERATOR = HostCategory.OPERATOR


def eager(loop: Loop, count: int, us: float, host_us: float = 60.0) -> None:
    """Launch kernels of `us` with `host_us` of host time each."""
    for _ in range(count):
        loop.event("aten::mul", host_us - 10, category=OPERATOR)
        loop.launch("elementwise", us)


def test_small_kernels_wait_for_their_launches() -> None:
    run = single(lambda loop, _: eager(loop, 100, 10))
    found = diagnosed(RULE, run)
    (finding,) = found.findings
    context = context_of(run)
    # The kernels take 1 ms, launching them 4 ms without the profiler's costs.
    assert recoverable_ms(found) == pytest.approx(context.step_ns / 1e6 - 1.0, rel=0.2)
    assert finding.kind == "opportunity"
    assert "100 a step" in finding.title
    assert "reduce-overhead" in finding.actions[0]


def test_several_forward_passes_a_step_are_named() -> None:
    def body(loop: Loop, _: int) -> None:
        for _ in range(4):
            loop.inside("DistributedDataParallel.forward", lambda: eager(loop, 25, 10))

    (finding,) = diagnosed(RULE, single(body)).findings
    assert "4 forward passes" in finding.actions[0]
    assert finding.edit == "the batch is worked off in one part"


def in_parts(parts: int, added_us: float) -> Run:
    """Make steps of large kernels in some parts, whose gradients are added up."""

    def body(loop: Loop, _: int) -> None:
        for part in range(parts):
            loop.inside("DistributedDataParallel.forward", lambda: eager(loop, 10, 400, 30))
            if part:
                node = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
                loop.inside(
                    node,
                    lambda: loop.launch("vectorized_elementwise<CUDAFunctor_add<float>>", added_us),
                    category=OPERATOR,
                )

    return single(body)


def test_parts_of_a_batch_repeat_work_even_where_the_gpu_does_not_wait() -> None:
    found = diagnosed(RULE, in_parts(4, 500))
    (finding,) = found.findings
    # Three additions, and three quarters of what 40 kernels take however small they are.
    expected_ms = 3 * 0.5 + 40 * 0.75 * FIXED_KERNEL_NS / 1e6
    assert recoverable_ms(found) == pytest.approx(expected_ms, rel=0.1)
    assert "in 4 parts" in finding.title
    assert "1.5 ms" in finding.proof
    assert "fewer" in finding.actions[0]


@pytest.mark.parametrize(("parts", "added_us"), [(4, 10), (1, 500)])
def test_parts_that_repeat_next_to_nothing_are_none(parts: int, added_us: float) -> None:
    found = diagnosed(RULE, in_parts(parts, added_us))
    assert not found.findings
    assert found.checks[0].state == "passed"


def test_large_kernels_hide_their_launches() -> None:
    found = diagnosed(RULE, single(lambda loop, _: eager(loop, 100, 100)))
    assert not found.findings
    assert found.checks[0].state == "passed"


@pytest.mark.parametrize("cause", ["loader", "pause", "allocator", "optimizer"])
def test_what_other_rules_speak_of_is_no_launch_work(cause: str) -> None:
    def body(loop: Loop, _: int) -> None:
        eager(loop, 20, 100, host_us=30)
        if cause == "loader":
            loop.event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 5_000)
        elif cause == "pause":
            loop.silent(5_000)
        elif cause == "allocator":
            for _ in range(50):
                loop.call("cudaMalloc", 100)
        else:
            loop.inside("Optimizer.step#AdamW.step", lambda: eager(loop, 150, 3, host_us=40))

    assert not diagnosed(RULE, single(body)).findings


def two_ranks(slow_us: float) -> Run:
    """Two ranks whose steps end with an all-reduce; rank 1's host needs longer for a launch."""
    return ranks(lambda loop, _: eager(loop, 60, 25, slow_us if loop.rank else 30.0))


def test_one_slow_host_is_not_a_launch_bound_program() -> None:
    context = context_of(two_ranks(slow_us=120.0))
    assert context.replay is not None
    assert context.replay.swaps[1].host_ns > 1e6
    answer = RULE.find(context)
    assert "one rank's host alone" in getattr(answer, "reason", "")


def test_starvation_is_charged_to_what_the_host_does_meanwhile() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.silent(5_000)
        loop.launches(20, 100)

    context = context_of(single(body))
    starved = context.starvation[0]
    rank = context.ranks[0]
    begin = rank.steps.host_start_ns
    pauses = intervals.union(begin, begin + 5_000_000)
    # 5 ms without a launch, of which 1.8 ms of queued kernels still run.
    assert starved.total_ns == pytest.approx(3.2e6, rel=0.05)
    assert starved.within(pauses) == pytest.approx(starved.total_ns, rel=0.05)
