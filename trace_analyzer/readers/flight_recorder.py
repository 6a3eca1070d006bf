"""Dumps of torch's Flight Recorder: the last collectives of a process, and how far each got.

A dump is a pickle, or JSON where it was asked for so. Pickles are read by `plain_pickle`, which
can build data and nothing else. Layouts of torch 2.2 to 2.13 (dump versions 1.1 to 2.10) are
read; a key that a version lacks is missing in the columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.names import NameTable
from trace_analyzer.nccl_facts import FlightEntries, FlightGroup, FlightRecording, FlightState
from trace_analyzer.readers.kineto_collectives import operation_name
from trace_analyzer.readers.plain_pickle import NotPlainError, read_plain_pickle
from trace_analyzer.schema import NA_INT8, NA_INT32, NA_INT64, is_na

MAX_BYTES: Final = 64 << 20
MAX_ENTRIES: Final = 500_000
_MAX_TENSORS: Final = 100_000  # of one entry; coalesced ones list many
_MAX_DIMENSIONS: Final = 64
_MAX_GROUPS: Final = 100_000
_MAX_RANKS: Final = 1_000_000

_HINT = "dump it again, or analyze without it"
_STATES: Final = {
    "scheduled": FlightState.SCHEDULED,
    "started": FlightState.STARTED,
    "completed": FlightState.COMPLETED,
}
# Titles whose operation is not a collective's name with decorations.
_OPERATIONS: Final = {
    "allreducebarrier": "barrier",
    "allgatherv": "allgather",
    "reducescatterv": "reducescatter",
}
_PEERS = re.compile(r"(?P<a>\d+)(?P<way>->|<-)(?P<b>\d+)")


def read(path: Path, rank: int | None = None, *, display: str | None = None) -> FlightRecording:
    """Return a dump; `rank` is the global rank of its process, which most dumps do not hold.

    Raises `UnreadableInputError` where it cannot be read, is too large, is no dump, or is a pickle
    that does more than hold data.
    """
    shown = display or str(path)
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise UnreadableInputError(shown, (error.strerror or str(error)).lower()) from error
    if len(data) > MAX_BYTES:
        raise UnreadableInputError(shown, f"larger than {MAX_BYTES >> 20} MiB", _HINT)
    document = _decoded(data, shown)
    listed = document if isinstance(document, list) else _get(document, "entries")
    if not isinstance(listed, list):
        raise UnreadableInputError(shown, "no entries of a Flight Recorder in it", _HINT)
    if len(listed) > MAX_ENTRIES:
        raise UnreadableInputError(shown, f"more than {MAX_ENTRIES:,} entries", _HINT)
    return _Dump(document if isinstance(document, dict) else {}, listed).recording(shown, rank)


def _decoded(data: bytes, shown: str) -> object:
    if not data:
        raise UnreadableInputError(shown, "the file is empty", _HINT)
    if data.startswith(b"\x80"):
        try:
            return read_plain_pickle(data)
        except NotPlainError as error:
            raise UnreadableInputError(shown, f"pickle refused: {error}", _HINT) from error
    try:
        decoded: object = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = "neither a pickle nor JSON"
        if data.lstrip()[:1] in {b"{", b"["}:
            reason = f"not JSON: {str(error).splitlines()[0]}"
        raise UnreadableInputError(shown, reason, _HINT) from error
    return decoded


def _get(document: object, key: str) -> Any:  # noqa: ANN401 - whatever the file holds
    return document.get(key) if isinstance(document, dict) else None


class _Dump:
    """Turns a dump's entries into columns, counting what cannot be read."""

    def __init__(self, document: Mapping[Any, Any], entries: Sequence[Any]) -> None:
        self.document = document
        self.entries = entries
        self.names = NameTable()
        self.groups: dict[tuple[str, str], int] = {}
        self.status_keys: dict[int, str] = {}  # group → its key in pg_status
        self.malformed = 0
        self.titles: dict[str, tuple[int, int, int, int]] = {}
        self.types: dict[tuple[str, ...], int] = {}

    def recording(self, shown: str, rank: int | None) -> FlightRecording:
        status = _get(self.document, "pg_status")
        found = rank if rank is not None else self._optional(_get(self.document, "rank"))
        rows = self._rows()
        for name, description in self._configured():
            self.groups.setdefault((name, description), len(self.groups))
        groups = tuple(self._group(*key, number) for key, number in self.groups.items())
        return FlightRecording(
            path=shown,
            rank=found,
            version=_text(_get(self.document, "version")),
            nccl_version=_text(_get(self.document, "comm_lib_version"))
            or _text(_get(self.document, "nccl_version")),
            names=tuple(self.names.texts),
            groups=groups,
            entries=rows,
            has_status=isinstance(status, dict) and bool(status),
            malformed=self.malformed,
        )

    def _rows(self) -> FlightEntries:
        columns: dict[str, list[int]] = {spec.name: [] for spec in FlightEntries.columns()}
        appends = [column.append for column in columns.values()]
        for entry in self.entries:
            if not isinstance(entry, dict) or not isinstance(entry.get("profiling_name"), str):
                self.malformed += 1
                continue
            for append, value in zip(appends, self._row(entry), strict=True):
                append(value)
        arrays = {
            spec.name: np.array(columns[spec.name], dtype=spec.dtype)
            for spec in FlightEntries.columns()
        }
        table = FlightEntries(**arrays)
        if bool(is_na(table.record_id).any()) or bool(np.all(np.diff(table.record_id) >= 0)):
            return table  # dumps are written in order
        return table.take(np.argsort(table.record_id, kind="stable"))

    def _row(self, entry: Mapping[Any, Any]) -> tuple[int, ...]:
        """Return the values of one entry in the order of the columns."""
        title, operation, source, destination = self._title(entry["profiling_name"])
        sequence = entry.get("collective_seq_id", entry.get("seq_id"))
        is_p2p = entry.get("is_p2p")
        if not isinstance(is_p2p, bool):
            is_p2p = source != NA_INT32
        state = _STATES.get(_text(entry.get("state")))
        retired = entry.get("retired") is True
        return (
            self._int64(entry.get("record_id", entry.get("id"))),
            operation,
            title,
            self._group_of(entry),
            self._int64(sequence),
            self._int64(entry.get("p2p_seq_id")),
            self._int64(entry.get("op_id")),
            int(is_p2p),
            source,
            destination,
            NA_INT8 if state is None else int(state),
            int(retired),
            self._time(entry.get("time_created_ns")),
            self._time(entry.get("time_discovered_started_ns")),
            self._time(entry.get("time_discovered_completed_ns")),
            self._types(entry.get("input_dtypes"), entry.get("output_dtypes")),
            self._elements(entry.get("input_sizes")),
            self._elements(entry.get("output_sizes")),
            self._int64(entry.get("timeout_ms")),
        )

    def _title(self, text: str) -> tuple[int, int, int, int]:
        """Return title, operation, sender and receiver: `nccl:recv 1<-0` names all of them."""
        known = self.titles.get(text)
        if known is None:
            bare, _, rest = text.rpartition(":")[2].partition(" ")
            operation = operation_name(bare)
            operation = _OPERATIONS.get(operation, operation)
            peers = _PEERS.fullmatch(rest.strip())
            source = destination = NA_INT32
            if peers is not None and len(rest) < 24:
                left, right = int(peers["a"]), int(peers["b"])
                forward = peers["way"] == "->"
                source, destination = (left, right) if forward else (right, left)
                if max(source, destination) > _MAX_RANKS:
                    source = destination = NA_INT32
                    self.malformed += 1
            known = (self.names.intern(text), self.names.intern(operation), source, destination)
            self.titles[text] = known
        return known

    def _group_of(self, entry: Mapping[Any, Any]) -> int:
        """Return the group of an entry: (name, description), a name, or in old dumps a number."""
        given = entry.get("process_group")
        if isinstance(given, tuple | list) and given:
            key = (_label(given[0]), _label(given[1]) if len(given) > 1 else "")
        elif given is not None:
            key = (_label(given), "")
        else:
            key = (_label(entry.get("pg_id")), "")
        number = self.groups.get(key)
        if number is None:
            number = self.groups[key] = len(self.groups)
            self.status_keys[number] = _label(entry.get("pg_id"))
        return number

    def _configured(self) -> list[tuple[str, str]]:
        """Return the groups that the dump describes without having entries of them."""
        config = _get(self.document, "pg_config")
        if not isinstance(config, dict):
            return []
        named = {name for name, _ in self.groups}
        return [
            (name, _label(_get(item, "desc")))
            for key, item in list(config.items())[:_MAX_GROUPS]
            if (name := _label(_get(item, "name")) or str(key)) and name not in named
        ]

    def _group(self, name: str, description: str, number: int) -> FlightGroup:
        config, status = _get(self.document, "pg_config"), _get(self.document, "pg_status")
        found = _get(config, name)
        if found is None and isinstance(config, dict):
            same = (item for item in config.values() if _label(_get(item, "name")) == name)
            found = next(same, None)
        progress = _get(status, self.status_keys.get(number) or name)
        return FlightGroup(
            name=name,
            description=description or _label(_get(found, "desc")),
            ranks=self._ranks(_get(found, "ranks")),
            last_enqueued=self._optional(_get(progress, "last_enqueued_collective")),
            last_started=self._optional(_get(progress, "last_started_collective")),
            last_completed=self._optional(_get(progress, "last_completed_collective")),
        )

    def _ranks(self, given: object) -> tuple[int, ...]:
        """Return members: a list, or text such as "[0, 1]"."""
        if isinstance(given, list) and len(given) <= _MAX_RANKS:
            if all(type(rank) is int and 0 <= rank <= _MAX_RANKS for rank in given):
                return tuple(given)
        elif isinstance(given, str):
            if not given.strip(" []"):
                return ()
            parts = [part.strip() for part in given.strip(" \t[],").split(",")]
            if all(part.isascii() and part.isdigit() for part in parts):
                ranks = tuple(int(part[:9]) for part in parts)
                if max(ranks) <= _MAX_RANKS:
                    return ranks
        elif given is None:
            return ()
        self.malformed += 1
        return ()

    def _int64(self, value: object) -> int:
        if value is None:
            return NA_INT64
        if type(value) is int and 0 <= value < 1 << 63:
            return value
        self.malformed += 1
        return NA_INT64

    def _optional(self, value: object) -> int | None:
        """Return a count, or None for -1, which stands for "none yet"; JSON dumps write text."""
        if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value):
            value = int(value)
        if type(value) is not int or value < 0:
            return None
        return value

    def _time(self, value: object) -> int:
        """Return a time; JSON dumps write 0 for one that is not known."""
        return NA_INT64 if value == 0 else self._int64(value)

    def _types(self, *lists: object) -> int:
        found: list[str] = []
        for given in lists:
            for text in given[:_MAX_TENSORS] if isinstance(given, list) else ():
                if isinstance(text, str) and text not in found and len(found) < _MAX_DIMENSIONS:
                    found.append(text)
        if not found:
            return NA_INT32
        key = tuple(found)
        position = self.types.get(key)
        if position is None:
            position = self.types[key] = self.names.intern("+".join(sorted(found)))
        return position

    def _elements(self, sizes: object) -> int:
        """Return how many elements some tensors have together; missing where none is listed."""
        if not isinstance(sizes, list) or not sizes:
            return NA_INT64
        if len(sizes) > _MAX_TENSORS:
            self.malformed += 1
            return NA_INT64
        total = 0
        for shape in sizes:
            if not isinstance(shape, list) or len(shape) > _MAX_DIMENSIONS:
                self.malformed += 1
                return NA_INT64
            elements = 1
            for size in shape:
                if type(size) is not int or not 0 <= size < 1 << 48:
                    self.malformed += 1
                    return NA_INT64
                elements *= size
            total += elements
        return self._int64(total)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _label(value: object) -> str:
    return value if isinstance(value, str) else str(value) if type(value) is int else ""


__all__ = ["read"]
