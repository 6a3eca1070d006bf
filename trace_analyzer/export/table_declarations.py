"""The tables of an SQLite or Parquet export: every column with type, unit and meaning.

The tables of the model come first, as declared in `trace_analyzer.tables`, each with the rank in
front; then what was computed. The documentation is generated from here.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from trace_analyzer import tables
from trace_analyzer.export.derived_tables import (
    FINDING_RANGES,
    FINDINGS,
    MATCHED,
    STEPS,
    WARNINGS,
)
from trace_analyzer.export.export_table import NAME, RANK, TEXT, ExportTable, declare
from trace_analyzer.schema import ColumnSpec, Table

_ID: Final = declare("id", "int64", "", "row in the rank's table; other tables refer to it")

# Columns of the model that hold positions, and what they are here.
_NAMES: Final = {
    ("GpuOperations", "name"): "name; demangled for kernels",
    ("HostCalls", "name"): "name, without version suffix",
    ("HostEvents", "name"): "name",
    ("Collectives", "operation"): "allreduce, allgather, reducescatter, broadcast, …",
    ("Collectives", "dtype"): "element type",
    ("Threads", "name"): "name of the thread",
}
_GROUP: Final = declare("process_group", "int32", "", "row in groups of the rank", nullable=True)
_STEP: Final = declare(
    "step", "int64", "", "number of the complete step that it belongs to", nullable=True
)


def _model_table(table: type[Table]) -> ExportTable:
    columns: list[ColumnSpec] = [RANK, _ID]
    for spec in table.columns():
        meaning = _NAMES.get((table.__name__, spec.name))
        if meaning is not None:
            columns.append(replace(spec, dtype=NAME, meaning=meaning))
        elif (table.__name__, spec.name) == ("Collectives", "group"):
            columns.append(_GROUP)  # "group" is a word of SQL
        else:
            columns.append(spec)
    if table is tables.GpuOperations:
        columns.append(_STEP)
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", table.__name__).lower()
    meaning = " ".join((table.__doc__ or "").split())
    return ExportTable(name, meaning, tuple(columns), ("rank", "id"))


MODEL: Final = {table: _model_table(table) for table in tables.TABLES}

RUN: Final = ExportTable(
    "run",
    "What the export was made of, and the verdict.",
    (
        declare("key", TEXT, "", "what is said"),
        declare("value", TEXT, "", "value", nullable=True),
    ),
    ("key",),
)

SOURCES: Final = ExportTable(
    "sources",
    "Files that were read.",
    (
        declare("id", "int64", "", "number of the file"),
        declare("path", TEXT, "", "path inside the run"),
        declare("kind", TEXT, "", "kineto, nsys, timer, environment, …"),
        declare("bytes", "int64", "bytes", "size"),
        declare("sha256", TEXT, "", "SHA-256"),
        declare("tool", TEXT, "", "what wrote it"),
    ),
    ("id",),
)

RANKS: Final = ExportTable(
    "ranks",
    "Ranks of the run, with the partition of the whole window; NULL without GPU operations.",
    (
        RANK,
        declare("rank_basis", TEXT, "", "what told the rank: content, payload, name or order"),
        declare("recorded_by", TEXT, "", "kineto or nsys"),
        declare("path", TEXT, "", "file inside the run"),
        declare("host", TEXT, "", "host", nullable=True),
        declare("pid", "int64", "", "process id", nullable=True),
        declare("gpu", TEXT, "", "GPU that it used most", nullable=True),
        declare("clock_base_ns", "int64", "ns", "Unix time of the clock's zero", nullable=True),
        declare(
            "to_common_ns",
            "int64",
            "ns",
            "add to the rank's times to have all ranks on one clock, whose zero is 1 ms before "
            "the first event",
        ),
        declare("window_start_ns", "int64", "ns", "first GPU operation's start", nullable=True),
        declare("window_end_ns", "int64", "ns", "last GPU operation's end", nullable=True),
        *(
            declare(name, "int64", "ns", meaning, nullable=True)
            for name, meaning in (
                ("compute_ns", "union of kernels that are not communication"),
                ("comm_ns", "union of communication, hidden ones included"),
                ("comm_exposed_ns", "communication while no computing kernel runs"),
                ("copy_exposed_ns", "copies and memsets while no kernel runs"),
                ("idle_ns", "no GPU operation runs"),
            )
        ),
    ),
    ("rank",),
)

DEVICES: Final = ExportTable(
    "devices",
    "GPUs as the recordings describe them.",
    (
        RANK,
        declare("ordinal", "int32", "", "CUDA ordinal inside the process"),
        declare("name", TEXT, "", "model"),
        declare("bus_id", TEXT, "", "PCI bus id, empty where unknown"),
        declare("uuid", TEXT, "", "UUID, empty where unknown"),
        declare("sm_count", "int64", "", "streaming multiprocessors", nullable=True),
        declare("memory_bytes", "int64", "bytes", "memory", nullable=True),
    ),
    ("rank", "ordinal"),
)

GROUPS: Final = ExportTable(
    "groups",
    "Communicators (process groups) of every rank.",
    (
        RANK,
        _ID,
        declare("name", TEXT, "", "name"),
        declare("description", TEXT, "", "description, empty where there is none"),
        declare("backend", TEXT, "", "backend, empty where unknown"),
        declare("size", "int64", "ranks", "number of members", nullable=True),
        declare("members", TEXT, "", "global ranks as a JSON list, empty where unknown"),
    ),
    ("rank", "id"),
)

CODES: Final = ExportTable(
    "codes",
    "Names of the numbers in columns such as kind, work and category.",
    (
        declare("code", TEXT, "", "OperationKind, WorkClass, HostCategory, CallKind or SyncKind"),
        declare("value", "int64", "", "number"),
        declare("name", TEXT, "", "name"),
    ),
    ("code", "value"),
)

COLUMNS: Final = ExportTable(
    "table_columns",
    "What every column of this export means.",
    (
        declare("table_name", TEXT, "", "table"),
        declare("column_name", TEXT, "", "column"),
        declare("type", TEXT, "", "type"),
        declare("unit", TEXT, "", "unit, empty for identifiers and codes"),
        declare("nullable", "bool", "", "whether values may be missing"),
        declare("meaning", TEXT, "", "meaning"),
    ),
    ("table_name", "column_name"),
)

DERIVED: Final = (
    RUN,
    SOURCES,
    RANKS,
    DEVICES,
    GROUPS,
    STEPS,
    MATCHED,
    WARNINGS,
    FINDINGS,
    FINDING_RANGES,
    CODES,
    COLUMNS,
)
ALL: Final = (*MODEL.values(), *DERIVED)

__all__ = [
    "ALL",
    "CODES",
    "COLUMNS",
    "DERIVED",
    "DEVICES",
    "FINDINGS",
    "FINDING_RANGES",
    "GROUPS",
    "MATCHED",
    "MODEL",
    "RANKS",
    "RUN",
    "SOURCES",
    "STEPS",
    "WARNINGS",
]
