"""Recording other ways to train: FSDP, compiled models, windows by time, nodes under torchrun.

Those that take long run where TRACE_ANALYZER_HEAVY is set (`.ci/extra`).
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.fake_nsys import make_nsys
from tests.traces import ROOT
from trace_analyzer.bundle import Role, read_manifest
from trace_analyzer.collectors.local_ranks import free_port
from trace_analyzer.readers.discovery import open_run

pytestmark = [pytest.mark.torch]
heavy = pytest.mark.skipif(
    not os.environ.get("TRACE_ANALYZER_HEAVY"), reason="takes long; TRACE_ANALYZER_HEAVY is not set"
)

SCRIPT = str(Path(__file__).with_name("training_script.py"))
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
TWO_RANKS = (*TORCHRUN, "--standalone", "--nproc-per-node", "2")
COUNTS = ("--skip", "2", "--unprofiled", "6", "--warmup", "1", "--steps", "3", "--no-calibration")


@pytest.fixture(autouse=True)
def needs_torch() -> None:
    pytest.importorskip("torch")


def start(recorder: str, bundle: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trace_analyzer", "collect", recorder, "-o", str(bundle)]
    return subprocess.Popen(
        [*command, *COUNTS, *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def collect(recorder: str, bundle: Path, *arguments: str, **variables: str) -> str:
    process = start(recorder, bundle, *arguments, **variables)
    printed, _ = process.communicate(timeout=240)
    assert process.returncode == 0, printed
    return printed


def phases(folder: Path, rank: int) -> Counter[str]:
    lines = (folder / f"steps_rank{rank}.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert records[-1] == {"kind": "end", "complete": True}
    return Counter(item["phase"] for item in records if item["kind"] == "step")


def names(folder: Path, rank: int) -> Counter[str]:
    data = gzip.decompress((folder / f"rank{rank}.pt.trace.json.gz").read_bytes())
    return Counter(event.get("name", "") for event in json.loads(data)["traceEvents"])


def settings(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "env_rank0.json").read_text())["settings"]
    return found


def test_fully_sharded_and_a_window_by_time(tmp_path: Path) -> None:
    train = (*TWO_RANKS, SCRIPT, "--fsdp", "--steps", "400", "--seconds", "0.01")
    collect("torch", tmp_path, "--sample-seconds", "0.3", "--stop-when-done", "--", *train)
    counts = [phases(tmp_path, rank) for rank in (0, 1)]
    # Steps take 10 ms and more: rank 0 decides how many fit, and all ranks take as many.
    assert counts[0] == counts[1]
    assert 3 <= counts[0]["profiled"] <= 30
    assert counts[0]["unprofiled"] == 12
    for rank in (0, 1):
        found = names(tmp_path, rank)
        assert found["FSDP::root_pre_forward"] == counts[0]["profiled"]
        assert sum(name.startswith("gloo:") for name in found.elements())
    assert settings(tmp_path)["fsdp.version"] == 2
    assert len(open_run(str(tmp_path)).ranks) == 2


@heavy
@pytest.mark.parametrize("sharded", [False, True])
def test_a_compiled_model(tmp_path: Path, sharded: bool) -> None:
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("no C++ compiler")
    ways = ["--fsdp"] if sharded else []
    collect("torch", tmp_path, "--", *TWO_RANKS, SCRIPT, "--compile", *ways, "--steps", "40")
    for rank in (0, 1):
        assert phases(tmp_path, rank) == {"warmup": 7, "unprofiled": 12, "profiled": 3}
        found = names(tmp_path, rank)
        assert any(name.startswith("Torch-Compiled Region") for name in found)
        assert found["backward"] == 3
    assert settings(tmp_path)["compile.modules"] == 1


@heavy
def test_two_nodes_under_torchrun(tmp_path: Path) -> None:
    port = str(free_port())
    processes = []
    for number in (0, 1):
        nodes = ("--nnodes", "2", "--node-rank", str(number), "--nproc-per-node", "1")
        place = ("--master-addr", "127.0.0.1", "--master-port", port)
        train = (*TORCHRUN, *nodes, *place, SCRIPT, "--steps", "40")
        processes.append(start("torch", tmp_path / f"node{number}", "--", *train))
    for process in processes:
        printed, _ = process.communicate(timeout=240)
        assert process.returncode == 0, printed
    run = open_run(str(tmp_path))
    assert [rank.path for rank in run.ranks] == [
        "node0/rank0.pt.trace.json.gz",
        "node1/rank1.pt.trace.json.gz",
    ]
    assert run.world_size == 2


@heavy
def test_two_ranks_under_nsys(tmp_path: Path) -> None:
    nsys = make_nsys(tmp_path / "bin")
    bundle = tmp_path / "bundle"
    train = (*TWO_RANKS, SCRIPT, "--steps", "60")
    printed = collect("nsys", bundle, "--", *train, TRACE_ANALYZER_NSYS=str(nsys))
    assert "no NVIDIA GPU is seen here" in printed
    assert [phases(bundle, rank)["unprofiled"] for rank in (0, 1)] == [12, 12]
    assert {item.rank for item in read_manifest(bundle).of_role(Role.TIMER)} == {0, 1}
