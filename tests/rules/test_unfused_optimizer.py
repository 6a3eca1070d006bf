"""HOST004: optimizers that launch chains of small kernels."""

from __future__ import annotations

import pytest

from tests.rules.loop import Loop, diagnosed, recoverable_ms, single
from trace_analyzer.rules.unfused_optimizer import RULE

FUSED = "multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor>"
SCATTER = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
CHAIN = "vectorized_elementwise_kernel<4, addcmul_cuda_kernel>"


@pytest.mark.parametrize("name", ["Optimizer.step#AdamW.step", "optimizer"])
def test_a_chain_for_every_parameter_becomes_a_few_fused_kernels(name: str) -> None:
    def body(loop: Loop, _: int) -> None:
        loop.launches(20, 100)
        loop.inside(name, lambda: loop.launches(200, 8, CHAIN, host_us=30))

    found = diagnosed(RULE, single(body))
    # 6 ms of launches take longer than the GPU; 2.7 ms of kernels are left.
    (finding,) = found.findings
    assert 3.0 < recoverable_ms(found) < 4.0
    assert "launches 200 small kernels a step on rank 0" in finding.title
    assert finding.kind == "fault"


def test_below_a_tenth_of_the_step_it_is_an_opportunity() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.launches(100, 100)
        loop.inside("Optimizer.step#SGD.step", lambda: loop.launches(100, 10, CHAIN))

    found = diagnosed(RULE, single(body))
    # 1 ms of kernels of 11 ms becomes 0.42 ms.
    assert recoverable_ms(found) == pytest.approx(0.58, abs=0.05)
    assert found.findings[0].kind == "opportunity"


def test_fused_optimizers_pass() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.launches(20, 100)
        loop.inside("Optimizer.step#AdamW.step", lambda: loop.launches(36, 100, FUSED))

    assert not diagnosed(RULE, single(body)).findings


def test_without_a_range_the_optimizer_is_not_told() -> None:
    found = diagnosed(RULE, single(lambda loop, _: loop.launches(100, 10, CHAIN)))
    assert found.checks[0].state == "not-applicable"


def test_clipping_beside_a_fused_optimizer_is_no_chain() -> None:
    def update(loop: Loop) -> None:
        loop.launches(40, 10, "multi_tensor_apply_kernel<TensorListMetadata<1>, LpNormFunctor>")
        loop.launches(9, 150, FUSED)

    def body(loop: Loop, _: int) -> None:
        loop.launches(20, 100)
        loop.inside("optimizer", lambda: update(loop))

    assert not diagnosed(RULE, single(body)).findings


def test_sharded_parameters_leave_the_host_more_to_do() -> None:
    """A fused step over sharded parameters takes its host 2 ms, not 1."""

    def update(loop: Loop) -> None:
        for _ in range(40):
            loop.silent(190)
            loop.launch(CHAIN, 8)

    def gain(*, sharded: bool) -> float:
        def body(loop: Loop, _: int) -> None:
            loop.launches(2, 100)
            if sharded:
                loop.builder.operation(
                    SCATTER,
                    loop.free + 1,
                    loop.free + 2,
                    launch=(loop.now, loop.now + 1),
                    stream=17,
                )
                loop.now += 2
            loop.inside("optimizer", lambda: update(loop))

        return recoverable_ms(diagnosed(RULE, single(body)))

    assert gain(sharded=False) - gain(sharded=True) == pytest.approx(1.0, abs=0.1)
