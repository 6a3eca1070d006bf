"""The tables as one SQLite database, with what every column means in its schema."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from trace_analyzer.export import table_declarations as declared
from trace_analyzer.export.batches import Batch, Column, Texts, writable
from trace_analyzer.export.export_table import NAME, TEXT, ExportTable
from trace_analyzer.names import NameTable
from trace_analyzer.schema import AnyArray, is_na

SCHEMA_VERSION = 1
_ROWS = 20_000  # written at a time
_TYPES = {"float64": "REAL", TEXT: "TEXT"}  # all others are INTEGER
_NAMES = "CREATE TABLE names (id INTEGER PRIMARY KEY, text TEXT NOT NULL)"

# A view has the names and codes of a table in words, and its times on the clock of all ranks.
_CODE = "(SELECT name FROM codes WHERE code = '{enum}' AND value = t.{column}) AS {column}"
VIEWS = {
    "operations_in_words": (
        "gpu_operations",
        (
            _CODE.format(enum="OperationKind", column="kind"),
            _CODE.format(enum="WorkClass", column="work"),
            "n.text AS name",
            "t.step",
            "t.device",
            "t.stream",
            "t.bytes",
            "c.grid_x, c.grid_y, c.grid_z, c.block_x, c.block_y, c.block_z",
            "t.launch",
            "t.collective",
        ),
        "LEFT JOIN launch_configs c ON c.rank = t.rank AND c.id = t.launch_config",
    ),
    "calls_in_words": (
        "host_calls",
        (_CODE.format(enum="CallKind", column="kind"), "n.text AS name", "t.thread"),
        "",
    ),
    "events_in_words": (
        "host_events",
        (_CODE.format(enum="HostCategory", column="category"), "n.text AS name", "t.thread"),
        "",
    ),
}

Progress = Callable[[str, int, int], None]


def write(
    path: Path, batches: Iterable[Batch], rows: int, progress: Progress | None = None
) -> None:
    """Write a new database. `rows` is about how many there are, for `progress`.

    Raises `sqlite3.Error` where it cannot be written.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        # Nobody reads it meanwhile, and a file that is not whole is thrown away.
        base.execute("PRAGMA journal_mode = OFF")
        base.execute("PRAGMA synchronous = OFF")
        base.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        base.execute("BEGIN")
        base.execute(_NAMES)
        for table in declared.ALL:
            base.execute(_create(table))
        for name, (table_name, columns, join) in VIEWS.items():
            base.execute(_view(name, table_name, columns, join))
        names = NameTable()
        done = 0
        for batch in batches:
            if progress:
                progress(batch.table.name, done, max(rows, done))
            _insert(base, batch, names)
            done += len(batch)
        base.executemany(
            "INSERT INTO names VALUES (?, ?)",
            ((number, writable(text)) for number, text in enumerate(names.texts)),
        )
        base.execute("COMMIT")


def _create(table: ExportTable) -> str:
    lines = []
    for spec in table.columns:
        kind = _TYPES.get(spec.dtype, "INTEGER")
        null = "" if spec.nullable else " NOT NULL"
        unit = f"{spec.unit}: " if spec.unit else ""
        of = " (id in names)" if spec.dtype == NAME else ""
        lines.append(f"  {spec.name} {kind}{null}, -- {unit}{spec.meaning}{of}")
    body = "\n".join(lines)
    return (
        f"CREATE TABLE {table.name} ( -- {table.meaning}\n{body}\n"
        f"  PRIMARY KEY ({', '.join(table.key)})\n) WITHOUT ROWID"
    )


def _view(name: str, table: str, columns: tuple[str, ...], join: str) -> str:
    times = (
        "t.start_ns + r.to_common_ns AS common_start_ns",
        "t.end_ns - t.start_ns AS duration_ns",
    )
    chosen = ", ".join(("t.rank", "t.id", *times, *columns))
    source = f"{table} t JOIN ranks r ON r.rank = t.rank LEFT JOIN names n ON n.id = t.name {join}"
    return f"CREATE VIEW {name} AS SELECT {chosen} FROM {source}"  # noqa: S608 (our own names)


def _insert(base: sqlite3.Connection, batch: Batch, names: NameTable) -> None:
    specs = batch.table.columns
    columns: list[Column] = [
        _named(batch.columns[spec.name], names) if spec.dtype == NAME else batch.columns[spec.name]
        for spec in specs
    ]
    marks = ", ".join("?" * len(specs))
    statement = f"INSERT INTO {batch.table.name} VALUES ({marks})"  # noqa: S608 (our own names)
    for low in range(0, len(batch), _ROWS):
        part = slice(low, low + _ROWS)
        base.executemany(
            statement, zip(*(_values(column, part) for column in columns), strict=True)
        )


def _named(column: Column, names: NameTable) -> AnyArray:
    """Return the ids of texts in the table of names; NA stays NA."""
    assert isinstance(column, Texts)
    used, inverse = np.unique(column.codes, return_inverse=True)
    missing = is_na(used)
    ids = np.array(
        [
            int(code) if gone else names.intern(column.table[int(code)])
            for code, gone in zip(used.tolist(), missing.tolist(), strict=True)
        ],
        dtype=np.int64,
    )
    ids[missing] = np.iinfo(np.int64).min
    found: AnyArray = ids[inverse.reshape(-1)]
    return found


def _values(column: Column, part: slice) -> Iterable[Any]:
    """Return values as SQLite takes them: missing ones are None."""
    if isinstance(column, Texts):
        codes = column.codes[part]
        texts = [writable(text) for text in column.table]
        return [
            None if gone else texts[code]
            for code, gone in zip(codes.tolist(), is_na(codes).tolist(), strict=True)
        ]
    values = column[part]
    missing = is_na(values)
    objects = values
    if missing.any():
        objects = values.astype(object)
        objects[missing] = None
    listed: list[Any] = objects.tolist()
    return listed
