"""Payloads of NCCL ranges: decoded text, raw bytes with their schemas, and damage."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from tests.readers.nsys_files import ALL_REDUCE, Nsys, values
from tests.traces import real_trace
from trace_analyzer.model import Rank
from trace_analyzer.readers.nsys_payload import (
    Payload,
    Schemas,
    blob_bytes,
    from_json,
    read_payloads,
)
from trace_analyzer.readers.nsys_schema import Export

STATIC = 1 << 24
BIG = 13_429_301_450_432_826_988
# domain, schema, index, type, name, offset as the tables hold them: NULL is 0.
ENTRIES: list[tuple[int, int, int, int, str, int | None]] = [
    (1, STATIC + 5, 0, 18, "NCCL communicator ID", None),
    (1, STATIC + 5, 1, 22, "Message size [bytes]", 8),
    (1, STATIC + 5, 2, STATIC + 20, "Reduction operation", 16),
    (1, STATIC + 9, 0, 22, "Bytes", None),
    (1, STATIC + 9, 1, 5, "Peer rank", 8),
]
ENUMS: list[tuple[int, int, str, int | None]] = [
    (1, STATIC + 20, "Sum", None),
    (1, STATIC + 20, "Avg", 4),
]


def _blob(schema: int, body: bytes, *, size: int | None = None, domain: int = 1) -> bytes:
    return (
        struct.pack("<4Q", domain, STATIC + schema, len(body) if size is None else size, 32) + body
    )


REDUCED = _blob(5, struct.pack("<QQi4x", BIG, 4096, 4))


def test_json_keeps_all_digits() -> None:
    text = f'{{"NCCL communicator ID":{BIG},"Message size [bytes]":7,"Reduction operation":"Sum"}}'
    assert from_json(text) == Payload(communicator=str(BIG), part_bytes=7, reduction="Sum")
    text = '{"NCCL communicator ID":5,"No. of ranks":2,"Rank":1,"CUDA device":1}'
    assert from_json(text) == Payload(communicator="5", ranks=2, rank=1)
    assert from_json('{"Bytes":9,"Peer rank":3}') == Payload(part_bytes=9, peer=3)


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '"x"'])
def test_text_that_is_no_payload(text: str) -> None:
    assert from_json(text) is None


@pytest.mark.parametrize(
    "text", ['{"Message size [bytes]":"big"}', '{"Root":1.5}', '{"Rank":true}', "{}"]
)
def test_fields_of_another_kind_are_unknown(text: str) -> None:
    assert from_json(text) == Payload()


def test_bytes_are_decoded_with_their_schema() -> None:
    schemas = Schemas(ENTRIES + ENTRIES, ENUMS + ENUMS)  # once for each process
    assert schemas.decode(REDUCED) == Payload(
        communicator=str(BIG), part_bytes=4096, reduction="Avg"
    )
    assert schemas.decode(_blob(9, struct.pack("<Qi", 96, 1))) == Payload(part_bytes=96, peer=1)


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        REDUCED[:31],
        REDUCED[:-1],
        _blob(77, struct.pack("<QQi4x", 1, 2, 3)),
        _blob(5, struct.pack("<Q", 1)),
        _blob(5, struct.pack("<QQi4x", 1, 2, 3), size=1 << 62),
        _blob(5, struct.pack("<QQi4x", 1, 2, 3), domain=2),
    ],
    ids=["empty", "header", "short", "schema", "body", "size", "domain"],
)
def test_bytes_that_cannot_be_decoded(blob: bytes) -> None:
    assert Schemas(ENTRIES, ENUMS).decode(blob) is None


def test_schemas_that_differ_between_processes_are_not_guessed() -> None:
    moved = (1, STATIC + 9, 1, 5, "Peer rank", 16)
    assert Schemas([*ENTRIES, moved], ENUMS).decode(_blob(9, struct.pack("<Qi", 96, 1))) is None


def test_blobs_as_bytes_and_as_hexadecimal_text() -> None:
    assert blob_bytes(b"\x01\xff") == b"\x01\xff"
    assert blob_bytes("01ff") == b"\x01\xff"
    assert blob_bytes("0x01FF") == b"\x01\xff"
    assert blob_bytes("nothing") is None
    assert blob_bytes(None) is None


def _export(tmp_path: Path, **fields: Any) -> Rank:
    made = Nsys()
    made.nccl_domain()
    made.range(0, 20, "ncclAllReduce", domain=1, **fields)
    made.launched(5, 100, 110, ALL_REDUCE)
    for domain, schema, index, kind, name, offset in ENTRIES:
        made.add(
            "NVTX_PAYLOAD_SCHEMA_ENTRIES",
            domainId=domain,
            schemaId=schema,
            idx=index,
            type=kind,
            name=name,
            offset=offset,
        )
    for domain, schema, name, value in ENUMS:
        made.add(
            "NVTX_PAYLOAD_ENUM_ENTRIES", domainId=domain, schemaId=schema, name=name, value=value
        )
    return made.read_one(tmp_path)


@pytest.mark.parametrize(
    "fields",
    [
        {"binaryData": REDUCED},
        {"binaryData": REDUCED.hex()},
        {"binaryData": REDUCED, "jsonText": "not JSON"},
        {"jsonText": f'{{"NCCL communicator ID":{BIG},"Message size [bytes]":4096}}'},
    ],
    ids=["blob", "hexadecimal", "bad json", "json"],
)
def test_every_way_gives_the_same(tmp_path: Path, fields: dict[str, Any]) -> None:
    rank = _export(tmp_path, **fields)
    assert values(rank.collectives.message_bytes) == [4096]
    assert [group.name for group in rank.groups] == [str(BIG)]
    assert rank.warnings == ()


def test_payload_text_by_id(tmp_path: Path) -> None:
    made = Nsys()
    made.nccl_domain()
    text = made.text('{"Message size [bytes]":12}')
    made.range(0, 20, "ncclAllReduce", domain=1, jsonTextId=text)
    made.launched(5, 100, 110, ALL_REDUCE)
    assert values(made.read_one(tmp_path).collectives.message_bytes) == [12]


def test_what_cannot_be_decoded_is_counted(tmp_path: Path) -> None:
    rank = _export(tmp_path, binaryData=REDUCED[:40])
    assert values(rank.collectives.message_bytes) == [None]
    assert [(w.code, w.count) for w in rank.warnings] == [("TRC009", 1)]


def test_text_and_bytes_of_a_real_export_agree() -> None:
    path = real_trace("h200-ddp-nsys/healthy_payload.sqlite")
    with Export(path) as export:
        by_text, bad_text = read_payloads(export, [1])
        by_bytes, bad_bytes = read_payloads(export, [1], use_json=False)
    assert (len(by_text), bad_text, bad_bytes) == (168, 0, 0)
    assert by_text == by_bytes
    assert {payload.communicator for payload in by_text.values()} == {"3833832220697833136"}
    assert {payload.reduction for payload in by_text.values()} == {"Sum"}
    # 682.0 MB of gradients a step, on each of two ranks, in six steps.
    total = sum(payload.part_bytes or 0 for payload in by_text.values())
    assert round(total / 12 / 1e6, 1) == 682.0
