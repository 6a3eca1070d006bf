"""What every page has: its templates, style and scripts by hash, and text that is always seen."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from trace_analyzer.reports import units
from trace_analyzer.reports.names import code_spans, visible

_LONGEST_PROSE = 1200
_HERE = Path(__file__).parent


@cache
def static_text(*names: str) -> str:
    """Return style sheets or scripts of ours, one after the other, as they stand in a page."""
    texts = [(_HERE / "static" / name).read_text(encoding="utf-8").strip() for name in names]
    return "\n" + "\n".join(texts) + "\n"


@cache
def script_text(*names: str) -> str:
    """Return scripts of ours without indentation and comment lines: a fifth smaller."""
    return re.sub(r"^[ \t]*//.*\n|^[ \t]+", "", static_text(*names), flags=re.MULTILINE)


def content_hash(text: str) -> str:
    """Return the SHA-256 by which a page's policy names a style or script."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def environment() -> jinja2.Environment:
    """Return the environment of the templates."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["prose"] = prose
    made.globals["nbsp"] = units.NBSP
    return made


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

    Text longer than any sentence is cut; a report's JSON inside the page holds all of it.
    """
    if len(text) > _LONGEST_PROSE:
        text = text[:_LONGEST_PROSE] + "…"
    parts = [
        Markup("<code>{}</code>").format(visible(part)) if is_code else escape(visible(part))
        for is_code, part in code_spans(text)
    ]
    return Markup("").join(parts)
