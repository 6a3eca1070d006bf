"""Rows of tables on their way into a file: columns of equal length, text as codes into a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trace_analyzer.export.export_table import NAME, TEXT, ExportTable
from trace_analyzer.schema import NA_INT32, AnyArray, ColumnSpec, na_of


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Text of every row, as positions in `table`; NA where it is missing."""

    codes: AnyArray
    table: Sequence[str]

    def __len__(self) -> int:
        return len(self.codes)


Column = AnyArray | Texts


def part_of(column: Column, low: int, high: int) -> Column:
    """Return rows `low` to `high`."""
    if isinstance(column, Texts):
        return Texts(column.codes[low:high], column.table)
    return column[low:high]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Some rows of a table."""

    table: ExportTable
    columns: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.columns[self.table.columns[0].name])


def batch_of_rows(table: ExportTable, rows: Sequence[Sequence[Any]]) -> Batch:
    """Return a batch of rows of Python values in the order of the columns; None is missing."""
    columns = {
        spec.name: _column(spec, [row[position] for row in rows])
        for position, spec in enumerate(table.columns)
    }
    return Batch(table, columns)


def _column(spec: ColumnSpec, values: list[Any]) -> Column:
    if spec.dtype in {TEXT, NAME}:
        table: dict[str, int] = {}
        codes = [NA_INT32 if v is None else table.setdefault(v, len(table)) for v in values]
        return Texts(np.array(codes, dtype=np.int32), list(table))
    if spec.nullable:
        missing = na_of(spec.dtype)
        values = [missing if value is None else value for value in values]
    return np.array(values, dtype=spec.dtype)


def writable(text: str) -> str:
    """Return text as every file can hold it: halves of surrogate pairs become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
