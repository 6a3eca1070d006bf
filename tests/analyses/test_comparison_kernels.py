"""Kernels of two runs: what is new, gone, slower, called more often, in place of another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.comparisons import GPT, Kernel, slower, studied
from tests.real_runs import studied as recorded
from trace_analyzer.analyses.comparison.kernel_names import canonical
from trace_analyzer.analyses.comparison.kernels import KernelChange, compare_kernels
from trace_analyzer.analyses.study import Study, study
from trace_analyzer.model import Rank
from trace_analyzer.tables import GpuOperations, WorkClass


def compared(base: Study, other: Study, *, spelt: bool = False) -> list[KernelChange]:
    return compare_kernels(base, other, (), spelt=spelt)


def told(rows: list[KernelChange]) -> dict[str, str]:
    return {row.name: row.kind for row in rows if row.kind != "indistinguishable"}


def test_a_run_against_itself_has_no_difference() -> None:
    rows = compared(studied(), studied())
    assert told(rows) == {}
    assert all(row.change_ms == 0.0 for row in rows)
    assert len(rows) == 5


def test_one_kernel_20_percent_slower_is_that_one_first() -> None:
    rows = compared(studied(), studied(slower(GPT, "layer_norm_kernel", 1.2)))
    assert told(rows) == {"layer_norm_kernel": "slower"}
    first = rows[0]
    assert (first.base_ms, first.other_ms) == pytest.approx((0.1, 0.12), abs=0.001)
    assert first.change_ms == pytest.approx(0.02, abs=1e-6)
    assert first.interval_ms is not None
    assert first.interval_ms[0] > 0.019
    assert first.positions == (1, 1)


def test_a_faster_kernel() -> None:
    rows = compared(studied(slower(GPT, "gemm_bf16_b", 1.2)), studied())
    assert told(rows) == {"gemm_bf16_b": "faster"}


def test_two_starts_differ_by_two_percent_and_that_is_no_difference() -> None:
    assert told(compared(studied(), studied(slower(GPT, "gemm_bf16_a", 1.015)))) == {}
    assert told(compared(studied(), studied(slower(GPT, "gemm_bf16_a", 1.03)))) != {}


def test_slower_in_one_of_its_places() -> None:
    program = list(GPT)
    program[4] = replace(program[4], us=600)
    row = compared(studied(), studied(program))[0]
    assert (row.name, row.kind, row.positions) == ("gemm_bf16_a", "slower", (1, 2))


def test_new_and_gone() -> None:
    extra = Kernel("reduce_kernel", 80, 512)
    more, less = studied((*GPT, extra)), studied()
    assert told(compared(less, more)) == {"reduce_kernel": "new"}
    row = compared(more, less)[0]
    assert row.kind == "gone"
    assert row.base_ms == pytest.approx(0.08, abs=0.001)
    assert row.other_ms is None
    assert (row.base_calls, row.other_calls) == (1.0, None)


def test_called_more_often() -> None:
    row = compared(studied(), studied((*GPT, GPT[1], GPT[1])))[0]
    assert (row.name, row.kind) == ("layer_norm_kernel", "more-calls")
    assert (row.base_calls, row.other_calls) == (1.0, 3.0)
    assert row.positions is None
    assert compared(studied((*GPT, GPT[1], GPT[1])), studied())[0].kind == "fewer-calls"


def test_another_kernel_in_the_same_places_replaces_it() -> None:
    program = [
        replace(k, name="cutlass_gemm_c", us=500) if k.name == "gemm_bf16_a" else k for k in GPT
    ]
    rows = compared(studied(), studied(program))
    assert told(rows) == {"cutlass_gemm_c": "replaced"}
    assert rows[0].instead_of == "gemm_bf16_a"
    assert (rows[0].base_ms, rows[0].other_ms) == pytest.approx((0.8, 1.0), abs=0.001)


def test_a_kernel_of_another_family_replaces_none() -> None:
    program = [replace(k, name="softmax_x", us=500) if k.name == "gemm_bf16_b" else k for k in GPT]
    assert told(compared(studied(), studied(program))) == {
        "gemm_bf16_b": "gone",
        "softmax_x": "new",
    }


def test_the_same_kernel_with_another_grid_is_matched_by_position() -> None:
    program = [replace(k, grid=k.grid // 2, us=k.us // 2) for k in GPT]
    rows = compared(studied(), studied(program))
    assert {row.kind for row in rows} == {"replaced"}
    assert sum(row.change_ms for row in rows) == pytest.approx(-1.47 / 2, abs=0.002)


def test_changes_are_in_order_of_size() -> None:
    program = slower(slower(GPT, "gemm_bf16_b", 1.1), "softmax_forward", 1.5)
    rows = compared(studied(), studied(program))
    assert [row.name for row in rows[:2]] == ["softmax_forward", "gemm_bf16_b"]


def test_one_step_tells_nothing_from_chance() -> None:
    rows = compared(studied(steps=2), studied(slower(GPT, "gemm_bf16_b", 1.5), steps=2))
    assert all(row.kind == "indistinguishable" for row in rows)
    assert all(row.interval_ms is None for row in rows)
    assert rows[0].change_ms == pytest.approx(0.15, abs=0.001)


def _with_slower(base: Study, name: str, factor: float) -> Study:
    """Return the recording with every launch of a kernel longer, in place."""
    ranks: list[Rank] = []
    for rank in base.run.ranks:
        operations = rank.operations
        hit = np.array([rank.names[n] == name for n in operations.name.tolist()])
        length = operations.end_ns - operations.start_ns
        end = operations.end_ns + np.where(hit, (factor - 1) * length, 0).astype(np.int64)
        columns = {spec.name: getattr(operations, spec.name) for spec in GpuOperations.columns()}
        ranks.append(replace(rank, operations=GpuOperations(**columns | {"end_ns": end})))
    return study(replace(base.run, ranks=tuple(ranks)))


@pytest.mark.parametrize("run", ["h200-ddp/t1", "h200-ddp/healthy", "h200-ddp-nsys/healthy.sqlite"])
def test_a_copy_of_a_recording_with_one_slower_kernel(run: str) -> None:
    base = recorded(run)
    compute = [row for row in base.kernels if row.category == "normalization"]
    name = max(compute, key=lambda row: row.total_ns).name
    rows = compared(base, _with_slower(base, name, 1.2))
    assert {row.name for row in rows if row.kind != "indistinguishable"} == {name}
    assert rows[0].kind == "slower"
    assert rows[0].change_ms == pytest.approx(0.2 * (rows[0].base_ms or 0.0), rel=0.02)


@pytest.mark.parametrize("run", ["h200-ddp/healthy", "public/kineto/resnet50_num_workers_0"])
def test_recordings_against_themselves(run: str) -> None:
    assert told(compared(recorded(run), recorded(run))) == {}


def test_both_recorders_of_the_same_program_have_the_same_kernels() -> None:
    rows = compared(
        recorded("h200-ddp/healthy"), recorded("h200-ddp-nsys/healthy.sqlite"), spelt=True
    )
    assert told(rows) == {}
    assert all(row.base_calls == row.other_calls for row in rows)
    assert len(rows) > 70


@pytest.mark.parametrize(
    ("kineto", "nsys"),
    [
        (
            "void at::native::(anonymous namespace)::f<4, float, 32u, true>(long, float const*)",
            "void at::native::<unnamed>::f<(int)4, float, (unsigned int)32, (bool)1>(long, const T1 *)",
        ),
        (
            "void k<at::n(at::T&)::{lambda()#3}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul> >(int)",
            "void k<at::n(at::T &)::[lambda() (instance 3)]::operator ()() const::[lambda(float) (instance 1)], std::array<char *, (unsigned long)2>>(T1)",
        ),
        ("nvjet_sm90_tst_256x128", "nvjet_sm90_tst_256x128"),
    ],
)
def test_one_spelling_of_a_kernel(kineto: str, nsys: str) -> None:
    assert canonical(kineto) == canonical(nsys)


def test_kernels_that_differ_keep_different_spellings() -> None:
    names = [
        "void f<4, float>(int)",
        "void f<8, float>(int)",
        "void f<4, c10::BFloat16>(int)",
        "void g<{lambda()#1}>(int)",
        "void g<{lambda()#2}>(int)",
    ]
    assert len({canonical(name) for name in names}) == len(names)


def test_communication_is_left_to_the_collectives() -> None:
    base = recorded("h200-ddp/healthy")
    comm = {
        rank.names[int(name)]
        for rank in base.run.ranks
        for name in np.unique(rank.operations.name[rank.operations.work == WorkClass.COMM])
    }
    assert comm
    assert not comm & {row.name for row in compared(base, base)}
