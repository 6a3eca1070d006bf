"""When steps after the profiled ones count as unprofiled, and when not."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from trace_analyzer.before_after import NOTE_BEGINS, unlike
from trace_analyzer.bundle import Role
from trace_analyzer.collectors import finish
from trace_analyzer.readers.sidecars import SidecarFile, Sidecars, read_sidecars


def steps(middle: float, spread: float, count: int, seed: int = 0) -> list[float]:
    draw = random.Random(seed)
    return [draw.gauss(middle, spread) for _ in range(count)]


def test_a_slower_process_is_told_from_noise() -> None:
    found = unlike(steps(20, 0.5, 30), steps(24, 0.5, 30, seed=1))
    assert found is not None
    assert found.text().startswith(NOTE_BEGINS)
    assert (round(found.before_ms), round(found.after_ms)) == (20, 24)
    assert unlike(steps(20, 0.5, 30), steps(20, 0.5, 30, seed=1)) is None


def test_little_is_no_difference_however_sure() -> None:
    assert unlike([20.0] * 30, [20.15] * 30) is None
    assert unlike([20.0] * 30, [20.25] * 30) is not None


def test_a_large_difference_within_the_noise_is_none() -> None:
    assert unlike(steps(20, 8, 10), steps(22, 8, 10, seed=1)) is None


def test_few_steps_do_not_tell() -> None:
    assert unlike([20.0] * 4, [40.0] * 30) is None
    assert unlike([20.0] * 30, [40.0] * 4) is None


def test_healthy_rows_are_seldom_taken_for_different() -> None:
    false = sum(
        unlike(steps(20, 1, 30, seed), steps(20, 1, 30, seed + 1000)) is not None
        for seed in range(1000)
    )
    assert false <= 15


def timer(folder: Path, rank: int, before: list[float], after: list[float]) -> SidecarFile:
    path = folder / f"steps_rank{rank}.jsonl"
    records: list[dict[str, object]] = [{"schema_version": 1, "kind": "header", "rank": rank}]
    for phase, times in (("unprofiled", before), ("profiled", [90.0]), ("unprofiled", after)):
        records += [{"kind": "step", "index": 0, "phase": phase, "step_ms": ms} for ms in times]
    records += [{"kind": "note", "message": NOTE_BEGINS + "x"}, {"kind": "end", "complete": True}]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return SidecarFile(path=path, name=path.name, role=Role.TIMER, rank=rank)


def read(*files: SidecarFile) -> Sidecars:
    return read_sidecars(files)


@pytest.mark.parametrize("after", [24.0, 17.0])
def test_all_ranks_keep_the_earlier_steps_where_one_differs(tmp_path: Path, after: float) -> None:
    files = (
        timer(tmp_path, 0, [20.0] * 6, [after] * 6),
        timer(tmp_path, 1, [20.1] * 6, [20.1] * 7),
    )
    found = read(*files)
    assert found.unprofiled[0].step_ms == (20.0,) * 6
    assert found.unprofiled[1].step_ms == (20.1,) * 6
    (warning,) = found.warnings
    assert (warning.code, warning.count, warning.ranks) == ("TRC003", 13, (0,))
    assert f"take {after:.2f} ms, those before 20.00 ms (rank 0)" in warning.message
    summary = finish.write(tmp_path, started="")
    assert summary.unprofiled_ms == {0: 20.0, 1: 20.1}
    (note,) = summary.notes
    assert (
        note
        == f"{NOTE_BEGINS}{after:.2f} ms, those before 20.00 ms (rank 0): only those before count"
    )


def test_steps_that_agree_are_pooled(tmp_path: Path) -> None:
    found = read(timer(tmp_path, 0, [20.0] * 6, [20.1] * 6))
    assert len(found.unprofiled[0].step_ms) == 12
    assert not found.warnings
    summary = finish.write(tmp_path, started="")
    assert summary.unprofiled_ms == {0: pytest.approx(20.05)}
    assert summary.notes == []


def test_steps_of_a_timing_run_have_nothing_before_a_profiler(tmp_path: Path) -> None:
    path = tmp_path / "steps_rank0.jsonl"
    lines = [{"schema_version": 1, "kind": "header", "rank": 0}]
    lines += [
        {"kind": "step", "index": n, "phase": "unprofiled", "step_ms": 20.0 + 4 * (n > 9)}
        for n in range(20)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = read(SidecarFile(path=path, name=path.name, role=Role.TIMER, rank=0))
    assert len(found.unprofiled[0].step_ms) == 20
    assert not found.warnings
