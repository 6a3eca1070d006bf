from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from trace_analyzer.bundle import Role, read_manifest
from trace_analyzer.collectors import contents, finish, nccl_log
from trace_analyzer.collectors.commands import shown_command


def timer(folder: Path, rank: int, *records: dict[str, object], pid: int = 100) -> None:
    head = {"schema_version": 1, "kind": "header", "rank": rank, "world_size": 2, "pid": pid + rank}
    lines = [json.dumps(record) for record in (head, *records)]
    (folder / f"steps_rank{rank}.jsonl").write_text("\n".join(lines) + "\n")


def step(ms: float, phase: str = "unprofiled") -> dict[str, object]:
    return {"kind": "step", "index": 0, "phase": phase, "step_ms": ms}


def test_a_bundle_is_listed_with_ranks_and_processes(tmp_path: Path) -> None:
    for rank in (0, 1):
        timer(tmp_path, rank, step(20.0), step(22.0), step(24.0), {"kind": "end", "complete": True})
        (tmp_path / f"rank{rank}.pt.trace.json").write_text('{"traceEvents": []}')
        (tmp_path / f"env_rank{rank}.json").write_text(
            json.dumps({"schema_version": 1, "rank": rank, "versions": {"torch": "2.11.0"}})
        )
        (tmp_path / f"nccl_{100 + rank}.log").write_text("host:1:1 [0] NCCL INFO x\n")
    (tmp_path / "notes.txt").write_text("not ours")
    command = ["torchrun", "train.py", "--api-key", "hunter2"]
    summary = finish.write(tmp_path, started="2026-01-02T03:04:05+00:00", command=command)
    manifest = read_manifest(tmp_path)
    assert manifest.job_name == "train"
    assert manifest.command == "torchrun train.py --api-key '***'"
    assert manifest.world_size == 2
    assert manifest.tool_versions["torch"] == "2.11.0"
    found = {(item.path, item.role, item.rank, item.pid) for item in manifest.files}
    assert ("rank1.pt.trace.json.gz", Role.KINETO, 1, 101) in found
    assert ("nccl_100.log", Role.NCCL_LOG, 0, 100) in found
    assert not any("notes" in path for path, *_ in found)
    assert gzip.decompress((tmp_path / "rank0.pt.trace.json.gz").read_bytes()).startswith(b"{")
    assert not (tmp_path / "rank0.pt.trace.json").exists()
    assert summary.unprofiled_ms == {0: 22.0, 1: 22.0}
    assert summary.complete_ranks == (0, 1)
    assert summary.count(Role.KINETO) == 2
    assert summary.notes == []


def test_what_went_wrong_in_a_rank_is_said(tmp_path: Path) -> None:
    timer(tmp_path, 0, step(20.0), {"kind": "end", "complete": True})
    timer(tmp_path, 1, step(20.0), {"kind": "note", "message": "training ended 3 steps before"})
    with (tmp_path / "steps_rank1.jsonl").open("a") as stream:
        stream.write('{"kind":"st')  # killed while writing
    summary = finish.write(tmp_path, started="")
    assert summary.complete_ranks == (0,)
    assert summary.ranks == (0, 1)
    assert "rank 1: training ended 3 steps before" in summary.notes


def test_an_empty_folder_gets_a_manifest_too(tmp_path: Path) -> None:
    assert finish.write(tmp_path, started="", command=["sh"]).files == ()
    assert read_manifest(tmp_path).files == ()


def test_steps_under_nsys_belong_to_the_traced_process(tmp_path: Path) -> None:
    timer(tmp_path, 0, step(20.0), pid=100)
    (tmp_path / "steps_rank0.jsonl").rename(tmp_path / "kept")
    timer(tmp_path, 0, step(30.0, "profiled"), pid=200)
    (tmp_path / "steps_rank0.jsonl").rename(tmp_path / "steps_rank0_nsys.jsonl")
    (tmp_path / "kept").rename(tmp_path / "steps_rank0.jsonl")
    (tmp_path / "env_rank0.json").write_text('{"rank": 0}')
    pids = {item.path: item.pid for item in contents.described(tmp_path)}
    assert pids == {"env_rank0.json": 200, "steps_rank0.jsonl": 100, "steps_rank0_nsys.jsonl": 200}


