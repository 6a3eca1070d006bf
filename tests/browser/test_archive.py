"""The index page of an archive in Chromium: looked at in both themes, filtered, sorted, saved."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from tests.reports import archive_builder as made
from tests.reports.test_browser import pytestmark as marks
from tests.reports.test_browser import run_script
from trace_analyzer.reports import archive_html

pytestmark = marks


def _write(name: str, folder: Path) -> Path:
    page = folder / "index.html"
    page.write_text(archive_html.render(made.ALL[name]), encoding="utf-8")
    return page


@pytest.fixture(scope="module", params=["design", "hostile", "empty", "large"])
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    return run_script("visit.mjs", _write(request.param, tmp_path_factory.mktemp("seen")))


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_script("archive.mjs", _write("design", tmp_path_factory.mktemp("used")))


@pytest.mark.parametrize("view", ["light", "dark", "narrow", "plain"])
def test_no_request_no_error(seen: dict[str, Any], view: str) -> None:
    assert seen[view]["requests"] == []
    assert seen[view]["errors"] == []


@pytest.mark.parametrize("view", ["light", "dark", "narrow"])
def test_no_axe_violation(seen: dict[str, Any], view: str) -> None:
    assert seen[view]["violations"] == []


def test_page_never_scrolls_sideways(seen: dict[str, Any], used: dict[str, Any]) -> None:
    assert seen["narrow"]["width"] <= 390
    assert used["overflow"] == 0


def test_filters(used: dict[str, Any]) -> None:
    assert used["errors"] == []
    assert used["picked"] == ["slow_loader", "resnet50"]
    assert used["pressed"] == 1
    assert used["left"] == "2 shown"
    assert used["found"] == ["slow_cpu_rank"]
    assert used["large"] == ["nccl_1ch", "slow_loader", "slow_cpu_rank"]


def test_sorting_puts_unknown_last(used: dict[str, Any]) -> None:
    assert used["state"] == "descending"
    assert used["down"][:3] == ["resnet50", "nccl_1ch", "unfused"]
    assert used["up"][:2] == ["healthy", "old"]
    for order in ("down", "up"):
        assert used[order][-2:] == ["dlrm_kineto", "empty_events"]
    assert used["named"] == sorted(used["all"])


def test_saved_table_has_every_run(used: dict[str, Any]) -> None:
    rows = list(csv.DictReader(io.StringIO(used["saved"].removeprefix("\ufeff"))))
    assert {row["run"] for row in rows} == set(used["all"])
    row = next(row for row in rows if row["run"] == "nccl_1ch")
    assert (row["step_ms"], row["recoverable_ms"]) == ("48.2300", "22.5000")
    assert row["report"] == "runs/nccl_1ch-0123456789ab/report.html"
