"""Tables that the documents of `scaling` and `compare` share."""

from __future__ import annotations

from collections.abc import Sequence

from trace_analyzer.findings import SourceDoc, Tool
from trace_analyzer.reports import units
from trace_analyzer.reports.tables import Cell, Column, Table
from trace_analyzer.reports.view_context import KINDS, digits


def inputs_table(runs: Sequence[tuple[str, Sequence[SourceDoc]]]) -> Table | None:
    """Return the files that were read, run by run; None without any."""
    rows = [
        (
            Cell(name),
            Cell(source.path, "mono path"),
            Cell(KINDS.get(source.kind, source.kind), quiet=source.tool),
            Cell(units.ranges(source.ranks) if source.ranks else units.NOT_APPLICABLE),
            Cell(units.decimal(source.bytes / 1e3, 0)),
            Cell(digits(source.sha256), "mono", full=source.sha256),
        )
        for name, sources in runs
        for source in sources
    ]
    if not rows:
        return None
    columns = (
        Column("Run", numeric=False),
        Column("File", numeric=False, wide=True),
        Column("Kind", numeric=False),
        Column("Rank", numeric=False),
        Column("Size", "kB"),
        Column("sha256", numeric=False),
    )
    return Table("Files that were read", columns, tuple(rows))


def made_by(tool: Tool, schema_version: int) -> str:
    """Return the program and the schema."""
    return f"{tool.name} {tool.version} · document schema {schema_version}"
