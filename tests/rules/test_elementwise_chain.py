"""GPU002: element-wise kernels that each go over the whole tensor again."""

from __future__ import annotations

import pytest

from tests.rules.loop import Loop, diagnosed, recoverable_ms, single
from tests.rules.recorded import cost_ms, diagnosed_recording
from trace_analyzer.rules.elementwise_chain import RULE

GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
MUL = "void at::native::vectorized_elementwise_kernel<8, at::native::AUnaryFunctor<MulFunctor>>"
ADD = "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<float>>"
TANH = "void at::native::vectorized_elementwise_kernel<(int)8, at::native::tanh_kernel_cuda>"
LERP = "void at::native::vectorized_elementwise_kernel<8, at::native::lerp_scalar_kernel>"
CAST = "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda>"
PLAIN = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::"
    "CUDAFunctor_add<float>>(int)>"
)


def chain(loop: Loop, *names: str, us: float = 50, grids: tuple[int, ...] = ()) -> None:
    loop.launch(GEMM, 300)
    for at, name in enumerate(names):
        loop.launch(name, us, grid=grids[at] if grids else 4096, host_us=5)


def test_one_kernel_of_each_chain_stays() -> None:
    found = diagnosed(RULE, single(lambda loop, _: chain(loop, MUL, ADD, TANH, MUL)))
    (finding,) = found.findings
    assert recoverable_ms(found) == pytest.approx(0.15, abs=0.01)
    assert finding.kind == "opportunity"
    assert "4 element-wise kernels a step form 1 chain on rank 0" in finding.title


def test_kernels_of_one_size_are_found_under_different_launch_shapes() -> None:
    # 8 elements a thread on 4,096 blocks are as many as 4 a thread on 8,192.
    found = diagnosed(
        RULE, single(lambda loop, _: chain(loop, MUL, PLAIN, TANH, grids=(4096, 8192, 4096)))
    )
    assert recoverable_ms(found) == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    "names",
    [
        (MUL, ADD),  # two are no chain
        (MUL, MUL, MUL, MUL),  # one kernel over several tensors
        (MUL, ADD, GEMM, TANH, MUL),  # interrupted
        (CAST, MUL, CAST, ADD),  # casts are no members
        (LERP, LERP, LERP, LERP),  # an optimizer's
    ],
)
def test_what_is_no_chain(names: tuple[str, ...]) -> None:
    found = diagnosed(RULE, single(lambda loop, _: chain(loop, *names)))
    assert not found.findings
    assert found.checks[0].state == "passed"


def test_other_sizes_and_short_kernels_are_no_chain() -> None:
    other = single(lambda loop, _: chain(loop, MUL, ADD, TANH, grids=(4096, 2048, 4096)))
    short = single(lambda loop, _: chain(loop, *[MUL, ADD, TANH] * 8, us=3))
    assert not diagnosed(RULE, other).findings
    assert not diagnosed(RULE, short).findings


def test_the_optimizer_is_left_to_its_own_rule() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.inside("Optimizer.step#Adam.step", lambda: chain(loop, MUL, ADD, TANH, MUL))

    assert not diagnosed(RULE, single(body)).findings


def test_recorded_activation_in_single_operations() -> None:
    name = "gpt-small-single.elementwise-chain_1.kineto"
    found = diagnosed_recording(RULE, name)
    assert recoverable_ms(found) == pytest.approx(cost_ms(name), rel=0.1)


def test_recorded_healthy_run_has_none() -> None:
    assert not diagnosed_recording(RULE, "gpt-small-single.healthy_1.kineto").findings
