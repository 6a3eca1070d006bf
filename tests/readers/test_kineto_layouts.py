"""The same events in any JSON layout, cut anywhere, compressed or not, give the same rank."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.readers.kineto_documents import BASE_NS, Event, document, event, kernel, read
from trace_analyzer.model import Rank
from trace_analyzer.readers import kineto
from trace_analyzer.readers.kineto_anomalies import Anomalies
from trace_analyzer.readers.kineto_document import Document, read_document
from trace_analyzer.readers.kineto_events import Complete
from trace_analyzer.tables import TABLES

EVENTS: list[Event] = [
    event("user_annotation", "ProfilerStep#3", 1000.125, 50.5),
    event("cpu_op", "aten::mm", 1001, 20, args={"External id": 5, "Input Dims": [[1, 2], []]}),
    event(
        "cuda_runtime",
        "cudaLaunchKernel",
        1002.001,
        3.25,
        args={"correlation": 77, "External id": 5},
    ),
    {"ph": "s", "id": 77, "pid": 100, "tid": 100, "ts": 1002.001, "cat": "ac2g", "name": "ac2g"},
    kernel(1010.5, 7.75, correlation=77, grid=[24, 1, 1], block=[544, 1, 1]),
    {"ph": "f", "id": 77, "pid": 0, "tid": 7, "ts": 1010.5, "cat": "ac2g", "name": "ac2g"},
    event("cpu_op", 'traps: "},\n  {", ]}, \\ {{[', 1030, 1, args={"note": '},{"ph":"X"},{'}),
    event("Trace", "PyTorch Profiler (0)", 990, 100, pid="Spans", tid="PyTorch Profiler"),
    {"ph": "M", "name": "process_name", "pid": 100, "tid": 0, "ts": 0, "args": {"name": "python"}},
    kernel(1020.001, 2.002, correlation=78, name="late", grid=[1, 2, 3], block=[32, 1, 1]),
]
HEADER: dict[str, Any] = {
    "schemaVersion": 1,
    "decoy": {"traceEvents": [{"ph": "X"}], "text": '"traceEvents": ['},
    "distributedInfo": {"rank": 3, "world_size": 8},
    "deviceProperties": [{"id": 0, "name": "A"}, {"id": 1, "name": "B"}],
    "baseTimeNanoseconds": BASE_NS,
}


def same(left: Rank, right: Rank) -> None:
    """Assert that two ranks hold the same."""
    for name in ("operations", "configs", "calls", "events", "syncs", "collectives", "threads"):
        one, other = getattr(left, name), getattr(right, name)
        for spec in one.columns():
            np.testing.assert_array_equal(getattr(one, spec.name), getattr(other, spec.name))
    assert list(left.names) == list(right.names)
    for name in ("rank", "world_size", "devices", "clock_base_ns", "counts", "truncated", "pid"):
        assert getattr(left, name) == getattr(right, name)


def _texts() -> Iterator[tuple[str, str]]:
    after = {**HEADER, "traceEvents": EVENTS}
    first = {"traceEvents": EVENTS, **HEADER}
    half = list(HEADER.items())
    middle = {**dict(half[:2]), "traceEvents": EVENTS, **dict(half[2:])}
    yield "indented", json.dumps(after, indent=1)
    yield "deeply indented", json.dumps(after, indent=8)
    yield "tabs", json.dumps(after, indent="\t")
    yield "one line", json.dumps(after)
    yield "compact", json.dumps(after, separators=(",", ":"))
    yield "events first", json.dumps(first, indent=2)
    yield "events first, compact", json.dumps(first, separators=(",", ":"))
    yield "events in the middle", json.dumps(middle)
    yield "carriage returns", json.dumps(after, indent=2).replace("\n", "\r\n")
    yield "byte-order mark", "\ufeff" + json.dumps(after, indent=2)
    yield "trailing white space", json.dumps(after, indent=2) + "\n\n \0\0"
    yield "trailing commas", json.dumps(after).replace("}], ", "},], ").replace('"}]}', '"},],}')
    yield "unescaped unicode", json.dumps(after, ensure_ascii=False)


@pytest.mark.parametrize(("layout", "text"), [pytest.param(*pair, id=pair[0]) for pair in _texts()])
def test_every_layout_gives_the_same(layout: str, text: str, tmp_path: Path) -> None:
    expected = read(tmp_path, json.dumps({**HEADER, "traceEvents": EVENTS}))
    assert expected.warnings == ()
    assert (expected.rank, expected.rank_basis, expected.world_size) == (3, "content", 8)
    found = read(tmp_path, text)
    same(expected, found)
    assert found.warnings == ()


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7, 64, 1000, 1 << 20])
@pytest.mark.parametrize("indent", [None, 1])
def test_block_size_changes_nothing(block_bytes: int, indent: int | None, tmp_path: Path) -> None:
    text = json.dumps(
        {**HEADER, "traceEvents": EVENTS * 4, "tail": [{"a": 1}, {"b": 2}]}, indent=indent
    )
    same(read(tmp_path, text), read(tmp_path, text, block_bytes=block_bytes))


def test_bare_list(tmp_path: Path) -> None:
    rank = read(tmp_path, json.dumps(EVENTS))
    assert rank.rank_basis == "unknown"
    assert rank.clock_base_ns is None
    assert len(rank.operations) == 2
    assert rank.warnings == ()


def test_bare_list_without_its_end_is_truncated(tmp_path: Path) -> None:
    rank = read(tmp_path, json.dumps(EVENTS).removesuffix("]"))
    assert rank.truncated
    assert len(rank.operations) == 2


def test_compression_is_told_by_the_bytes(tmp_path: Path) -> None:
    text = json.dumps(document(EVENTS)).encode()
    expected = read(tmp_path, text)
    half = len(text) // 2
    for data in (
        gzip.compress(text),
        gzip.compress(text[:half]) + gzip.compress(text[half:]) + b"\0" * 100,
        zstandard.compress(text),
        zstandard.compress(text[:half]) + zstandard.compress(text[half:]),
    ):
        found = read(tmp_path, data)
        same(expected, found)
        assert found.warnings == ()


def test_sniff() -> None:
    assert kineto.sniff(b'\n  {\n    "schemaVersion": 1,\n    "deviceProperties": [')
    assert kineto.sniff(b'\xef\xbb\xbf{"traceEvents":[]}')
    assert kineto.sniff(b'[\n{"ph": "X", "cat": "kernel"')
    for other in (b"", b"[1, 2]", b'{"schema_version": 1}', b"SQLite format 3\0", b"<html>", b"[]"):
        assert not kineto.sniff(other)


# -- random events in random layouts, cut everywhere -----------------------------------------------

_TEXT = st.text(
    st.one_of(st.sampled_from('"\\{}[],: \n\t'), st.characters(codec="utf-8")), max_size=12
)
_VALUE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 10**12), st.floats(-1e9, 1e9), _TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_TEXT, inner, max_size=3)),
    max_leaves=6,
)
_EVENT = st.fixed_dictionaries(
    {"ph": st.just("X"), "ts": st.integers(0, 10**15), "dur": st.integers(0, 10**6)},
    optional={
        "cat": st.sampled_from(["kernel", "cpu_op", "cuda_runtime", "python_function"]),
        "name": _TEXT,
        "pid": st.one_of(st.integers(0, 9), _TEXT),
        "tid": st.one_of(st.integers(0, 9), _TEXT),
        "args": st.dictionaries(_TEXT, _VALUE, max_size=4),
    },
)


class _Gathered:
    """Takes batches, and keeps what can be compared."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.texts: list[Any] = []

    def __call__(self, events: Sequence[Any], text: bytes) -> None:
        for item in events:
            assert isinstance(item, Complete)
            self.events.append((item.cat, item.name, item.pid, item.tid, bytes(item.ts), item.dur))
        listed = json.loads(text)
        assert len(listed) == len(events)
        self.texts += listed