def test_replacing_a_recording_leaves_everything_else(tmp_path: Path) -> None:
    timer(tmp_path, 0, step(20.0))
    for name in ("mine.sqlite", "bench_mine.json", "train.py", "node0.sqlite", "node0.nsys-rep"):
        (tmp_path / name).write_text("x")
    finish.write(tmp_path, started="")
    manifest = json.loads((tmp_path / "bundle.json").read_text())
    manifest["files"] = [
        item for item in manifest["files"] if item["path"] not in {"mine.sqlite", "bench_mine.json"}
    ]
    (tmp_path / "bundle.json").write_text(json.dumps(manifest))
    assert contents.holds_recording(tmp_path)
    contents.remove_recording(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["bench_mine.json", "mine.sqlite", "train.py"]
    assert not contents.holds_recording(tmp_path)


def test_one_rank_is_replaced_alone(tmp_path: Path) -> None:
    timer(tmp_path, 0)
    timer(tmp_path, 1)
    contents.remove_recording(tmp_path, rank=1)
    assert [path.name for path in tmp_path.iterdir()] == ["steps_rank0.jsonl"]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["train.py", "--lr", "1"], ["train.py", "--lr", "1"]),
        (["--hf-token", "abc", "x"], ["--hf-token", "***", "x"]),
        (["--api_key=abc"], ["--api_key=***"]),
        (["WANDB_API_KEY=abc", "python"], ["WANDB_API_KEY=***", "python"]),
        (["tokenize.py", "keys.txt"], ["tokenize.py", "keys.txt"]),
    ],
)
def test_secrets_in_commands_are_hidden(command: list[str], shown: list[str]) -> None:
    assert shown_command(command) == shown


def test_a_long_nccl_log_keeps_each_choice_once(tmp_path: Path) -> None:
    prefix = "host:7:7 [0] NCCL INFO "
    chosen = [
        f"AllReduce: {size} Bytes -> Algo RING proto SIMPLE channel{{0..3}}" for size in (4, 8)
    ]
    once = [prefix + "comm 0x1 rank 0 nranks 2 - Init COMPLETE", *(prefix + c for c in chosen)]
    path = tmp_path / "nccl_7.log"
    path.write_text("\n".join(once * 9000) + "\n")
    assert nccl_log.shorten(path) == 8999 * 2
    lines = path.read_text().splitlines()
    assert lines[:3] == once
    assert len(lines) == 9000 + 2
    small = tmp_path / "nccl_8.log"
    small.write_text("\n".join(once * 2))
    assert nccl_log.shorten(small) == 0


def test_what_the_user_set_for_nccl_stays(tmp_path: Path) -> None:
    assert nccl_log.variables(tmp_path, {}) == {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,ENV,TUNING",
        "NCCL_DEBUG_FILE": f"{tmp_path}/nccl_%p.log",
    }
    assert nccl_log.variables(tmp_path, {"NCCL_DEBUG_FILE": "mine"}) == {}
    assert "NCCL_DEBUG_SUBSYS" not in nccl_log.variables(tmp_path, {"NCCL_DEBUG_SUBSYS": "NET"})


def test_the_flight_recorder_by_the_name_that_torch_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.13.0+cpu")
    assert nccl_log.flight_recorder_variables({}) == {"TORCH_FR_BUFFER_SIZE": "2000"}
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.5.1")
    assert nccl_log.flight_recorder_variables({}) == {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}
    assert nccl_log.flight_recorder_variables({"TORCH_NCCL_TRACE_BUFFER_SIZE": "9"}) == {}


def test_a_trace_that_cannot_be_compressed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rank0.pt.trace.json").write_text("{}")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    summary = finish.write(tmp_path, started="")
    assert summary.notes == ["rank0.pt.trace.json stays uncompressed: No space left on device"]
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "bundle.json",
        "rank0.pt.trace.json",
    ]
    assert [item.path for item in summary.files] == ["rank0.pt.trace.json"]
