"""Real traces: references to the nanosecond, and what a good reader does with each defect."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import Counter
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.readers.kineto_documents import names, reference_ns
from tests.traces import TRACES, real_trace
from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.kernels import is_communication
from trace_analyzer.model import Rank
from trace_analyzer.readers import kineto
from trace_analyzer.schema import NA_INT32, is_na
from trace_analyzer.tables import CallKind, HostCategory, OperationKind

NS = "HolisticTraceAnalysis/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"
WITHOUT_NUMBERS = {
    "HolisticTraceAnalysis/distributed_info_unavailable/distributed_info_not_found.json.gz",
    "HolisticTraceAnalysis/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
}


def _references() -> list[Any]:
    found = []
    for folder in ("h200-ddp", "public"):
        path = TRACES / folder / "REFERENCE.csv"
        if not path.exists():
            found.append(pytest.param(folder, {"file": "REFERENCE.csv"}, id=folder))
            continue
        with path.open(encoding="utf-8", newline="") as stream:
            found += [
                pytest.param(folder, row, id=f"{folder}/{row['file']}")
                for row in csv.DictReader(stream)
            ]
    return found


@cache
def _read(relative: str) -> Rank:
    return kineto.read(real_trace(relative))


def _document(relative: str) -> dict[str, Any]:
    data = real_trace(relative).read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize(("folder", "row"), _references())
def test_reference_numbers(folder: str, row: dict[str, str]) -> None:
    rank = _read(f"{folder}/{row['file']}")
    found = reference_ns(rank.operations)
    for name in ("window", "compute", "idle", "noncompute", "comm"):
        assert found[name] == Decimal(row[f"TRUE_{name}_us"]) * 1000, name
    assert len(rank.operations) == int(row["TRUE_gpu_events"])
    if row["TRUE_overlap_pct"]:
        share = 100 * found["overlap"] / found["comm"]
        assert f"{share:.2f}" == f"{float(row['TRUE_overlap_pct']):.2f}"
    else:
        assert found["comm"] == 0
    assert rank.warnings == ()
    if rank.rank_basis == "content":
        assert rank.rank == int(row["rank"])


def _expected_counts(document: dict[str, Any]) -> Counter[str]:
    phases = {"s": "flow", "f": "flow", "t": "flow", "M": "metadata", "i": "instant"}
    kinds = {
        "kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset",
        "cuda_runtime": "call", "cuda_driver": "call", "runtime": "call", "operator": "operator",
        "memcpy": "memcpy", "memset": "memset", "cpu_op": "operator",
        "user_annotation": "annotation", "python_function": "python", "overhead": "overhead",
    }  # fmt: skip
    counts: Counter[str] = Counter()
    for item in document["traceEvents"]:
        if item["ph"] != "X":
            counts[f"left_out.{phases[item['ph']]}"] += 1
        else:
            kind = kinds.get(item["cat"].lower())
            counts[kind or f"left_out.{item['cat']}"] += 1
    return counts


@pytest.mark.parametrize(
    "relative",
    [
        "h200-ddp/healthy/rank1.pt.trace.json.gz",
        "public/HolisticTraceAnalysis/trace_diff/test.json.gz",
        "public/HolisticTraceAnalysis/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
        "public/TraceLens/b200/eager_trace.json.gz",
        *(f"public/{name}" for name in sorted(WITHOUT_NUMBERS)),
    ],
)
def test_every_event_is_read_or_counted(relative: str) -> None:
    rank = _read(relative)
    document = _document(relative)
    found = {name: count for name, count in rank.counts.items() if count}
    assert found == dict(_expected_counts(document))
    assert sum(found.values()) == len(document["traceEvents"])


def test_times_are_exact_where_float64_is_not() -> None:
    rank = _read(f"public/{NS}")
    text = gzip.decompress(real_trace(f"public/{NS}").read_bytes()).decode()
    expected = sorted(
        (int(Decimal(ts) * 1000), int((Decimal(ts) + Decimal(dur)) * 1000))
        for category, ts, dur in re.findall(
            r'"ph": "X", "cat": "(\w+)".*?"ts": ([\d.]+), "dur": ([\d.]+)', text, re.DOTALL
        )
        if category in {"kernel", "gpu_memcpy", "gpu_memset"}
    )
    assert len(expected) == 6095
    assert expected == list(
        zip(rank.operations.start_ns.tolist(), rank.operations.end_ns.tolist(), strict=True)
    )
    assert rank.clock_base_ns == 0
    assert rank.host == "node0"


def test_block_size_changes_nothing() -> None:
    relative = "public/HolisticTraceAnalysis/nccl_parser_config/nccl_data.json.gz"
    one = _read(relative)
    for block_bytes in (16 << 10, 100_001, 4 << 20):
        other = kineto.read(real_trace(relative), block_bytes=block_bytes)
        assert list(one.names) == list(other.names)
        assert one.counts == other.counts
        assert one.groups == other.groups
        for table in ("operations", "configs", "calls", "events", "collectives", "threads"):
            left, right = getattr(one, table), getattr(other, table)
            for spec in left.columns():
                np.testing.assert_array_equal(getattr(left, spec.name), getattr(right, spec.name))


def test_h200_rank() -> None:
    rank = _read("h200-ddp/healthy/rank0.pt.trace.json.gz")
    assert (rank.rank, rank.rank_basis, rank.world_size, rank.pid) == (0, "content", 2, 2033)
    assert rank.clock_base_ns == 1790857026000000000
    assert rank.versions["cuda"] == "13.0"
    assert rank.versions["nccl"] == "2.28.9"
    assert [(device.ordinal, device.name, device.sm_count) for device in rank.devices] == [
        (0, "NVIDIA H200", 132),
        (1, "NVIDIA H200", 132),
    ]
    assert [(group.name, group.description, group.size, group.ranks) for group in rank.groups] == [
        ("0", "default_pg", 2, (0, 1))
    ]
    assert rank.capture.record_shapes is True
    steps = [rank.names[name] for name in rank.events.name[
        rank.events.category == HostCategory.ANNOTATION]]  # fmt: skip
    assert sum(name.startswith("ProfilerStep#") for name in steps) == 5
    # 70 collectives carry metadata; the backlog of the step before the window does not.
    with_row = rank.operations.collective != NA_INT32
    assert np.count_nonzero(with_row) == 70
    is_nccl = np.array([is_communication(name) for name in names(rank)])
    assert np.count_nonzero(is_nccl) == 77
    assert is_nccl[with_row].all()
    assert len(rank.collectives) == 70
    assert np.count_nonzero(rank.events.collective != NA_INT32) == 70
    assert sorted(rank.events.collective[rank.events.collective != NA_INT32]) == list(range(70))
    assert {rank.names[name] for name in rank.collectives.operation} == {"allreduce"}
    per_step = rank.collectives.message_bytes.sum() / 5
    assert round(per_step / 1e6, 1) == 682.0
    configs = rank.operations.launch_config[with_row]
    assert set(rank.configs.grid_x[configs]) == {24}
    assert set(rank.configs.block_x[configs]) == {544}


def test_links_of_graph_kernels() -> None:
    rank = _read("public/HolisticTraceAnalysis/negative_queue_length/rank0.json.gz")
    launch = rank.operations.launch
    assert np.count_nonzero(launch == NA_INT32) == 872
    kinds = rank.calls.kind[launch[launch != NA_INT32]]
    assert np.count_nonzero(rank.calls.kind == CallKind.GRAPH_LAUNCH) == 70
    assert np.count_nonzero(kinds == CallKind.GRAPH_LAUNCH) > 70
    linked = launch != NA_INT32
    np.testing.assert_array_equal(
        rank.calls.correlation[launch[linked]], rank.operations.correlation[linked]
    )
    test = _read("public/HolisticTraceAnalysis/trace_diff/test.json.gz")
    assert np.count_nonzero(test.operations.launch == NA_INT32) == 614
    assert np.count_nonzero(test.calls.kind == CallKind.GRAPH_LAUNCH) == 12


def test_files_without_gpu() -> None:
    cpu, lost = (_read(f"public/{name}") for name in sorted(WITHOUT_NUMBERS))
    assert (cpu.rank, cpu.world_size, len(cpu.groups)) == (34, 300, 11)
    assert cpu.groups[0].size == 300
    assert cpu.devices == ()
    assert lost.rank_basis == "unknown"
    for rank in (cpu, lost):
        assert [warning.code for warning in rank.warnings] == ["TRC004"]


def test_rocm() -> None:
    rank = _read(
        "public/HolisticTraceAnalysis/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz"
    )
    assert set(rank.operations.device) == {2}
    assert set(rank.operations.stream) == {0}
    assert not is_na(rank.operations.launch).any()
    kinds = {CallKind(kind) for kind in rank.calls.kind[rank.operations.launch]}
    assert kinds == {CallKind.LAUNCH, CallKind.MEMCPY}


def test_trace_of_2021() -> None:
    rank = _read("public/kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz")
    assert set(rank.operations.stream) == {7}
    assert not is_na(rank.operations.external_id).any()
    assert rank.capture.profile_memory is True
    assert len(rank.threads) == 2
    steps = rank.events.category == HostCategory.ANNOTATION
    found = Counter(rank.names[name].split("#")[0] for name in rank.events.name[steps])
    assert found["ProfilerStep"] == 6


def test_triton_operator_is_no_gpu_work() -> None:
    rank = _read("public/TraceLens/b200/eager_trace.json.gz")
    assert len(rank.groups) == 15  # of 71 in the job: those that this rank is a member of
    assert np.count_nonzero(rank.operations.kind == OperationKind.KERNEL) == 768
    row = int(rank.operations.collective[rank.operations.collective != NA_INT32][0])
    assert rank.names[rank.collectives.operation[row]] == "allgather"
    assert rank.collectives.message_bytes[row] == 201088 * 2
    assert rank.groups[rank.collectives.group[row]].name == "3"


# -- malformed: what the README of the traces asks for ----------------------------------------------

BASE = {
    "window": 435_587_561,
    "compute": 10_576_115,
    "idle": 403_936_241,
    "noncompute": 21_075_205,
    "comm": 24_289_050,
}
# folder: (warnings as code → count)
SAME_NUMBERS: dict[str, dict[str, int]] = {
    "baseline": {},
    "inf_in_args": {"TRC009": 67},
    "invalid_utf8": {"TRC009": 3},
    "raw_newline_in_string": {"TRC009": 1},
    "gpu_missing_stream": {"TRC009": 352},
    "string_ts_dur": {"TRC009": 2078},
    "no_distributedInfo": {},
    "no_correlation": {"TRC009": 352},
    "compact_json": {},
    "no_ProfilerStep": {},
    "duplicate_events": {"TRC009": 36},
    "no_device": {},
    "missing_name": {"TRC009": 18},
    "bom_utf8": {},
    "NA_unquoted": {"TRC009": 3},
}


def _malformed(folder: str) -> Rank:
    (path,) = real_trace(f"malformed/{folder}").iterdir()
    return kineto.read(path)


def _warned(rank: Rank) -> dict[str, int]:
    return {warning.code: warning.count for warning in rank.warnings}


def test_every_malformed_folder_is_tried() -> None:
    others = {"truncated_json", "cpu_only", "empty_events", "zero_ts_dur"}
    assert {path.name for path in real_trace("malformed").iterdir()} == {*SAME_NUMBERS, *others}


@pytest.mark.parametrize("folder", SAME_NUMBERS)
def test_malformed_input_has_the_numbers_of_the_base(folder: str) -> None:
    rank = _malformed(folder)
    found = reference_ns(rank.operations)
    assert {name: found[name] for name in BASE} == BASE
    assert f"{100 * found['overlap'] / found['comm']:.2f}" == "13.72"
    assert len(rank.operations) == 352
    assert _warned(rank) == SAME_NUMBERS[folder]
    assert len(rank.warnings) == len(SAME_NUMBERS[folder])
    assert not rank.truncated
    unknown = folder == "no_distributedInfo"
    assert (rank.rank, rank.rank_basis) == (0, "unknown" if unknown else "content")
    assert rank.world_size == (None if unknown else 2)


def test_details_of_malformed_input() -> None:
    assert set(_malformed("no_device").operations.device) == {0}
    base = _malformed("baseline")
    missing = _malformed("gpu_missing_stream")
    np.testing.assert_array_equal(missing.operations.stream, base.operations.stream)
    lost = _malformed("no_correlation")
    assert is_na(lost.operations.launch).all()
    assert not is_na(base.operations.launch).any()
    nameless = _malformed("missing_name")
    assert Counter(names(nameless))["unknown"] == 14
    damaged = _malformed("invalid_utf8")
    assert "aten::c\ufffd\ufffdopy_" in damaged.names
    newline = _malformed("raw_newline_in_string")
    assert any("\n" in name for name in newline.names)
    steps = [name for name in _malformed("no_ProfilerStep").names if "ProfilerStep" in name]
    assert steps == []


def test_truncated_json() -> None:
    rank = _malformed("truncated_json")
    assert rank.truncated
    (warning,) = rank.warnings
    assert warning.code == "TRC001"
    kept = len(rank.operations) + len(rank.calls) + len(rank.events)
    assert f"complete events kept: {kept}" in warning.message
    (path,) = real_trace("malformed/truncated_json").iterdir()
    text = gzip.decompress(path.read_bytes()).decode()
    complete = text[text.index('"traceEvents"') :].count("\n  }")
    assert kept + sum(n for key, n in rank.counts.items() if key.startswith("left_out")) == complete
    assert rank.rank_basis == "content"
    assert rank.clock_base_ns is None  # it stood behind the events


def test_cpu_only() -> None:
    rank = _malformed("cpu_only")
    assert len(rank.operations) == 0
    assert len(rank.calls) == 376
    (warning,) = rank.warnings
    assert warning.code == "TRC004"
    assert "no GPU operation" in warning.message


def test_empty_events() -> None:
    with pytest.raises(UnreadableInputError, match="nothing was recorded") as caught:
        _malformed("empty_events")
    assert "\n" not in str(caught.value)
    assert "rank0.pt.trace.json" in str(caught.value)


def test_zero_ts_dur() -> None:
    rank = _malformed("zero_ts_dur")
    assert len(rank.operations) == 343
    assert _warned(rank) == {"TRC007": 9}
    base = _malformed("baseline")
    assert rank.operations.start_ns.min() >= base.operations.start_ns.min()
    assert reference_ns(rank.operations)["window"] <= BASE["window"]


def test_every_sample_file_is_recognised() -> None:
    for path in sorted(real_trace("public").rglob("*.json*")):
        data = path.read_bytes()
        head = gzip.decompress(data)[:4096] if data[:2] == b"\x1f\x8b" else data[:4096]
        assert kineto.sniff(head), path
    for other in sorted(real_trace("h200-ddp").rglob("*.json")):
        assert not kineto.sniff(Path(other).read_bytes()), other
