"""All real traces as one archive, malformed ones included."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.batch.archives import batch, contents, rows, states
from tests.heavy import heavy
from tests.traces import real_trace

pytestmark = heavy

# What cannot be analysed at all, and what is: every other run of the traces has a report.
FAILED = {"malformed/empty_events"}
NOT_JUDGED = {
    "malformed/cpu_only",
    "malformed/truncated_json",
    "public/HolisticTraceAnalysis/cpu_only",
}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("real") / "out"
    summary = batch(real_trace(""), where)
    assert (summary.runs, summary.now, summary.failed) == (50, 50, 1)
    return where


def test_every_run_is_found_and_has_the_right_state(out: Path) -> None:
    found = states(out)
    assert len(found) == 50
    assert {name for name, state in found.items() if state == "failed"} == FAILED
    judged = dict(rows(out, "SELECT name, state FROM runs"))
    assert {name for name in NOT_JUDGED if judged[name] != "no-verdict"} == set()
    assert len([name for name in found if name.startswith("malformed/")]) == 19
    assert rows(out, "SELECT world_size FROM runs WHERE name = 'public/param/dlrm_kineto'") == [
        (8,)
    ]
    assert {name for name in found if name.startswith("h200-ddp/")} == {
        f"h200-ddp/{run}"
        for run in ("healthy", "item_sync", "nccl_1ch", "slow_cpu_rank", "slow_loader", "t1")
    }


def test_reasons_name_the_file(out: Path) -> None:
    ((reason,),) = rows(out, "SELECT reason FROM runs WHERE state = 'failed'")
    assert "empty_events/rank0.pt.trace.json: the list of traceEvents is empty" in reason


def test_every_report_is_there(out: Path) -> None:
    reports = [report for (report,) in rows(out, "SELECT report FROM runs WHERE report != ''")]
    assert len(reports) == 49
    assert all((out / report).stat().st_size > 20_000 for report in reports)


def test_it_is_done_once(out: Path) -> None:
    before = contents(out)
    assert batch(real_trace(""), out).now == 0
    assert contents(out) == before
