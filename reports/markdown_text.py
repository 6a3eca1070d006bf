"""Text that is safe in a comment of GitHub, GitLab or Jira, and no longer than they take.

Text from traces is shown and does nothing: no markup, no link, no mention of people, no reference to
another ticket. Backslashes stop markup only: references and links are looked for in the finished
page, where no backslash is left. So what could be one stands in code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trace_analyzer.reports import units
from trace_analyzer.reports.names import code_spans, visible

# GitHub takes 65,536 characters, GitLab a million, Jira 32,767.
MOST_CHARACTERS = 32_000
_LONGEST_TEXT = 600
_LONGEST_CELL = 200

_MARKS = re.compile(r"([\\*_\[\]<>|~#!])")
# Addresses, and signs that make a reference of what follows: @name, #12, !12, $12, ~label, %1, &1, GH-12.
_ACTIVE = re.compile(
    r"(?P<address>\b[a-zA-Z][a-zA-Z0-9+.-]*://\S+|\bwww\.\S+)"
    r"|(?P<sign>[@$]|[#!&](?=\d)|[~%](?=[\w\"])|(?<=\bGH)-(?=\d))"
)
_BEGINS_BLOCK = re.compile(r"^(?:[-+=](?=[\s=-]|$)|\d{1,9}(?=[.)](?:\s|$)))")


def escaped(text: str, longest: int = _LONGEST_TEXT) -> str:
    """Return text of a line in which nothing but code between backticks is markup."""
    if len(text) > longest:
        text = text[:longest] + "…"
    written = "".join(
        f"`{part}`" if is_code else _inert(part) for is_code, part in code_spans(visible(text))
    )
    line = written.replace(units.NBSP, " ").strip()
    begins = _BEGINS_BLOCK.match(line)
    if begins is None:
        return line
    # A list, or a rule that makes a heading of the line before: the sign itself is escaped.
    at = begins.end() if begins[0].isdigit() else 0
    return f"{line[:at]}\\{line[at:]}"


def cell(text: str) -> str:
    """Return text for a cell of a table, where a bar would end it, also inside code."""
    return escaped(text.replace("|", "¦"), _LONGEST_CELL)


def code(text: str) -> str:
    """Return a name in code, for a cell of a table; nothing inside it is markup."""
    shown = visible(text).replace("`", "'").replace("|", "¦").replace(units.NBSP, " ").strip()
    return f"`{shown}`" if shown else ""


def _inert(text: str) -> str:
    parts: list[str] = []
    at = 0
    for found in _ACTIVE.finditer(text):
        shown = found[0].replace("`", "'")
        parts += [_literal(text[at : found.start()]), f"`{shown}`"]
        at = found.end()
    return "".join([*parts, _literal(text[at:])])


def _literal(text: str) -> str:
    return _MARKS.sub(r"\\\1", text.replace("&", "&amp;").replace("`", "'"))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], text: Sequence[int]) -> list[str]:
    """Return a table of cells that are escaped already; columns in `text` are aligned to the left."""
    rule = "".join("--|" if number in text else "--:|" for number in range(len(heads)))
    return [f"| {' | '.join(heads)} |", f"|{rule}", *(f"| {' | '.join(row)} |" for row in rows)]


def folded(summary: str, lines: Sequence[str]) -> list[str]:
    """Return lines that open below a summary, which is our own text.

    GitHub and GitLab fold them; where HTML is not taken, the text stays readable between its tags.
    """
    return ["", "<details>", f"<summary>{summary}</summary>", "", *lines, "", "</details>"]


def fitted(
    required: Sequence[Sequence[str]],
    optional: Sequence[tuple[str, Sequence[str]]],
    closing: str,
    most: int = MOST_CHARACTERS,
) -> str:
    """Return the text of blocks of lines in at most `most` characters, and what was left out.

    `optional` blocks have names; each is taken whole where there is room for it. Only where the
    required blocks do not fit themselves are they cut, at the end of a line.
    """
    named = ", ".join(name for name, _ in optional)
    note = f"Left out to fit into a comment of {most:,} characters: "
    reserved = len(closing) + len(note) + len(named) + len("the rest, ") + 6
    lines: list[str] = []
    used = 0
    left: list[str] = []
    for block in required:
        for line in block:
            if used + len(line) + 1 > most - reserved:
                left = ["the rest"]
                break
            lines.append(line)
            used += len(line) + 1
        if left:
            break
    for name, block in optional:
        size = sum(len(line) + 1 for line in block)
        if left == ["the rest"] or used + size > most - reserved:
            left.append(name)
            continue
        lines += block
        used += size
    if left:
        lines += ["", f"{note}{', '.join(left)}."]
    return "\n".join([*lines, "", closing]) + "\n"


__all__ = ["MOST_CHARACTERS", "cell", "code", "escaped", "fitted", "folded", "table"]
