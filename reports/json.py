"""The report as JSON, for programs and for the copy that every HTML report carries."""

from __future__ import annotations

import re

from trace_analyzer import findings
from trace_analyzer.findings import Report

# "<" could end the script element or open a comment; the others steer how the source is shown.
_UNSAFE = re.compile("[<>&\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def render(report: Report) -> bytes:
    """Return the JSON document, indented, as UTF-8; same report, same bytes."""
    return findings.encode(report)


def embedded(document: object) -> str:
    r"""Return compact JSON that may stand inside a script element.

    Characters with a meaning there are written as \uXXXX: the value that is read back is the same.
    """
    text = findings.encode_compact(document).decode()
    return _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
