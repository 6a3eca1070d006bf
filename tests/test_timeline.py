"""What the timeline holds of a rank: lanes and their levels, details, launches, host names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.builder import NCCL, RankBuilder, run_of
from trace_analyzer.analyses.study import study
from trace_analyzer.assembly import build_timeline
from trace_analyzer.model import ProcessGroup, Rank
from trace_analyzer.schema import NA_INT32, NA_INT64
from trace_analyzer.tables import HostCategory, OperationKind
from trace_analyzer.timeline import Lane, LaneKind, SliceKind, Timeline, WorkDetail

US = 1_000
WORLD = ProcessGroup(name="0", description="default_pg", size=2, ranks=(0, 1))


def rank(number: int) -> Rank:
    """Two steps of 1 ms; a linear operator launches a matmul, a collective and a copy follow."""
    builder = RankBuilder(rank=number, world=2, group=WORLD)
    builder.profiler_steps([0, 1000 * US], 2000 * US)
    builder.operation("gemm", -50 * US, 0)
    for zero in (0, 1000 * US):
        builder.event("train_batch 7", zero, zero + 1000 * US)
        builder.event("epoch", zero, zero + 1000 * US)
        builder.event("forward", zero + 5 * US, zero + 300 * US)
        builder.event("layer", zero + 6 * US, zero + 200 * US)
        builder.event(
            "aten::linear", zero + 10 * US, zero + 60 * US, category=HostCategory.OPERATOR
        )
        builder.event("aten::mm", zero + 15 * US, zero + 50 * US, category=HostCategory.OPERATOR)
        builder.operation(
            "gemm",
            zero + 100 * US,
            zero + 400 * US,
            launch=(zero + 20 * US, zero + 30 * US),
            grid=132,
            block=384,
        )
        builder.operation(
            NCCL,
            zero + 400 * US,
            zero + 700 * US,
            launch=(zero + 70 * US, zero + 80 * US),
            stream=17,
            grid=24,
            block=544,
            operation="allreduce",
            group=0,
            dtype="Float",
            message_bytes=4_000_000,
        )
        builder.operation(
            "Memcpy HtoD",
            zero + 800 * US,
            zero + 820 * US,
            launch=(zero + 790 * US, zero + 795 * US),
            kind=OperationKind.MEMCPY,
        )
        builder.call("cudaStreamSynchronize", zero + 796 * US, zero + 950 * US)
        builder.operation(
            "end", zero + 990 * US, zero + 1000 * US, launch=(zero + 960 * US, zero + 970 * US)
        )
    return replace(builder.build(), host=f"machine{number}")


def made(*, redact: bool = False) -> Timeline:
    return build_timeline(study(run_of(rank(0), rank(1), world_size=2)), redact=redact)


def lanes(timeline: Timeline, kind: LaneKind) -> list[Lane]:
    return [lane for lane in timeline.ranks[0].lanes if lane.kind == kind]


def named(timeline: Timeline, lane: Lane) -> list[str]:
    return [timeline.names[position] for position in lane.slices.name.tolist()]


def test_ranges_are_the_outermost_below_a_step() -> None:
    timeline = made()
    (ranges,) = lanes(timeline, LaneKind.RANGES)
    assert named(timeline, ranges) == ["forward", "forward"]


def test_operators_inside_others_lie_one_level_deeper() -> None:
    timeline = made()
    levels = lanes(timeline, LaneKind.HOST)
    assert [lane.level for lane in levels] == [0, 1, 2]
    assert len({lane.label for lane in levels}) == 1
    outer = ["aten::linear", "cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamSynchronize"]
    assert named(timeline, levels[0])[:4] == outer
    assert levels[0].slices.kind[3] == SliceKind.BLOCKED
    assert named(timeline, levels[1]) == ["aten::mm"] * 2
    assert named(timeline, levels[2]) == ["cudaLaunchKernel"] * 2
    assert [lane.level for lane in timeline.ranks[0].outer_lanes] == [0] * 4
    for lane in timeline.ranks[0].lanes:
        assert (lane.slices.start_ns[1:] >= lane.slices.end_ns[:-1]).all()


def test_operations_carry_shape_size_and_launch() -> None:
    timeline = made()
    (stream,) = lanes(timeline, LaneKind.STREAM)
    (comm,) = lanes(timeline, LaneKind.COMM)
    at = named(timeline, stream).index("gemm", 1)
    detail = timeline.details[int(stream.slices.detail[at])]
    assert detail == WorkDetail(grid=(132, 1, 1), block=(384, 1, 1))
    assert stream.slices.launch_delay_ns[at] == 80 * US
    assert stream.slices.launch_delay_ns[0] == NA_INT64  # the backlog has no launch call
    copy = named(timeline, stream).index("Memcpy HtoD")
    assert stream.slices.detail[copy] == NA_INT32
    moved = timeline.details[int(comm.slices.detail[0])]
    assert (moved.grid, moved.block) == ((24, 1, 1), (544, 1, 1))
    assert (moved.operation, moved.group, moved.dtype) == (
        "allreduce",
        "default_pg, 2 ranks",
        "f32",
    )
    assert moved.bus_factor == 1.0
    assert comm.slices.bytes[0] == 4_000_000
    assert np.array_equal(comm.slices.detail, comm.slices.detail[:1].repeat(len(comm.slices)))


def test_hosts_are_named_and_redaction_numbers_them() -> None:
    assert [item.host for item in made().ranks] == ["machine0", "machine1"]
    hidden = made(redact=True)
    assert [item.host for item in hidden.ranks] == ["host0", "host1"]
    assert "gemm" not in hidden.names
