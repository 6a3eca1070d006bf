"""Flight Recorder dumps: sequence numbers for matching, and hangs as findings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.builder import RankBuilder, run_of
from tests.flight_dumps import Dump
from tests.traces import real_trace
from trace_analyzer.analyses.comm_events import comm_events
from trace_analyzer.analyses.hang_facts import HangReport
from trace_analyzer.analyses.hangs import find_hangs
from trace_analyzer.analyses.matching import BY_SEQUENCE, match
from trace_analyzer.analyses.steps import device_steps
from trace_analyzer.analyses.study import study
from trace_analyzer.assembly import build_report
from trace_analyzer.findings import Finding
from trace_analyzer.model import Run
from trace_analyzer.readers.discovery import open_run
from trace_analyzer.reports import html, markdown, terminal
from trace_analyzer.rules import unfinished_collective
from trace_analyzer.rules.context import Context
from trace_analyzer.rules.judge import diagnose
from trace_analyzer.rules.rule import Passed


@pytest.mark.parametrize("run", ["healthy", "slow_loader", "item_sync"])
def test_dumps_number_collectives_as_steps_do(run: str) -> None:
    """Where steps cannot be compared, the dumps must find the same pairs as the step order."""
    recorded = open_run(str(real_trace(f"h200-ddp/{run}")))
    assert len(recorded.flight) == 2
    ranks = {rank.rank: rank for rank in recorded.ranks}
    steps = {number: device_steps(rank) for number, rank in ranks.items()}
    known = {number: item for number, item in steps.items() if item is not None}
    bases = {number: rank.clock_base_ns for number, rank in ranks.items()}
    by_step = comm_events(ranks, known)
    inferred = {number: replace(item, inferred=True) for number, item in known.items()}
    by_dump = comm_events(ranks, inferred, recorded.flight)
    expected, found = match(by_step, bases), match(by_dump, bases)
    assert BY_SEQUENCE in found.basis.values()
    assert found.count == expected.count == 70
    assert np.array_equal(by_dump.row[found.event], by_step.row[expected.event])


def test_dumps_that_do_not_fit_give_no_number() -> None:
    recorded = open_run(str(real_trace("h200-ddp/healthy")))
    ranks = {
        rank.rank: replace(rank, clock_base_ns=(rank.clock_base_ns or 0) + 10**12)
        for rank in recorded.ranks
    }
    steps = {number: device_steps(rank) for number, rank in ranks.items()}
    inferred = {n: replace(item, inferred=True) for n, item in steps.items() if item is not None}
    events = comm_events(ranks, inferred, recorded.flight)
    assert np.all(events.sequence == np.iinfo(np.int64).min)


def test_healthy_dumps_give_no_finding() -> None:
    results = study(open_run(str(real_trace("h200-ddp/healthy"))))
    assert results.hangs is not None
    answer = unfinished_collective.find(Context(study=results, replay=None))
    assert isinstance(answer, Passed)


def hang_findings(report: HangReport) -> list[Finding]:
    """Return what the rules say of a run that has nothing but dumps."""
    nothing = replace(study(Run(name="none", ranks=(), sources=())), hangs=report)
    return diagnose(Context(study=nothing, replay=None), [unfinished_collective.RULE]).findings


def test_a_rank_that_never_came_is_named(tmp_path: Path) -> None:
    waiting = Dump(rank=0).collective().collective(state="started")
    absent = Dump(rank=1).collective()
    report = find_hangs([waiting.recording(tmp_path), absent.recording(tmp_path)])
    (finding,) = hang_findings(report)
    assert (finding.code, finding.ranks, finding.status) == ("COMM011", [1], "experimental")
    assert finding.title.startswith("Rank 1 never issued allreduce number 2")
    assert finding.recoverable_ms is None
    assert finding.severity == "high"
    assert "Rank 0 issued it" in finding.proof


def test_the_same_size_on_all_ranks_or_a_finding(tmp_path: Path) -> None:
    dumps = [Dump(rank=0).collective(size=8), Dump(rank=1).collective(size=16)]
    findings = hang_findings(find_hangs([dump.recording(tmp_path) for dump in dumps]))
    assert len(findings) == 1
    assert {row[2] for row in findings[0].evidence[0].rows} == {8, 16}


def test_a_run_without_dumps_is_not_judged() -> None:
    assert study(Run(name="none", ranks=(), sources=())).hangs is None


def test_a_hang_stands_in_every_output(tmp_path: Path) -> None:
    waiting = Dump(rank=0).collective().collective(state="started")
    dumps = (waiting.recording(tmp_path), Dump(rank=1).collective().recording(tmp_path))
    builder = RankBuilder()
    builder.operation("gemm", 0, 1000, launch=(-5, -1))
    report = build_report(run_of(builder.build(), flight=dumps))
    assert [finding.code for finding in report.findings] == ["COMM011"]
    assert report.verdict.primary is None
    for text in (html.render(report), markdown.render(report)):
        assert "never issued allreduce" in text
    assert "never issued allreduce" in " ".join(
        terminal.render(report, color=False, width=200).split()
    )
