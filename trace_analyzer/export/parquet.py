"""The tables as a folder of Parquet files, one a table, with units and meanings in their schemas."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trace_analyzer.errors import TraceAnalyzerError
from trace_analyzer.export import table_declarations as declared
from trace_analyzer.export.batches import Batch, Column, Texts, part_of, writable
from trace_analyzer.export.export_table import NAME, TEXT, ExportTable
from trace_analyzer.schema import ColumnSpec, is_na

if TYPE_CHECKING:
    import pyarrow as pa

INSTALL = "python -m pip install 'trace-analyzer[parquet]'"
_ROWS = 1 << 16  # written at a time, as a group of their own

Progress = Callable[[str, int, int], None]


def require() -> None:
    """Raise `TraceAnalyzerError` with the command that installs pyarrow where it is missing."""
    if importlib.util.find_spec("pyarrow") is None:
        raise TraceAnalyzerError(f"--to parquet needs pyarrow; install it: {INSTALL}")


def file_names() -> list[str]:
    """Return the names of all files of an export."""
    return [f"{table.name}.parquet" for table in declared.ALL]


def write(
    folder: Path, batches: Iterable[Batch], rows: int, progress: Progress | None = None
) -> None:
    """Write every table into an empty folder. `rows` is about how many there are, for `progress`.

    Raises `OSError` where a file cannot be written.
    """
    import pyarrow as pa
    from pyarrow import parquet

    done = 0
    writers: dict[str, parquet.ParquetWriter] = {}
    try:
        for table in declared.ALL:
            writers[table.name] = parquet.ParquetWriter(
                folder / f"{table.name}.parquet", _schema(table), compression="zstd"
            )
        for batch in batches:
            if progress:
                progress(batch.table.name, done, max(rows, done))
            schema = _schema(batch.table)
            for low in range(0, len(batch), _ROWS):
                arrays = [
                    _array(
                        spec,
                        part_of(batch.columns[spec.name], low, low + _ROWS),
                        schema.field(spec.name).type,
                    )
                    for spec in batch.table.columns
                ]
                writers[batch.table.name].write_table(pa.Table.from_arrays(arrays, schema=schema))
            done += len(batch)
    finally:
        for writer in writers.values():
            writer.close()


def _schema(table: ExportTable) -> pa.Schema:
    import pyarrow as pa

    types = {
        TEXT: pa.string(),
        NAME: pa.dictionary(pa.int32(), pa.string()),
        "bool": pa.bool_(),
    }
    fields = [
        pa.field(
            spec.name,
            types.get(spec.dtype) or pa.from_numpy_dtype(np.dtype(spec.dtype)),
            nullable=spec.nullable,
            metadata={"unit": spec.unit, "meaning": spec.meaning},
        )
        for spec in table.columns
    ]
    return pa.schema(fields, metadata={"meaning": table.meaning, "key": ",".join(table.key)})


def _array(spec: ColumnSpec, column: Column, kind: pa.DataType) -> Any:  # noqa: ANN401
    import pyarrow as pa

    if isinstance(column, Texts):
        used, inverse = np.unique(column.codes, return_inverse=True)
        missing = is_na(used)
        texts = [writable(column.table[code]) for code in used[~missing].tolist()]
        place = np.cumsum(~missing) - 1  # of every used code among those that are not missing
        codes = pa.array(place[inverse.reshape(-1)].astype(np.int32), mask=is_na(column.codes))
        found = pa.DictionaryArray.from_arrays(codes, pa.array(texts, type=pa.string()))
        return found if spec.dtype == NAME else found.cast(kind)
    return pa.array(column, type=kind, mask=is_na(column) if spec.nullable else None)
