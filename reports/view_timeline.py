"""The timeline section: the drawing of the shown step, and what the zoomable one starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trace_analyzer.findings import Report
from trace_analyzer.reports import summary, svg_overview, svg_timeline, units
from trace_analyzer.reports.svg_timeline import Bookmark, Figure
from trace_analyzer.reports.timeline_data import Mark, Opening
from trace_analyzer.timeline import Timeline

_MOST_MARKS = 60  # of one finding


@dataclass(frozen=True, slots=True)
class TimelineView:
    """The section."""

    figure: Figure
    split: bool
    ranks: int
    source: Opening


def timeline_view(report: Report, timeline: Timeline | None) -> TimelineView | None:
    """Arrange the section, or return None where there is nothing to draw."""
    if timeline is None or timeline.span_ns == (0, 0):
        return None
    blamed = summary.blamed(report)
    chosen = [*blamed, *_middle_and_fastest(report)]
    marks, left_out = _marks(report, timeline)
    bookmarks = [
        Bookmark(
            label=f"{mark.number} {mark.code} {mark.name}",
            rank=mark.rank,
            start_ns=mark.start_ns,
            end_ns=mark.end_ns,
            note=mark.note,
        )
        for mark in marks
    ]
    figure = svg_timeline.figure(timeline, bookmarks, chosen, blamed)
    view = svg_timeline.step_view(timeline)
    opening = Opening(
        plan=figure.plan,
        marks=tuple(marks),
        blamed=blamed,
        view_ns=(view.start_ns, view.end_ns),
        said=left_out,
    )
    return TimelineView(figure, svg_overview.has_waits(timeline), len(timeline.ranks), opening)


def _middle_and_fastest(report: Report) -> list[int]:
    ordered = [rank.rank for rank in summary.by_step(report)]
    if not ordered:
        return [rank.rank for rank in report.ranks[:3]]
    return [ordered[0], ordered[len(ordered) // 2], ordered[-1]]


def _marks(report: Report, timeline: Timeline) -> tuple[list[Mark], str]:
    """Return the places of all findings in order of time, and a sentence on those left out."""
    marks: list[Mark] = []
    left_out = []
    for position, (number, finding) in enumerate(summary.numbered(report), start=1):
        if number is None:
            continue
        if len(finding.ranges) > _MOST_MARKS:
            left_out.append(
                f"Of {units.integer(len(finding.ranges))} places of finding {number} the first "
                f"{_MOST_MARKS} are marked."
            )
        for item in finding.ranges[:_MOST_MARKS]:
            rank = timeline.rank(item.rank)
            if rank is not None:
                marks.append(
                    Mark(
                        number=number,
                        code=finding.code,
                        name=finding.name,
                        anchor=f"finding-{position}",
                        rank=item.rank,
                        start_ns=rank.window_start_ns + item.start_ns,
                        end_ns=rank.window_start_ns + item.end_ns,
                        label=item.label,
                    )
                )
    marks = _noted(marks)
    return sorted(marks, key=lambda mark: (mark.start_ns, mark.number)), " ".join(left_out)


def _noted(marks: Sequence[Mark]) -> list[Mark]:
    """Return the marks with what is written over the lanes: of two that overlap the first finding's."""
    noted: list[Mark] = []
    for mark in marks:  # in the order of findings
        covered = any(
            other.rank == mark.rank
            and 2 * (min(other.end_ns, mark.end_ns) - max(other.start_ns, mark.start_ns))
            > mark.end_ns - mark.start_ns
            for other in noted
            if other.note
        )
        noted.append(mark if covered else replace(mark, note=mark.label))
    return noted
