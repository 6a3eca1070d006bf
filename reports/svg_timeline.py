"""The static timeline: the median step of every rank, readable and printable without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from trace_analyzer.reports import svg, svg_lanes, svg_marks, svg_overview, units
from trace_analyzer.reports.names import cut_middle, short_names
from trace_analyzer.reports.rank_plan import ONE_BY_ONE, Plan, busiest_lanes, plan_ranks
from trace_analyzer.reports.svg_lanes import View
from trace_analyzer.timeline import LaneKind, RankTimeline, Timeline

PLOT_PX = 960.0
_LANE_PX = {LaneKind.RANGES: 14, LaneKind.HOST: 13, LaneKind.STREAM: 24, LaneKind.COMM: 24}
_LANE_GAP = {LaneKind.RANGES: 1, LaneKind.HOST: 2, LaneKind.STREAM: 4, LaneKind.COMM: 4}
_HEADER_PX = 22
_BOOKMARK_PX = 17
_LABEL = 21  # characters of a lane's label
_NOTE_PX = 22
_WORTH_AN_OVERVIEW = 0.9  # of the recording: where more than that is shown there is none
_FOLDED_COLUMNS = 300
_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A finding's range on the timeline's clock; `note` is what the box over the host lanes says."""

    label: str
    rank: int
    start_ns: int
    end_ns: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """The drawing in two columns, labels and plot, with the words that go around it."""

    labels: Markup
    plot: Markup
    overview: Markup
    title: str
    subtitle: str
    note: str
    span_ms: float
    plan: Plan


@dataclass(slots=True)
class _Sheet:
    """What has been drawn, and how far down."""

    view: View
    marks: list[Markup] = field(default_factory=list)
    labels: list[Markup] = field(default_factory=list)
    y: float = 0.0

    def label(self, content: str, y: float, cls: str = "") -> None:
        self.labels.append(svg.element("text", content, cls=cls or None, x=0, y=y))


def step_view(timeline: Timeline) -> View:
    """Return the shown step with a little before and after, or the whole recording without one."""
    first, last = timeline.span_ns
    span = None
    if timeline.shown_step is not None:
        span = timeline.step_span_ns(timeline.shown_step)
    if span is None:
        return View(first, max(last, first + 1))
    margin = (span[1] - span[0]) // 25
    return View(max(first, span[0] - margin), min(max(last, span[1]), span[1] + 2 * margin))


def figure(
    timeline: Timeline, bookmarks: Sequence[Bookmark], chosen: Sequence[int], blamed: Sequence[int]
) -> Figure:
    """Draw the shown step; `chosen` are the ranks to open where there are too many, best first."""
    view = step_view(timeline)
    plan = plan_ranks(timeline.ranks, chosen)
    sheet = _Sheet(view)
    _step_labels(sheet, timeline, plan)
    _bookmarks(sheet, bookmarks)
    used = {
        position
        for number in plan.opened
        if (rank := timeline.rank(number)) is not None
        for lane in rank.outer_lanes
        for position in svg_marks.named_slices(lane.slices, view, PLOT_PX)
    }
    shortened = short_names(timeline.names[position] for position in sorted(used))
    short = {position: shortened[timeline.names[position]] for position in used}
    for number in plan.opened:
        rank = timeline.rank(number)
        if rank is not None:
            band = _open_rank(sheet, timeline, rank, short, blamed=number in blamed)
            notes = [mark for mark in bookmarks if mark.rank == number and mark.note]
            _notes(sheet, notes, band)
    _folded(sheet, timeline, plan, blamed)
    ticks = _ticks(view)
    height = sheet.y + 6
    grid = [svg.vertical("grid", x, 18, height) for x, _ in ticks]
    top = [
        svg.text(label, x, 12, cls=_tick_class(i), anchor="" if i == 0 else "middle")
        for i, (x, label) in enumerate(ticks)
    ]
    first, last = timeline.span_ns
    whole_ms = (last - first) / _NS_PER_MS
    shown_ms = view.length_ns / _NS_PER_MS
    step = timeline.shown_step
    return Figure(
        labels=svg.drawing(*sheet.labels, height=height, cls="tl-labels"),
        plot=svg.drawing(
            *grid, *top, *sheet.marks, height=height, cls="plot", label=_spoken(timeline, view)
        ),
        overview=svg_overview.overview(timeline, view, plan.opened)
        if shown_ms < _WORTH_AN_OVERVIEW * whole_ms
        else Markup(""),
        title="Whole recording" if step is None else f"Step {step}",
        subtitle=f"{units.ms(shown_ms)} of {units.ms(whole_ms)}{units.NBSP}ms shown",
        note=_left_out(timeline, plan),
        span_ms=whole_ms,
        plan=plan,
    )


