"""Traces with one defect each, through the command line: the right numbers with a warning, or one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from tests.traces import real_trace
from trace_analyzer.cli import cli

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
