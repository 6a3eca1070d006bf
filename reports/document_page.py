"""A document of its own as one HTML file: the frame that `scaling` and `compare` share."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup
from msgspec import Struct

from trace_analyzer.reports import json
from trace_analyzer.reports.names import cut_middle
from trace_analyzer.reports.page import content_hash, environment, static_text

_LONGEST_NAME = 100


def render_page(
    template: str,
    document: Struct,
    *,
    title: str,
    name: str,
    summary: str,
    **view: Any,  # noqa: ANN401
) -> str:
    """Return a page from a template that extends `document.html.j2`; same document, same bytes.

    `summary` is the markdown that the page's button copies.
    """
    style = static_text("report.css", "comparison.css")
    script = static_text("report.js")
    return (
        environment()
        .get_template(template)
        .render(
            title=title,
            run_name=cut_middle(name, _LONGEST_NAME),
            style=Markup(style),  # noqa: S704 - our own files
            script=Markup(script),  # noqa: S704 - our own file
            style_hash=content_hash(style),
            script_hash=content_hash(script),
            document=Markup(json.embedded(document)),  # noqa: S704 - escaped for a script element
            summary_text=Markup(json.embedded(summary)),  # noqa: S704 - likewise
            **view,
        )
    )
