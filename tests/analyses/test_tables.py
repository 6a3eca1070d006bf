"""The kernel and NCCL tables, and the report made of them."""

from __future__ import annotations

import json
from typing import Any

import jsonschema

from tests.builder import NCCL, RankBuilder, run_of
from trace_analyzer import findings
from trace_analyzer.analyses.study import study
from trace_analyzer.assembly import Options, build_report, build_timeline
from trace_analyzer.bench_facts import BenchLink, BenchResult, BenchSize
from trace_analyzer.kernels import category, is_communication
from trace_analyzer.model import DataWarning, ProcessGroup, Rank, UnprofiledSteps
from trace_analyzer.nccl_names import bus_factor, operation_of, type_label, type_of
from trace_analyzer.reports import view_nccl

US = 1_000
WORLD = ProcessGroup(name="0", description="default_pg", size=2, ranks=(0, 1))


def rank(number: int, late_us: int = 0) -> Rank:
    """Two steps of 1 ms: a matmul of 400 µs, an all-reduce of 300 µs of which 100 µs are exposed."""
    builder = RankBuilder(rank=number, world=2, group=WORLD)
    builder.profiler_steps([0, 1000 * US], 2000 * US)
    builder.operation("gemm", -50 * US, 0)
    for start in (0, 1000 * US):
        at = start + late_us * US
        builder.operation(
            "gemm", at, at + 400 * US, launch=(start, start + US), grid=132, block=384
        )
        builder.operation(
            NCCL,
            at + 200 * US,
            at + 500 * US,
            launch=(start + US, start + 2 * US),
            stream=17,
            grid=24,
            block=544,
            operation="allreduce",
            group=0,
            dtype="Float",
            elements=1_000_000,
            message_bytes=4_000_000,
        )
        builder.operation("end", start + 990 * US, start + 1000 * US, launch=(start + 3, start + 4))
    return builder.build()


def report(**options: Any) -> findings.Report:
    run = run_of(
        rank(0),
        rank(1),
        world_size=2,
        unprofiled=(
            UnprofiledSteps(rank=0, step_ms=(0.8, 0.8, 0.9)),
            UnprofiledSteps(rank=1, step_ms=(0.7, 0.7, 0.7)),
        ),
        warnings=(DataWarning(code="TRC005", message="clocks differ", ranks=(1,)),),
    )
    return build_report(run, Options(**options))


def test_collectives_by_size_and_shape() -> None:
    (row,) = report().collectives
    assert (row.operation, row.group, row.dtype, row.bytes) == (
        "allreduce",
        "default_pg",
        "f32",
        4_000_000,
    )
    assert (row.grid, row.block, row.channels) == ([24, 1, 1], [544, 1, 1], 24)
    assert (row.count, row.count_per_step) == (4, 1.0)
    assert row.duration_us.p50 == 300
    assert row.exposed_ms_per_step == 0.1
    # 4 MB in 300 µs; two ranks: bus factor 1.
    assert row.algbw_gbs == row.busbw_gbs == 13.333
    assert row.bandwidth_basis == "median of the shortest duration among the ranks"
    assert row.transfer_us is not None
    assert row.transfer_us.p50 == 300
    assert row.wait_us == {"0": 0.0, "1": 0.0}


def test_kernels_over_ranks() -> None:
    rows = {(row.name, tuple(row.grid or [])): row for row in report().kernels}
    gemm = rows["gemm", (132, 1, 1)]
    assert (gemm.category, gemm.count, gemm.total_ms, gemm.count_per_step) == (
        "matmul",
        4,
        1.6,
        1.0,
    )
    assert gemm.ranks == {"0": 0.4, "1": 0.4}
    assert sum(row.count for row in report().kernels) == 2 * 7


def test_the_report_meets_its_schema_and_repeats() -> None:
    first, second = (findings.encode(report()) for _ in range(2))
    assert first == second
    jsonschema.validate(json.loads(first), findings.json_schema())


def test_the_unprofiled_step_is_that_of_the_slowest_rank() -> None:
    steps = report().steps
    assert (steps.unprofiled_ms, steps.unprofiled_basis, steps.unprofiled_count) == (
        0.8,
        "measured",
        3,
    )
    assert steps.perturbation == 0.25
    given = report(unprofiled_step_ms=0.5).steps
    assert (given.unprofiled_ms, given.unprofiled_basis) == (0.5, "given")
    codes = [warning.code for warning in report().warnings]
    assert "TRC003" in codes
    assert "TRC005" in codes


def test_step_parts_add_up_in_the_report() -> None:
    for item in report().ranks:
        step = item.step
        assert step is not None
        parts = step.compute_ms + step.comm_exposed_ms + step.copy_exposed_ms + step.idle_ms
        assert round(parts - step.step_ms, 9) == 0
        launch = step.idle_launch_ms or 0
        assert round(sum(step.idle_launch_by_host.values()) - launch, 9) == 0


