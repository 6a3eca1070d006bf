"""The warnings of a document, under a heading that says what they mean."""

from __future__ import annotations

from collections.abc import Sequence

from trace_analyzer.findings import DATA_WARNING_NAMES, WarningDoc
from trace_analyzer.reports import units
from trace_analyzer.reports.summary import Trust, WarningRow, sentence
from trace_analyzer.reports.terminal_page import Page

_SEVERITIES = ("error", "warning", "note")


def trust_of(warnings: Sequence[WarningDoc]) -> Trust:
    """Arrange warnings, worst first; an error means that the question cannot be answered."""
    ordered = sorted(warnings, key=lambda item: _SEVERITIES.index(item.severity))
    rows = tuple(
        WarningRow(
            f"{item.code} {DATA_WARNING_NAMES.get(item.code, '')}".strip(),
            " ".join(sentence(part) for part in (item.message, item.effect) if part.strip()),
            item.severity,
        )
        for item in ordered
    )
    errors = sum(item.severity == "error" for item in ordered)
    serious = sum(item.severity != "note" for item in ordered)
    notes = len(ordered) - serious
    if errors:
        return Trust(f"Data with {units.plural(errors, 'error')}", "", "warn", rows)
    if serious:
        return Trust(f"Data usable, with {units.plural(serious, 'warning')}", "", "warn", rows)
    return Trust("Data good", units.plural(notes, "note") if notes else "no warning", "good", rows)


def add_warnings(page: Page, warnings: Sequence[WarningDoc]) -> None:
    """Add the warnings to a terminal page."""
    trust = trust_of(warnings)
    page.lines.append("")
    glyph = "✓" if trust.tone == "good" else "!"
    note = f": {trust.note}" if trust.note and trust.tone == "good" else ""
    page.add(f"{glyph} {trust.heading}{note}", trust.tone)
    indent = min(32, page.width // 3)
    for row in trust.rows:
        tone = "quiet" if row.severity == "note" else "warn"
        page.labelled(f"  {row.name}", row.text, indent, tone)
