"""What our own recorder leaves in a recording: ranks, and a benchmark that is not training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.readers.nsys_files import SYNC, Nsys, global_pid, names_of
from trace_analyzer.capture_marks import CALIBRATION_MARK, rank_mark, read_rank_mark
from trace_analyzer.readers.discovery import open_run


@pytest.mark.parametrize(
    "text", ["trace-analyzer: rank 2 of 2", "trace-analyzer: rank -1 of 2", "rank 0 of 2", ""]
)
def test_other_texts_are_no_marks(text: str) -> None:
    assert read_rank_mark(text) is None
    assert read_rank_mark(rank_mark(3, 16)) == (3, 16)


def _two_ranks() -> Nsys:
    made = Nsys()
    for pid, rank in ((10, 1), (20, 0)):
        made.range(0, None, rank_mark(rank, 2), kind=34, pid=pid)
        made.launched(100, 120, 150, pid=pid)
    return made


def test_ranks_are_those_that_the_marks_say(tmp_path: Path) -> None:
    ranks = _two_ranks().read(tmp_path)
    assert [(r.pid, r.rank, r.rank_basis, r.world_size) for r in ranks] == [
        (10, 1, "content", 2),
        (20, 0, "content", 2),
    ]


def test_marked_ranks_raise_no_doubt(tmp_path: Path) -> None:
    _two_ranks().write(tmp_path / "node0.sqlite")
    run = open_run(str(tmp_path / "node0.sqlite"))
    assert [rank.pid for rank in run.ranks] == [20, 10]
    assert run.world_size == 2
    assert [w for w in run.all_warnings() if "rank" in w.message] == []


def test_a_process_that_says_two_ranks_says_none(tmp_path: Path) -> None:
    made = _two_ranks()
    made.range(1, None, rank_mark(0, 2), kind=34, pid=10)
    assert [rank.rank_basis for rank in made.read(tmp_path)] == ["order", "order"]


def test_the_recorders_own_benchmark_is_left_out(tmp_path: Path) -> None:
    made = _two_ranks()
    made.range(90, 160, "step 7", pid=10)
    made.range(200, None, CALIBRATION_MARK, kind=34, pid=10)
    made.range(201, 202, "nvtx_range", pid=10)
    made.launched(210, 220, 230, "benchmark", pid=10)
    made.add(
        SYNC,
        start=240,
        end=250,
        syncType=3,
        globalPid=global_pid(10),
        contextId=1,
        streamId=7,
        correlationId=99,
    )
    made.launched(210, 220, 260, "training", pid=20)  # another process is still training
    one, other = made.read(tmp_path)
    assert names_of(one, one.operations.name) == ["gemm"]
    assert len(one.calls) == 1
    assert len(one.syncs) == 0
    assert "step 7" in names_of(one, one.events.name)
    assert "nvtx_range" not in names_of(one, one.events.name)
    # Mark, range, kernel, call, synchronisation.
    assert one.counts["left_out_calibration_rows"] == 5
    assert names_of(other, other.operations.name) == ["gemm", "training"]
    assert other.counts["left_out_calibration_rows"] == 0
