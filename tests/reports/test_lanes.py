"""Lanes are painted honestly: what is drawn is the busy share, and communication is never lost."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reports import builder
from trace_analyzer.findings import Range
from trace_analyzer.reports import rank_plan, svg_lanes, svg_marks, svg_proof, svg_timeline
from trace_analyzer.reports.svg_lanes import View
from trace_analyzer.timeline import Lane, LaneKind, RankTimeline, SliceKind, Timeline

Path = list[tuple[int, int, int]]


def heights(path: str, height: int) -> dict[int, int]:
    """Read back a lane's outline: the height of every column that is drawn."""
    found: dict[int, int] = {}
    at = top = 0
    for letter, first, second in re.findall(r"([MHVz])(-?\d+)?(?: (-?\d+))?", path):
        if letter == "M":
            at = int(first)
            assert int(second) == height
        elif letter == "V":
            top = int(first)
        elif letter == "H":
            for column in range(at, int(first)):
                found[column] = height - top
            at = int(first)
    return found


disjoint = st.lists(st.integers(1, 40), min_size=0, max_size=30).map(
    lambda gaps: np.cumsum(np.array(gaps, dtype=np.int64))
)


@given(disjoint, st.integers(-20, 100), st.integers(1, 500), st.integers(1, 37))
def test_coverage_is_the_busy_share_of_every_column(
    bounds: np.ndarray, first: int, length: int, columns: int
) -> None:
    even = bounds[: len(bounds) // 2 * 2]
    start, end = even[0::2].copy(), even[1::2].copy()
    view = View(first * columns, (first + length) * columns, columns)
    scaled = svg_lanes.coverage(start * columns, end * columns, view)
    busy = {
        t
        for s, e in zip(start.tolist(), end.tolist(), strict=True)
        for t in range(s * columns, e * columns)
    }
    width = length
    expected = [
        sum(t in busy for t in range(view.start_ns + c * width, view.start_ns + (c + 1) * width))
        / width
        for c in range(columns)
    ]
    assert scaled == pytest.approx(expected)


def test_a_lane_that_is_half_busy_is_half_as_high() -> None:
    slices = [(0.01 * i, 0.01 * i + 0.005, SliceKind.COMPUTE, 0) for i in range(10_000)]
    lane = builder.lane(LaneKind.STREAM, "GPU", slices)
    drawn = svg_lanes.busy_lane(lane.slices, View(0, 100 * builder.MS), 0, 24)
    path = re.findall(r' d="([^"]+)"', drawn)
    assert len(path) == 1
    columns = heights(path[0], 24)
    assert len(columns) == 900
    assert set(columns.values()) <= {11, 12, 13}


def test_short_work_is_at_least_one_pixel_high() -> None:
    lane = builder.lane(LaneKind.STREAM, "GPU", [(50, 50.0001, SliceKind.COMPUTE, 0)])
    drawn = svg_lanes.busy_lane(lane.slices, View(0, 100 * builder.MS), 0, 24)
    assert heights(re.findall(r' d="([^"]+)"', drawn)[0], 24) == {450: 1}


def test_wide_slices_that_touch_are_told_apart() -> None:
    touching = [(10.0 * i, 10.0 * (i + 1), SliceKind.COMPUTE, 0) for i in range(10)]
    lane = builder.lane(LaneKind.STREAM, "GPU", touching)
    drawn = svg_lanes.busy_lane(lane.slices, View(0, 100 * builder.MS), 0, 24)
    columns = heights(re.findall(r' d="([^"]+)"', drawn)[0], 24)
    assert sorted(set(range(900)) - set(columns)) == [90 * i for i in range(1, 10)]


def test_copies_stand_on_compute() -> None:
    lane = builder.lane(
        LaneKind.STREAM, "GPU", [(0, 50, SliceKind.COMPUTE, 0), (50, 100, SliceKind.COPY, 2)]
    )
    drawn = svg_lanes.busy_lane(lane.slices, View(0, 100 * builder.MS), 0, 24, gaps=False)
    assert re.findall(r'class="([^"]+)" d="([^"]+)"', drawn) == [
        ("compute", "M0 24V0H450V24z"),
        ("copy-solid", "M450 24V0H900V24z"),
    ]


def test_a_collective_is_striped_while_it_waits_and_never_lost() -> None:
    comm = [
        (10, 30, SliceKind.COMM, 1),
        (60, 60.00002, SliceKind.COMM, 1),
        (70, 80, SliceKind.COMM, 1),
    ]
    lane = builder.lane(LaneKind.COMM, "NCCL", comm, [15.0, 0.0, None])
    drawn = svg_marks.comm_lane(lane.slices, View(0, 100 * builder.MS), 0, 24, label_px=900)
    waits = re.findall(r'class="wait" x="([^"]+)" width="([^"]+)"', drawn)
    assert waits == [("10%", "15%")]
    columns = heights(re.findall(r' d="([^"]+)"', drawn)[0], 24)
    assert set(columns) == set(range(225, 270)) | {540} | set(range(630, 720))
    assert "wait 15.0\N{NO-BREAK SPACE}ms" in drawn


@given(st.lists(st.tuples(st.floats(0, 99), st.floats(0.0001, 3)), max_size=300))
def test_boxes_stay_few_and_cover_every_wait(spans: list[tuple[float, float]]) -> None:
    ordered = sorted(spans)
    start = np.array([int(s * builder.MS) for s, _ in ordered], dtype=np.int64)
    end = np.array([int((s + d) * builder.MS) + 1 for s, d in ordered], dtype=np.int64)
    first, last = svg_marks.few_intervals(start, end, View(0, 100 * builder.MS), 40)
    assert len(first) <= 40
    for a, b in zip(start.tolist(), end.tolist(), strict=True):
        assert ((first <= a) & (last >= b)).any()


def test_step_view_holds_the_step_with_a_margin() -> None:
    timeline = builder.timeline()
    view = svg_timeline.step_view(timeline)
    span = timeline.step_span_ns(5)
    assert span == (119 * builder.MS, 174 * builder.MS)
    assert view.start_ns == 119 * builder.MS - 55 * builder.MS // 25
    assert view.end_ns == 174 * builder.MS + 2 * (55 * builder.MS // 25)
    whole = svg_timeline.step_view(builder.timeline(steps_shown=1))
    assert whole.start_ns == 9 * builder.MS


def test_ranks_are_opened_folded_and_grouped() -> None:
    four = rank_plan.plan_ranks(builder.timeline(4).ranks, [0])
    assert (four.opened, four.folded, four.left_out) == ((0, 1, 2, 3), (), 0)
    eight = rank_plan.plan_ranks(builder.timeline(8, steps_shown=1).ranks, [3, 4, 7])
    assert eight.opened == (3, 4, 7)
    assert [name for name, _ in eight.folded] == [f"Rank {n}" for n in (0, 1, 2, 5, 6)]
    many = rank_plan.plan_ranks(builder.timeline(20, steps_shown=1).ranks, [3])
    assert many.opened == (3,)
    assert [members for _, members in many.folded] == [
        (0, 1, 2, 4, 5, 6, 7, 8),
        tuple(range(9, 17)),
        (17, 18, 19),
    ]
    assert [name for name, _ in many.folded] == ["Ranks 0–2, 4–8", "Ranks 9–16", "Ranks 17–19"]


def test_ranks_of_a_host_share_a_lane_that_names_it() -> None:
    ranks = [RankTimeline(rank=n, lanes=(), host=f"machine-room-{n // 8}") for n in range(24)]
    plan = rank_plan.plan_ranks(ranks, [3, 12])
    assert [name for name, _ in plan.folded] == [
        "machi…om-0 · 0–2, 4–7",
        "machi…om-1 · 8–11, 13–15",
        "machi…om-2 · 16–23",
    ]


def test_of_many_threads_and_streams_the_busiest_are_drawn() -> None:
    threads = [
        builder.lane(LaneKind.HOST, f"host · thread {n}", [(0, n + 1, SliceKind.HOST, 3)])
        for n in range(9)
    ]
    streams = [
        builder.lane(LaneKind.STREAM, f"GPU · stream {n}", [(0, 20 - n, SliceKind.COMPUTE, 0)])
        for n in range(9)
    ]
    comm = builder.lane(LaneKind.COMM, "NCCL · stream 17", [(0, 1, SliceKind.COMM, 1)])
    rank = RankTimeline(rank=0, lanes=(*threads, *streams, comm))
    labels = [lane.label for lane in rank_plan.busiest_lanes(rank)]
    assert labels == [
        *(f"host · thread {n}" for n in range(5, 9)),
        *(f"GPU · stream {n}" for n in range(6)),
        "NCCL · stream 17",
    ]
    drawn = svg_timeline.figure(Timeline(names=builder.NAMES, ranks=(rank,)), [], [], [])
    assert "8\N{NO-BREAK SPACE}lanes more" in drawn.labels


def test_timeline_draws_lanes_bookmarks_and_notes() -> None:
    timeline = builder.timeline()
    mark = svg_timeline.Bookmark(
        "1 RANK001 late-rank-host", 1, 119 * builder.MS, 134 * builder.MS, "no host activity"
    )
    outside = svg_timeline.Bookmark("2 X", 1, 0, builder.MS, "elsewhere")
    drawn = svg_timeline.figure(timeline, [mark, outside], [0, 1], [1])
    assert "Rank 1 ▲" in drawn.labels
    assert "NCCL · stream 17" in drawn.labels
    assert "1 RANK001 late-rank-host" in drawn.plot
    assert "no host activity" in drawn.plot
    assert "elsewhere" not in drawn.plot
    assert "end of step 5" in drawn.plot
    assert drawn.title == "Step 5"
    assert drawn.subtitle.replace("\N{NO-BREAK SPACE}", " ") == "61.6 of 272.0 ms shown"
    for y in re.findall(r'<(?:rect|line|text|svg)[^>]* y1?="([\d.]+)"', drawn.plot):
        assert 0 <= float(y) < 500


def test_static_timeline_stays_in_its_budget() -> None:
    drawn = svg_timeline.figure(builder.timeline(2), [], [], [])
    assert len(drawn.plot) + len(drawn.labels) + len(drawn.overview) < 60_000


def test_empty_lanes_and_timelines() -> None:
    empty = builder.lane(LaneKind.STREAM, "GPU", [])
    view = View(0, builder.MS)
    assert svg_lanes.busy_lane(empty.slices, view, 0, 24) == ""
    assert svg_marks.comm_lane(empty.slices, view, 0, 24) == ""
    assert Timeline.empty().span_ns == (0, 0)


def test_proof_strip_shows_the_guilty_rank_and_a_victim() -> None:
    finding = builder.late_rank_finding()
    shifted = [
        Range(
            rank=1,
            start_ns=119 * builder.MS,
            end_ns=134 * builder.MS + 500_000,
            label="no host activity 15.5 ms",
        )
    ]
    strip = svg_proof.strip(
        builder.change(finding, ranges=shifted), builder.timeline(), blamed=True
    )
    assert strip is not None
    labels = re.findall(r"<text[^>]*>(Rank[^<]*)</text>", strip)
    assert labels == [
        "Rank 1 ▲ host",
        "Rank 1 compute",
        "Rank 1 NCCL",
        "Rank 0 compute",
        "Rank 0 NCCL",
    ]
    assert "no host activity 15.5 ms" in strip
    assert (
        svg_proof.strip(builder.change(finding, ranges=[]), builder.timeline(), blamed=True) is None
    )
    elsewhere = builder.change(finding, ranges=[Range(rank=9, start_ns=0, end_ns=1)])
    assert svg_proof.strip(elsewhere, builder.timeline(), blamed=True) is None


def test_hostile_lane_labels_are_text() -> None:
    bad = builder.lane(LaneKind.RANGES, builder.HOSTILE, [(120, 170, SliceKind.RANGE, 6)])
    base = builder.timeline()
    rank = base.ranks[0]
    lanes: tuple[Lane, ...] = (bad, *rank.lanes)
    hostile = Timeline(
        names=base.names,
        ranks=(type(rank)(rank=0, lanes=lanes, steps=rank.steps, gpu=builder.HOSTILE),),
        shown_step=5,
    )
    drawn = svg_timeline.figure(hostile, [], [], [])
    for part in (drawn.labels, drawn.plot):
        assert "<img" not in part
        assert "\u202e" not in part
        assert "</script" not in part
