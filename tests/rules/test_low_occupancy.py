"""GPU003: products with unaligned sizes, launches with few blocks, last waves that are empty."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.rules.loop import Loop, diagnosed, recoverable_ms, single
from tests.rules.recorded import diagnosed_recording
from trace_analyzer.analyses.launch_fill import fill, resident_blocks
from trace_analyzer.analyses.matrix_rates import alignments
from trace_analyzer.model import Device, Run
from trace_analyzer.rules.low_occupancy import RULE

HOPPER = Device(
    ordinal=0,
    name="H200",
    sm_count=132,
    compute_capability=(9, 0),
    max_threads_per_sm=2048,
    registers_per_sm=65536,
    shared_bytes_per_sm=233472,
)
ODD = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(Params)"
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
NORM = "void at::native::GammaBetaBackwardCUDAKernelTemplate<float>(long)"


def on_hopper(run: Run) -> Run:
    return replace(run, ranks=tuple(replace(rank, devices=(HOPPER,)) for rank in run.ranks))


def test_a_vocabulary_that_nothing_divides_makes_slow_products() -> None:
    # Symptom: 50257 tokens; the last layer takes as long as all others together.
    def body(loop: Loop, _: int) -> None:
        for _ in range(20):
            loop.launch(GEMM, 100, grid=132 * 32)
        for _ in range(3):
            loop.launch(ODD, 1_000, grid=16_384)

    found = diagnosed(RULE, on_hopper(single(body)))
    (finding,) = found.findings
    assert finding.kind == "opportunity"
    assert recoverable_ms(found) == pytest.approx(3 * (1 - 1 / 5.3), abs=0.05)
    assert "multiple of 64" in finding.actions[0]
    assert finding.confidence == "high"
    assert "measured for such kernels on H200" in finding.limits


def test_a_ratio_that_was_not_measured_is_called_so() -> None:
    wide = "cutlass_80_tensorop_s1688gemm_256x128_32x3_nn_align1>"  # loads of 4 bytes
    run = on_hopper(single(lambda loop, _: loop.launches(3, 1_000, wide)))
    (finding,) = diagnosed(RULE, run).findings
    assert finding.confidence == "medium"
    assert "not measured" in finding.limits


@pytest.mark.parametrize(
    ("name", "grid", "gain"),
    [
        (NORM, 33, 0.5),  # a quarter of the multiprocessors: no more than half is promised
        (NORM, 88, 1 / 3),
        (NORM, 120, 0.0),  # nearly all have a block
        (NORM, 33 * 160, 0.0),  # many blocks: memory decides
        (GEMM, 16 * 132 + 1, 0.499),  # 16 blocks fit at once: the second wave is one block
        (GEMM, 132 * 8, 0.0),
        (GEMM, 132 * 16 * 20 + 1, 0.0),  # one wave of many
    ],
)
def test_blocks_that_leave_the_gpu_unused(name: str, grid: int, gain: float) -> None:
    run = on_hopper(single(lambda loop, _: loop.launch(name, 2_000, grid=grid)))
    found = diagnosed(RULE, run)
    if gain:
        assert recoverable_ms(found) == pytest.approx(2 * gain, abs=0.05)
    else:
        assert not found.findings
        assert found.checks[0].state == "passed"


def test_short_kernels_have_few_blocks_by_nature() -> None:
    def body(loop: Loop, _: int) -> None:
        for _ in range(99):
            loop.launch(NORM, 15, grid=2)

    assert not diagnosed(RULE, on_hopper(single(body))).findings


def test_without_the_gpu_only_alignment_is_known() -> None:
    found = diagnosed(RULE, single(lambda loop, _: loop.launch(NORM, 2_000, grid=2)))
    assert found.checks[0].state == "not-applicable"


@pytest.mark.parametrize(
    ("name", "size"),
    [
        (ODD, 2),
        ("cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align2>", 4),
        ("cutlass_80_tensorop_s1688gemm_256x128_32x3_nn_align1>", 4),
        ("cutlass_80_tensorop_f16_s16816gemm_f16_128x128_32x4_nn_align8>", 16),
        ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_aligna8_alignc8_", 16),
        ("cutlass_80_simt_sgemm_256x128_8x4_nn_align1>", 0),
        (GEMM, 0),
    ],
)
def test_alignment_by_name(name: str, size: int) -> None:
    assert alignments([name])[0] == size


def test_blocks_on_a_multiprocessor_follow_registers_shared_memory_and_threads() -> None:
    run = single(lambda loop, _: loop.launch(GEMM, 100, grid=264))
    rank = run.ranks[0]

    def at_once(**shape: int) -> int:
        columns = {name: np.array([value]) for name, value in shape.items()}
        configs = type(rank.configs).from_columns(1, **columns)
        return int(resident_blocks(replace(rank, configs=configs), HOPPER)[0])

    assert at_once(block_x=128) == 16
    assert at_once(block_x=1024) == 2
    assert at_once(block_x=128, registers=254) == 2
    assert at_once(block_x=256, registers=32, shared_bytes=100_000) == 2
    assert fill(rank, HOPPER)[rank.operations.launch_config[0]] == 1.0


def test_recorded_healthy_run_fills_the_gpu_well_enough() -> None:
    assert not diagnosed_recording(RULE, "gpt-small-single.healthy_1.kineto").findings
