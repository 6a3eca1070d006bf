"""The step replayed with named changes: rows that every output shows."""

from __future__ import annotations

from dataclasses import dataclass

from trace_analyzer.findings import Report
from trace_analyzer.reports import units
from trace_analyzer.reports.tables import Cell, Column, Table


@dataclass(frozen=True, slots=True)
class WhatIfRow:
    """One change: as it is asked for, what it means, the step with it, and what it gives back."""

    name: str
    meaning: str
    step: str
    back: str


def heading(report: Report) -> str:
    """Return what the rows are changes of."""
    base = None if report.replay is None else report.replay.base_ms
    return "" if base is None else f"The step of {units.ms(base)} ms, replayed with a change"


def rows(report: Report, *, asked_only: bool) -> list[WhatIfRow]:
    """Return the changes, or only those that the user asked for."""
    replay = report.replay
    if replay is None or replay.base_ms is None:
        return []
    asked = report.tool.options.get("what_if") or []
    found: list[WhatIfRow] = []
    for item in replay.what_if:
        if asked_only and item.name not in asked:
            continue
        bounds = ""
        if item.interval_ms is not None:
            low, high = item.interval_ms
            bounds = units.interval([replay.base_ms - high, replay.base_ms - low])
        back = f"{units.ms(replay.base_ms - item.ms)} {bounds}".strip()
        found.append(WhatIfRow(item.name, item.meaning, units.ms(item.ms), back))
    return found


def table(report: Report) -> Table | None:
    """Return all changes as a table, None without a replay."""
    found = rows(report, asked_only=False)
    if not found:
        return None
    return Table(
        caption="The step replayed with changes",
        columns=(
            Column("What if", numeric=False),
            Column("It means", numeric=False),
            Column("Step, ms"),
            Column("Gives back, ms [95 %]"),
        ),
        rows=tuple(
            (Cell(row.name), Cell(row.meaning), Cell(row.step), Cell(row.back)) for row in found
        ),
        note=(
            f"{heading(report)}, without the profiler: how much a whole class of time is worth. "
            "More with --what-if."
        ),
    )
