"""The arithmetic of `tests/gpu/capture_check.py`, which is run by hand on GPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import capture_check
from tests.readers.nsys_files import Nsys
from trace_analyzer.capture_marks import CALIBRATION_MARK, rank_mark

MS = 1_000_000


def step_file(folder: Path, rows: list[tuple[str, int, float, int]]) -> capture_check.Steps:
    """Write steps: (phase, start in ms, length in ms, how many)."""
    records: list[dict[str, Any]] = [{"kind": "header", "rank": 0, "clock": "cuda-event"}]
    for phase, start, length, count in rows:
        for number in range(count):
            at = int((start + number * length) * MS)
            records.append({"kind": "step", "phase": phase, "start_unix_ns": at, "step_ms": length})
    records.append({"kind": "end", "complete": True})
    path = folder / "steps_rank0.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return capture_check.Steps(path)


def script_times(folder: Path, start: float, length: float, count: int) -> None:
    starts = [int((start + number * length) * MS) for number in range(count)]
    document = {"start_unix_ns": starts, "step_ms": [length] * (count - 1)}
    (folder / f"times_{starts[0]}.json").write_text(json.dumps(document))


def test_the_scripts_steps_of_the_same_time_are_compared(tmp_path: Path) -> None:
    rows = [("warmup", 0, 50.0, 2), ("unprofiled", 100, 20.0, 30), ("profiled", 700, 40.0, 5)]
    timed = step_file(tmp_path, rows)
    script_times(tmp_path, 1.0, 50.0, 3)  # another run of the script, before this one
    script_times(tmp_path, 105.0, 20.1, 31)
    found = capture_check.unprofiled_facts(timed, tmp_path)
    assert found["bundle_ms"] == 20.0
    assert found["script_steps"] == 28  # 105 ms is inside the row, 105 + 29 × 20.1 is not
    assert found["difference_pct"] == pytest.approx(100 * (20 / 20.1 - 1), abs=1e-4)
    assert found["within_bar"]
    script_times(tmp_path, 105.0, 20.5, 31)
    assert not capture_check.unprofiled_facts(timed, tmp_path)["within_bar"]


def test_steps_of_a_process_left_slow_are_not_compared(tmp_path: Path) -> None:
    rows = [("unprofiled", 0, 20.0, 30), ("profiled", 600, 40.0, 5), ("unprofiled", 800, 25.0, 30)]
    timed = step_file(tmp_path, rows)
    script_times(tmp_path, 1.0, 20.0, 30)
    script_times(tmp_path, 801.0, 25.0, 30)
    found = capture_check.unprofiled_facts(timed, tmp_path)
    assert found["later_steps_left_out"]
    assert found["rows_ms"] == [20.0, 25.0]
    assert (found["bundle_ms"], found["script_ms"]) == (20.0, 20.0)


def test_marks_in_an_export_are_found(tmp_path: Path) -> None:
    made = Nsys()
    for pid, rank in ((10, 1), (20, 0)):
        made.range(0, None, rank_mark(rank, 2), kind=34, pid=pid)
        made.range(1, 2, "step 3", pid=pid)
        made.launched(10, 20, 30, pid=pid)
    made.range(90, None, CALIBRATION_MARK, kind=34)
    found = capture_check.nsys_facts(made.write(tmp_path / "node0.sqlite"))
    assert found["rank_marks"] == [(0, 2), (1, 2)]
    assert (found["calibration_marks"], found["step_ranges"]) == (1, 2)
    assert (found["kernel"], found["runtime"]) == (2, 2)


def test_what_does_not_hold_is_named() -> None:
    parts = {
        "timer-cost": {
            "sizes": {"launch-bound": {"inside_pct": 0.3}, "gpu-bound": {"inside_pct": 0.6}}
        },
        "ddp-torch": {"exit_code": 0, "unprofiled": {"difference_pct": 2.0, "within_bar": False}},
        "ddp-nsys": {"exit_code": 1, "nsys": {"node0.sqlite": {"rank_marks": [[0, 2], [1, 2]]}}},
    }
    assert capture_check.judge(parts) == {
        "timer launch-bound: 0.3 % inside": True,
        "timer gpu-bound: 0.6 % inside": False,
        "ddp-torch: step 2.0 % off": False,
        "ddp-nsys: exit code 1": False,
        "ddp-nsys: node0.sqlite names 2 ranks": True,
    }
