"""The report as one HTML file: no request, no script that is not named by its hash.

Everything is drawn here and in the templates; the scripts only sort, copy, save, switch the theme
and let the timeline be zoomed, so that the page is complete without them. Same report, same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from trace_analyzer.errors import TraceAnalyzerError
from trace_analyzer.findings import Report
from trace_analyzer.reports import json, markdown, summary, units
from trace_analyzer.reports.names import cut_middle
from trace_analyzer.reports.page import content_hash, environment, script_text, static_text
from trace_analyzer.reports.timeline_data import live_timeline
from trace_analyzer.reports.view_beside import beside_view
from trace_analyzer.reports.view_context import (
    check_counts,
    check_views,
    environment_view,
    inputs_view,
    title,
)
from trace_analyzer.reports.view_findings import findings_view
from trace_analyzer.reports.view_kernels import kernel_view
from trace_analyzer.reports.view_nccl import nccl_view
from trace_analyzer.reports.view_peers import late_view, link_view
from trace_analyzer.reports.view_step import step_view
from trace_analyzer.reports.view_timeline import TimelineView, timeline_view
from trace_analyzer.reports.view_verdict import verdict_view
from trace_analyzer.timeline import Timeline

MOST_BYTES = 3_000_000
EASY_BYTES = 1_000_000  # up to here every nanosecond of the timeline is kept
_LEAST_LIVE_BYTES = 60_000
_DATA = '<script type="application/json" id="timeline-data">'
_LIVE_SCRIPTS = (
    "timeline_read.js",
    "timeline_words.js",
    "timeline_draw.js",
    "timeline_rows.js",
    "timeline_scene.js",
    "timeline_look.js",
    "timeline_pick.js",
    "timeline.js",
)


@dataclass(frozen=True, slots=True)
class _Cut:
    """What is left out of a page that would be too large: the last thing that is tried has all."""

    kernel_fold: bool = False
    document: bool = False
    live: bool = False


_LEAST_COMMENT = 4_000  # characters of the copied summary where room is scarce

_CUTS = (
    _Cut(),
    _Cut(kernel_fold=True),
    _Cut(kernel_fold=True, document=True),
    _Cut(kernel_fold=True, document=True, live=True),
)


class PageTooLargeError(TraceAnalyzerError):
    """A report that does not fit the size asked for, whatever is left out of it."""


def render(
    report: Report, *, timeline: Timeline | None = None, most_bytes: int = MOST_BYTES
) -> str:
    """Return the report as one self-contained HTML document of at most `most_bytes`.

    `timeline` is drawn where given; without it the section says that there is nothing to draw.
    Detail of the timeline goes first where the page would be too large, then rows of the kernel
    table, then the copy of the JSON report; the page says what went.

    Raises `PageTooLargeError` where not even the rest fits.
    """
    drawn = timeline_view(report, timeline)
    smallest = 0
    for cut in _CUTS:
        page = _page(report, timeline, drawn, cut, most_bytes)
        smallest = len(page.encode("utf-8", "replace"))
        room = most_bytes - smallest
        if drawn is None or timeline is None or cut.live:
            if room >= 0:
                return page
            continue
        if room < _LEAST_LIVE_BYTES:
            continue
        live = live_timeline(
            timeline, drawn.source, most_bytes=room, easy_bytes=min(room, EASY_BYTES - smallest)
        )
        if live is not None:
            before, after = page.split(_DATA, maxsplit=1)
            return f'{before}{_DATA}"{live.text}"{after}'
    raise PageTooLargeError(
        f"the HTML report takes {smallest / 1e6:.2f} MB at its least detail, more than the "
        f"{most_bytes / 1e6:g} MB asked for; give --max-html-mb {smallest / 1e6 + 0.05:.1f}"
    )


def _page(
    report: Report,
    timeline: Timeline | None,
    drawn: TimelineView | None,
    cut: _Cut,
    most_bytes: int,
) -> str:
    style = static_text("report.css", "timeline.css")
    script, live_script = script_text("report.js"), script_text(*_LIVE_SCRIPTS)
    live = drawn is not None and not cut.live
    scripts = [script, live_script] if live else [script]
    document = "null" if cut.document else json.embedded(report)
    comment = markdown.render(report, _LEAST_COMMENT if cut.document else markdown.MOST_CHARACTERS)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            title=title(report),
            run_name=cut_middle(report.run.name, 100),
            meta=summary.meta(report),
            verdict=verdict_view(report),
            findings=findings_view(report, timeline),
            step=step_view(report),
            timeline=drawn,
            late=late_view(report),
            links=link_view(report),
            nccl=nccl_view(report),
            beside=beside_view(report),
            kernels=kernel_view(report, folded=not cut.kernel_fold),
            environment=environment_view(report),
            inputs=inputs_view(report),
            checks=check_views(report),
            check_counts=check_counts(report),
            style=Markup(style),  # noqa: S704 - our own file
            script=Markup(script),  # noqa: S704 - our own file
            style_hash=content_hash(style),
            script_sources=Markup(" ".join(f"'sha256-{content_hash(text)}'" for text in scripts)),  # noqa: S704
            live=live,
            live_script=Markup(live_script),  # noqa: S704 - our own files
            document=Markup(document),  # noqa: S704 - escaped for a script element
            has_document=not cut.document,
            limit=f"{most_bytes / 1e6:g}{units.NBSP}MB",
            summary_text=Markup(json.embedded(comment)),  # noqa: S704 - likewise
        )
    )
