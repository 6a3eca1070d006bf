"""Arguments that many events share, written once a distinct value: launch shapes, collectives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from trace_analyzer.export.text_rows import Words, quoted
from trace_analyzer.model import Rank
from trace_analyzer.rank_facts import CALLS_ARGUMENT, MESSAGE_BYTES_ARGUMENT, UNKNOWN_SIZE
from trace_analyzer.schema import AnyArray, Int32Array, is_na

_MOST_LISTED_RANKS = 16

# Columns of Collectives that hold numbers, with torch's names for them.
_NUMBERS = (
    ("in_elements", "In msg nelems"),
    ("out_elements", "Out msg nelems"),
    ("sequence", "Seq"),
    ("root", "Root Rank"),
    ("source_rank", "Src Rank"),
    ("destination_rank", "Dst Rank"),
)


def config_words(rank: Rank, rows: Int32Array) -> Words:
    """Return grid, block and resources of launches; `rows` are rows of the rank's configs or NA."""
    return _of_rows(rows, lambda row: _config(rank, row))


def collective_words(rank: Rank, rows: Int32Array) -> Words:
    """Return what torch says of a collective; `rows` are rows of the rank's collectives or NA."""
    return _of_rows(rows, lambda row: _collective(rank, row))


def sync_words(names: Sequence[str], kind: AnyArray) -> Words:
    """Return the kind of every synchronisation, in CUPTI's words."""
    return Words([f'"cuda_sync_kind":{quoted(name)}' for name in names], kind)


def _of_rows(rows: Int32Array, describe: Callable[[int], str]) -> Words:
    used, code = np.unique(rows, return_inverse=True)
    table = [
        "" if missing else describe(row)
        for row, missing in zip(used.tolist(), is_na(used).tolist(), strict=True)
    ]
    return Words(table, code.reshape(-1))


def _config(rank: Rank, row: int) -> str:
    table = rank.configs
    parts: list[str] = []
    for label in ("grid", "block"):
        x, y, z = (_value(getattr(table, f"{label}_{axis}"), row) for axis in "xyz")
        if x is not None:
            parts.append(f'"{label}":[{x},{1 if y is None else y},{1 if z is None else z}]')
    for column, label in (
        ("registers", "registers per thread"),
        ("shared_bytes", "shared memory"),
    ):
        value = _value(getattr(table, column), row)
        if value is not None:
            parts.append(f'"{label}":{value}')
    occupancy = float(table.occupancy_pct[row])
    if not np.isnan(occupancy):
        parts.append(f'"est. achieved occupancy %":{occupancy!r}')
    return ",".join(parts)


def _collective(rank: Rank, row: int) -> str:
    return ",".join(_collective_parts(rank, row))


def _collective_parts(rank: Rank, row: int) -> Iterator[str]:
    table = rank.collectives
    yield f'"Collective name":{quoted(rank.names[int(table.operation[row])])}'
    for column, label in _NUMBERS:
        value = _value(getattr(table, column), row)
        if value is not None:
            yield f'"{label}":{value}'
    dtype = _value(table.dtype, row)
    if dtype is not None:
        yield f'"dtype":{quoted(rank.names[dtype])}'
    position = _value(table.group, row)
    if position is not None:
        group = rank.groups[position]
        yield f'"Process Group Name":{quoted(group.name)}'
        if group.description:
            yield f'"Process Group Description":{quoted(group.description)}'
        if group.size is not None:
            yield f'"Group size":{group.size}'
        if group.ranks and len(group.ranks) <= _MOST_LISTED_RANKS:
            yield f'"Process Group Ranks":"{list(group.ranks)}"'
    is_async = _value(table.is_async, row)
    if is_async is not None:
        yield f'"Is asynchronized op":{"true" if is_async else "false"}'
    yield from _size(rank, row, typed=dtype is not None)


def _size(rank: Rank, row: int, *, typed: bool) -> Iterator[str]:
    table = rank.collectives
    size = _value(table.message_bytes, row)
    counted = any(
        _value(getattr(table, f"{way}_elements"), row) is not None for way in ("in", "out")
    )
    if size is not None:
        yield f'"{MESSAGE_BYTES_ARGUMENT}":{size}'
    elif typed and counted:  # else it would be computed from them
        yield f'"{MESSAGE_BYTES_ARGUMENT}":"{UNKNOWN_SIZE}"'
    calls = int(table.calls[row])
    if calls != 1:
        yield f'"{CALLS_ARGUMENT}":{calls}'


def _value(column: AnyArray, row: int) -> int | None:
    return None if bool(is_na(column[row : row + 1])[0]) else int(column[row])
