"""The timeline section: bookmarks of the findings on the drawing of the shown step."""

from __future__ import annotations

from dataclasses import dataclass

from trace_analyzer.findings import Report
from trace_analyzer.reports import summary, svg_overview, svg_timeline
from trace_analyzer.reports.svg_timeline import Bookmark, Figure
from trace_analyzer.timeline import Timeline

_MOST_BOOKMARKS = 60


@dataclass(frozen=True, slots=True)
class TimelineView:
    """The section."""

    figure: Figure
    split: bool
    ranks: int


def timeline_view(report: Report, timeline: Timeline | None) -> TimelineView | None:
    """Arrange the section, or return None where there is nothing to draw."""
    if timeline is None or timeline.span_ns == (0, 0):
        return None
    chosen = [*summary.blamed(report), *_middle_and_fastest(report)]
    figure = svg_timeline.figure(
        timeline, _bookmarks(report, timeline), chosen, summary.blamed(report)
    )
    return TimelineView(figure, svg_overview.has_waits(timeline), len(timeline.ranks))


def _middle_and_fastest(report: Report) -> list[int]:
    ordered = [rank.rank for rank in summary.by_step(report)]
    if not ordered:
        return [rank.rank for rank in report.ranks[:3]]
    return [ordered[0], ordered[len(ordered) // 2], ordered[-1]]


def _bookmarks(report: Report, timeline: Timeline) -> list[Bookmark]:
    marks = []
    number = 0
    for finding in report.findings:
        if not summary.distinguishable(finding):
            continue
        number += 1
        for item in finding.ranges[:_MOST_BOOKMARKS]:
            rank = timeline.rank(item.rank)
            if rank is None:
                continue
            marks.append(
                Bookmark(
                    label=f"{number} {finding.code} {finding.name}",
                    rank=item.rank,
                    start_ns=rank.window_start_ns + item.start_ns,
                    end_ns=rank.window_start_ns + item.end_ns,
                    note=item.label,
                )
            )
    return sorted(marks, key=lambda mark: mark.start_ns)
