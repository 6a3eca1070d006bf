"""GPU001: matrix kernels by their number format."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.rules.loop import Loop, diagnosed, recoverable_ms, single
from tests.rules.recorded import cost_ms, diagnosed_recording
from trace_analyzer.analyses.float_activations import float_activations
from trace_analyzer.analyses.matrix_rates import Format, formats, speedup
from trace_analyzer.model import Device, Run
from trace_analyzer.rules.no_tensor_cores import RULE

HOPPER = Device(ordinal=0, name="H200", compute_capability=(9, 0))
FULL = "ampere_sgemm_128x64_nn"
HALF = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"


def on_hopper(run: Run) -> Run:
    return replace(run, ranks=tuple(replace(rank, devices=(HOPPER,)) for rank in run.ranks))


def test_products_in_float32_give_back_the_ratio_of_the_units() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.launches(20, 100, FULL)
        loop.launches(20, 100, HALF)

    found = diagnosed(RULE, on_hopper(single(body)))
    (finding,) = found.findings
    assert finding.kind == "opportunity"
    # 2 ms in float32 take 2 / 12.8 ms; the products in half precision stay.
    assert recoverable_ms(found) == pytest.approx(2 * (1 - 1 / 12.8), abs=0.05)
    assert "float32 without tensor cores" in finding.title
    assert "2.0 ms" in finding.title


def test_a_gpu_that_is_not_known_is_given_the_least_ratio() -> None:
    found = diagnosed(RULE, single(lambda loop, _: loop.launches(20, 100, FULL)))
    assert recoverable_ms(found) == pytest.approx(2 * (1 - 1 / 1.6), abs=0.05)
    assert "this one is unknown" in found.findings[0].limits


def test_half_precision_and_small_float32_products_are_left_alone() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.launches(20, 100, HALF)
        loop.launches(4, 5, FULL)

    found = diagnosed(RULE, on_hopper(single(body)))
    assert not found.findings
    assert found.checks[0].state == "passed"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("volta_sgemm_128x64_nt", Format.FLOAT32),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1)", Format.FLOAT32),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_ffma__5x", Format.FLOAT32),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4", Format.TF32),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16", Format.TF32),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80", Format.TF32_THREEFOLD),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn", Format.OTHER),
        ("cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1", Format.OTHER),
        ("turing_fp16_s1688gemm_fp16_128x64_sliced1x2_ldg8_relu_f2f_tn", Format.OTHER),
        ("volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn", Format.OTHER),
        (HALF, Format.OTHER),
    ],
)
def test_formats_by_name(name: str, kind: Format) -> None:
    assert formats([name])[0] == kind


def test_unaligned_products_need_other_sizes_first() -> None:
    odd = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align1>(Params)"
    found = diagnosed(RULE, on_hopper(single(lambda loop, _: loop.launches(20, 100, odd))))
    assert not found.findings


@pytest.mark.parametrize(("capability", "kind"), [((7, 0), "float16"), ((8, 0), "bfloat16")])
def test_gpus_before_ampere_are_not_told_to_use_what_they_lack(
    capability: tuple[int, int], kind: str
) -> None:
    gpu = Device(ordinal=0, compute_capability=capability)
    run = single(lambda loop, _: loop.launches(20, 100, FULL))
    run = replace(run, ranks=tuple(replace(rank, devices=(gpu,)) for rank in run.ranks))
    (finding,) = diagnosed(RULE, run).findings
    assert f"torch.{kind})" in finding.actions[0]
    assert any("TF32" in action for action in finding.actions) == (kind == "bfloat16")


def elementwise(functor: str, vector: int, tensors: int) -> str:
    return (
        f"void at::native::vectorized_elementwise_kernel<{vector}, at::native::{functor}, "
        f"std::array<char*, {tensors}ul> >(int)"
    )


ADD = elementwise("CUDAFunctor_add<float>", 4, 3)
GELU = elementwise("GeluCUDAKernelImpl()::{lambda()#1}::{lambda(float)#2}", 4, 2)
GELU_HALF = elementwise("GeluCUDAKernelImpl()::{lambda()#1}::{lambda(c10::BFloat16)#4}", 8, 2)
TO_HALF = elementwise("bfloat16_copy_kernel_cuda()::{lambda(float)#1}", 8, 2)


def blocks(loop: Loop, kernels: tuple[str, ...]) -> None:
    """Run a part in half precision and one in float32; element-wise kernels have 4096 blocks."""
    for name in (HALF, GELU_HALF, HALF, HALF, *kernels, HALF):
        loop.launch(name, 200, grid=2 * 4096 if name in (GELU, ADD) else 4096)


def test_activations_between_float32_products_take_half_where_they_run_in_half_elsewhere() -> None:
    kernels = (FULL, GELU, ADD, FULL, TO_HALF)
    found = diagnosed(RULE, on_hopper(single(lambda loop, _: blocks(loop, kernels))))
    (finding,) = found.findings
    # Two products, half of an activation, and the cast of its tensor; the sum stays float32.
    products = 2 * 200 * (1 - 1 / 12.8)
    assert recoverable_ms(found) == pytest.approx((products + 100 + 200) / 1e3, abs=0.02)
    assert finding.recoverable_interval_ms is not None
    low, high = finding.recoverable_interval_ms
    assert low < products / 1e3
    assert high > (products + 400) / 1e3  # the sum too
    assert finding.confidence == "high"


def test_much_that_may_stay_float32_makes_a_gain_less_sure() -> None:
    found = diagnosed(
        RULE, on_hopper(single(lambda loop, _: blocks(loop, (FULL, ADD, ADD, ADD, FULL))))
    )
    assert found.findings[0].confidence == "medium"
    assert "autocast" in found.findings[0].confidence_reason


def test_activations_elsewhere_only_widen_the_interval() -> None:
    kernels = (FULL, HALF, GELU, HALF)
    found = diagnosed(RULE, on_hopper(single(lambda loop, _: blocks(loop, kernels))))
    assert recoverable_ms(found) == pytest.approx(200 * (1 - 1 / 12.8) / 1e3, abs=0.02)


def test_casts_of_other_tensors_and_of_optimizers_stay() -> None:
    def body(loop: Loop, _: int) -> None:
        blocks(loop, (FULL, GELU, FULL))
        loop.inside("Optimizer.step#AdamW.step", lambda: loop.launch(GELU, 400, grid=2 * 4096))
        loop.launch(TO_HALF, 400, grid=4)

    rank = single(body).ranks[0]
    slow = np.array([rank.names[name] == FULL for name in rank.operations.name])
    half = np.array([rank.names[name] == HALF for name in rank.operations.name])
    found = float_activations(rank, slow | half, slow)
    steps = len(np.flatnonzero(slow)) // 2
    assert len(found.halved) == steps
    assert not len(found.cast)
    assert not len(found.doubtful_cast)


def test_speedups_follow_the_hardware() -> None:
    assert speedup(Format.FLOAT32, (HOPPER,)) == pytest.approx(12.8)
    assert speedup(Format.TF32, (HOPPER,)) == pytest.approx(1.6)
    volta = Device(ordinal=0, compute_capability=(7, 0))
    assert speedup(Format.FLOAT32, (volta,)) == pytest.approx(6.4)
    assert speedup(Format.OTHER, (HOPPER,)) == 1.0


def test_recorded_blocks_in_float32() -> None:
    name = "gpt-small-single.full-precision_2.kineto"
    assert recoverable_ms(diagnosed_recording(RULE, name)) == pytest.approx(cost_ms(name), rel=0.05)


def test_recorded_healthy_run_has_none() -> None:
    assert not diagnosed_recording(RULE, "gpt-small-single.healthy_1.kineto").findings
