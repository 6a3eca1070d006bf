"""A whole occasion on a CPU: two ranks are trained, timed, recorded and packed; then resumed."""

from __future__ import annotations

import gzip
import itertools
import json
import tarfile
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from trace_analyzer.bundle import Role, read_manifest
from trace_analyzer.collectors.faultlab.group import Group
from trace_analyzer.collectors.faultlab.matrix import runs
from trace_analyzer.collectors.faultlab.occasion import Occasion, State
from trace_analyzer.collectors.faultlab.timing import Protocol
from trace_analyzer.collectors.faultlab.workload import Workload

pytestmark = pytest.mark.torch

TINY = Workload(model="gpt", size="tiny")


def occasion(folder: Path, words: str, lines: list[str]) -> Occasion:
    protocol = Protocol(
        block_steps=3,
        block_settle_steps=1,
        block_pairs=2,
        max_block_pairs=2,
        segment_steps=3,
        settle_steps=1,
        pairs=2,
        max_pairs=2,
    )
    return Occasion(
        specs=runs(TINY, words),
        state=State.load(folder / "state.json"),
        out=folder / "out",
        work=folder / "work",
        budget_s=300.0,
        size=2,
        device="cpu",
        nsys=None,
        protocol=protocol,
        say=lines.append,
        label="try",
    )


def validate(name: str, document: object) -> None:
    text = files("trace_analyzer.data").joinpath("schemas", f"{name}.schema.json").read_text()
    jsonschema.Draft202012Validator(json.loads(text)).validate(document)


def test_record_resume_and_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    lines: list[str] = []
    words = "late-host=2.0 few-channels"
    (archive,) = occasion(tmp_path, words, lines).run()
    run = "gpt-tiny-ddp.late-host_2.kineto"
    assert any("few-channels_1: not possible here, needs cuda" in line for line in lines)
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    folder = tmp_path / "unpacked" / run

    label = json.loads((folder / "label.json").read_text())
    validate("label", label)
    assert label["codes"] == ["HOST003", "HOST007", "RANK001"]
    assert label["faults"][0]["ranks"] == [1]
    assert label["set"] == "test"
    assert label["healthy"]["steps"] == label["faulty"]["steps"] == 6
    assert label["cost_interval_ms"][0] <= label["cost_ms"] <= label["cost_interval_ms"][1]
    pause_ms = 2.0 * TINY.scale.nominal_step_ms
    assert min(min(ranks[1]) for ranks in label["faulty"]["step_times_ms"]) >= pause_ms
    assert min(label["recording"]["profiled_step_ms"][1]) >= pause_ms

    manifest = read_manifest(folder)
    assert manifest.world_size == 2
    assert [item.rank for item in manifest.of_role(Role.KINETO)] == [0, 1]
    assert len(manifest.of_role(Role.ENVIRONMENT)) == 2
    rows = [json.loads(line) for line in (folder / "steps_rank1.jsonl").read_text().splitlines()]
    for row in rows:
        validate("steps", row)
    phases = [row["phase"] for row in rows[1:]]
    around = [phase for phase, _ in itertools.groupby(phases)]
    assert around == ["unprofiled", "warmup", "profiled", "unprofiled"]
    assert phases.count("unprofiled") == 6
    assert phases.count("profiled") == label["recording"]["active_steps"]
    validate("environment", json.loads((folder / "env_rank0.json").read_text()))
    trace = json.loads(gzip.decompress((folder / "rank0.pt.trace.json.gz").read_bytes()))
    names = [event["name"] for event in trace["traceEvents"]]
    assert sum(name.startswith("ProfilerStep#") for name in names) == phases.count("profiled")
    assert names.count("backward") == phases.count("profiled")

    lines.clear()
    again = occasion(tmp_path, words, lines)
    again.specs = [replace(spec, recorders=("kineto",)) for spec in again.specs]
    assert again.run() == []  # done, or not possible: nothing is started
    assert len(lines) == 1


def test_a_run_that_fails_is_noted_and_loses_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    lines: list[str] = []
    broken = occasion(tmp_path, "full-precision=-1 healthy", lines)
    broken.specs = [replace(broken.specs[0], recorders=("kineto",)), broken.specs[1]]
    monkeypatch.setattr(
        "trace_analyzer.collectors.faultlab.programs.asdict",
        lambda value: (
            {"fault": "no-such-fault", "magnitude": 1.0}
            if getattr(value, "magnitude", 0) < 0
            else asdict(value)
        ),
    )
    assert len(broken.run()) == 1
    state = State.load(tmp_path / "state.json")
    assert set(state.done) == {"gpt-tiny-ddp.healthy_1.kineto"}
    assert "no-such-fault" in state.failed["gpt-tiny-ddp.full-precision_-1.kineto"][0]


def test_a_fault_that_has_worn_off_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    ask = Group.ask

    def without_the_fault(group: Group, timeout_s: float, **command: Any) -> list[dict[str, Any]]:
        answers = ask(group, timeout_s, **command)
        if command["do"] == "profile":
            for answer in answers:
                answer["before"]["step_ms"] = answer["after"]["step_ms"] = [0.5, 0.5]
        return answers

    monkeypatch.setattr(Group, "ask", without_the_fault)
    lines: list[str] = []
    assert occasion(tmp_path, "late-host=2.0", lines).run() == []
    state = State.load(tmp_path / "state.json")
    (problem,) = state.failed["gpt-tiny-ddp.late-host_2.kineto"]
    assert "of the cost were left" in problem
    assert state.done == {}
