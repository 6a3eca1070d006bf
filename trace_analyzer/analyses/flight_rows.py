"""Flight Recorder dumps of all ranks in one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trace_analyzer.names import NameTable
from trace_analyzer.nccl_facts import FlightRecording, FlightState
from trace_analyzer.schema import (
    NA_INT32,
    NA_INT64,
    BoolArray,
    Int32Array,
    Int64Array,
    is_na,
)

# Which totals must agree on all ranks; of an operation that is not listed none needs to.
_BY_INPUT = ("allreduce", "reducescatter", "gather")
_BY_OUTPUT = ("allgather", "scatter", "broadcast")
_UNEVEN = ("_v", "_v_single")  # titles of collectives whose ranks differ in size


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightMembers:
    """A process group over all dumps. `ranks` are its members, global.

    `listed` is False where no dump lists them: then they are the ranks that used the group.
    """

    name: str
    description: str
    ranks: tuple[int, ...]
    listed: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlightRows:
    """Entries of all dumps, in order of rank, then of recording; arrays have one item an entry.

    `ended` tells that the process saw the operation end. `codes` are equal where operation, type
    and the sizes that all ranks share are, and missing where such a size is.
    """

    names: tuple[str, ...]
    groups: tuple[FlightMembers, ...]
    ranks: tuple[int, ...]  # with a dump
    whole: frozenset[int]  # of these, the ones whose dump reaches back to the first operation
    rank: Int32Array
    group: Int32Array
    operation: Int32Array
    dtype: Int32Array
    is_p2p: BoolArray
    sequence: Int64Array  # of the collective, or of the send or receive
    source: Int32Array
    destination: Int32Array
    created_ns: Int64Array
    in_elements: Int64Array
    out_elements: Int64Array
    ended: BoolArray
    codes: Int64Array


def newest_dumps(recordings: Sequence[FlightRecording]) -> list[FlightRecording]:
    """Return one dump a rank, in order of rank: the one whose last entry is newest."""
    found: dict[int, FlightRecording] = {}
    for recording in recordings:
        if recording.rank is None:
            continue
        other = found.get(recording.rank)
        if other is None or _last_ns(recording) > _last_ns(other):
            found[recording.rank] = recording
    return [found[rank] for rank in sorted(found)]


def _last_ns(recording: FlightRecording) -> int:
    created = recording.entries.created_ns
    return int(created.max()) if len(created) else NA_INT64


def flight_rows(dumps: Sequence[FlightRecording]) -> FlightRows:
    """Join the dumps, one a rank."""
    names = NameTable()
    groups = _Groups(dumps)
    parts: dict[str, list[Int64Array]] = {}
    for dump in dumps:
        entries = dump.entries
        text = np.array([names.intern(name) for name in dump.names], dtype=np.int64)
        group = np.array(groups.positions(dump), dtype=np.int64)
        uneven = np.array(
            [any(name.endswith(end) for end in _UNEVEN) for name in dump.names], dtype=np.int64
        )
        ended = (
            (entries.state == FlightState.COMPLETED)
            | (entries.retired == 1)
            | ~is_na(entries.completed_ns)
        )
        columns = {
            "rank": np.full(len(entries), dump.rank, dtype=np.int64),
            "group": group[entries.group] if len(entries) else entries.group,
            "operation": text[entries.operation] if len(entries) else entries.operation,
            "dtype": _looked_up(text, entries.dtype),
            "is_p2p": entries.is_p2p,
            "sequence": np.where(
                entries.is_p2p == 1, entries.p2p_sequence, entries.collective_sequence
            ),
            "source": entries.source,
            "destination": entries.destination,
            "created_ns": entries.created_ns,
            "in_elements": entries.in_elements,
            "out_elements": entries.out_elements,
            "ended": ended,
            "uneven": uneven[entries.title] if len(entries) else entries.title,
        }
        for key, values in columns.items():
            parts.setdefault(key, []).append(np.asarray(values, dtype=np.int64))
    all_rows = {key: np.concatenate(values) for key, values in parts.items()}
    return _rows(all_rows, names, groups.members(), dumps)


def _is_whole(dump: FlightRecording) -> bool:
    numbers = dump.entries.record_id
    return not len(numbers) or int(numbers.min()) == 0


def _looked_up(positions: Int64Array, values: Int32Array) -> Int64Array:
    missing = is_na(values)
    if not len(positions):
        return np.full(len(values), NA_INT32, dtype=np.int64)
    return np.where(missing, NA_INT32, positions[np.where(missing, 0, values)])


def _rows(
    columns: dict[str, Int64Array],
    names: NameTable,
    groups: tuple[FlightMembers, ...],
    dumps: Sequence[FlightRecording],
) -> FlightRows:
    empty = np.empty(0, dtype=np.int64)

    def taken(key: str) -> Int64Array:
        return columns.get(key, empty)

    return FlightRows(
        names=tuple(names.texts),
        groups=groups,
        ranks=tuple(dump.rank or 0 for dump in dumps),
        whole=frozenset(dump.rank or 0 for dump in dumps if _is_whole(dump)),
        rank=taken("rank").astype(np.int32),
        group=taken("group").astype(np.int32),
        operation=taken("operation").astype(np.int32),
        dtype=taken("dtype").astype(np.int32),
        is_p2p=taken("is_p2p") == 1,
        sequence=taken("sequence"),
        source=taken("source").astype(np.int32),
        destination=taken("destination").astype(np.int32),
        created_ns=taken("created_ns"),
        in_elements=taken("in_elements"),
        out_elements=taken("out_elements"),
        ended=taken("ended") == 1,
        codes=_codes(columns, names) if columns else empty,
    )


def _codes(columns: dict[str, Int64Array], names: NameTable) -> Int64Array:
    operation = columns["operation"]
    by_input = np.isin(operation, [names.intern(name) for name in _BY_INPUT])
    by_output = np.isin(operation, [names.intern(name) for name in _BY_OUTPUT])
    even = columns["uneven"] == 0
    size = np.where(by_input & even, columns["in_elements"], 0)
    size = np.where(by_output & even, columns["out_elements"], size)
    both = np.maximum(columns["in_elements"], columns["out_elements"])
    size = np.where(operation == names.intern("reduce"), both, size)
    codes = _numbered(operation, columns["dtype"])
    codes = _numbered(codes, size)
    return np.where(is_na(size), NA_INT64, codes)


def _numbered(first: Int64Array, second: Int64Array) -> Int64Array:
    """Return a number for each different pair of values."""
    _, left = np.unique(first, return_inverse=True)
    values, right = np.unique(second, return_inverse=True)
    return np.asarray(left * len(values) + right, dtype=np.int64)


class _Groups:
    """Process groups over dumps: the same name with other members is another group."""

    def __init__(self, dumps: Sequence[FlightRecording]) -> None:
        self.keys: dict[tuple[str, tuple[int, ...]], int] = {}
        self.descriptions: list[str] = []
        self.users: list[set[int]] = []
        listed: dict[str, set[tuple[int, ...]]] = {}
        for dump in dumps:
            for group in dump.groups:
                if group.ranks:
                    listed.setdefault(group.name, set()).add(tuple(sorted(group.ranks)))
        self.listed = listed
        for dump in dumps:
            positions = self.positions(dump)
            for group in np.unique(dump.entries.group):
                self.users[positions[group]].add(dump.rank or 0)

    def positions(self, dump: FlightRecording) -> list[int]:
        """Return the position of each group of a dump."""
        found = []
        for group in dump.groups:
            ranks = tuple(sorted(group.ranks))
            if not ranks:  # another dump may list them
                holding = [item for item in self.listed.get(group.name, ()) if dump.rank in item]
                ranks = holding[0] if len(holding) == 1 else ()
            key = (group.name, ranks)
            if key not in self.keys:
                self.keys[key] = len(self.keys)
                self.descriptions.append(group.description)
                self.users.append(set())
            position = self.keys[key]
            self.descriptions[position] = self.descriptions[position] or group.description
            found.append(position)
        return found

    def members(self) -> tuple[FlightMembers, ...]:
        """Return the groups in order of position."""
        return tuple(
            FlightMembers(
                name=name,
                description=self.descriptions[position],
                ranks=ranks or tuple(sorted(self.users[position])),
                listed=bool(ranks),
            )
            for (name, ranks), position in self.keys.items()
        )


__all__ = ["FlightMembers", "FlightRows", "flight_rows", "newest_dumps"]
