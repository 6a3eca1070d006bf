"""Which files are one run: by rank, process, versions and time, never by luck."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.recordings import START_US, Kineto, job
from tests.traces import real_trace
from trace_analyzer.readers.discovery import RunFiles, find_runs

SECOND_US = 1_000_000


def runs(folder: Path) -> dict[str, list[str]]:
    """Return the files of every run, by the run's name."""
    return {run.name: sorted(file.name for file in run.files) for run in find_runs(str(folder))}


def only(folder: Path) -> RunFiles:
    (run,) = find_runs(str(folder))
    return run


def test_ranks_of_one_job_in_one_folder(tmp_path: Path) -> None:
    job(tmp_path, ranks=3)
    assert len(only(tmp_path).processes) == 3


def test_a_folder_a_rank(tmp_path: Path) -> None:
    for rank in (0, 1):
        Kineto(rank=rank, pid=100 + rank).write(tmp_path / f"rank{rank}" / "trace.json")
    assert runs(tmp_path) == {".": ["rank0/trace.json", "rank1/trace.json"]}


def test_two_jobs_at_the_same_time_stay_apart(tmp_path: Path) -> None:
    for name, pid in (("a", 100), ("b", 300)):
        for rank in (0, 1):
            # Starts interleave: a0 b0 a1 b1.
            start = START_US + 2000 * rank + (1000 if name == "b" else 0)
            trace = Kineto(rank=rank, pid=pid + rank, start_us=start)
            trace.write(tmp_path / name / f"node{rank}" / "trace.json")
    assert runs(tmp_path) == {
        "a": ["a/node0/trace.json", "a/node1/trace.json"],
        "b": ["b/node0/trace.json", "b/node1/trace.json"],
    }


def test_a_run_after_another_in_one_flat_folder(tmp_path: Path) -> None:
    job(tmp_path / "x", pid=100)
    job(tmp_path / "y", pid=300, start_us=START_US + 19 * SECOND_US)
    flat = tmp_path / "flat"
    flat.mkdir()
    for name in "xy":
        for rank in (0, 1):
            source = tmp_path / name / f"rank{rank}.pt.trace.json"
            shutil.copy(source, flat / f"{name}{rank}.json")
    assert list(runs(flat).values()) == [
        ["x0.json", "x1.json"],
        ["y0.json", "y1.json"],
    ]


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ({}, 1),
        ({"start_us": START_US + SECOND_US // 2}, 1),
        ({"start_us": START_US + 19 * SECOND_US}, 2),  # windows of 4 ms do not lie 19 s apart
        ({"world_size": 4}, 2),
        ({"cuda": 12040}, 2),
        ({"rank": 0}, 2),
    ],
)
def test_what_makes_two_ranks_one_run(tmp_path: Path, change: dict[str, Any], count: int) -> None:
    Kineto(rank=0, pid=100).write(tmp_path / "a.json")
    Kineto(**{"rank": 1, "pid": 101, **change}).write(tmp_path / "b.json")
    assert len(find_runs(str(tmp_path))) == count


def test_clocks_of_two_hosts_may_differ(tmp_path: Path) -> None:
    Kineto(rank=0, host="node0").write(tmp_path / "a.json")
    late = START_US + 30 * SECOND_US
    Kineto(rank=1, host="node1", start_us=late).write(tmp_path / "b.json")
    assert len(only(tmp_path).processes) == 2


def test_long_windows_that_overlap_are_one_run(tmp_path: Path) -> None:
    Kineto(rank=0, step_us=SECOND_US, steps=8).write(tmp_path / "a.json.gz")
    late = START_US + 5 * SECOND_US
    Kineto(rank=1, pid=101, start_us=late).write(tmp_path / "b.json.gz")
    assert len(only(tmp_path).processes) == 2


