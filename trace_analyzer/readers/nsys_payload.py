"""What NCCL says of its own calls: the payload of its NVTX ranges.

An export holds it decoded (`jsonText`), raw (`binaryData`, to be read with the schemas that NCCL
registered), or not at all. Field names: `src/include/nvtx_payload_schemas.h` of NCCL; up to 2.24
the size of a broadcast, send or receive was called "Bytes", and no communicator was given.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trace_analyzer.readers.nsys_schema import Export

NVTX = "NVTX_EVENTS"

_COMMUNICATOR = "NCCL communicator ID"
_SIZES = ("Message size [bytes]", "Bytes")
_RANKS = ("No. of ranks", "No. of devices")
_PEERS = ("Peer rank", "Peer")
_SCHEMA_ENTRIES = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
_ENUM_ENTRIES = "NVTX_PAYLOAD_ENUM_ENTRIES"

# Entry types of NVTX's payload extension (nvToolsExtPayload.h), as struct formats.
_FORMATS = {
    1: "b",
    2: "B",
    3: "h",
    4: "H",
    5: "i",
    6: "I",
    7: "q",
    8: "Q",
    9: "q",
    10: "Q",
    11: "b",
    12: "B",
    13: "h",
    14: "H",
    15: "i",
    16: "I",
    17: "q",
    18: "Q",
    19: "f",
    20: "d",
    22: "Q",
    23: "Q",
}
_FIRST_SCHEMA_TYPE = 1 << 24  # larger types refer to a registered schema or enumeration
_HEADER = struct.Struct("<4Q")  # domain, schema, size, offset from the start of the blob

_OPERATION = re.compile(
    r"^p?nccl(AllReduce|AllGather|ReduceScatter|Broadcast|Bcast|Reduce|AlltoAllv?|AllToAllv?|"
    r"Gather|Scatter|Send|Recv)$"
)
_SPELLING = {"bcast": "broadcast", "alltoallv": "alltoall"}


def range_operation(name: str) -> str:
    """Return the operation that an NCCL range of this name issues, or ""."""
    found = _OPERATION.match(name)
    if found is None:
        return ""
    word = found[1].lower()
    return _SPELLING.get(word, word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """The facts of one NCCL call; None where the payload does not hold them.

    `part_bytes` is what NCCL calls message size: count × element size of this rank's call.
    `communicator` is an unsigned 64-bit id as decimal text.
    """

    communicator: str | None = None
    part_bytes: int | None = None
    root: int | None = None
    peer: int | None = None
    reduction: str | None = None
    ranks: int | None = None
    rank: int | None = None


NO_PAYLOAD = Payload()


def _number(fields: Mapping[str, object], *names: str) -> int | None:
    for name in names:
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def payload_of(fields: Mapping[str, object]) -> Payload:
    """Return the payload of decoded fields; fields of another kind than expected are None."""
    communicator = _number(fields, _COMMUNICATOR)
    reduction = fields.get("Reduction operation")
    return Payload(
        communicator=None if communicator is None else str(communicator),
        part_bytes=_number(fields, *_SIZES),
        root=_number(fields, "Root"),
        peer=_number(fields, *_PEERS),
        reduction=reduction if isinstance(reduction, str) else None,
        ranks=_number(fields, *_RANKS),
        rank=_number(fields, "Rank"),
    )


def from_json(text: str) -> Payload | None:
    """Return the payload of a `jsonText`, or None where it is no JSON object."""
    try:
        fields = json.loads(text)
    except ValueError:
        return None
    return payload_of(fields) if isinstance(fields, dict) else None


@dataclass(frozen=True, slots=True)
class Entry:
    """One field of a registered schema."""

    name: str
    kind: int
    offset: int


class Schemas:
    """The payload schemas and enumerations that an export lists.

    The tables do not say which process registered a schema. Where processes registered different
    fields under one id, that id cannot be decoded.
    """

    def __init__(
        self,
        entries: Sequence[Sequence[object]],
        enumerations: Sequence[Sequence[object]],
    ) -> None:
        self._fields: dict[tuple[int, int], dict[int, Entry]] = {}
        self._enumerations: dict[tuple[int, int], dict[int, str]] = {}
        self._ambiguous: set[tuple[int, int]] = set()
        for domain, schema, index, kind, name, offset in entries:
            key = (_int(domain), _int(schema))
            entry = Entry(str(name), _int(kind), _int(offset))
            known = self._fields.setdefault(key, {})
            if known.setdefault(_int(index), entry) != entry:
                self._ambiguous.add(key)
        for domain, schema, name, value in enumerations:
            key = (_int(domain), _int(schema))
            self._enumerations.setdefault(key, {})[_int(value)] = str(name)

    @classmethod
    def read(cls, export: Export) -> Schemas:
        """Return the schemas of an export; empty where it has none."""
        return cls(
            export.texts(_SCHEMA_ENTRIES, "domainId", "schemaId", "idx", "type", "name", "offset"),
            export.texts(_ENUM_ENTRIES, "domainId", "schemaId", "name", "value"),
        )

    def decode(self, blob: bytes) -> Payload | None:
        """Return the payload of a `binaryData`, or None where it cannot be decoded."""
        if len(blob) < _HEADER.size:
            return None
        domain, schema, size, offset = _HEADER.unpack_from(blob)
        key = (domain, schema)
        if key not in self._fields or key in self._ambiguous or offset + size > len(blob):
            return None
        body = blob[offset : offset + size]
        fields: dict[str, object] = {}
        for entry in self._fields[key].values():
            value = self._value(domain, entry, body)
            if value is None:
                return None
            fields[entry.name] = value
        return payload_of(fields)

    def _value(self, domain: int, entry: Entry, body: bytes) -> object | None:
        labels = self._enumerations.get((domain, entry.kind), {})
        layout = "i" if entry.kind >= _FIRST_SCHEMA_TYPE else _FORMATS.get(entry.kind)
        if layout is None or (entry.kind >= _FIRST_SCHEMA_TYPE and not labels):
            return None
        if entry.offset + struct.calcsize(f"<{layout}") > len(body):
            return None
        (value,) = struct.unpack_from(f"<{layout}", body, entry.offset)
        return labels.get(value, str(value)) if labels else value


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0  # NULL stands for 0 in these tables


def blob_bytes(value: object) -> bytes | None:
    """Return a `binaryData` value as bytes: a blob, or hexadecimal text with or without 0x."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return bytes.fromhex(value.removeprefix("0x"))
        except ValueError:
            return None
    return None


