"""From real recordings to the report: partitions, references and corner cases.

Reference numbers were computed by others, or by `plain_nsys`, never by the code under test.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from decimal import Decimal

import jsonschema
import numpy as np
import pytest

from tests.plain_nsys import plain_windows
from tests.real_runs import (
    H200,
    H200_FILES,
    HTA,
    NSYS_FILES,
    PUBLIC_FILES,
    REFERENCES,
    RUNS,
    WITH_GPU,
    WITHOUT_GPU,
    only,
    studied,
)
from tests.traces import ROOT, real_trace
from trace_analyzer.analyses.steps import BEFORE_FIRST
from trace_analyzer.assembly import build_report
from trace_analyzer.findings import encode, json_schema


@pytest.mark.parametrize("relative", WITH_GPU)
def test_parts_sum_to_the_window_and_to_each_step(relative: str) -> None:
    ranks = studied(relative).ranks
    assert ranks
    for item in ranks.values():
        for parts in (item.window, item.parts):
            total = parts.compute_ns + parts.comm_exposed_ns + parts.copy_exposed_ns + parts.idle_ns
            np.testing.assert_array_equal(total, parts.length_ns)
        np.testing.assert_array_equal(item.parts.length_ns, item.steps.length_ns)


@pytest.mark.parametrize("relative", WITH_GPU)
def test_window_is_head_steps_and_tail(relative: str) -> None:
    for item in studied(relative).ranks.values():
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
    for item in studied(relative).ranks.values():
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
    item = only(f"{folder}/{name}")
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
    expected = plain_windows(real_trace(relative))
    found = [
        {
            "operations": len(item.rank.operations),
            "window": int(item.window.length_ns[0]),
            "compute": int(item.window.compute_ns[0]),
            "comm": int(item.window.comm_ns[0]),
            "idle": int(item.window.idle_ns[0]),
        }
        for item in studied(relative).ranks.values()
    ]
    assert found == expected


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
    found = only(relative).steps
    assert found.length_ns[0] / 1e6 == pytest.approx(first_ms, abs=1)
    assert len(found) == steps
    assert bool((found.operation_step == BEFORE_FIRST).any())


def test_step_without_gpu_work_is_named() -> None:
    relative = f"public/{HTA}/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz"
    item = only(relative)
    assert item.steps.partial
    assert item.steps.index.tolist() == [1]
    report = build_report(studied(relative).run)
    told = [w.message for w in report.warnings if w.code == "TRC010"]
    assert any("step 2 finishes no GPU work of its own" in message for message in told)
    assert any("no complete step" in message for message in told)


@pytest.mark.parametrize("workers", [0, 4])
def test_first_step_without_known_start_is_excluded(workers: int) -> None:
    name = next(name for name in PUBLIC_FILES if f"num_workers_{workers}/" in name)
    item = only(f"public/{name}")
    assert item.steps.index.tolist() == [6, 7, 8, 9, 10]
    assert [number for number, _ in item.steps.excluded] == [5]


@pytest.mark.parametrize("run", H200)
def test_backlog_of_earlier_steps_is_head(run: str) -> None:
    ranks = studied(f"h200-ddp/{run}").ranks
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
    report = build_report(studied(f"public/{relative}").run)
    assert "No GPU operation was recorded" in report.verdict.headline
    assert report.verdict.state == "no-verdict"
    assert [rank.window for rank in report.ranks] == [None]


def test_recording_without_steps_divides_the_window() -> None:
    report = build_report(studied("public/TraceLens/b200/eager_trace.json.gz").run)
    assert "TRC010" in {warning.code for warning in report.warnings}
    (rank,) = report.ranks
    assert rank.step is None
    assert rank.window is not None
    assert rank.window.window_ms == rank.window.head_ms == 84.487178


@pytest.mark.parametrize("relative", RUNS)
def test_report_is_valid(relative: str) -> None:
    document = json.loads(encode(build_report(studied(relative).run)))
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
