"""The timeline inside a page: nothing is changed on the way, and what is left out is said."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reports import builder
from tests.reports.grown import grown, sample
from tests.reports.page import parse
from tests.reports.unpacked import TOGETHER, Unpacked, of_page
from trace_analyzer.findings import Range
from trace_analyzer.reports import html, timeline_columns, timeline_thin
from trace_analyzer.schema import NA_INT64, is_na
from trace_analyzer.timeline import Lane, LaneKind, RankTimeline, SliceKind, Slices, Timeline


def live(
    timeline: Timeline, most_bytes: int = html.MOST_BYTES, name: str = "slow_cpu_rank"
) -> Unpacked:
    found = of_page(html.render(builder.ALL[name](), timeline=timeline, most_bytes=most_bytes))
    assert found is not None
    return found


def test_every_slice_of_a_small_run_comes_back() -> None:
    timeline = sample()
    found = live(timeline)
    origin = timeline.span_ns[0]
    unit = found.header["unit_ns"]
    assert unit == 1
    assert found.header["said"] == ""
    types = found.header["types"]
    for rank in timeline.ranks:
        for place, lane in enumerate(rank.lanes):
            got, slices = found.lanes[rank.rank, place], lane.slices
            assert np.array_equal(got.start, slices.start_ns - origin)
            assert np.array_equal(got.end, slices.end_ns - origin)
            assert found.names(got) == [timeline.names[name] for name in slices.name.tolist()]
            assert [types["kind"][t] for t in got.type.tolist()] == slices.kind.tolist()
            sizes = np.array(types["bytes"])[got.type]
            assert np.array_equal(sizes, np.where(is_na(slices.bytes), -1, slices.bytes))
            comm = slices.kind == SliceKind.COMM
            wait = slices.transfer_start_ns[comm] - slices.start_ns[comm]
            assert np.array_equal(
                got.wait, np.where(is_na(slices.transfer_start_ns[comm]), -1, wait)
            )
            assert not got.together


def test_details_belong_to_their_slices() -> None:
    timeline = sample()
    found = live(timeline)
    types, details = found.header["types"], found.header["details"]
    (place,) = [i for i, lane in enumerate(timeline.ranks[0].lanes) if lane.kind == LaneKind.COMM]
    lane, slices = found.lanes[0, place], timeline.ranks[0].lanes[place].slices
    for t, position in zip(lane.type.tolist(), slices.detail.tolist(), strict=True):
        detail, truth = details[types["detail"][t]], timeline.details[position]
        assert detail["shape"].replace("\N{NO-BREAK SPACE}", " ") == "24 × 544"
        assert detail.get("operation", "") == truth.operation
        assert detail.get("dtype", "") == truth.dtype
        assert detail.get("factor") == truth.bus_factor
    codes, delays = lane.delay, slices.launch_delay_ns
    known = ~is_na(delays)
    assert np.array_equal(codes == 0, ~known)
    told_us = 2 ** ((codes[known] - 1) / 12) - 1
    assert told_us == pytest.approx(delays[known] / 1e3, rel=0.03, abs=0.03)


def test_marks_plan_and_view_come_along() -> None:
    report = builder.slow_cpu_rank()
    places = [
        Range(rank=1, start_ns=119 * builder.MS, end_ns=134 * builder.MS, label="no host activity")
    ]
    report = builder.change(report, findings=[builder.change(report.findings[0], ranges=places)])
    found = of_page(html.render(report, timeline=builder.timeline()))
    assert found is not None
    (mark,) = found.header["marks"]
    zero = 9 * builder.MS  # the first event of the made timeline
    assert (mark["start"], mark["end"]) == (119 * builder.MS - zero, 134 * builder.MS - zero)
    assert (mark["number"], mark["code"], mark["anchor"]) == (1, "RANK001", "finding-1")
    assert (mark["rank"], mark["label"], mark["note"]) == (
        1,
        "no host activity",
        "no host activity",
    )
    assert found.header["opened"] == [0, 1]
    assert found.header["blamed"] == [1]
    assert found.header["shown"] == 5


def test_of_two_findings_in_one_place_the_first_is_written_there() -> None:
    report = builder.slow_cpu_rank()
    first = Range(rank=1, start_ns=119 * builder.MS, end_ns=134 * builder.MS, label="stands still")
    same = Range(rank=1, start_ns=120 * builder.MS, end_ns=135 * builder.MS, label="late")
    other = Range(rank=0, start_ns=120 * builder.MS, end_ns=135 * builder.MS, label="late")
    findings = [
        builder.change(report.findings[0], ranges=[first]),
        builder.change(report.findings[1], ranges=[same, other]),
    ]
    page = html.render(builder.change(report, findings=findings), timeline=builder.timeline())
    found = of_page(page)
    assert found is not None
    told = {(mark["number"], mark["rank"]): mark["note"] for mark in found.header["marks"]}
    assert told == {(1, 1): "stands still", (2, 1): "", (2, 0): "late"}
    assert {mark["label"] for mark in found.header["marks"]} == {"stands still", "late"}


@pytest.mark.parametrize("most", [150_000, 250_000, 330_000])
def test_a_page_keeps_its_limit_and_says_what_it_cost(most: int) -> None:
    report = builder.slow_cpu_rank()
    page = html.render(report, timeline=sample(), most_bytes=most)
    assert len(page.encode()) <= most
    found = of_page(page)
    if found is None:
        assert (
            "was left out to keep this file below" in parse(page).one("section", id="timeline").text
        )
        return
    left = sum(len(lane.start) for lane in found.lanes.values())
    whole = sum(len(lane.slices) for rank in sample().ranks for lane in rank.lanes)
    assert f"{left:,} of {whole:,} slices are left" in found.header["said"]
    assert "Times are rounded to 64 ns." in found.header["said"]


def test_what_is_drawn_together_keeps_its_busy_time() -> None:
    timeline = sample()
    found = live(timeline, 330_000)
    unit = found.header["unit_ns"]
    seen = 0
    for rank in timeline.ranks:
        for place, lane in enumerate(rank.lanes):
            got = found.lanes[rank.rank, place]
            busy = (got.end - got.start) * unit
            for row, (own, _) in got.together.items():
                assert own <= got.end[row] - got.start[row] + 1
                busy[row] = own * unit
            counts = [got.together.get(row, (0, 1))[1] for row in range(len(got.start))]
            assert sum(counts) == len(lane.slices)
            total = int((lane.slices.end_ns - lane.slices.start_ns).sum())
            assert abs(int(busy.sum()) - total) <= 2 * unit * len(busy)
            seen += len(got.together)
            assert (got.start[1:] >= got.end[:-1]).all()
            assert sorted(got.together) == np.flatnonzero(got.type >= TOGETHER).tolist()
    assert seen > 100


def test_steps_that_findings_name_keep_more_detail() -> None:
    timeline = sample()
    found = live(timeline, 250_000, "healthy")  # no finding of it has a place in the timeline
    shown = timeline.shown_step
    assert shown is not None
    kept: dict[bool, list[float]] = {True: [], False: []}
    for rank in timeline.ranks:
        place = next(i for i, lane in enumerate(rank.lanes) if lane.kind == LaneKind.HOST)
        lane, got = rank.lanes[place].slices, found.lanes[rank.rank, place]
        for span in rank.steps:
            full = int(((lane.start_ns >= span.start_ns) & (lane.start_ns < span.end_ns)).sum())
            start = got.start * found.header["unit_ns"] + timeline.span_ns[0]
            inside = (start >= span.start_ns) & (start < span.end_ns)
            if full > 100:
                kept[span.index == shown].append(int(inside.sum()) / full)
    assert min(kept[True]) > max(kept[False])


def test_least_room_gives_up_the_rest_in_order() -> None:
    report = builder.slow_cpu_rank()
    full = html.render(report, timeline=sample())
    kernels = parse(full).one("section", id="kernels")
    assert "all" not in kernels.attributes
    small = html.render(report, timeline=sample(), most_bytes=140_000)
    assert 'id="timeline-data"' not in small
    assert 'id="report"' not in small
    assert "the JSON report was left out to keep this file below" in small.replace(
        "\N{NO-BREAK SPACE}", " "
    )
    assert 'id="save"' not in small
    with pytest.raises(html.PageTooLargeError, match=r"give --max-html-mb 0\.\d"):
        html.render(report, timeline=sample(), most_bytes=60_000)


def test_sizes() -> None:
    usual = html.render(builder.slow_cpu_rank(), timeline=sample())
    assert len(usual.encode()) <= 600_000
    eight = html.render(builder.world(8), timeline=grown(8, 2))
    assert len(eight.encode()) <= 2_000_000
    found = of_page(eight)
    assert found is not None
    assert found.header["said"] == "Times are rounded to 32 ns."
    assert sum(len(lane.start) for lane in found.lanes.values()) == 8 * 46_475
    many = html.render(builder.world(64), timeline=grown(64, 1))
    assert len(many.encode()) <= 3_000_000


def test_more_ranks_than_fit_are_counted() -> None:
    small = builder.timeline(72, steps_shown=1)
    found = of_page(html.render(builder.world(72), timeline=small))
    assert found is not None
    assert len(found.header["ranks"]) == 64
    assert "8 of 72 ranks are not in this timeline." in found.header["said"]
    listed = [
        *found.header["opened"],
        *(rank for _, members in found.header["folded"] for rank in members),
    ]
    assert sorted(listed) == sorted(rank["rank"] for rank in found.header["ranks"])


def test_places_beyond_sixty_are_counted() -> None:
    report = builder.slow_cpu_rank()
    many = [
        Range(rank=0, start_ns=i * 1000, end_ns=i * 1000 + 500)
        for i in range(9_000_000 // 1000, 9_100)
    ]
    report = builder.change(report, findings=[builder.change(report.findings[0], ranges=many)])
    found = of_page(html.render(report, timeline=builder.timeline()))
    assert found is not None
    assert "Of 100 places of finding 1 the first 60 are marked." in found.header["said"]


def test_hostile_names_are_shown_and_long_ones_cut() -> None:
    base = builder.timeline()
    timeline = Timeline(
        names=(*base.names[:-1], builder.HOSTILE + "x" * 100_000),
        ranks=base.ranks,
        details=base.details,
        shown_step=5,
    )
    lane = builder.lane(LaneKind.RANGES, builder.HOSTILE, [(120, 170, SliceKind.RANGE, 6)])
    rank = RankTimeline(rank=0, lanes=(lane,), gpu=builder.HOSTILE, host=builder.HOSTILE)
    timeline = Timeline(names=timeline.names, ranks=(rank,), shown_step=None)
    page = html.render(builder.hostile(), timeline=timeline)
    found = of_page(page)
    assert found is not None
    (name,) = found.header["names"]
    assert len(name) < 4_100
    for text in (
        name,
        found.header["ranks"][0]["lanes"][0]["label"],
        found.header["ranks"][0]["gpu"],
    ):
        assert not re.search("[\u0000-\u001f\u202e\u200b]", text)
    assert "\u202e" not in page


def test_many_distinct_sizes_of_copies_are_left_out_first() -> None:
    count = 70_000
    start = np.arange(count, dtype=np.int64) * 100
    slices = Slices.from_columns(
        count,
        start_ns=start,
        end_ns=start + 50,
        kind=np.full(count, SliceKind.COPY),
        name=np.full(count, 2),
        bytes=np.arange(count),
    )
    lane = Lane(kind=LaneKind.STREAM, label="GPU · stream 7", slices=slices)
    rank = RankTimeline(rank=0, lanes=(lane,))
    found = live(Timeline(names=builder.NAMES, ranks=(rank,)))
    assert found.header["types"]["bytes"] == [-1]
    assert set(found.names(found.lanes[0, 0])) == {"Memcpy HtoD"}


def test_long_recordings_are_told_in_coarser_units() -> None:
    assert timeline_columns.least_unit_ns(1) == 1
    assert timeline_columns.least_unit_ns(2**31 - 1) == 1
    assert timeline_columns.least_unit_ns(2**31) == 2
    assert timeline_columns.least_unit_ns(3600 * 10**9) == 2048
    day = 86_400_000.0  # ms
    lane = builder.lane(
        LaneKind.STREAM,
        "GPU · stream 7",
        [(0, 1, SliceKind.COMPUTE, 0), (day, day + 1, SliceKind.COMPUTE, 0)],
    )
    rank = RankTimeline(rank=0, lanes=(lane,))
    found = live(Timeline(names=builder.NAMES, ranks=(rank,)))
    unit = found.header["unit_ns"]
    assert found.lanes[0, 0].start[1] * unit == pytest.approx(day * builder.MS, abs=unit)
    assert f"Times are rounded to {unit} ns." in found.header["said"]


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 400), st.sampled_from(SliceKind)), max_size=60
    ),
    st.integers(0, 500),
)
def test_thinning_loses_no_time(rows: list[tuple[int, int, SliceKind]], stretch: int) -> None:
    gaps = np.array([gap for gap, _, _ in rows], dtype=np.int64)
    lengths = np.array([length for _, length, _ in rows], dtype=np.int64)
    end = np.cumsum(gaps + lengths)
    start = end - lengths
    kind = np.array([kind for _, _, kind in rows], dtype=np.int8)
    wait = np.where((kind == SliceKind.COMM) & (lengths > 0), start + lengths // 3, NA_INT64)
    slices = Slices.from_columns(
        len(rows),
        start_ns=start,
        end_ns=end,
        kind=kind,
        name=np.zeros(len(rows)),
        transfer_start_ns=wait,
    )
    drawn = timeline_thin.thinned(slices, np.full(len(rows), stretch, dtype=np.int64))
    assert drawn.busy_ns.sum() == lengths.sum()
    assert drawn.count.sum() == len(rows)
    assert (drawn.start_ns[1:] >= drawn.end_ns[:-1]).all()
    assert (drawn.busy_ns <= drawn.end_ns - drawn.start_ns).all()
    single = drawn.name != timeline_thin.TOGETHER
    assert (drawn.count[single] == 1).all()
    assert (drawn.count[~single] > 1).all()
    known = drawn.wait_ns >= 0
    assert drawn.wait_ns[known].sum() == np.where(is_na(wait), 0, wait - start).sum()
    # Whatever was not short stays by itself.
    assert int((drawn.end_ns - drawn.start_ns >= stretch)[single].sum()) == int(
        (lengths >= stretch).sum()
    )
