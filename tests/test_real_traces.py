"""From real recordings to the report: partitions, references, known counts and corner cases.

The files come from six releases of torch, NVIDIA and AMD GPUs, and seven schemas of nsys; README
of the traces says what is in each. Reference numbers were computed by others, or by the plain
Python at the end of this file, never by the code under test.
"""

from __future__ import annotations

import csv
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner

from tests.traces import ROOT, real_trace
from trace_analyzer.analyses.steps import BEFORE_FIRST
from trace_analyzer.analyses.study import RankStudy, Study, study
from trace_analyzer.assembly import build_report
from trace_analyzer.cli import cli
from trace_analyzer.findings import encode, json_schema
from trace_analyzer.readers.discovery import open_run

H200 = ("healthy", "item_sync", "nccl_1ch", "slow_cpu_rank", "slow_loader")
H200_FILES = (*(f"{run}/rank{r}.pt.trace.json.gz" for run in H200 for r in (0, 1)),
              "t1/rank0.pt.trace.json.gz")  # fmt: skip
HTA = "HolisticTraceAnalysis"
TRACELENS_H100 = "TraceLens/h100/google_owlv2-large-patch14-ensemble__1016001.json.gz"
DLRM = {0: 545, 1: 556, 2: 554, 3: 557, 4: 547, 5: 549, 6: 553, 7: 553}
PUBLIC_FILES = (
    *(f"param/dlrm_kineto/worker{n}_step_12.1694128201{t}.pt.trace.json" for n, t in DLRM.items()),
    f"{HTA}/nccl_parser_config/nccl_data.json.gz",
    f"{HTA}/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    f"{HTA}/negative_queue_length/rank0.json.gz",
    f"{HTA}/trace_diff/control.json.gz",
    f"{HTA}/trace_diff/test.json.gz",
    f"{HTA}/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz",
    "kineto/resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz",
    TRACELENS_H100,
    "TraceLens/b200/eager_trace.json.gz",
)
WITHOUT_GPU = (
    f"{HTA}/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
    f"{HTA}/distributed_info_unavailable/distributed_info_not_found.json.gz",
)
NSYS_FILES = (
    *(f"h200-ddp-nsys/{run}.sqlite" for run in (*H200, "healthy_payload")),
    "public-nsys/bolongcheng_small_fwd_A100.sqlite",
    "public-nsys/lizhieffe_ddp53_profile.sqlite",
    "public-nsys/nsysai_h100_2gpu_1s.sqlite",
    "public-nsys/nsysai_healthy_1pct.sqlite",
    "public-nsys/nsysai_mfu_2gpu_before.sqlite",
    "public-nsys/pipit_saxpy_mpi.sqlite",
)
REFERENCES = (
    *(("h200-ddp", name) for name in H200_FILES),
    *(("public", name) for name in PUBLIC_FILES),
)
WITH_GPU = (*(f"{folder}/{name}" for folder, name in REFERENCES), *NSYS_FILES)
RUNS = (
    *(f"h200-ddp/{run}" for run in (*H200, "t1")),
    "public/param/dlrm_kineto",
    *(f"public/{name}" for name in (*PUBLIC_FILES[len(DLRM) :], *WITHOUT_GPU)),
    *NSYS_FILES,
)


@cache
def _study(path: Path) -> Study:
    return study(open_run(str(path)))


def _studied(relative: str) -> Study:
    return _study(real_trace(relative))


def _only(relative: str) -> RankStudy:
    (item,) = _studied(relative).ranks.values()
    return item


@pytest.mark.parametrize("relative", WITH_GPU)
def test_parts_sum_to_the_window_and_to_each_step(relative: str) -> None:
    ranks = _studied(relative).ranks
    assert ranks
    for item in ranks.values():
        for parts in (item.window, item.parts):
            total = parts.compute_ns + parts.comm_exposed_ns + parts.copy_exposed_ns + parts.idle_ns
            np.testing.assert_array_equal(total, parts.length_ns)
        np.testing.assert_array_equal(item.parts.length_ns, item.steps.length_ns)