def _spoken(timeline: Timeline, view: View) -> str:
    what = "the whole recording" if timeline.shown_step is None else f"step {timeline.shown_step}"
    length = units.ms(view.length_ns / _NS_PER_MS)
    count = units.plural(len(timeline.ranks), "rank")
    return f"Timeline of {what}, {count}, {length} ms: the numbers are in the table above."


def _left_out(timeline: Timeline, plan: Plan) -> str:
    parts = []
    if plan.folded:
        count = sum(len(members) for _, members in plan.folded)
        shared = "the mean of a group in one lane" if count > len(plan.folded) else "one lane each"
        parts.append(f"{units.plural(count, 'rank')} drawn as {shared}")
    if plan.left_out:
        parts.append(f"{units.plural(plan.left_out, 'rank')} not drawn")
    if timeline.dropped:
        parts.append(f"{timeline.dropped:,} slices left out")
    return "; ".join(parts)


def _ticks(view: View) -> list[tuple[float, str]]:
    """Return position and label of round times, in ms from the left edge."""
    length_ms = view.length_ns / _NS_PER_MS
    ticks = [tick for tick in units.nice_ticks(length_ms, 8, 14) if tick <= length_ms * 0.985]
    step = ticks[1] - ticks[0] if len(ticks) > 1 else length_ms
    labels = [units.tick_label(tick, step) for tick in ticks]
    labels[0] += f"{units.NBSP}ms"
    return [(tick / length_ms, label) for tick, label in zip(ticks, labels, strict=True)]


def _tick_class(position: int) -> str:
    """Return the class of a tick label: on narrow screens every third one stays."""
    return "axis" if position % 3 == 0 else "axis fit-p"


def _step_labels(sheet: _Sheet, timeline: Timeline, plan: Plan) -> None:
    sheet.y = 36
    lead = timeline.rank(plan.opened[0]) if plan.opened else None
    for span in lead.steps if lead is not None else ():
        if sheet.view.start_ns <= span.start_ns < sheet.view.end_ns:
            x = sheet.view.x(span.start_ns)
            if x < 0.9:
                sheet.marks.append(svg.text(f"step {span.index}", x, 31, cls="step", dx=4))
        if span.index == timeline.shown_step and span.end_ns <= sheet.view.end_ns:
            x = sheet.view.x(span.end_ns)
            label = f"end of step {span.index}"
            sheet.marks.append(svg.text(label, x, 31, cls="step", anchor="end", dx=-4))


def _bookmarks(sheet: _Sheet, bookmarks: Iterable[Bookmark]) -> None:
    rows: list[float] = []
    for mark in bookmarks:
        if mark.end_ns <= sheet.view.start_ns or mark.start_ns >= sheet.view.end_ns:
            continue
        x = sheet.view.x(mark.start_ns)
        width = max(sheet.view.x(mark.end_ns) - x, 0.004)
        row = next((i for i, right in enumerate(rows) if right <= x), len(rows))
        if row == len(rows):
            rows.append(0.0)
        if row > 2:
            continue
        rows[row] = x + width
        y = sheet.y + row * _BOOKMARK_PX
        sheet.marks.append(svg.rect("bad", x, width, y, _BOOKMARK_PX - 1))
        sheet.marks.append(_flag(mark.label, x, width, y + 12))
    sheet.y += _BOOKMARK_PX * min(len(rows), 3) + (6 if rows else 0)


def _flag(label: str, x: float, width: float, y: float) -> Markup:
    """Return the words on a bookmark: all of them where they fit, else its number."""
    number = label.split(" ", maxsplit=1)[0]
    seen = svg.where_it_fits(label, width, PLOT_PX)
    drawn = Markup("")
    if seen is not None:
        drawn += svg.text(label, x, y, cls=f"flag {seen}".strip(), dx=5)
    if seen != "" and svg.where_it_fits(number, width, PLOT_PX) == "":
        instead = {"fit-p": " only-n", "fit-w": " only-m", None: ""}[seen]
        drawn += svg.text(number, x, y, cls=f"flag{instead}", dx=5)
    return drawn