def test_windows_of_one_process_are_one_run(tmp_path: Path) -> None:
    for window in range(3):
        for rank in (0, 1):
            trace = Kineto(
                rank=rank,
                pid=100 + rank,
                start_us=START_US + window * 3600 * SECOND_US,
                first_step=100 * window,
                sequence=1000 * window,
            )
            trace.write(tmp_path / f"iteration_{window}" / f"rank{rank}_trace.json")
    run = only(tmp_path)
    assert [len(process.windows) for process in run.processes] == [3, 3]


def test_the_same_process_id_in_two_containers_is_two_runs(tmp_path: Path) -> None:
    # Step and sequence numbers start anew: it cannot be a later window of the same process.
    job(tmp_path / "monday")
    job(tmp_path / "tuesday", start_us=START_US + 86_400 * SECOND_US)
    assert set(runs(tmp_path)) == {"monday", "tuesday"}


def test_copies_of_one_recording_are_listed_apart(tmp_path: Path) -> None:
    job(tmp_path / "a")
    job(tmp_path / "b")
    assert set(runs(tmp_path)) == {"a", "b"}


def test_traces_that_tell_no_rank(tmp_path: Path) -> None:
    for position in (0, 1):
        Kineto(rank=None, pid=100 + position).write(tmp_path / f"host_{100 + position}.json")
    assert len(only(tmp_path).processes) == 2


def test_traces_that_tell_no_rank_in_two_folders_are_two_jobs(tmp_path: Path) -> None:
    for position in (0, 1):
        Kineto(rank=None, pid=100 + position).write(tmp_path / f"job{position}" / "trace.json")
    assert len(find_runs(str(tmp_path))) == 2


def test_traces_without_a_clock_base_are_compared_with_each_other(tmp_path: Path) -> None:
    Kineto(rank=0, base_ns=None).write(tmp_path / "a.json")
    Kineto(rank=1, pid=101, base_ns=None).write(tmp_path / "b.json")
    assert len(only(tmp_path).processes) == 2


def test_ten_thousand_runs_are_grouped_in_seconds(tmp_path: Path) -> None:
    from trace_analyzer.model import SourceKind
    from trace_analyzer.readers.grouping import TraceFile, group_traces
    from trace_analyzer.readers.identity import Identity

    files = [
        TraceFile(
            path=tmp_path,
            name=f"runs/{number}/rank0.json",
            kind=SourceKind.KINETO,
            bytes=1,
            identity=Identity(
                pids=(1,),
                rank=number % 2 or None,
                start_ns=number // 1000,
                base_ns=0,
                first_step=3,
            ),
        )
        for number in range(10_000)
    ]
    assert len(group_traces(files)) == 10_000


REAL = {
    "h200-ddp": ["healthy", "item_sync", "nccl_1ch", "slow_cpu_rank", "slow_loader", "t1"],
    "h200-ddp-nsys": [
        "healthy.sqlite",
        "healthy_payload.sqlite",
        "item_sync.sqlite",
        "nccl_1ch.sqlite",
        "slow_cpu_rank.sqlite",
        "slow_loader.sqlite",
    ],
    "public/param": ["dlrm_kineto"],
    "public/HolisticTraceAnalysis/trace_diff": ["control.json.gz", "test.json.gz"],
    "public/kineto": ["resnet50_num_workers_0", "resnet50_num_workers_4"],
}


@pytest.mark.parametrize("folder", REAL)
def test_real_folders(folder: str) -> None:
    assert [run.name for run in find_runs(str(real_trace(folder)))] == REAL[folder]


def test_real_folder_of_defects() -> None:
    found = find_runs(str(real_trace("malformed")))
    assert [run.name for run in found] == sorted(p.name for p in real_trace("malformed").iterdir())


def test_a_rank_of_another_run_is_not_taken_in(tmp_path: Path) -> None:
    for run, rank in (("healthy", 0), ("slow_loader", 1)):
        source = real_trace(f"h200-ddp/{run}/rank{rank}.pt.trace.json.gz")
        shutil.copy(source, tmp_path / source.name)
    assert len(find_runs(str(tmp_path))) == 2