@pytest.mark.parametrize("relative", WITH_GPU)
def test_window_is_head_steps_and_tail(relative: str) -> None:
    for item in _studied(relative).ranks.values():
        steps = item.steps
        window_ns = steps.window_end_ns - steps.window_start_ns
        assert window_ns == int(item.window.length_ns[0])
        assert steps.head_ns + int(steps.length_ns.sum()) + steps.tail_ns == window_ns
        assert steps.tail_ns >= 0
        assert steps.head_ns >= 0 or steps.partial
        np.testing.assert_array_equal(steps.start_ns[1:], steps.end_ns[:-1])
        assert bool((steps.length_ns > 0).all())


@pytest.mark.parametrize("relative", WITH_GPU)
def test_idle_causes_sum_to_idle(relative: str) -> None:
    for item in _studied(relative).ranks.values():
        idle = item.idle
        np.testing.assert_array_equal(
            idle.launch_ns + idle.latency_ns + idle.other_ns, item.parts.idle_ns
        )
        np.testing.assert_array_equal(
            np.sum(list(idle.launch_by_host.values()), axis=0), idle.launch_ns
        )


def _reference(folder: str) -> dict[str, dict[str, str]]:
    with real_trace(f"{folder}/REFERENCE.csv").open(encoding="utf-8", newline="") as stream:
        return {row["file"]: row for row in csv.DictReader(stream)}


def test_references_are_complete() -> None:
    assert set(_reference("h200-ddp")) == set(H200_FILES)
    assert set(_reference("public")) == set(PUBLIC_FILES)


@pytest.mark.parametrize(("folder", "name"), REFERENCES, ids=[name for _, name in REFERENCES])
def test_numbers_equal_the_reference(folder: str, name: str) -> None:
    truth = _reference(folder)[name]
    item = _only(f"{folder}/{name}")
    window = item.window
    comm_ns, exposed_ns = int(window.comm_ns[0]), int(window.comm_exposed_ns[0])
    found = {
        "window": int(window.length_ns[0]),
        "compute": int(window.compute_ns[0]),
        "comm": comm_ns,
        "idle": int(window.idle_ns[0]),
        "noncompute": exposed_ns + int(window.copy_exposed_ns[0]),
    }
    assert found == {part: int(Decimal(truth[f"TRUE_{part}_us"]) * 1000) for part in found}
    overlap_pct = round(100 * (comm_ns - exposed_ns) / comm_ns, 2) if comm_ns else None
    assert overlap_pct == (float(truth["TRUE_overlap_pct"]) if comm_ns else None)
    assert len(item.rank.operations) == int(truth["TRUE_gpu_events"])
    assert item.rank.rank == int(truth["rank"])


@pytest.mark.parametrize("relative", NSYS_FILES)
def test_numbers_of_nsys_equal_a_plain_computation(relative: str) -> None:
    expected = _plain_nsys(real_trace(relative))
    found = [
        {
            "operations": len(item.rank.operations),
            "window": int(item.window.length_ns[0]),
            "compute": int(item.window.compute_ns[0]),
            "comm": int(item.window.comm_ns[0]),
            "idle": int(item.window.idle_ns[0]),
        }
        for item in _studied(relative).ranks.values()
    ]
    assert found == expected


@pytest.mark.parametrize("source", ["h200-ddp/{}", "h200-ddp-nsys/{}.sqlite"])
@pytest.mark.parametrize("run", H200)
def test_nccl_has_the_same_launch_shape_in_kineto_and_nsys(source: str, run: str) -> None:
    rows = _studied(source.format(run)).collectives
    channels = 1 if run == "nccl_1ch" else 24
    assert {row.key.operation for row in rows} == {"allreduce"}
    assert {row.key.shape.grid for row in rows} == {(channels, 1, 1)}
    assert {row.key.shape.block for row in rows} == {(544, 1, 1)}