def read_payloads(
    export: Export, domains: Sequence[int], *, use_json: bool = True
) -> tuple[dict[int, Payload], int]:
    """Return the payloads of NVTX rows by row id, and how many could not be decoded.

    Only rows of these domains are looked at. Equal payloads are decoded once.
    """
    have = export.tables.get(NVTX, {})
    json_column = "n.jsonText" if "jsonText" in have and use_json else "null"
    if "jsonTextId" in have and use_json and export.has("StringIds", "id", "value"):
        by_id = "(select value from StringIds where id = n.jsonTextId)"
        json_column = f"coalesce({json_column}, {by_id})"
    blob_column = "n.binaryData" if "binaryData" in have else "null"
    if not domains or "domainId" not in have or (json_column, blob_column) == ("null", "null"):
        return {}, 0
    marks = ",".join("?" * len(domains))
    rows = export.rows(
        f"select n.rowid, {json_column} as decoded, {blob_column} as raw from {NVTX} n "  # noqa: S608
        f"where n.domainId in ({marks}) and coalesce(decoded, raw) is not null",
        list(domains),
    )
    schemas = Schemas.read(export)
    seen: dict[object, Payload | None] = {}
    found: dict[int, Payload] = {}
    failed = 0
    for row, text, raw in rows:
        key = text if text is not None else raw
        if key not in seen:
            seen[key] = _decoded(schemas, text, raw)
        payload = seen[key]
        if payload is None:
            failed += 1
        else:
            found[_int(row)] = payload
    return found, failed


def _decoded(schemas: Schemas, text: object, raw: object) -> Payload | None:
    payload = from_json(text) if isinstance(text, str) else None
    if payload is None:
        blob = blob_bytes(raw)
        payload = schemas.decode(blob) if blob is not None else None
    return payload
