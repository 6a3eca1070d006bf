"""GPU005: copies into another layout, and weights that are cast again."""

from __future__ import annotations

import pytest

from tests.rules.loop import Loop, diagnosed, recoverable_ms, single
from tests.rules.recorded import diagnosed_recording
from trace_analyzer.analyses.channels_first import channels_first
from trace_analyzer.rules.cast_or_layout_copies import RULE
from trace_analyzer.tables import HostCategory, OperationKind

STRIDED = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>(int)>"
)
CAST = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda("
    "at::TensorIteratorBase&)::{lambda()#3}, std::array<char*, 2ul>>"
)
WEIGHT = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda("
    "at::TensorIteratorBase&)::{lambda(float)#1}>"
)
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
BACK = "autograd::engine::evaluate_function: "


def operator(loop: Loop, name: str, kernel: str, us: float, sequence: int | None = None) -> None:
    """Launch one kernel from inside an operator that itself takes 20 µs of the host."""
    begin = loop.now
    loop.silent(10)
    loop.launch(kernel, us, host_us=5)
    loop.silent(5)
    extra = {} if sequence is None else {"sequence": sequence}
    loop.builder.event(
        name, begin, loop.now, category=HostCategory.OPERATOR, thread=loop.thread, **extra
    )


@pytest.mark.parametrize("kernel", [STRIDED, "void cudnn::ops::nchwToNhwcKernel<__half, __half>"])
def test_layout_copies_give_back_their_time(kernel: str) -> None:
    def body(loop: Loop, _: int) -> None:
        for _ in range(10):
            loop.launch(GEMM, 100)
            loop.launch(kernel, 50)

    found = diagnosed(RULE, single(body))
    assert recoverable_ms(found) == pytest.approx(0.5, abs=0.05)
    finding = found.findings[0]
    assert finding.kind == "opportunity"
    assert "10 kernels a step only copy" in finding.title
    assert ("channels_last" in finding.actions[0]) == ("nchw" in kernel)


def test_casts_and_plain_copies_are_no_layout_copies() -> None:
    def body(loop: Loop, _: int) -> None:
        for _ in range(10):
            loop.launch(GEMM, 100)
            loop.launch(CAST, 50)
            loop.copy("Memcpy DtoD (Device -> Device)", 30, 1 << 20)

    found = diagnosed(RULE, single(body))
    assert not found.findings
    assert found.checks[0].state == "passed"


def test_a_cast_that_also_changes_the_layout_is_needed() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.launches(10, 100, GEMM)
        loop.launch(STRIDED, 5)
        loop.launch(STRIDED.replace("_nocast", ""), 500)

    assert not diagnosed(RULE, single(body)).findings


def test_device_copies_count_where_contiguous_asked_for_them() -> None:
    def body(loop: Loop, _: int) -> None:
        for _ in range(10):
            loop.launch(GEMM, 100)
            loop.inside(
                "aten::contiguous",
                lambda: loop.launch(
                    "Memcpy DtoD (Device -> Device)", 50, kind=OperationKind.MEMCPY, size=1 << 20
                ),
                category=HostCategory.OPERATOR,
            )

    assert recoverable_ms(diagnosed(RULE, single(body))) == pytest.approx(0.5, abs=0.05)


def micro_batches(loop: Loop, number: int, *, cached: bool) -> None:
    """Run four micro-batches of ten weights; without a cache every one casts them all."""
    sequence = 1_000 * number
    for micro in range(4):
        cast: list[int] = []
        for _ in range(10):
            sequence += 1
            if micro == 0 or not cached:
                operator(loop, "aten::_to_copy", WEIGHT, 20, sequence)
                cast.append(sequence)
            operator(loop, "aten::mm", GEMM, 30)
        loop.thread = 1  # autograd's own
        for item in reversed(cast):
            operator(loop, BACK + "MmBackward0", GEMM, 60)
            operator(loop, BACK + "ToCopyBackward0", CAST, 5, item)
            loop.event(BACK + "torch::autograd::AccumulateGrad", 2, category=HostCategory.OPERATOR)
        loop.thread = 0


def test_casting_weights_for_every_micro_batch_costs_kernels_and_launches() -> None:
    found = diagnosed(RULE, single(lambda loop, k: micro_batches(loop, k, cached=False)))
    (finding,) = found.findings
    assert "casts weights 30 times a step" in finding.title
    # The GPU decides here: 30 casts of 20 µs.
    assert recoverable_ms(found) == pytest.approx(0.6, abs=0.1)


def test_casting_weights_once_a_step_is_what_autocast_is_for() -> None:
    found = diagnosed(RULE, single(lambda loop, k: micro_batches(loop, k, cached=True)))
    assert not found.findings