def test_message_sizes_are_the_same_in_kineto_and_nsys() -> None:
    kineto, nsys = (
        {
            row.key.message_bytes: len(row.all_durations_ns) / (2 * steps)
            for row in _studied(relative).collectives
            if row.key.message_bytes is not None
        }
        for relative, steps in (
            ("h200-ddp/healthy", 5),
            ("h200-ddp-nsys/healthy_payload.sqlite", 6),
        )
    )
    assert kineto == nsys
    assert sum(kineto.values()) == 14
    assert round(sum(size * count for size, count in kineto.items()) / 1e6, 1) == 682.0


NCCL_TOTAL_NS = {
    "healthy": (23718465, 125579068),
    "slow_cpu_rank": (230041436, 17304341),
    "slow_loader": (22136328, 154252284),
    "nccl_1ch": (217852398, 220941883),
    "item_sync": (30461216, 41837945),
    "healthy_payload": (23718465, 125579068),
}


@pytest.mark.parametrize(("run", "total_ns"), NCCL_TOTAL_NS.items(), ids=NCCL_TOTAL_NS)
def test_nccl_counts_and_totals_of_nsys(run: str, total_ns: tuple[int, int]) -> None:
    rows = _studied(f"h200-ddp-nsys/{run}.sqlite").collectives
    for rank in (0, 1):
        durations = [row.duration_ns[rank] for row in rows if rank in row.duration_ns]
        assert sum(len(values) for values in durations) == 84
        assert sum(int(values.sum()) for values in durations) == total_ns[rank]


def test_nccl_of_a_two_process_ddp_export() -> None:
    rows = _studied("public-nsys/lizhieffe_ddp53_profile.sqlite").collectives
    for rank in (0, 1):
        counts: Counter[tuple[str, str | None, int, int]] = Counter()
        for row in rows:
            grid, block = row.key.shape.grid, row.key.shape.block
            assert grid
            assert block
            dtype = re.search(r"_(bf16|f32|u64)_", row.key.kernel)
            key = (row.key.operation, dtype and dtype[1], grid[0], block[0])
            counts[key] += len(row.duration_ns.get(rank, ()))
        assert counts == {
            ("broadcast", None, 4, 544): 86,
            ("broadcast", None, 1, 128): 25,
            ("allreduce", "bf16", 4, 544): 86,
            ("allreduce", "bf16", 1, 128): 25,
            ("allreduce", "f32", 1, 128): 3,
            ("allreduce", "u64", 1, 128): 5,
        }

    def total_ms(rank: int, kernel: str, least_channels: int) -> float:
        total_ns = sum(
            int(row.duration_ns[rank].sum())
            for row in rows
            if kernel in row.key.kernel and (row.key.shape.grid or (0,))[0] >= least_channels
        )
        return round(total_ns / 1e6, 1)

    assert [total_ms(rank, "Broadcast", 4) for rank in (0, 1)] == [147.1, 14.2]
    assert [total_ms(rank, "_bf16_", 4) for rank in (0, 1)] == [31.3, 28.3]


def test_send_and_receive_of_an_export_without_payload() -> None:
    rows = _studied("public-nsys/nsysai_mfu_2gpu_before.sqlite").collectives
    chosen = [row for row in rows if row.key.shape.block == (640, 1, 1)]
    assert {row.key.shape.grid for row in chosen} == {(32, 1, 1)}
    totals = []
    for rank in (0, 1):
        durations = np.concatenate([row.duration_ns[rank] for row in chosen])
        assert len(durations) == 33
        totals.append(round(int(durations.sum()) / 1e6, 2))
    assert totals == [17.17, 8.23]


@pytest.mark.parametrize(
    ("relative", "first_ms", "steps"),
    [
        (f"public/{HTA}/negative_queue_length/rank0.json.gz", 216, 5),
        (f"public/{HTA}/trace_diff/test.json.gz", 118, 6),
    ],
)
def test_unlinked_backlog_of_graph_kernels_ends_before_the_first_step(
    relative: str, first_ms: float, steps: int
) -> None:
    found = _only(relative).steps
    assert found.length_ns[0] / 1e6 == pytest.approx(first_ms, abs=1)
    assert len(found) == steps
    assert bool((found.operation_step == BEFORE_FIRST).any())


