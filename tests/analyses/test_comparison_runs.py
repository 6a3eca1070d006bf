"""Whether two runs can be compared, and what of their steps and collectives changed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.builder import run_of
from tests.comparisons import GPT, NCCL, Kernel, rank_of, studied
from tests.real_runs import studied as recorded
from trace_analyzer.analyses.comparison.batch import batch_ratio
from trace_analyzer.analyses.comparison.changes import changes
from trace_analyzer.analyses.comparison.collectives import compare_collectives
from trace_analyzer.analyses.comparison.comparability import (
    batch_difference,
    comparison_differences,
    scaling_differences,
    setting_differences,
)
from trace_analyzer.analyses.comparison.fingerprint import Fingerprint, fingerprint, type_of_kernel
from trace_analyzer.analyses.comparison.partition import RankChange, compare_partitions
from trace_analyzer.analyses.study import Study, study
from trace_analyzer.schema import Float64Array

HTA = "public/HolisticTraceAnalysis/trace_diff"
RESNET = "public/kineto/resnet50_num_workers"
LAB = "tests/data/faultlab"


def prints(one: str, two: str) -> tuple[Fingerprint, Fingerprint]:
    return fingerprint(recorded(one)), fingerprint(recorded(two))


def refusing(base: Fingerprint, other: Fingerprint) -> list[str]:
    return [item.what for item in comparison_differences(base, other) if item.refuses]


def test_a_fingerprint_of_a_made_run() -> None:
    found = fingerprint(studied())
    assert found.recorder == "kineto"
    assert found.operators == {"aten::mm": 1, "aten::layer_norm": 1}
    assert found.kernels["gemm_bf16_a"] == 2
    assert found.types == ("bfloat16",)
    assert found.optimizer_path == "fused"
    assert found.compiled == "eager"


def test_ddp_adds_nothing_to_the_operators_of_the_work() -> None:
    one, two = prints("h200-ddp/t1", "h200-ddp/healthy")
    assert one.operators == two.operators
    assert scaling_differences(one, two, profiled=False) == []


def test_differences_are_named_and_those_that_refuse_come_first() -> None:
    base = fingerprint(studied())
    other = replace(
        base,
        gpus=("NVIDIA A100",),
        types=("float32",),
        optimizer_path="foreach",
        compiled="compiled",
        versions={"torch": "2.11.0"},
        operators={"aten::mm": 1, "aten::item": 8},
        profiler={"recorder": "kineto", "shapes": "on"},
    )
    base = replace(
        base, gpus=("NVIDIA H200",), versions={"torch": "2.10.0"}, profiler={"shapes": "off"}
    )
    found = scaling_differences(base, other, profiled=False)
    assert [item.what for item in found] == [
        "GPU model",
        "operator sequence",
        "data types",
        "optimizer path",
        "compile state",
        "version of torch",
        "profiler: shapes",
    ]
    assert [item.refuses for item in found] == [True] * 6 + [False]
    assert "aten::item ×8" in found[1].other
    under = scaling_differences(base, other, profiled=True)
    assert all(item.refuses for item in under)


def test_what_may_be_the_answer_does_not_refuse_a_comparison() -> None:
    base = fingerprint(studied())
    other = replace(base, types=("float32",), optimizer_path="foreach", versions={"torch": "3"})
    base = replace(base, versions={"torch": "2"})
    found = comparison_differences(base, other)
    assert [item.what for item in found] == ["data types", "optimizer path", "version of torch"]
    assert not any(item.refuses for item in found)


def test_public_traces_of_two_machines_are_refused_by_name() -> None:
    one, two = prints(f"{HTA}/control.json.gz", f"{HTA}/test.json.gz")
    assert refusing(one, two) == ["GPU model", "world size", "kernel set"]
    found = {item.what: item for item in comparison_differences(one, two)}
    assert (found["GPU model"].base, found["GPU model"].other) == (
        "NVIDIA A100-PG509-200",
        "Tesla V100-SXM2-16GB",
    )
    assert (found["world size"].base, found["world size"].other) == ("8", "2")


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (f"{RESNET}_0", f"{RESNET}_4"),
        ("h200-ddp/healthy", "h200-ddp/item_sync"),
        ("h200-ddp/healthy", "h200-ddp-nsys/healthy.sqlite"),
    ],
)
def test_runs_of_the_same_work_are_compared(one: str, two: str) -> None:
    assert refusing(*prints(one, two)) == []


def test_settings_of_one_run_only_are_differences_too() -> None:
    one, two = prints("h200-ddp/healthy", "h200-ddp/nccl_1ch")
    assert [(item.what, item.base, item.other) for item in setting_differences(one, two)] == [
        ("NCCL_MAX_NCHANNELS", "not set", "1"),
        ("NCCL_MIN_NCHANNELS", "not set", "1"),
    ]
    assert setting_differences(one, replace(two, settings={})) == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvjet_sm90_tst_256x128_64x4", "bfloat16"),
        ("ampere_bf16_s16816gemm_bf16_128x128", "bfloat16"),
        ("ampere_fp16_s16816gemm_fp16_128x128", "float16"),
        ("volta_h884gemm_64x64", "float16"),
        ("ampere_sgemm_128x64_nn", "float32"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_ffma", "float32"),
        ("cutlass_80_tensorop_s1688gemm_128x256_16x3_nn_align4", "tf32"),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n", "tf32"),
        ("cutlass3x_sm90_e4m3_gemm", "float8"),
        ("some_gemm", None),
    ],
)
def test_what_a_matrix_kernel_computes_with(name: str, kind: str | None) -> None:
    assert type_of_kernel(name) == kind


def test_work_of_a_rank_is_told_by_grids() -> None:
    half = [replace(k, grid=k.grid // 2) if k.grid == 8192 else k for k in GPT]
    assert batch_ratio(studied(), studied(half)) == 2.0
    assert batch_ratio(studied(half), studied()) == 0.5
    assert batch_ratio(studied(), studied()) == 1.0
    assert batch_ratio(studied(), studied([Kernel("gemm_bf16_a", 400)])) is None
    assert batch_ratio(recorded("h200-ddp/t1"), recorded("h200-ddp/healthy")) == 2.0


def test_a_batch_that_is_as_expected_is_no_difference() -> None:
    assert batch_difference(2.0, 2.0) == []
    assert batch_difference(None) == []
    (found,) = batch_difference(2.0)
    assert found.refuses
    assert "2 times as much work" in found.base
    assert "2 times as much work" in batch_difference(0.5)[0].other


# -- changes over steps


def values(seed: int, steps: int = 8, mean: float = 10.0) -> Float64Array:
    generator = np.random.default_rng(seed)
    return mean + 0.1 * generator.standard_normal((steps, 3))


def test_means_and_intervals() -> None:
    one, two = values(1), values(2)
    two[:, 1] += 2.0
    found = changes(one, two)
    assert found.change == pytest.approx(two.mean(axis=0) - one.mean(axis=0))
    assert (found.low < found.change).all()
    assert (found.high > found.change).all()
    assert found.apart.tolist() == [False, True, False]


def test_one_step_has_no_interval() -> None:
    found = changes(values(1, 1), values(2, 8))
    assert np.isnan(found.low).all()
    assert not found.apart.any()


@pytest.mark.parametrize("steps", [3, 5, 10])
def test_few_steps_seldom_tell_a_difference_that_is_none(steps: int) -> None:
    """Resampling alone would call one in four differences of three steps real."""
    generator = np.random.default_rng(8)
    wrong = 0
    for _ in range(60):
        one, two = (generator.standard_normal((steps, 5)) + 50.0 for _ in range(2))
        wrong += int(changes(one, two).apart.sum())
    assert wrong <= 0.07 * 300


# -- parts


def compared(base: Study, other: Study, rank: int = 0) -> RankChange:
    (found,) = compare_partitions(base, other, [(rank, rank)])
    return found


def test_the_changes_of_the_parts_sum_to_that_of_the_step() -> None:
    found = compared(studied(), studied(late_us=500))
    assert sum(part.change_ms for part in found.parts) == pytest.approx(found.step.change_ms)
    assert found.step.change_ms == pytest.approx(0.5, abs=0.02)
    told = {part.part for part in found.parts if part.apart}
    assert told == {"launch:silent"}


def test_no_part_changes_against_itself() -> None:
    for run in ("h200-ddp/healthy", f"{RESNET}_0"):
        found = compared(recorded(run), recorded(run))
        assert not any(part.apart for part in found.parts)
        assert found.step.change_ms == 0.0


def test_the_loader_is_the_change_of_resnet50() -> None:
    found = compared(recorded(f"{RESNET}_4"), recorded(f"{RESNET}_0"))
    told = [part for part in found.parts if part.apart]
    assert [part.part for part in told] == ["launch:data_loading"]
    assert told[0].change_ms == pytest.approx(56.4, abs=1.0)
    assert found.step.change_ms == pytest.approx(50.3, abs=1.0)


# -- collectives


def both(us: int, grid: int = 24, mb: int = 4) -> Study:
    program = (*GPT, Kernel(NCCL, us, grid, comm=True))
    ranks = [rank_of(program, rank=rank, world=2).build() for rank in (0, 1)]
    return study(run_of(*ranks, world_size=2))


def test_a_slower_transfer_is_told_with_its_channels() -> None:
    (row,) = compare_collectives(both(300), both(900, grid=1), (), 2.0)
    assert (row.operation, row.bytes) == ("allreduce", 4_000_000)
    assert (row.base_channels, row.other_channels) == (24, 1)
    assert row.transfer.apart
    assert row.transfer.change_ms == pytest.approx(0.6, abs=0.01)
    assert row.exposed.change_ms == pytest.approx(0.6, abs=0.01)
    assert not row.wait.apart


def test_the_same_collectives_are_not_told_apart() -> None:
    (row,) = compare_collectives(both(300), both(300), (), 2.0)
    assert not any(value.apart for value in (row.transfer, row.wait, row.exposed))


def test_collectives_without_sizes_in_one_run_are_joined_in_both() -> None:
    rows = compare_collectives(
        recorded("h200-ddp/healthy"), recorded("h200-ddp-nsys/healthy.sqlite"), (), 35.0
    )
    assert [(row.operation, row.bytes, row.base_calls, row.other_calls) for row in rows] == [
        ("allreduce", None, 14.0, 14.0)
    ]
    assert rows[0].transfer.change_ms == pytest.approx(0.0, abs=0.1)
