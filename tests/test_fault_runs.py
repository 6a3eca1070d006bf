"""Recorded faults: every committed run is read, divided exactly and compared with its label."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from trace_analyzer.analyses.study import Study, study
from trace_analyzer.model import SourceKind
from trace_analyzer.readers.discovery import open_run

FOLDER = Path(__file__).parent / "data" / "faultlab"
RUNS = sorted(path.parent.name for path in FOLDER.glob("*/label.json"))


@cache
def results_of(name: str) -> Study:
    return study(open_run(str(FOLDER / name)))


def label_of(name: str) -> dict[str, Any]:
    label: dict[str, Any] = json.loads((FOLDER / name / "label.json").read_text())
    return label


def test_the_subset_is_there() -> None:
    assert len(RUNS) == 28
    assert {label_of(name)["set"] for name in RUNS} == {"tune", "test"}


@pytest.mark.parametrize("name", RUNS)
def test_a_recorded_run_divides_exactly(name: str) -> None:
    results, label = results_of(name), label_of(name)
    assert len(results.ranks) == label["world_size"]
    kind = SourceKind.NSYS if name.endswith(".nsys") else SourceKind.KINETO
    for item in results.ranks.values():
        assert item.rank.source == kind
        assert len(item.steps) >= 3
        assert not item.steps.partial
        parts = item.parts
        total = parts.compute_ns + parts.comm_exposed_ns + parts.copy_exposed_ns + parts.idle_ns
        assert total.tolist() == item.steps.length_ns.tolist()
        window = item.steps.window_end_ns - item.steps.window_start_ns
        assert item.steps.head_ns + int(item.steps.length_ns.sum()) + item.steps.tail_ns == window


@pytest.mark.parametrize("name", RUNS)
def test_the_unprofiled_steps_are_those_of_the_label(name: str) -> None:
    """Of newer recordings those right before and after it, else those the cost is taken from.

    How long a faulty step takes can change within seconds, so what a newer recording has around it
    need not be the label's faulty step. The later half is not read where it differs.
    """
    label = label_of(name)
    recording, within = label["recording"], 0.02
    if "attempts" in recording:
        around = zip(recording["steps_before_ms"], recording["steps_after_ms"], strict=True)
        expected_ms = max(median([*before, *after]) for before, after in around)
    else:
        expected_ms, within = (label.get("faulty") or label["healthy"])["step_ms"], 0.05
    measured = results_of(name).run.unprofiled
    assert len(measured) == label["world_size"]
    assert max(median(item.step_ms) for item in measured) == pytest.approx(expected_ms, rel=within)


@pytest.mark.parametrize("name", [name for name in RUNS if label_of(name)["world_size"] > 1])
def test_every_collective_of_two_ranks_is_matched(name: str) -> None:
    cross = results_of(name).cross
    assert cross is not None
    assert cross.matches.count > 0
    assert not cross.matches.unmatched or {why for _, why in cross.matches.unmatched} == {
        "outside the recorded steps"
    }


def test_few_channels_show_in_grid_and_bandwidth() -> None:
    slow = results_of("gpt-large-ddp.few-channels_1.kineto").collectives
    fast = results_of("gpt-large-ddp.healthy_1.kineto").collectives
    assert {row.key.shape.grid for row in slow} == {(1, 1, 1)}
    assert all(row.key.shape.grid and row.key.shape.grid[0] > 8 for row in fast)


def test_the_late_rank_of_the_label_is_the_late_rank_of_the_trace() -> None:
    name = "gpt-small-ddp.late-host_0.6.kineto"
    (faulty,) = label_of(name)["faults"][0]["ranks"]
    late = results_of(name).late
    assert late[0].rank == faulty
    assert late[0].persistent