def _scan(text: bytes, block_bytes: int) -> tuple[_Gathered, Document, Anomalies]:
    gathered, anomalies = _Gathered(), Anomalies()
    blocks = (text[at : at + block_bytes] for at in range(0, len(text), block_bytes))
    return gathered, read_document(blocks, gathered, anomalies), anomalies


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    events=st.lists(_EVENT, max_size=6),
    indent=st.sampled_from([None, 0, 1, 4, "\t"]),
    compact=st.booleans(),
    before=st.dictionaries(_TEXT, _VALUE, max_size=2),
    after=st.dictionaries(_TEXT, _VALUE, max_size=2),
    ascii_only=st.booleans(),
    data=st.data(),
)
def test_random_events_cut_anywhere(
    events: list[Event],
    indent: Any,
    compact: bool,
    before: dict[str, Any],
    after: dict[str, Any],
    ascii_only: bool,
    data: st.DataObject,
) -> None:
    whole = {**before, "traceEvents": events, **after}
    whole["traceEvents"] = events
    separators = (",", ":") if compact else None
    text = json.dumps(whole, indent=indent, separators=separators, ensure_ascii=ascii_only).encode()
    expected = [
        (
            item.get("cat"),
            item.get("name"),
            item.get("pid"),
            item.get("tid"),
            str(item["ts"]).encode(),
            float(item["dur"]),
        )
        for item in events
    ]
    for block_bytes in {1, data.draw(st.integers(1, 40)), data.draw(st.integers(1, len(text)))}:
        gathered, found, anomalies = _scan(text, block_bytes)
        assert gathered.events == expected
        assert gathered.texts == events
        assert not found.truncated
        assert not anomalies.counts
        header = {key: json.loads(value) for key, value in found.header.items()}
        keys = {json.dumps(key)[1:-1] if ascii_only else key for key in {**before, **after}}
        assert {key for key in header if "\\" not in key} <= keys


@settings(max_examples=25, deadline=None)
@given(
    events=st.lists(_EVENT, min_size=1, max_size=4),
    indent=st.sampled_from([None, 1]),
    block_bytes=st.sampled_from([5, 33, 1 << 16]),
)
def test_truncated_anywhere(events: list[Event], indent: int | None, block_bytes: int) -> None:
    text = json.dumps(events, indent=indent).encode()
    ends = _ends(text)
    assert len(ends) == len(events)
    for size in range(1, len(text), 1 + len(text) // 60):
        gathered, found, anomalies = _scan(text[:size], block_bytes)
        assert len(gathered.events) == sum(end <= size for end in ends)
        assert found.truncated
        assert not anomalies.counts


def _ends(text: bytes) -> list[int]:
    """Where each object of the list ends."""
    decoder = json.JSONDecoder()
    letters = text.decode("ascii")
    ends, at = [], letters.index("{")
    while True:
        _, end = decoder.raw_decode(letters, at)
        ends.append(end)
        at = letters.find("{", end)
        if at < 0:
            return ends


def test_every_table_is_compared() -> None:
    compared = {"GpuOperations", "LaunchConfigs", "HostCalls", "HostEvents", "Synchronizations",
                "Collectives", "Threads"}  # fmt: skip
    assert compared <= {table.__name__ for table in TABLES}
