"""Benchmarks of ours as references: what is read, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trace_analyzer.bench_facts import BenchLink, BenchResult, BenchSize
from trace_analyzer.bundle import Role
from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.readers.bench_results import read
from trace_analyzer.readers.sidecars import SidecarFile, read_sidecars


def head(kind: str, **changes: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "kind": kind,
        "tool": {"name": "trace-analyzer", "version": "0"},
        "started": "2026-01-01T00:00:00Z",
        "device": "cuda",
        "ranks": 2,
        "repetitions": 50,
        "statistic": "median",
        "backend": "nccl",
        "gpus": ["NVIDIA H200", "NVIDIA H200"],
        "versions": {},
        "variables": {},
        **changes,
    }


def size(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "bytes": number,
        "time_us": 12.5,
        "time_interval_us": [12, 13.5],
        "algbw_gbs": 290.0,
        "busbw_gbs": 290.0,
        "busbw_interval_gbs": [288.0, 292.0],
        "share_of_limit": 0.6,
        **changes,
    }


def allreduce(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return head(
        "allreduce",
        dtype="Float",
        limit={"gbs": 478.0, "basis": "18 NVLinks of 26.562 GB/s"},
        fit={
            "latency_us": 20.0,
            "latency_interval_us": [19.0, 21.0],
            "busbw_gbs": 330.0,
            "busbw_interval_gbs": [328.0, 333.0],
            "largest_relative_residual": 0.1,
        },
        rows=list(rows) or [size(1 << 20)],
    ) | changes  # fmt: skip


def link(src: int, dst: int, **changes: Any) -> dict[str, Any]:
    return {
        "src": src,
        "dst": dst,
        "bytes": 1 << 28,
        "latency_us": 9.0,
        "latency_interval_us": [8.5, 9.5],
        "bandwidth_gbs": 371.5,
        "bandwidth_interval_gbs": [371.0, 372.0],
        "limit_gbs": None,
        "limit_basis": None,
        **changes,
    }


def links(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return head("links", rows=list(rows) or [link(1, 0), link(0, 1)], both_directions=[]) | changes


def write(tmp_path: Path, document: object) -> Path:
    path = tmp_path / "bench_x.json"
    path.write_text(json.dumps(document))
    return path


def test_allreduce(tmp_path: Path) -> None:
    result = read(write(tmp_path, allreduce(size(1 << 22), size(1 << 20))), display="b.json")
    assert isinstance(result, BenchResult)
    assert (result.path, result.kind, result.ranks, result.is_reference) == (
        "b.json",
        "allreduce",
        2,
        True,
    )
    assert (result.latency_us, result.busbw_gbs, result.dtype) == (20.0, 330.0, "Float")
    assert (result.limit_gbs, result.limit_basis) == (478.0, "18 NVLinks of 26.562 GB/s")
    assert [item.bytes for item in result.sizes] == [1 << 20, 1 << 22]
    assert result.sizes[0] == BenchSize(
        bytes=1 << 20,
        time_us=12.5,
        time_interval_us=(12.0, 13.5),
        busbw_gbs=290.0,
        busbw_interval_gbs=(288.0, 292.0),
    )
    assert result.links == ()


def test_links(tmp_path: Path) -> None:
    result = read(write(tmp_path, links(link(1, 0, limit_gbs=478.0, limit_basis="x"), link(0, 1))))
    assert isinstance(result, BenchResult)
    assert [(item.source, item.destination) for item in result.links] == [(0, 1), (1, 0)]
    assert result.links[0] == BenchLink(
        source=0,
        destination=1,
        bytes=1 << 28,
        latency_us=9.0,
        latency_interval_us=(8.5, 9.5),
        bandwidth_gbs=371.5,
        bandwidth_interval_gbs=(371.0, 372.0),
        limit_gbs=None,
        limit_basis="",
    )
    assert (result.links[1].limit_gbs, result.links[1].limit_basis) == (478.0, "x")
    assert result.busbw_gbs is None


def test_a_benchmark_of_the_cpu_is_no_reference(tmp_path: Path) -> None:
    document = links(device="cpu", backend="gloo", gpus=[])
    result = read(write(tmp_path, document))
    assert isinstance(result, BenchResult)
    assert not result.is_reference


def test_no_limit(tmp_path: Path) -> None:
    result = read(write(tmp_path, allreduce(limit=None)))
    assert isinstance(result, BenchResult)
    assert (result.limit_gbs, result.limit_basis) == (None, "")


@pytest.mark.parametrize("kind", ["step", "nccl-env", "later"])
def test_other_kinds_bound_no_link(tmp_path: Path, kind: str) -> None:
    assert read(write(tmp_path, head(kind))) is None


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "not a JSON object"),
        (allreduce(schema_version=2), "schema 2 is not 1"),
        (allreduce(rows=[{"bytes": 1}]), "missing required field"),
        (allreduce(fit=None), "expected `object`, got `null`"),
        (allreduce(size(8, busbw_gbs=-1.0)), "expected `float` > 0"),
        (allreduce(size(8, busbw_gbs=float("inf"))), "not finite"),
        (allreduce(size(8, time_interval_us=[1.0, float("nan")])), "not finite"),
        (links(link(-1, 0)), "expected `int` >= 0"),
        (links(link(0, 1, bandwidth_interval_gbs=[1.0])), "expected `array` of length 2"),
    ],
)
def test_refusals(tmp_path: Path, document: object, problem: str) -> None:
    with pytest.raises(UnreadableInputError, match=problem) as caught:
        read(write(tmp_path, document), display="bench_x.json")
    assert str(caught.value).startswith("bench_x.json: ")
    assert "\n" not in str(caught.value)


def test_a_run_holds_its_benchmarks(tmp_path: Path) -> None:
    good = write(tmp_path, links())
    other = tmp_path / "bench_step.json"
    other.write_text(json.dumps(head("step")))
    bad = tmp_path / "bench_bad.json"
    bad.write_text("{}")
    found = read_sidecars(
        SidecarFile(path=path, name=path.name, role=Role.BENCH) for path in (good, other, bad)
    )
    assert [result.kind for result in found.bench] == ["links"]
    (warning,) = found.warnings
    assert (warning.code, warning.message) == (
        "TRC009",
        "bench_bad.json: benchmark schema None is not 1",
    )
    assert warning.effect == "left out: the bench file bench_bad.json"
