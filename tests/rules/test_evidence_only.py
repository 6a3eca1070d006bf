"""DATA004 and MEM002: what costs no milliseconds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builder import run_of
from tests.rules.loop import Loop, diagnosed
from trace_analyzer.bundle import Role
from trace_analyzer.model import Run, UnprofiledSteps
from trace_analyzer.readers.sidecars import SidecarFile, read_sidecars
from trace_analyzer.rules import rank_memory_skew, unsharded_data
from trace_analyzer.tables import HostCategory

PYTHON = HostCategory.PYTHON
BATCH = "torch/utils/data/sampler.py(343): __iter__"
RANDOM = "torch/utils/data/sampler.py(182): __iter__"
GIB = 2**30


def run(frames: str, world: int = 2) -> Run:
    ranks = []
    for number in range(world):
        loop = Loop(rank=number)
        for _ in range(4):
            loop.step()

            def batch(loop: Loop = loop) -> None:
                for _ in range(8):
                    loop.silent(2)
                    if frames in ("random", "accelerate"):
                        loop.event(RANDOM, 2, category=PYTHON)

            if frames == "accelerate":
                loop.event("accelerate/data_loader.py(180): __iter__", 1, category=PYTHON)
            if frames:
                loop.inside(BATCH, batch, category=PYTHON)
            loop.launches(20, 100)
        ranks.append(loop.build())
    return run_of(*ranks, world_size=world)


def test_a_random_sampler_on_every_rank_is_not_sharded() -> None:
    (finding,) = diagnosed(unsharded_data.RULE, run("random")).findings
    assert finding.basis == "evidence"
    assert finding.recoverable_ms is None
    assert "Each of 2 ranks" in finding.title


@pytest.mark.parametrize(
    ("frames", "state"),
    [("list", "passed"), ("accelerate", "passed"), ("", "not-applicable")],
)
def test_sharded_or_unknown(frames: str, state: str) -> None:
    found = diagnosed(unsharded_data.RULE, run(frames))
    assert not found.findings
    assert found.checks[0].state == state


@pytest.mark.parametrize(("sampler", "findings"), [("RandomSampler", 1), ("DistributedSampler", 0)])
def test_recorded_settings_name_the_sampler(sampler: str, findings: int) -> None:
    settings = {rank: {"setting.dataloader.sampler": sampler} for rank in (0, 1)}
    found = diagnosed(unsharded_data.RULE, replace(run(""), environment=settings))
    assert len(found.findings) == findings


def test_one_rank_shards_nothing() -> None:
    found = diagnosed(unsharded_data.RULE, run("random", world=1))
    assert found.checks[0].state == "not-applicable"


def with_peaks(*peaks: int | None) -> Run:
    timed = tuple(
        UnprofiledSteps(rank=rank, step_ms=(10.0,), memory_peak_bytes=peak)
        for rank, peak in enumerate(peaks)
    )
    return replace(run("", world=len(peaks)), unprofiled=timed)


def test_the_fullest_rank_is_named() -> None:
    found = diagnosed(rank_memory_skew.RULE, with_peaks(60 * GIB, 40 * GIB, 41 * GIB))
    (finding,) = found.findings
    assert finding.title.startswith("Rank 0 needs 60.0 GiB")
    assert "48 %" in finding.proof


@pytest.mark.parametrize(
    ("peaks", "state"),
    [
        ((44 * GIB, 40 * GIB), "passed"),
        ((GIB // 2, GIB // 4), "passed"),
        ((44 * GIB, None), "not-applicable"),
    ],
)
def test_memory_that_says_nothing(peaks: tuple[int | None, ...], state: str) -> None:
    found = diagnosed(rank_memory_skew.RULE, with_peaks(*peaks))
    assert not found.findings
    assert found.checks[0].state == state


def test_peaks_come_from_the_step_timer(tmp_path: Path) -> None:
    lines = [
        {"kind": "header", "schema_version": 1, "rank": 3, "clock": "host"},
        {"kind": "step", "index": 0, "phase": "unprofiled", "step_ms": 10.0},
        {
            "kind": "step",
            "index": 1,
            "phase": "unprofiled",
            "step_ms": 10.0,
            "memory_peak_bytes": 5,
        },
        {"kind": "step", "index": 2, "phase": "profiled", "step_ms": 12.0, "memory_peak_bytes": 7},
    ]
    path = tmp_path / "steps_rank3.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    file = SidecarFile(path=path, name=path.name, role=Role.TIMER, rank=3)
    assert read_sidecars([file]).unprofiled[3].memory_peak_bytes == 7