def test_redaction_names_kernels_by_kind() -> None:
    redacted = report(redact=True)
    names = {row.name for row in redacted.kernels}
    assert "gemm" not in names
    assert "matmul kernel 1" in names
    assert NCCL in names


def test_the_timeline_has_a_lane_a_stream() -> None:
    results = study(run_of(rank(0), rank(1, late_us=50)))
    timeline = build_timeline(results)
    assert [item.rank for item in timeline.ranks] == [0, 1]
    labels = [lane.label for lane in timeline.ranks[0].outer_lanes]
    assert labels == ["host · thread 1", "GPU · stream 7", "NCCL · stream 17"]
    assert timeline.shown_step in (0, 1)
    for item in timeline.ranks:
        for lane in item.lanes:
            assert all(lane.slices.start_ns[1:] >= lane.slices.end_ns[:-1])


def test_names_of_communication_kernels() -> None:
    for name in (
        NCCL,
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclAllReduceRingLLKernel_sum_f32",
        "ncclSymkDevKernel_AllGather_LL",
        "void deep_ep::intranode::dispatch<4>(int)",
    ):
        assert is_communication(name), name
        assert category(name) == "communication"
    assert not is_communication("void at::native::vectorized_elementwise_kernel<4>(int)")
    assert operation_of(NCCL) == "allreduce"
    assert operation_of("ncclDevKernel_SendRecv(x)") == "sendrecv"
    assert operation_of("ncclDevKernel_Generic(x)") is None
    assert type_of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)") == "bf16"
    assert [type_label(t) for t in ("Float", "bf16", "BFloat16", "int8_t", None, "odd")] == [
        "f32",
        "bf16",
        "bf16",
        "i8",
        None,
        "odd",
    ]
    assert bus_factor("allreduce", 8) == 1.75
    assert bus_factor("allgather", 4) == 0.75
    assert bus_factor("broadcast", 4) == 1.0
    assert bus_factor("unknown", 4) is None


def test_benchmarks_of_the_machine_are_the_reference() -> None:
    around = (1.0, 1.0)
    sizes = BenchSize(
        bytes=1 << 20, time_us=10, time_interval_us=around, busbw_gbs=320, busbw_interval_gbs=around
    )
    link = BenchLink(
        source=0,
        destination=1,
        bytes=1 << 20,
        latency_us=9,
        latency_interval_us=around,
        bandwidth_gbs=150,
        bandwidth_interval_gbs=around,
        limit_gbs=450,
        limit_basis="NVLink",
    )
    bench = (
        BenchResult(
            path="a",
            kind="allreduce",
            device="cuda",
            backend="nccl",
            ranks=2,
            gpus=(),
            sizes=(sizes,),
        ),
        BenchResult(
            path="b", kind="links", device="cuda", backend="nccl", ranks=2, gpus=(), links=(link,)
        ),
        BenchResult(
            path="c", kind="links", device="cpu", backend="gloo", ranks=2, gpus=(), links=(link,)
        ),
    )
    found = build_report(run_of(rank(0), rank(1), world_size=2, bench=bench))
    assert [(g.reference_gbs, g.reference_basis) for g in found.groups] == [
        (320, "all-reduce benchmark of this machine")
    ]
    assert {(k.src, k.dst): (k.basis, k.reference_gbs) for k in found.links} == {
        (0, 1): ("pair-group", 450),
        (1, 0): ("pair-group", 320),
    }
    alone = build_report(run_of(rank(0), bench=bench))
    assert [(k.src, k.dst, k.basis, k.bandwidth_gbs) for k in alone.links] == [(0, 1, "bench", 150)]


def test_sizes_within_one_percent_are_one_row_that_says_its_range() -> None:
    builder = RankBuilder(rank=0, world=2, group=WORLD)
    builder.profiler_steps([0, 1000 * US], 2000 * US)
    sizes = (4_000_000, 4_000_000, 4_039_000, 4_041_000, 8_000_000)
    for step in range(2):
        for place, size in enumerate(sizes):
            at = (1000 * step + 100 * place) * US
            builder.operation(
                NCCL,
                at + 10 * US,
                at + (20 + 10 * place) * US,
                launch=(at, at + US),
                stream=17,
                grid=24,
                block=544,
                operation="allreduce",
                group=0,
                dtype="Float",
                message_bytes=size,
            )
    rows = build_report(run_of(builder.build())).collectives
    found = {row.bytes: row for row in rows}
    assert set(found) == {4_013_000, 4_041_000, 8_000_000}
    joined = found[4_013_000]
    assert joined.bytes_range == [4_000_000, 4_039_000]
    assert (joined.count, joined.count_per_step) == (6, 3.0)
    assert joined.duration_us.p50 == 20
    assert joined.duration_ms_by_rank == {"0": 0.12}
    assert found[4_041_000].bytes_range is None
    assert view_nccl.size_text(joined) == "4.00–4.04"
    assert view_nccl.size_text(found[8_000_000]) == "8.0"
