"""`compare` with an archive as its base: the median of the last comparable runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jsonschema
import msgspec
import numpy as np
import pytest

from tests.comparisons import GPT, Kernel, run, slower
from trace_analyzer.analyses.comparison.history import against_history
from trace_analyzer.analyses.study import study
from trace_analyzer.assembly.compare_history import NewRun, build_history_comparison
from trace_analyzer.assembly.report import build_report
from trace_analyzer.batch.index import Index
from trace_analyzer.batch.report_rows import rows_of
from trace_analyzer.batch.rows import FileRow, RunRow
from trace_analyzer.batch.tasks import RunFound, RunResult
from trace_analyzer.comparison_document import ComparisonReport, schema
from trace_analyzer.errors import TraceAnalyzerError, UnreadableInputError
from trace_analyzer.findings import encode
from trace_analyzer.model import Run, UnprofiledSteps
from trace_analyzer.readers.archive_index import archived_runs, is_index


def made(
    name: str,
    day: int,
    kernels: Sequence[Kernel] = GPT,
    *,
    ms: float | None = 1.5,
    late_us: int = 0,
) -> Run:
    """Return a run of a day, with steps of `ms` without a profiler."""
    timed = () if ms is None else (UnprofiledSteps(rank=0, step_ms=(ms,) * 40),)
    return replace(
        run(kernels, name, late_us=late_us),
        started=f"2026-11-{day:02d}T08:00:00Z",
        unprofiled=timed,
    )


def archive(path: Path, runs: Sequence[Run], sha256: str = "") -> Path:
    """Write an index that holds these runs."""
    results = []
    for item in runs:
        row = RunRow(id=item.name, name=item.name, unit=item.name, state="nothing")
        files = [FileRow(sha256=sha256 or item.name, path="rank0.json", bytes=1)]
        rows = rows_of(build_report(item), row, files)
        place = {"id": item.name, "name": item.name, "digest": item.name, "bytes": 1}
        found = msgspec.convert(
            {**place, "fingerprint": "", "files": [], "described": ""}, RunFound
        )
        results.append(RunResult(found=found, rows=rows))
    with Index(path, "") as index:
        index.write(results, [])
    return path


def compared(index: Path, new: Run, last: int = 5) -> ComparisonReport:
    studied = study(new)
    report = build_report(new, studied=studied)
    past = archived_runs(
        index,
        world_size=report.run.world_size,
        gpu=report.run.gpu,
        before=report.run.started,
        without={"the same file"},
    )
    other = NewRun(study=studied, report=report, name=new.name)
    found = build_history_comparison("index.db", past, last, other, {})
    jsonschema.validate(json.loads(encode(found)), schema())
    return found


def test_the_median_of_the_last_runs_is_the_base(tmp_path: Path) -> None:
    levels = (1.0, 1.5, 1.51, 1.49, 1.52, 1.48)
    index = archive(
        tmp_path / "index.db", [made(f"day{n}", n + 1, ms=ms) for n, ms in enumerate(levels)]
    )
    found = compared(index, made("today", 20, ms=1.9))
    assert found.history is not None
    assert found.history.used == ["day5", "day4", "day3", "day2", "day1"]
    assert found.history.step_ms == [1.48, 1.52, 1.49, 1.51, 1.5]
    assert found.step is not None
    assert (found.step.base_ms, found.step.other_ms) == (1.5, 1.9)
    assert found.step.distinguishable is True
    assert found.verdict.state == "slower"
    assert "the last 5 runs" in found.verdict.proof


def test_what_starts_differ_by_is_no_change(tmp_path: Path) -> None:
    levels = (1.4, 1.5, 1.6, 1.45, 1.55)
    index = archive(
        tmp_path / "index.db", [made(f"day{n}", n + 1, ms=ms) for n, ms in enumerate(levels)]
    )
    assert compared(index, made("today", 20, ms=1.6)).verdict.state == "same"
    assert compared(index, made("today", 20, ms=2.2)).verdict.state == "slower"


def test_two_runs_tell_no_spread(tmp_path: Path) -> None:
    index = archive(tmp_path / "index.db", [made("a", 1), made("b", 2)])
    found = compared(index, made("today", 20, ms=3.0))
    assert found.verdict.state == "no-verdict"
    assert found.step is not None
    assert found.step.change_interval_ms is None


def test_runs_of_other_work_other_days_and_the_run_itself_are_left_out(tmp_path: Path) -> None:
    other = [Kernel(f"conv_{n}", 100) for n in range(12)]
    path = tmp_path / "index.db"
    archive(path, [made("good", 3), made("other", 4, other), made("later", 25)])
    archive(path, [made("itself", 5)], sha256="the same file")
    found = compared(path, made("today", 20))
    assert found.history is not None
    assert (found.history.used, found.history.left_out) == (["good"], 1)


def test_untimed_runs_are_compared_by_their_traces(tmp_path: Path) -> None:
    index = archive(tmp_path / "index.db", [made(f"day{n}", n, ms=None) for n in (1, 2, 3)])
    found = compared(index, made("today", 20, ms=None, late_us=900))
    assert found.step is not None
    assert found.step.basis == "profiled"
    assert found.verdict.state == "slower"
    (rank,) = found.ranks
    assert [part.part for part in rank.parts if part.distinguishable] == ["launch"]
    assert sum(part.change_ms for part in rank.parts) == pytest.approx(
        rank.step.change_ms, abs=1e-4
    )


def test_a_slower_kernel_is_told_against_the_archive(tmp_path: Path) -> None:
    index = archive(tmp_path / "index.db", [made(f"day{n}", n) for n in (1, 2, 3, 4)])
    program = (*slower(GPT, "gemm_bf16_b", 1.3), Kernel("reduce_kernel", 90, 512))
    rows = compared(index, made("today", 20, program)).kernels
    told = {row.name: row.kind for row in rows if row.kind != "indistinguishable"}
    assert told == {"gemm_bf16_b": "slower", "reduce_kernel": "new"}


def test_an_archive_without_a_comparable_run_is_one_line(tmp_path: Path) -> None:
    index = archive(tmp_path / "index.db", [made("later", 25)])
    with pytest.raises(TraceAnalyzerError, match="no earlier run of 1 ranks"):
        compared(index, made("today", 20))


def test_what_is_an_index(tmp_path: Path) -> None:
    assert is_index(archive(tmp_path / "index.db", [made("a", 1)]))
    plain = tmp_path / "plain.txt"
    plain.write_text("SQLite format 3, not", encoding="utf-8")
    assert not is_index(plain)
    assert not is_index(tmp_path)
    assert not is_index(tmp_path / "nowhere")


def test_an_index_of_another_schema_is_refused(tmp_path: Path) -> None:
    index = archive(tmp_path / "index.db", [made("a", 1)])
    with Index(index, "") as opened:
        opened.connection.execute("PRAGMA user_version = 99")
    with pytest.raises(UnreadableInputError, match="index schema 99"):
        list(archived_runs(index, world_size=1, gpu=None, before=None, without=set()))


def test_the_interval_is_that_of_a_further_run() -> None:
    generator = np.random.default_rng(6)
    covered = 0
    for _ in range(400):
        runs = generator.normal(10.0, 0.5, size=(6, 1))
        covered += not bool(against_history(runs[:5], runs[5]).apart[0])
    assert covered / 400 == pytest.approx(0.95, abs=0.03)
    few = against_history(np.array([[1.0], [2.0]]), np.array([9.0]))
    assert np.isnan(few.low[0])
    assert not few.apart[0]
