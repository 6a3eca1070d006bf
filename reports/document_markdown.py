"""Beginning, tables and end of the markdown of `scaling` and `compare`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trace_analyzer.findings import Tool, WarningDoc
from trace_analyzer.reports import units
from trace_analyzer.reports.document_tables import made_by
from trace_analyzer.reports.document_trust import trust_of
from trace_analyzer.reports.markdown import cell, escaped
from trace_analyzer.reports.summary import State


class Answer(Protocol):
    """What every verdict says."""

    @property
    def headline(self) -> str: ...
    @property
    def proof(self) -> str: ...
    @property
    def do_next(self) -> str: ...


def opening(
    name: str,
    meta: Sequence[str],
    state: State,
    verdict: Answer,
    warnings: Sequence[WarningDoc],
) -> list[str]:
    """Return name, headline, proof, next action and warnings."""
    lines = [
        f"**{escaped(name)}** · {escaped(' · '.join(meta))}",
        "",
        f"### {state.glyph} {escaped(verdict.headline)}",
        "",
        escaped(verdict.proof),
    ]
    if verdict.do_next:
        lines += ["", f"**Do next:** {escaped(verdict.do_next)}"]
    trust = trust_of(warnings)
    heading = f"{trust.heading}: {trust.note}" if trust.note else trust.heading
    lines += ["", f"**{escaped(heading)}.**", ""]
    lines += [f"- **{escaped(row.name)}** {escaped(row.text)}" for row in trust.rows]
    return lines if trust.rows else lines[:-1]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table; the first column is text, the others are numbers."""
    lines = [f"| {' | '.join(heads)} |", "|--|" + "--:|" * (len(heads) - 1)]
    lines += [f"| {' | '.join(cell(text) for text in row)} |" for row in rows]
    return lines


def closing(lines: Sequence[str], tool: Tool, schema_version: int) -> str:
    """Return the whole text."""
    text = "\n".join([*lines, "", escaped(made_by(tool, schema_version))]) + "\n"
    return text.replace(units.NBSP, " ")