def test_step_without_gpu_work_is_named() -> None:
    relative = f"public/{HTA}/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz"
    item = _only(relative)
    assert item.steps.partial
    assert item.steps.index.tolist() == [1]
    report = build_report(_studied(relative).run)
    told = [w.message for w in report.warnings if w.code == "TRC010"]
    assert any("finish no GPU work of their own: 2" in message for message in told)
    assert any("no complete step" in message for message in told)


@pytest.mark.parametrize("workers", [0, 4])
def test_first_step_without_known_start_is_excluded(workers: int) -> None:
    name = next(name for name in PUBLIC_FILES if f"num_workers_{workers}/" in name)
    item = _only(f"public/{name}")
    assert item.steps.index.tolist() == [6, 7, 8, 9, 10]
    assert [number for number, _ in item.steps.excluded] == [5]


@pytest.mark.parametrize("run", H200)
def test_backlog_of_earlier_steps_is_head(run: str) -> None:
    ranks = _studied(f"h200-ddp/{run}").ranks
    assert sorted(ranks) == [0, 1]
    for item in ranks.values():
        steps = item.steps
        assert steps.index.tolist() == [3, 4, 5, 6, 7]
        assert not steps.partial
        assert steps.excluded == ()
        backlog = steps.operation_step == BEFORE_FIRST
        assert int(backlog.sum()) > 0
        assert steps.head_ns > 0
        assert int(item.rank.operations.end_ns[backlog].max()) == int(steps.start_ns[0])


@pytest.mark.parametrize("relative", WITHOUT_GPU)
def test_recording_without_gpu_says_so(relative: str) -> None:
    report = build_report(_studied(f"public/{relative}").run)
    assert "No GPU operation was recorded" in report.verdict.headline
    assert report.verdict.state == "no-verdict"
    assert [rank.window for rank in report.ranks] == [None]


def test_recording_without_steps_divides_the_window() -> None:
    report = build_report(_studied("public/TraceLens/b200/eager_trace.json.gz").run)
    assert "TRC010" in {warning.code for warning in report.warnings}
    (rank,) = report.ranks
    assert rank.step is None
    assert rank.window is not None
    assert rank.window.window_ms == rank.window.head_ms == 84.487178


@pytest.mark.parametrize("relative", RUNS)
def test_report_is_valid(relative: str) -> None:
    document = json.loads(encode(build_report(_studied(relative).run)))
    validator = jsonschema.Draft202012Validator(json_schema())
    assert [error.message for error in validator.iter_errors(document)] == []
    # What a reader of the JSON adds up, in the digits that are printed.
    for rank in document["ranks"]:
        for parts, whole in [
            (rank["window"], "window_ms"),
            *((s, "step_ms") for s in rank["steps"]),
        ]:
            if parts is not None:
                names = ("compute_ms", "comm_exposed_ms", "copy_exposed_ms", "idle_ms")
                assert sum(_ns(parts[name]) for name in names) == _ns(parts[whole])


def _ns(ms: float) -> int:
    return round(ms * 1e6)


