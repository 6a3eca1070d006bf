"""Recorded runs of the fault lab whose cause lies in the host: the right cause comes first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.loop import context_of
from trace_analyzer.readers.discovery import open_run
from trace_analyzer.rules.catalogue import rules
from trace_analyzer.rules.judge import diagnose

RUNS = Path(__file__).resolve().parent.parent / "data" / "faultlab"
FIRST = {
    "gpt-small-single.loader-in-process_1.kineto": "DATA001",
    "gpt-small-single.loader-in-process_1.nsys": "DATA001",
    "gpt-small-single.pageable-copy_64.kineto": "DATA002",
    "conv-small-single.item-sync_8.kineto": "HOST002",
    "gpt-small-ddp.late-host_0.6.kineto": "HOST003",
    "gpt-small-ddp.slow-python_1.kineto": "HOST003",
    "gpt-small-single.unfused-optimizer_2.kineto": "HOST004",
    "gpt-small-single.empty-cache_1.kineto": "MEM001",
}


@pytest.mark.parametrize(("name", "code"), FIRST.items())
def test_the_right_cause_comes_first(name: str, code: str) -> None:
    folder = RUNS / name
    if not folder.exists():
        pytest.skip(f"{name} is not among the recorded runs")
    found = diagnose(context_of(open_run(str(folder))), rules())
    assert found.findings[0].code == code


@pytest.mark.parametrize(
    "name", [f"gpt-small-{kind}.healthy_1" for kind in ("single", "ddp", "fsdp")]
)
def test_healthy_runs_have_no_fault(name: str) -> None:
    folder = RUNS / f"{name}.kineto"
    if not folder.exists():
        pytest.skip(f"{name} is not among the recorded runs")
    found = diagnose(context_of(open_run(str(folder))), rules())
    assert not [item.code for item in found.findings if item.kind == "fault"]
    assert not [check.reason for check in found.checks if check.state == "error"]
