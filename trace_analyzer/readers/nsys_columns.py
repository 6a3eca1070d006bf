"""Column work that every nsys table needs: order, distinct values, joins, and names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from trace_analyzer.names import NameTable
from trace_analyzer.schema import NA_INT64, AnyArray, BoolArray, Int32Array, Int64Array

UNKNOWN_NAME = "unknown"

_SPARSE = 8  # a table by value is used while it is at most this many times longer than the column
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)

Value = TypeVar("Value")


def row_order(start: Int64Array, tie: Int64Array) -> Int64Array:
    """Return the rows in order of `start`, equal ones in order of `tie`, then as they stood."""
    order = np.argsort(start, kind="stable")
    ordered = start[order]
    same = ordered[1:] == ordered[:-1]
    if same.any():
        tied = np.zeros(len(order), dtype=np.bool_)
        tied[1:] = same
        tied[:-1] |= same
        rows = np.flatnonzero(tied)
        members = order[rows]
        order[rows] = members[np.lexsort((tie[members], start[members]))]
    return order


def _is_dense(values: Int64Array) -> bool:
    return (
        bool(len(values)) and int(values.min()) >= 0 and int(values.max()) < _SPARSE * len(values)
    )


def distinct(values: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the sorted distinct values, and for every row the position of its value in them."""
    if not _is_dense(values):
        found, inverse = np.unique(values, return_inverse=True)
        return found, np.asarray(inverse, dtype=np.int64).reshape(-1)
    present = np.zeros(int(values.max()) + 1, dtype=np.bool_)
    present[values] = True
    found = np.flatnonzero(present)
    position = np.empty(len(present), dtype=np.int64)
    position[found] = np.arange(len(found))
    return found, position[values]


def first_rows(keys: Int64Array, wanted: Int64Array) -> Int64Array:
    """Return, for every wanted key, the first row of `keys` that holds it; NA where none does.

    NA is never found.
    """
    result = np.full(len(wanted), NA_INT64, dtype=np.int64)
    rows = np.flatnonzero(keys != NA_INT64)
    if not len(rows) or not len(wanted):
        return result
    keys = keys[rows]
    if _is_dense(keys):
        table = np.full(int(keys.max()) + 1, NA_INT64, dtype=np.int64)
        table[keys[::-1]] = rows[::-1]  # of equal keys the last one written stays: the first row
        inside = (wanted >= 0) & (wanted < len(table))
        result[inside] = table[wanted[inside]]
        return result
    found, first = np.unique(keys, return_index=True)
    position = np.minimum(np.searchsorted(found, wanted), len(found) - 1)
    hit = found[position] == wanted
    result[hit] = rows[first[position[hit]]]
    return result


def distinct_rows(columns: list[Int64Array]) -> tuple[Int64Array, Int64Array]:
    """Return one row for every distinct combination, and for every row its combination's number.

    Combinations are numbered in the order of their hash, which depends on their values alone.
    """
    key = np.zeros(len(columns[0]), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for values in columns:
            key = (key ^ values.astype(np.uint64)) * _HASH_FACTOR
            key ^= key >> np.uint64(29)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    inverse = np.asarray(inverse, dtype=np.int64).reshape(-1)
    if all(np.array_equal(values[first][inverse], values) for values in columns):
        return np.asarray(first, dtype=np.int64), inverse
    stacked = np.stack(columns, axis=1)  # two combinations share a hash: compare them in full
    _, first, inverse = np.unique(stacked, axis=0, return_index=True, return_inverse=True)
    return np.asarray(first, dtype=np.int64), np.asarray(inverse, dtype=np.int64).reshape(-1)


def narrowed(values: Int64Array, dtype: str = "int32") -> AnyArray:
    """Return the values in a smaller integer type; NA, and what does not fit, is its NA."""
    limit = np.iinfo(dtype)
    fits = (values > limit.min) & (values <= limit.max)
    return np.where(fits, values, limit.min).astype(dtype)


def without(values: Int64Array, *unset: int) -> Int64Array:
    """Return the column in which these values, a profiler's "none", are NA."""
    return np.where(np.isin(values, unset), NA_INT64, values)


class Texts:
    """Texts of an export by id, and the names that tables refer to."""

    def __init__(self, strings: Mapping[int, str], names: NameTable) -> None:
        self.strings = strings
        self.names = names

    def positions(
        self, ids: Int64Array, transform: Callable[[str], str] | None = None
    ) -> Int32Array:
        """Return the name positions of text ids; an id without a text is named "unknown"."""
        found, inverse = distinct(ids)
        positions = np.empty(len(found), dtype=np.int32)
        for row, key in enumerate(found.tolist()):
            text = self.strings.get(key, UNKNOWN_NAME)
            positions[row] = self.names.intern(transform(text) if transform else text)
        return positions[inverse]


def by_process(process: Int64Array, key: int) -> BoolArray | slice:
    """Return what selects the rows of a process: all of them where there is no other."""
    if len(process) and process[0] == key and bool((process == key).all()):
        return slice(None)
    return np.asarray(process == key, dtype=np.bool_)


def take(columns: Mapping[str, AnyArray], rows: AnyArray | slice) -> dict[str, AnyArray]:
    """Return the columns of these rows."""
    return {name: values[rows] for name, values in columns.items()}