@pytest.mark.parametrize(
    "relative", ["h200-ddp/slow_loader", "public-nsys/lizhieffe_ddp53_profile.sqlite"]
)
def test_same_input_gives_the_same_bytes(relative: str) -> None:
    command = [sys.executable, "-m", "trace_analyzer", "analyze", str(real_trace(relative))]
    outputs = [
        subprocess.run(
            [*command, "--json", "-", "--quiet"],
            check=True,
            capture_output=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) > 10_000


BASE = {
    "window_ms": 435.587561,
    "compute_ms": 10.576115,
    "idle_ms": 403.936241,
    "comm_ms": 24.289050,
}
REPAIRED = {  # defect: codes that must be among the warnings, beside those of the baseline
    "baseline": set(),
    "inf_in_args": {"TRC009"},
    "invalid_utf8": {"TRC009"},
    "raw_newline_in_string": {"TRC009"},
    "gpu_missing_stream": {"TRC009"},
    "string_ts_dur": {"TRC009"},
    "no_distributedInfo": set(),
    "no_correlation": {"TRC004"},
    "compact_json": set(),
    "no_ProfilerStep": set(),
    "duplicate_events": {"TRC009"},
    "no_device": set(),
    "missing_name": {"TRC009"},
    "bom_utf8": set(),
    "NA_unquoted": {"TRC009"},
}  # fmt: skip
OTHERS = {"truncated_json", "cpu_only", "empty_events", "zero_ts_dur"}


def _analyze(defect: str) -> tuple[int, str, dict[str, Any] | None]:
    path = real_trace(f"malformed/{defect}")
    result = CliRunner().invoke(
        cli, ["analyze", str(path), "--json", "-"], prog_name="trace-analyzer"
    )
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stderr, json.loads(result.stdout) if result.stdout else None


def test_every_malformed_input_is_tried() -> None:
    assert {path.name for path in real_trace("malformed").iterdir()} == {*REPAIRED, *OTHERS}


@pytest.mark.parametrize("defect", REPAIRED)
def test_malformed_input_gives_the_numbers_of_the_base(defect: str) -> None:
    code, _, document = _analyze(defect)
    assert code == 0
    assert document is not None
    (rank,) = document["ranks"]
    found = {name: rank["window"][name] for name in BASE}
    if defect != "missing_name":  # a kernel without a name may have been communication
        assert found == BASE
    assert found["window_ms"] == BASE["window_ms"]
    assert found["idle_ms"] == BASE["idle_ms"]
    assert REPAIRED[defect] <= {warning["code"] for warning in document["warnings"]}


def test_malformed_input_with_other_numbers() -> None:
    code, _, document = _analyze("truncated_json")
    assert code == 0
    assert document is not None
    assert "TRC001" in {warning["code"] for warning in document["warnings"]}
    code, _, document = _analyze("cpu_only")
    assert code == 0
    assert document is not None
    assert "No GPU operation was recorded" in document["verdict"]["headline"]
    code, _, document = _analyze("zero_ts_dur")
    assert code == 0
    assert document is not None
    assert [source["gpu_operations"] for source in document["run"]["sources"]] == [343]
    assert document["ranks"][0]["window"]["window_ms"] <= BASE["window_ms"]
    assert any(warning["count"] == 9 for warning in document["warnings"])


def test_malformed_input_without_events_is_refused_in_one_line() -> None:
    code, stderr, document = _analyze("empty_events")
    assert code == 2
    assert document is None
    assert stderr.count("\n") == 1
    assert "rank0.pt.trace.json" in stderr


# An independent computation of the window of nsys exports: plain SQL and lists.

_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
)


def _plain_nsys(path: Path) -> list[dict[str, int]]:
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as database:
        have = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        strings = dict(database.execute("SELECT id, value FROM StringIds"))
        rows = []
        for table in _TABLES:
            if table not in have:
                continue
            columns = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
            pid = "globalPid" if "globalPid" in columns else "0"
            name = "shortName" if table.endswith("KERNEL") else "NULL"
            rows += database.execute(f"SELECT {pid}, start, end, {name} FROM {table}").fetchall()
    found = []
    for process in sorted({row[0] for row in rows}):
        own = [row for row in rows if row[0] == process]
        names = [None if row[3] is None else strings[row[3]] for row in own]
        spans = [(row[1], row[2]) for row in own]
        is_comm = [name is not None and name.startswith("nccl") for name in names]
        is_kernel = [name is not None for name in names]
        start, end = min(s for s, _ in spans), max(e for _, e in spans)
        compute = [s for s, k, c in zip(spans, is_kernel, is_comm, strict=True) if k and not c]
        found.append({
            "operations": len(own),
            "window": end - start,
            "compute": _covered(compute),
            "comm": _covered([s for s, c in zip(spans, is_comm, strict=True) if c]),
            "idle": end - start - _covered(spans),
        })  # fmt: skip
    return found


def _covered(spans: list[tuple[int, int]]) -> int:
    total, reach = 0, -1
    for start, end in sorted(spans):
        total += max(end - max(start, reach), 0)
        reach = max(reach, end)
    return total
