"""A rank in one lane, and the whole recording in one strip."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from trace_analyzer.reports import svg, svg_lanes, svg_marks
from trace_analyzer.reports.svg_lanes import View
from trace_analyzer.timeline import LaneKind, RankTimeline, SliceKind, Timeline, waiting_ns

HEIGHT_PX = 64
_MOST_RANKS = 3
_LABEL_FROM = 0.07  # of the plot: a step narrower than this carries no label
_GPU = (LaneKind.STREAM, LaneKind.COMM)


def one_lane(rank: RankTimeline, view: View, y: float, upper: int, lower: int) -> Markup:
    """Return compute and copies of all streams in `upper` px, communication in `lower` px below."""
    lanes = [lane.slices for lane in rank.lanes if lane.kind in _GPU]
    busy = [svg_lanes.busy_lane(slices, view, y, upper, gaps=False) for slices in lanes]
    comm = [svg_marks.comm_lane(part, view, y + upper + 1, lower, most=80) for part in lanes]
    return svg.join(busy + comm)


def mean_lane(
    ranks: Sequence[RankTimeline], view: View, y: float, upper: int, lower: int
) -> Markup:
    """Return the busy share of several ranks: the mean of compute above that of communication."""
    lanes = [
        [lane.slices for lane in rank.lanes if lane.kind in _GPU and len(lane.slices)]
        for rank in ranks
    ]
    compute = svg_lanes.mean_profile(lanes, SliceKind.COMPUTE, view, y, upper)
    return compute + svg_lanes.mean_profile(lanes, SliceKind.COMM, view, y + upper + 1, lower)


def overview(timeline: Timeline, view: View, opened: Sequence[int]) -> Markup:
    """Return the whole recording of up to three ranks, framed where the drawing below looks."""
    first, last = timeline.span_ns
    whole = View(first, max(last, first + 1))
    ranks = [rank for number in opened if (rank := timeline.rank(number)) is not None]
    ranks = ranks[:_MOST_RANKS]
    pitch = 52 // max(len(ranks), 1)
    upper = min(pitch * 4 // 7, 12)
    lower = min(pitch - upper - 4, 8)
    marks = [one_lane(rank, whole, 3 + row * pitch, upper, lower) for row, rank in enumerate(ranks)]
    for span in ranks[0].steps if ranks else ():
        x = whole.x(span.end_ns)
        marks.append(svg.vertical("step-line", x, 2, HEIGHT_PX - 2))
        if (span.end_ns - span.start_ns) / whole.length_ns >= _LABEL_FROM:
            label = f"step {span.index}"
            cls = "axis halo fit-w"
            marks.append(svg.text(label, x, HEIGHT_PX - 2, cls=cls, anchor="end", dx=-4))
    x = whole.x(view.start_ns)
    marks.append(svg.rect("viewport", x, whole.x(view.end_ns) - x, 1, HEIGHT_PX - 2))
    return svg.drawing(*marks, height=HEIGHT_PX, cls="plot")


def has_waits(timeline: Timeline) -> bool:
    """Return whether any collective is split into waiting and moving."""
    return any(
        bool((waiting_ns(lane.slices) > 0).any()) for rank in timeline.ranks for lane in rank.lanes
    )
