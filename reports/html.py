"""The report as one HTML file: no request, no script that is not named by its hash.

Everything is drawn here and in the templates; the script only sorts, copies, saves and switches
the theme, so that the page is complete without it. Same report, same bytes.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from trace_analyzer.findings import Report
from trace_analyzer.reports import json, markdown, summary, units
from trace_analyzer.reports.names import code_spans, cut_middle, visible
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
from trace_analyzer.reports.view_timeline import timeline_view
from trace_analyzer.reports.view_verdict import verdict_view
from trace_analyzer.timeline import Timeline

_LONGEST_PROSE = 1200
_HERE = Path(__file__).parent


def render(report: Report, *, timeline: Timeline | None = None) -> str:
    """Return the report as one self-contained HTML document.

    `timeline` is drawn where given; without it the section says that there is nothing to draw.
    """
    style, script = _static("report.css"), _static("report.js")
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            title=title(report),
            run_name=cut_middle(report.run.name, 100),
            meta=summary.meta(report),
            verdict=verdict_view(report),
            findings=findings_view(report, timeline),
            step=step_view(report),
            timeline=timeline_view(report, timeline),
            late=late_view(report),
            links=link_view(report),
            nccl=nccl_view(report),
            beside=beside_view(report),
            kernels=kernel_view(report),
            environment=environment_view(report),
            inputs=inputs_view(report),
            checks=check_views(report),
            check_counts=check_counts(report),
            style=Markup(style),  # noqa: S704 - our own file
            script=Markup(script),  # noqa: S704 - our own file
            style_hash=_sha256(style),
            script_hash=_sha256(script),
            document=Markup(json.embedded(report)),  # noqa: S704 - escaped for a script element
            summary_text=Markup(json.embedded(markdown.render(report))),  # noqa: S704 - likewise
        )
    )


@cache
def _static(name: str) -> str:
    text = (_HERE / "static" / name).read_text(encoding="utf-8")
    return f"\n{text.strip()}\n"


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = prose
    environment.globals["nbsp"] = units.NBSP
    return environment


def _finalize(value: Any) -> Any:  # noqa: ANN401
    """Make every text that a template prints visible; refuse what has no text of its own."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise TypeError(f"a template prints {value!r}: format it first")


def prose(text: str) -> Markup:
    """Return text with `code` between backticks set as code, everything visible and escaped.

    Text longer than any sentence is cut; the JSON inside the page holds all of it.
    """
    if len(text) > _LONGEST_PROSE:
        text = text[:_LONGEST_PROSE] + "…"
    parts = [
        Markup("<code>{}</code>").format(visible(part)) if is_code else escape(visible(part))
        for is_code, part in code_spans(text)
    ]
    return Markup("").join(parts)
