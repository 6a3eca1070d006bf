"""Order, identity and links of rows: pure functions of columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trace_analyzer.schema import (
    NA_INT16,
    NA_INT32,
    NA_INT64,
    AnyArray,
    BoolArray,
    Int32Array,
    Int64Array,
)


def order_rows(first: Int64Array, second: Int64Array, usable: BoolArray) -> Int64Array:
    """Return the usable rows in order of `first`, equal ones in order of `second`, then as read."""
    rows = np.flatnonzero(usable)
    everything = len(rows) == len(first)
    keys = first if everything else first[rows]
    order = np.argsort(keys, kind="stable")
    tied = _tied(keys[order])
    if len(tied):  # sort again only what the first key leaves open
        members = order[tied]
        seconds = second if everything else second[rows]
        order[tied] = members[np.lexsort((seconds[members], keys[members]))]
    return order if everything else rows[order]


def _tied(*ordered: AnyArray) -> Int64Array:
    """Return the positions at which ordered columns are equal to the row before or after."""
    same = np.ones(max(len(ordered[0]) - 1, 0), dtype=np.bool_)
    for values in ordered:
        same &= values[1:] == values[:-1]
    if not same.any():
        return np.empty(0, dtype=np.int64)
    tied = np.zeros(len(ordered[0]), dtype=np.bool_)
    tied[1:] = same
    tied[:-1] |= same
    return np.flatnonzero(tied)


def launches(wanted: Int64Array, correlation: Int64Array) -> Int32Array:
    """Return, for every operation's correlation, the row of the outermost call that has it.

    Calls are ordered outer before inner, so the first row of a correlation is the outermost.
    All kernels of a CUDA graph share the correlation of the call that launched the graph.
    """
    result = np.full(len(wanted), NA_INT32, dtype=np.int32)
    rows = np.flatnonzero(correlation != NA_INT64)
    if not len(rows) or not len(wanted):
        return result
    order = rows[np.argsort(correlation[rows], kind="stable")]
    keys = correlation[order]
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    hit = (keys[place] == wanted) & (wanted != NA_INT64)
    result[hit] = order[place[hit]]
    return result


def exact_copies(
    start: Int64Array,
    end: Int64Array,
    stream: Int64Array,
    name: AnyArray,
    correlation: Int64Array,
    graph_node: Int64Array,
) -> BoolArray:
    """Return which operations, ordered by start and end, repeat an earlier one exactly.

    With whole microseconds two kernels of one CUDA graph can look the same and be two: they share
    a correlation with other kernels. Such operations are copies only if time stamps are finer.
    """
    copies = np.zeros(len(start), dtype=np.bool_)
    rows = _tied(start, end)
    if not len(rows):
        return copies
    keys = [column[rows] for column in (start, end, stream, name, correlation, graph_node)]
    order = np.lexsort(keys[::-1])  # stable: of equal rows the first one stays
    equal = np.ones(len(rows) - 1, dtype=np.bool_)
    for key in keys:
        equal &= key[order][1:] == key[order][:-1]
    repeated = rows[order[1:][equal]]
    if not (start % 1000).any():
        repeated = repeated[~_in_graphs(start, correlation)[repeated]]
    copies[repeated] = True
    return copies


def _in_graphs(start: Int64Array, correlation: Int64Array) -> BoolArray:
    """Return which operations have no correlation, or share one with operations of other starts."""
    _, first, inverse = np.unique(correlation, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    differs = start != start[first[inverse]]
    shared = np.zeros(len(first), dtype=np.bool_)
    shared[inverse[differs]] = True
    in_graph: BoolArray = shared[inverse] | (correlation == NA_INT64)
    return in_graph


def renumber(codes: Sequence[Int32Array], count: int) -> tuple[Int64Array, Int32Array]:
    """Number codes by first use, so that they do not depend on how a file was cut.

    `codes` hold positions in something of `count` rows, or NA. Returns the rows that are used, in
    order of first use, and the new number of every old row (NA for those that are not used).
    """
    used = np.concatenate([values[values != NA_INT32] for values in codes])
    rows, first = np.unique(used, return_index=True)
    rows = rows[np.argsort(first)].astype(np.int64)
    number = np.full(count + 1, NA_INT32, dtype=np.int32)  # the last one is read through NA
    number[rows] = np.arange(len(rows), dtype=np.int32)
    return rows, number


def renumbered(codes: Int32Array, number: Int32Array) -> Int32Array:
    """Return codes as `renumber` numbers them; NA stays NA."""
    found: Int32Array = number[np.where(codes == NA_INT32, len(number) - 1, codes)]
    return found


def positive(ids: Int64Array) -> Int64Array:
    """Return ids with 0 and negative ones, which profilers write for "none", as missing."""
    return np.where(ids > 0, ids, NA_INT64)


def not_negative(values: Int64Array) -> Int64Array:
    """Return values with negative ones as missing."""
    return np.where(values >= 0, values, NA_INT64)


def narrow(values: Int64Array, dtype: type[np.int16 | np.int32]) -> AnyArray:
    """Return values in a smaller type; what does not fit is missing."""
    limits = np.iinfo(dtype)
    missing = NA_INT16 if dtype is np.int16 else NA_INT32
    fits = (values > limits.min) & (values <= limits.max)
    return np.where(fits, values, missing).astype(dtype)
