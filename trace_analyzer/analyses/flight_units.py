"""Collectives of all Flight Recorder dumps, one row a collective and rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trace_analyzer.analyses.flight_rows import FlightRows
from trace_analyzer.schema import NA_INT32, NA_INT64, BoolArray, Int32Array, Int64Array, is_na

COALESCED = "coalesced"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlightUnits:
    """Collectives, one item a (group, sequence number, rank), in this order.

    Entries that were issued as one (coalesced) are one unit: its last entry, the marker, alone
    tells whether they ended. `signature` is equal where all of them have equal codes, and missing
    where a code is.
    """

    group: Int32Array
    sequence: Int64Array
    rank: Int32Array
    signature: Int64Array
    ended: BoolArray
    created_ns: Int64Array
    rows: Int64Array  # positions in FlightRows, in order of unit
    starts: Int64Array  # where each unit begins in `rows`
    calls: Int64Array  # entries without the marker

    def rows_of(self, unit: int) -> Int64Array:
        """Return the entries of a unit without its marker, in order of recording."""
        start = self.starts[unit]
        return self.rows[start : start + self.calls[unit]]


def flight_units(rows: FlightRows) -> FlightUnits:
    """Gather the entries of collectives; entries without a sequence number are left out."""
    kept = np.flatnonzero(~rows.is_p2p & ~is_na(rows.sequence))
    order = np.lexsort((rows.rank[kept], rows.sequence[kept], rows.group[kept]))
    kept = kept[order]
    group, sequence, rank = rows.group[kept], rows.sequence[kept], rows.rank[kept]
    starts = run_starts(group, sequence, rank)
    if not len(starts):
        return _no_units()
    marker = rows.operation[kept] == _position(rows.names, COALESCED)
    ended = ended_units(rows.ended[kept], marker, starts)
    place = np.arange(len(kept)) - np.repeat(starts, np.diff(np.append(starts, len(kept))))
    codes = rows.codes[kept]
    shares = np.where(marker, 0, _mixed(codes * 4096 + place % 4096))
    unknown = np.logical_or.reduceat(is_na(codes) & ~marker, starts)
    units = FlightUnits(
        group=group[starts],
        sequence=sequence[starts],
        rank=rank[starts],
        signature=np.where(unknown, NA_INT64, np.add.reduceat(shares, starts)),
        ended=ended,
        created_ns=np.minimum.reduceat(rows.created_ns[kept], starts),
        rows=kept,
        starts=starts,
        calls=np.add.reduceat((~marker).astype(np.int64), starts),
    )
    return _in_stream_order(units)


def _no_units() -> FlightUnits:
    nothing = np.empty(0, dtype=np.int64)
    return FlightUnits(
        group=nothing.astype(np.int32),
        sequence=nothing,
        rank=nothing.astype(np.int32),
        signature=nothing,
        ended=nothing == 1,
        created_ns=nothing,
        rows=nothing,
        starts=nothing,
        calls=nothing,
    )


def ended_units(ended: BoolArray, marker: BoolArray, starts: Int64Array) -> BoolArray:
    """Return which units ended: by their marker if they have one, else by all their entries."""
    has_marker = np.logical_or.reduceat(marker, starts)
    by_marker = np.logical_or.reduceat(marker & ended, starts)
    by_all = np.logical_and.reduceat(ended, starts)
    return np.where(has_marker, by_marker, by_all)


def _in_stream_order(units: FlightUnits) -> FlightUnits:
    """Take a collective as ended where the same rank and group ended a later one: one stream."""
    order = np.lexsort((units.sequence, units.rank, units.group))
    starts = run_starts(units.group[order], units.rank[order])
    last = np.append(starts[1:], len(order)) - 1
    ended = units.ended[order]
    # Position of the last ended unit in each run, which all before it precede.
    reached = np.maximum.reduceat(np.where(ended, np.arange(len(order)), -1), starts)
    until = np.repeat(reached, last - starts + 1)
    known = np.empty(len(order), dtype=np.bool_)
    known[order] = np.arange(len(order)) <= until
    return replace(units, ended=known)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlightSets:
    """Collectives, one item a (group, sequence): which units they are, and what these say."""

    group: Int32Array
    sequence: Int64Array
    start: Int64Array  # of its units
    end: Int64Array
    mismatched: BoolArray
    unended: BoolArray  # on some rank


def flight_sets(units: FlightUnits) -> FlightSets:
    """Gather the units of all ranks."""
    starts = run_starts(units.group, units.sequence)
    if not len(starts):
        nothing = np.empty(0, dtype=np.int64)
        return FlightSets(
            group=nothing.astype(np.int32),
            sequence=nothing,
            start=nothing,
            end=nothing,
            mismatched=nothing == 1,
            unended=nothing == 1,
        )
    known = ~is_na(units.signature)
    ends = np.iinfo(np.int64)
    lowest = np.minimum.reduceat(np.where(known, units.signature, ends.max), starts)
    highest = np.maximum.reduceat(np.where(known, units.signature, ends.min), starts)
    return FlightSets(
        group=units.group[starts],
        sequence=units.sequence[starts],
        start=starts,
        end=np.append(starts[1:], len(units.group)),
        mismatched=lowest < highest,
        unended=np.logical_or.reduceat(~units.ended, starts),
    )


def run_starts(*keys: Int64Array | Int32Array) -> Int64Array:
    """Return where a run of equal keys begins, in sorted keys."""
    if not len(keys[0]):
        return np.empty(0, dtype=np.int64)
    changed = np.zeros(len(keys[0]), dtype=np.bool_)
    changed[0] = True
    for key in keys:
        changed[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(changed).astype(np.int64)


def _mixed(values: Int64Array) -> Int64Array:
    """Scramble numbers so that sums of different sets differ (the finaliser of splitmix64)."""
    mixed = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))).view(np.int64)


def _position(names: Sequence[str], text: str) -> int:
    return names.index(text) if text in names else NA_INT32


__all__ = [
    "COALESCED",
    "FlightSets",
    "FlightUnits",
    "ended_units",
    "flight_sets",
    "flight_units",
    "run_starts",
]