def test_recorded_healthy_run_casts_each_weight_once() -> None:
    found = diagnosed_recording(RULE, "gpt-small-single.healthy_1.kineto")
    assert not found.findings
    assert found.checks[0].state == "passed"


NORM = "void at::native::batch_norm_{}<c10::BFloat16, float>(int)"
STATISTICS, TRANSFORM, BACKWARD = (
    NORM.format(part)
    for part in ("collect_statistics_kernel", "transform_input_kernel", "backward_kernel")
)
RELU = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::(anonymous namespace)::"
    "launch_clamp_scalar(at::TensorIteratorBase&), std::array<char*, 2ul> >(int)"
)
CONVERSION = "void cudnn::ops::nchwToNhwcKernel<__half, __half>"


def convolutions(loop: Loop, *, conversion: str = CONVERSION) -> None:
    """Run two layers with 64 and 128 channels: their kernels take 100 µs and 300 µs a pass."""
    layers = ((64, 100), (128, 300), (64, 20))
    for channels, once in layers:
        loop.launch(conversion, 50)
        loop.launch(GEMM, 500)
        loop.launch(STATISTICS, 4 * once, grid=channels)
        loop.launch(TRANSFORM, 2 * once, grid=channels)
        loop.launch(RELU, once)
    for channels, once in reversed(layers):
        loop.launch(BACKWARD, 15 * once, grid=channels)
        loop.launch(GEMM, 1_000)


def test_channels_first_cost_more_than_their_transpositions() -> None:
    found = diagnosed(RULE, single(lambda loop, _: convolutions(loop)))
    (finding,) = found.findings
    # Passes a layer: 4 + 2 + 15 as they are, 1 + 2 + 5 at worst, and half of that at best.
    least, most = (3 * 50 + (21 - left) * 420 for left in (8, 4))
    assert recoverable_ms(found) == pytest.approx((least + most) / 2e3, abs=0.05)
    assert finding.recoverable_interval_ms is not None
    low, high = finding.recoverable_interval_ms
    assert low < least / 1e3 < most / 1e3 < high
    assert finding.confidence == "medium"
    assert "channels come first" in finding.title


def test_channels_first_without_transposed_convolutions_are_no_mistake() -> None:
    found = diagnosed(RULE, single(lambda loop, _: convolutions(loop, conversion=GEMM)))
    assert not found.findings


def test_each_batch_norm_of_backward_belongs_to_the_last_open_layer_with_its_channels() -> None:
    run = single(lambda loop, _: convolutions(loop))
    rank = run.ranks[0]
    slow = channels_first(rank)
    operations = rank.operations
    length = (operations.end_ns - operations.start_ns)[slow.row]
    # 4 of 1 and 15 of 5 passes are too long; the transform is what the others are held against.
    share = {STATISTICS: 1 / 4, TRANSFORM: 1.0, BACKWARD: 5 / 15}
    wanted = [share[rank.names[name]] for name in operations.name[slow.row].tolist()]
    assert slow.longest_ns == pytest.approx(length * wanted)
    assert slow.shortest_ns == pytest.approx(length * wanted / 2)
    assert slow.bounded


def test_without_an_element_wise_kernel_behind_the_worse_limit_is_all_that_is_known() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.launch(CONVERSION, 50)
        loop.launch(STATISTICS, 400, grid=64)
        loop.launch(TRANSFORM, 200, grid=64)
        loop.launch(CAST, 50)

    slow = channels_first(single(body).ranks[0])
    assert not slow.bounded
    assert slow.shortest_ns == pytest.approx(slow.longest_ns)


def test_unaligned_products_of_convolutions_are_channels_first_too() -> None:
    odd = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_64x64_nn_align1>(Params)"

    def body(loop: Loop, _: int) -> None:
        loop.launch(CONVERSION, 50)
        loop.launch(odd, 300)  # a product of another layer
        loop.inside(
            "aten::cudnn_convolution",
            lambda: loop.launch(odd, 300),
            category=HostCategory.OPERATOR,
        )

    rank = single(body).ranks[0]
    slow = channels_first(rank)
    assert not slow.norm.any()
    assert len(slow.row) * 2 == sum("align1" in rank.names[n] for n in rank.operations.name)
    assert slow.longest_ns == pytest.approx(300_000)
    assert slow.shortest_ns == pytest.approx(150_000)


def test_recorded_channels_first_run_holds_its_cost() -> None:
    found = diagnosed_recording(RULE, "conv-small-ddp.channels-first_1.kineto")
    (finding,) = found.findings
    assert finding.recoverable_interval_ms is not None
    low, high = finding.recoverable_interval_ms
    assert low < 30.07 < high  # measured without a profiler
