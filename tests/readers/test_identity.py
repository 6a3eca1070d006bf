"""What the beginning (and end) of a file tells about whose recording it is."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.recordings import BASE_NS, START_US, Kineto, nsys
from trace_analyzer.readers.content import Content, examine, expand_head
from trace_analyzer.readers.identity import identify_kineto, identify_nsys, with_end

END_NS = BASE_NS + START_US * 1000 + 4 * 1_000_000


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_kineto_trace(tmp_path: Path, name: str) -> None:
    path = Kineto(rank=3, world_size=8, pid=77, host="node1").write(tmp_path / name)
    found = identify_kineto(path)
    assert (found.rank, found.world_size, found.pids, found.host) == (3, 8, (77,), "node1")
    assert found.start_ns == BASE_NS + START_US * 1000
    assert (found.base_ns, found.first_step, found.sequence) == (BASE_NS, 3, 10)
    assert found.versions == (("cuda_runtime_version", "13000"),)
    end_ns = with_end(path, found).end_ns
    assert end_ns is not None
    assert END_NS - 1_000_000 <= end_ns <= END_NS


def test_times_from_1970_need_no_base(tmp_path: Path) -> None:
    trace = Kineto(base_ns=None, start_us=1_694_128_201_426_556)
    found = identify_kineto(trace.write(tmp_path / "a.json"))
    assert (found.start_ns, found.base_ns) == (1_694_128_201_426_556_000, 0)


def test_a_number_that_the_head_cuts_is_not_believed(tmp_path: Path) -> None:
    text = Kineto(steps=2000).text()
    path = tmp_path / "a.json"
    for cut in range(200_000, 200_400):
        path.write_text(text[:cut])
        assert identify_kineto(path).start_ns == BASE_NS + START_US * 1000


def test_a_header_that_fills_the_first_read(tmp_path: Path) -> None:
    document = Kineto(rank=5, world_size=8).document()
    events = document.pop("traceEvents")
    document["distributedInfo"]["pg_config"] = [{"ranks": list(range(100_000))}]
    document["traceEvents"] = events
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document))
    found = identify_kineto(path)
    assert (found.rank, found.start_ns) == (5, BASE_NS + START_US * 1000)


@pytest.mark.parametrize("content", [b"", b"{}", b"\x1f\x8b\x08", b"\xff" * 100])
def test_what_tells_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    found = identify_kineto(path)
    assert (found.rank, found.pids, found.start_ns, found.end_ns) == (None, (), None, None)
    assert with_end(path, found) == found
    assert identify_nsys(path).pids == ()


def test_an_nsys_export(tmp_path: Path) -> None:
    found = identify_nsys(nsys(tmp_path / "a.sqlite", pids=(7, 5), start_ns=10**18))
    assert (found.pids, found.host) == ((5, 7), "node0")
    assert (found.start_ns, found.end_ns) == (10**18 + 5000, 10**18 + 11 * 100_000 + 85_000)


def test_heads_are_bounded_whatever_the_file_claims() -> None:
    head, problem = expand_head(gzip.compress(b" " * (64 << 20)), 1000)
    assert (head, problem) == (b" " * 1000, "")
    assert expand_head(b"\x1f\x8b\x08\0" + b"x" * 50)[1].startswith("damaged gzip")
    assert expand_head(b"\x28\xb5\x2f\xfd" + b"\xff" * 50)[1].startswith("damaged zstd")
    two = gzip.compress(b"one") + gzip.compress(b"two")
    assert expand_head(two)[0] == b"onetwo"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("x.pt.trace.json.gz", b"", Content.DAMAGED),
        ("rank0.json", b"", Content.DAMAGED),
        ("rank0.json", b'{"loss": 3}', Content.OTHER),
        ("rank0.pt.trace.json", b'{"loss": 3}', Content.DAMAGED),
        ("notes.txt", b"", Content.OTHER),
        ("x.nsys-rep", b"data", Content.NSYS_REPORT),
        ("bundle.json", b"{}", Content.MANIFEST),
        ("nccl_7.log", b"", Content.SIDECAR),
        ("data.bin", b'{"traceEvents": [', Content.KINETO),
        ("data.bin", b'[{"ph": "X"}]', Content.KINETO),
        ("model.pt", b"PK\x03\x04", Content.ARCHIVE),
    ],
)
def test_what_a_file_is(tmp_path: Path, name: str, content: bytes, expected: Content) -> None:
    (tmp_path / name).write_bytes(content)
    assert examine(tmp_path / name).content is expected
