"""The timeline that a reader can zoom into, cut down until it fits the page.

First times are rounded, then slices far from what the findings name are drawn together, always
more of them; `LiveTimeline.said` tells what was done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trace_analyzer.reports.names import cut_middle, visible
from trace_analyzer.reports.rank_plan import Plan, group_name
from trace_analyzer.reports.timeline_columns import LaneData, least_unit_ns, packed
from trace_analyzer.reports.timeline_thin import TOGETHER, Drawn, inside, run_starts, thinned
from trace_analyzer.reports.timeline_types import named, types_of
from trace_analyzer.schema import Int64Array
from trace_analyzer.timeline import Lane, RankTimeline, SliceKind, Timeline

MOST_RANKS = 64
MOST_STEPS_KEPT = 12  # steps that keep their detail
STEPS_OF_A_FINDING = 2
_FIRST_UNITS_NS = (1, 32, 64)
_THINNEST = 24  # doublings of the shortest stretch that is drawn together
_SHORTEST_NS = 2_000
_BYTES_A_SLICE = 2.2  # deflated, at the coarsest unit: what is sure not to fit is not tried
_BASE64 = 4 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A finding's range on the timeline's clock, ns.

    `label` is what the finding says of it; `note` the same where it is written over the host lanes,
    else empty.
    """

    number: int
    code: str
    name: str
    anchor: str
    rank: int
    start_ns: int
    end_ns: int
    label: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How the timeline is first seen; `said` tells what is not in it whatever its size."""

    plan: Plan
    marks: tuple[Mark, ...]
    blamed: tuple[int, ...]
    view_ns: tuple[int, int]
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTimeline:
    """What the script of the page reads, and what had to be left out for it."""

    text: str
    slices: int
    drawn: int
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """A level of detail: the unit of time, and the longest stretch that is drawn together."""

    unit_ns: int
    stretch_ns: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Source:
    """The ranks to pack, and where they keep their detail."""

    timeline: Timeline
    ranks: tuple[RankTimeline, ...]
    opened: frozenset[int]
    spans: tuple[tuple[int, int], ...]
    origin_ns: int
    length_ns: int

    @property
    def slices(self) -> int:
        return sum(len(lane.slices) for rank in self.ranks for lane in rank.lanes)


def live_timeline(
    timeline: Timeline, opening: Opening, *, most_bytes: int, easy_bytes: int
) -> LiveTimeline | None:
    """Pack a timeline into at most `most_bytes`; None where not even the coarsest level fits.

    Every nanosecond is kept where that fits `easy_bytes`.
    """
    source = _source(timeline, opening)
    for level in _levels(source):
        stretches = [_stretches(source, rank, level) for rank in source.ranks]
        count = sum(
            len(run_starts(lane.slices, stretch))
            for rank, rows in zip(source.ranks, stretches, strict=True)
            for lane, stretch in zip(rank.lanes, rows, strict=True)
        )
        limit = easy_bytes if level.unit_ns == _FIRST_UNITS_NS[0] else most_bytes
        if count * _BYTES_A_SLICE * _BASE64 > limit:
            continue
        drawn = [
            [thinned(lane.slices, stretch) for lane, stretch in zip(rank.lanes, rows, strict=True)]
            for rank, rows in zip(source.ranks, stretches, strict=True)
        ]
        said = _said(source, opening, level, count)
        text = _packed(source, drawn, opening, level.unit_ns, said)
        if len(text) <= limit:
            return LiveTimeline(text=text, slices=source.slices, drawn=count, said=said)
    return None


def _source(timeline: Timeline, opening: Opening) -> _Source:
    plan, marks = opening.plan, opening.marks
    wanted = [*plan.opened, *(mark.rank for mark in marks)]
    wanted += [rank for _, members in plan.folded for rank in members]
    kept = set(list(dict.fromkeys(wanted))[:MOST_RANKS])
    first, last = timeline.span_ns
    spans = [timeline.step_span_ns(step) for step in _kept_steps(timeline, marks)]
    return _Source(
        timeline=timeline,
        ranks=tuple(rank for rank in timeline.ranks if rank.rank in kept),
        opened=frozenset(plan.opened),
        spans=tuple(span for span in spans if span is not None),
        origin_ns=first,
        length_ns=max(last - first, 1),
    )


def _kept_steps(timeline: Timeline, marks: Sequence[Mark]) -> list[int]:
    """Return the steps that keep their detail: the one shown first, and the first two of a finding."""
    kept = [] if timeline.shown_step is None else [timeline.shown_step]
    of_finding: dict[int, list[int]] = {}
    for mark in marks:
        rank = timeline.rank(mark.rank)
        steps = of_finding.setdefault(mark.number, [])
        steps += [
            span.index
            for span in (rank.steps if rank is not None else ())
            if span.start_ns < mark.end_ns and mark.start_ns < span.end_ns
        ]
    for steps in of_finding.values():
        kept += list(dict.fromkeys(steps))[:STEPS_OF_A_FINDING]
    return list(dict.fromkeys(kept))[:MOST_STEPS_KEPT]


def _levels(source: _Source) -> Iterator[_Level]:
    least = least_unit_ns(source.length_ns)
    for unit in _FIRST_UNITS_NS:
        yield _Level(unit_ns=max(unit, least), stretch_ns=0)
    for doubling in range(_THINNEST):
        yield _Level(unit_ns=max(_FIRST_UNITS_NS[-1], least), stretch_ns=_SHORTEST_NS << doubling)


def _stretches(source: _Source, rank: RankTimeline, level: _Level) -> list[Int64Array]:
    """Return, for every slice of every lane, below which length it may be drawn together.

    The less a reader is likely to look there, the longer: operators inside others, ranks that are
    folded, steps that no finding names.
    """
    rows = []
    for lane in rank.lanes:
        away = level.stretch_ns
        if rank.rank in source.opened:
            away //= 8
        if lane.level:
            away *= 4
        near = away // 32
        kept = inside(lane.slices, source.spans)
        stretch = np.where(kept, near, away).astype(np.int64)
        stretch[stretch < _SHORTEST_NS // 2] = 0
        rows.append(stretch)
    return rows


def _said(source: _Source, opening: Opening, level: _Level, count: int) -> str:
    parts = [opening.said] if opening.said else []
    if level.unit_ns > _FIRST_UNITS_NS[0]:
        parts.append(f"Times are rounded to {level.unit_ns} ns.")
    if count < source.slices:
        steps = "the step shown first and the first two of each finding"
        parts.append(
            f"To keep the file small, short neighbours are drawn together, most of them outside "
            f"{steps}: {count:,} of {source.slices:,} slices are left. Their height is the share "
            "of the time that was busy."
        )
    total = len(source.timeline.ranks)
    if len(source.ranks) < total:
        parts.append(f"{total - len(source.ranks)} of {total} ranks are not in this timeline.")
    if source.timeline.dropped:
        parts.append(f"{source.timeline.dropped:,} slices were left out when it was made.")
    return " ".join(parts)


def _packed(
    source: _Source,
    drawn: Sequence[Sequence[Drawn]],
    opening: Opening,
    unit_ns: int,
    said: str,
) -> str:
    plan = opening.plan

    def unit(time_ns: int) -> int:
        return (time_ns - source.origin_ns) // unit_ns

    table, codes = types_of([part for rows in drawn for part in rows], source.timeline.details)
    lanes, ranks, position = [], [], 0
    for rank, rows in zip(source.ranks, drawn, strict=True):
        described = []
        for lane, slices in zip(rank.lanes, rows, strict=True):
            lanes.append(LaneData(kind=lane.kind, slices=slices, types=codes[position]))
            described.append(_lane_header(lane, slices))
            position += 1
        ranks.append(
            {
                "rank": rank.rank,
                "gpu": visible(rank.gpu.split(" (", maxsplit=1)[0]),
                "host": visible(rank.host),
                "window": unit(rank.window_start_ns),
                "steps": [[s.index, unit(s.start_ns), unit(s.end_ns)] for s in rank.steps],
                "lanes": described,
            }
        )
    here = {rank.rank for rank in source.ranks}
    header = {
        "unit_ns": unit_ns,
        "length": source.length_ns // unit_ns + 1,
        "ranks": ranks,
        **named(table, source.timeline),
        "marks": [
            {
                "number": mark.number,
                "code": mark.code,
                "name": visible(mark.name),
                "anchor": mark.anchor,
                "rank": mark.rank,
                "start": unit(mark.start_ns),
                "end": unit(mark.end_ns),
                "label": visible(mark.label),
                "note": visible(mark.note),
            }
            for mark in opening.marks
            if mark.rank in here
            and mark.end_ns > source.origin_ns
            and mark.start_ns < source.origin_ns + source.length_ns
        ],
        "opened": [rank for rank in plan.opened if rank in here],
        "folded": [
            [visible(name if len(shown) == len(members) else group_name(shown)), shown]
            for name, members in plan.folded
            if (shown := [rank for rank in members if rank in here])
        ],
        "blamed": list(opening.blamed),
        "shown": source.timeline.shown_step,
        "view": [unit(time) for time in opening.view_ns],
        "said": said,
    }
    return packed(header, lanes, source.origin_ns, unit_ns)


def _lane_header(lane: Lane, slices: Drawn) -> dict[str, Any]:
    return {
        "kind": int(lane.kind),
        "label": visible(cut_middle(lane.label, 60)),
        "level": lane.level,
        "slices": len(slices),
        "comm": int((slices.kind == SliceKind.COMM).sum()),
        "together": int((slices.name == TOGETHER).sum()),
    }
