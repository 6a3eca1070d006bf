"""`gpu{g}.csv` and `gpu{g}.parquet`: what the sampler of `collect` wrote beside a run."""

from __future__ import annotations

import csv
import importlib.util
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.gpu_facts import GpuSamples
from trace_analyzer.schema import Float64Array, Int64Array

_NAME = re.compile(r"gpu(\d{1,4})\.(?:csv|parquet)$")
_TIME = "time_unix_ns"
_COLUMNS = (
    "sm_clock_mhz",
    "clock_limit_reasons",
    "power_w",
    "temperature_c",
    "foreign_processes",
)
# Ten samples a second for a day are 25 MB.
LARGEST_BYTES = 256 << 20


def read(path: Path, *, display: str) -> GpuSamples:
    """Return the samples of one GPU. Raises `UnreadableInputError`."""
    name = _NAME.search(display)
    if name is None:
        raise UnreadableInputError(display, "the name does not say which GPU", "call it gpu0.csv")
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise UnreadableInputError(display, f"larger than {LARGEST_BYTES >> 20} MiB")
        from_file = _from_parquet if display.endswith(".parquet") else _from_csv
        time, values = from_file(path, display)
    except OSError as error:
        raise UnreadableInputError(display, error.strerror or str(error)) from error
    kept = np.flatnonzero(time > 0)
    kept = kept[np.argsort(time[kept], kind="stable")]
    limits = values["clock_limit_reasons"][kept]
    known = np.isfinite(limits) & (limits >= 0) & (limits < 2.0**53)
    return GpuSamples(
        gpu=int(name[1]),
        time_unix_ns=time[kept],
        sm_clock_mhz=values["sm_clock_mhz"][kept],
        clock_limits=np.where(known, limits, 0).astype(np.int64),
        power_w=values["power_w"][kept],
        temperature_c=values["temperature_c"][kept],
        foreign_processes=values["foreign_processes"][kept],
        path=display,
    )


def _from_csv(path: Path, display: str) -> tuple[Int64Array, Mapping[str, Float64Array]]:
    times: list[int] = []
    values: dict[str, list[float]] = {}
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = csv.reader(stream)
            head = next(rows, [])
            _check(head, display)
            values = {name: [] for name in _COLUMNS if name in head}
            place = [(head.index(name), cells) for name, cells in values.items()]
            at = head.index(_TIME)
            for row in rows:
                times.append(_time(row[at] if at < len(row) else ""))
                for column, cells in place:
                    cells.append(_number(row[column] if column < len(row) else ""))
    except (UnicodeDecodeError, csv.Error) as error:
        raise UnreadableInputError(display, "not a table of samples") from error
    return np.array(times, dtype=np.int64), {
        name: np.array(values[name], dtype=np.float64)
        if name in values
        else np.full(len(times), np.nan)
        for name in _COLUMNS
    }


def _from_parquet(path: Path, display: str) -> tuple[Int64Array, Mapping[str, Float64Array]]:
    if importlib.util.find_spec("pyarrow") is None:
        raise UnreadableInputError(
            display, "Parquet needs pyarrow", "pip install 'trace-analyzer[parquet]'"
        )
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
        head = file.schema_arrow.names
        _check(head, display)
        table = file.read(columns=[_TIME, *(name for name in _COLUMNS if name in head)])
        times = table[_TIME].cast(pa.int64()).fill_null(0).to_numpy().astype(np.int64)
        return times, {
            name: table[name].cast(pa.float64(), safe=False).to_numpy().astype(np.float64)
            if name in table.column_names
            else np.full(len(times), np.nan)
            for name in _COLUMNS
        }
    except pa.ArrowException as error:
        raise UnreadableInputError(display, "not a table of samples") from error


def _check(head: Sequence[str], display: str) -> None:
    if _TIME not in head:
        raise UnreadableInputError(display, f"no column {_TIME}")


def _time(text: str) -> int:
    """Return a time in ns; 0, which is left out, where it is none."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
    return number if number < 1 << 63 else 0


def _number(text: str) -> float:
    try:
        return float(text) if text else math.nan
    except ValueError:
        return math.nan
