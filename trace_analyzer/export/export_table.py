"""What a table of an export is: its name, its columns, its key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trace_analyzer.schema import ColumnSpec

NAME: Final = "name"  # text that repeats: SQLite holds ids of the table `names`
TEXT: Final = "text"


@dataclass(frozen=True, slots=True)
class ExportTable:
    """One table. `key` names the columns that tell its rows apart."""

    name: str
    meaning: str
    columns: tuple[ColumnSpec, ...]
    key: tuple[str, ...]


def declare(
    name: str, dtype: str, unit: str, meaning: str, *, nullable: bool = False
) -> ColumnSpec:
    """Return a column; `unit` is "" for identifiers and codes."""
    return ColumnSpec(name, dtype, unit, meaning, nullable)


RANK: Final = declare("rank", "int32", "", "rank")