def _open_rank(
    sheet: _Sheet, timeline: Timeline, rank: RankTimeline, short: dict[int, str], *, blamed: bool
) -> tuple[float, float]:
    """Draw all lanes of a rank; return top and bottom of its host threads."""
    view = sheet.view
    name = f"Rank {rank.rank}{' ▲' if blamed else ''}"
    gpu_name = cut_middle(rank.gpu.split(" (", maxsplit=1)[0], 12)
    gpu = svg.element("tspan", f" {gpu_name}", cls="quiet") if gpu_name else ""
    sheet.y += 4
    title = svg.element("tspan", name, cls="blamed" if blamed else "strong")
    sheet.labels.append(svg.element("text", title, gpu, x=0, y=sheet.y + 12))
    top = sheet.y + 2
    sheet.y += _HEADER_PX
    host_top = host_bottom = 0.0
    lanes = busiest_lanes(rank)
    for lane in lanes:
        height = _LANE_PX[lane.kind]
        y = sheet.y
        sheet.label(_lane_label(lane.label), y + height / 2 + 4)
        if lane.kind in {LaneKind.RANGES, LaneKind.HOST}:
            host = svg_lanes.busy_lane(lane.slices, view, y, height, host=True, gaps=False)
            boxes = svg_marks.range_lane(lane.slices, timeline.names, view, y, height, PLOT_PX)
            sheet.marks += [host, boxes]
        else:
            busy = svg_lanes.busy_lane(lane.slices, view, y, height)
            comm = svg_marks.comm_lane(lane.slices, view, y, height, label_px=PLOT_PX)
            inside = svg_marks.slice_names(lane.slices, short, view, y, height, PLOT_PX)
            sheet.marks += [busy, comm, inside]
        if lane.kind == LaneKind.HOST:
            host_top, host_bottom = host_top or y, y + height
        sheet.y += height + _LANE_GAP[lane.kind]
    if len(lanes) < len(rank.outer_lanes):
        more = units.plural(len(rank.outer_lanes) - len(lanes), "lane")
        sheet.label(f"{more} more", sheet.y + 11, cls="quiet")
        sheet.y += 16
    bounds = {span.start_ns for span in rank.steps} | {span.end_ns for span in rank.steps}
    sheet.marks += [
        svg.vertical("step-line", view.x(bound), top, sheet.y)
        for bound in sorted(bounds)
        if view.start_ns <= bound <= view.end_ns
    ]
    sheet.y += 6
    return host_top, host_bottom


def _lane_label(label: str) -> str:
    """Return a lane's label: of a named thread the name, not its number."""
    named = re.fullmatch(r"host · thread \d+ \((.+)\)", label)
    return cut_middle(f"host · {named.group(1)}" if named else label, _LABEL)


def _notes(sheet: _Sheet, marks: Sequence[Bookmark], band: tuple[float, float]) -> None:
    """Draw what a rank did not do as boxes over its host lanes."""
    top, bottom = band
    if bottom <= top:
        return
    short = max(0.0, (_NOTE_PX - (bottom - top)) / 2)
    top, bottom = top - short, bottom + short
    for mark in marks:
        if mark.end_ns <= sheet.view.start_ns or mark.start_ns >= sheet.view.end_ns:
            continue
        x = sheet.view.x(mark.start_ns)
        width = sheet.view.x(mark.end_ns) - x
        y = (top + bottom) / 2 + 4
        sheet.marks.append(svg.rect("note-box", x, width, top, bottom - top))
        sheet.marks.append(
            svg.inside_label(
                mark.note, _short_note(mark), x, width, y, cls="in note-text", wide_px=PLOT_PX
            )
        )


def _short_note(mark: Bookmark) -> str:
    return f"{units.ms((mark.end_ns - mark.start_ns) / _NS_PER_MS)}{units.NBSP}ms"


def _folded(sheet: _Sheet, timeline: Timeline, plan: Plan, blamed: Sequence[int]) -> None:
    view = View(sheet.view.start_ns, sheet.view.end_ns, _FOLDED_COLUMNS)
    height = 24 if len(plan.folded) <= ONE_BY_ONE else 16
    sheet.y += 6 if plan.folded else 0
    for name, members in plan.folded:
        ranks = [rank for number in members if (rank := timeline.rank(number)) is not None]
        mark = " ▲" if set(members) & set(blamed) else ""
        cls = "blamed" if mark else "small"
        sheet.label(cut_middle(name, 17) + mark, sheet.y + height / 2 + 4, cls=cls)
        upper, lower = height * 5 // 8, height * 3 // 8 - 2
        if len(ranks) == 1:
            drawn = svg_overview.one_lane(ranks[0], view, sheet.y, upper, lower)
        else:
            drawn = svg_overview.mean_lane(ranks, view, sheet.y, upper, lower)
        sheet.marks.append(drawn)
        sheet.y += height + 3
