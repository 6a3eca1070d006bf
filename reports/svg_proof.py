"""The proof strip: the guilty rank beside one of its victims, on one clock."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from trace_analyzer.findings import Finding, Range
from trace_analyzer.reports import svg, svg_lanes, svg_marks, units
from trace_analyzer.reports.svg_lanes import View
from trace_analyzer.timeline import (
    Lane,
    LaneKind,
    RankTimeline,
    SliceKind,
    Timeline,
    waiting_ns,
)

PLOT_PX = 440.0
_LANE_PX = 16
_PITCH_PX = 23
_TOP_PX = 26
_LONGEST_NS = 36_000_000
_RIGHT_HALF = 0.85
_NS_PER_MS = 1e6


def proof_view(finding: Finding, timeline: Timeline) -> tuple[RankTimeline, View] | None:
    """Return the rank and the stretch to show: the finding's first range inside the shown step.

    None where the finding names no range of a rank that is drawn.
    """
    shown = None if timeline.shown_step is None else timeline.step_span_ns(timeline.shown_step)
    best: tuple[RankTimeline, int, int] | None = None
    for item in finding.ranges:
        rank = timeline.rank(item.rank)
        if rank is None:
            continue
        start = rank.window_start_ns + item.start_ns
        end = rank.window_start_ns + item.end_ns
        inside = shown is not None and start < shown[1] and end > shown[0]
        if best is None or inside:
            best = (rank, start, end)
        if inside:
            break
    if best is None:
        return None
    rank, start, end = best
    step_end = shown[1] if shown is not None and start < shown[1] else 2 * end - start
    before = min((end - start) // 8, 4_000_000)
    stop = min(max(end + (end - start) // 8, step_end), start - before + _LONGEST_NS)
    return rank, View(start - before, max(stop, end))


def strip(finding: Finding, timeline: Timeline, *, blamed: bool) -> Markup | None:
    """Draw the strip of a finding, or return None where there is nothing to show.

    Lanes are the guilty rank's host, compute and NCCL, then compute and NCCL of one other rank.
    """
    seen = proof_view(finding, timeline)
    if seen is None:
        return None
    rank, view = seen
    victim = next((other for other in timeline.ranks if other.rank not in finding.ranks), None)
    if victim is None:
        victim = next((other for other in timeline.ranks if other.rank != rank.rank), None)
    y = float(_TOP_PX)
    marks: list[Markup] = []
    labels: list[Markup] = []
    host_y = y
    for owner, kinds in (
        (rank, (LaneKind.HOST, LaneKind.STREAM, LaneKind.COMM)),
        (victim, (LaneKind.STREAM, LaneKind.COMM)),
    ):
        if owner is None:
            continue
        guilty = owner is rank and blamed
        for kind, lanes in _grouped(owner.outer_lanes, kinds):
            labels.append(_label(owner.rank, kind, y, guilty=guilty and kind == LaneKind.HOST))
            marks += [_lane(lane, kind, view, y) for lane in lanes]
            y += _PITCH_PX
        y += 8
    box = _boxes(finding.ranges, rank, view, host_y)
    if blamed and victim is not None:
        arrives = _arrival(victim, view)
        if arrives is not None:
            y += 14
            marks.append(_arrives(rank.rank, view.x(arrives), host_y, y))
    length_ms = view.length_ns / _NS_PER_MS
    ticks = [tick for tick in units.nice_ticks(length_ms, 3, 6) if tick < 0.97 * length_ms]
    step = ticks[1] - ticks[0] if len(ticks) > 1 else length_ms
    grid = [svg.vertical("grid", tick / length_ms, 18, y) for tick in ticks]
    names = [
        svg.text(
            units.tick_label(tick, step) + (f"{units.NBSP}ms" if not index else ""),
            tick / length_ms,
            12,
            cls="axis",
            anchor="middle" if index else "",
        )
        for index, tick in enumerate(ticks)
    ]
    plot = svg.drawing(
        *grid, *names, *marks, *box, height=y, cls="plot", label=finding.proof or finding.title
    )
    sheet = svg.drawing(*labels, height=y, cls="proof-labels")
    return Markup('<div class="proof-strip">{}{}</div>').format(sheet, plot)


def _grouped(lanes: Sequence[Lane], kinds: Sequence[LaneKind]) -> list[tuple[LaneKind, list[Lane]]]:
    groups = [(kind, [lane for lane in lanes if lane.kind == kind]) for kind in kinds]
    return [(kind, members) for kind, members in groups if members]


def _label(rank: int, kind: LaneKind, y: float, *, guilty: bool) -> Markup:
    word = {LaneKind.HOST: "host", LaneKind.STREAM: "compute", LaneKind.COMM: "NCCL"}[kind]
    content = f"Rank {rank} {'▲ ' if guilty else ''}{word}"
    return svg.element("text", content, cls="blamed" if guilty else None, x=0, y=y + 12)


def _lane(lane: Lane, kind: LaneKind, view: View, y: float) -> Markup:
    if kind == LaneKind.COMM:
        return svg_marks.comm_lane(lane.slices, view, y, _LANE_PX, label_px=PLOT_PX)
    host = kind == LaneKind.HOST
    return svg_lanes.busy_lane(lane.slices, view, y, _LANE_PX, host=host, gaps=not host)


def _arrival(victim: RankTimeline, view: View) -> int | None:
    """Return when the longest wait of a rank ends inside the view, ns; None without any."""
    best: tuple[int, int] | None = None
    for lane in victim.outer_lanes:
        seen = view.of_kind(lane.slices, SliceKind.COMM)
        length = waiting_ns(seen)
        if len(seen) and int(length.max()) > (best[0] if best else 0):
            row = int(np.argmax(length))
            best = (int(length[row]), int(seen.transfer_start_ns[row]))
    return best[1] if best is not None and view.start_ns < best[1] < view.end_ns else None


def _arrives(rank: int, x: float, top: float, bottom: float) -> Markup:
    anchor = "end" if x > _RIGHT_HALF else "middle"
    label = svg.text(f"rank {rank} arrives", x, bottom - 4, anchor=anchor)
    return svg.vertical("ceiling", x, top + _PITCH_PX, bottom - 14) + label


def _boxes(ranges: Sequence[Range], rank: RankTimeline, view: View, y: float) -> list[Markup]:
    drawn: list[Markup] = []
    for item in ranges:
        if item.rank != rank.rank:
            continue
        start = rank.window_start_ns + item.start_ns
        end = rank.window_start_ns + item.end_ns
        if end <= view.start_ns or start >= view.end_ns:
            continue
        x, width = view.x(start), view.x(end) - view.x(start)
        length = f"{units.ms((end - start) / _NS_PER_MS)}{units.NBSP}ms"
        drawn.append(svg.rect("note-box", x, width, y - 2, _LANE_PX + 4))
        drawn.append(
            svg.inside_label(
                item.label or length, length, x, width, y + 12, cls="in note-text", wide_px=PLOT_PX
            )
        )
    return drawn
