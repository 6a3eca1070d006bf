"""Constructed reports in Chromium: every state and size, used by hand, offline, and on paper.

Needs Chromium (`TRACE_ANALYZER_CHROMIUM` names another than `chromium`) and Node.js with what
`npm ci --prefix tests/browser` installs; skipped where one is absent.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.reports import builder
from tests.traces import ROOT
from trace_analyzer.reports import html, markdown
from trace_analyzer.reports import json as json_report

SCRIPTS = ROOT / "tests" / "browser"
CHROMIUM = os.environ.get("TRACE_ANALYZER_CHROMIUM") or shutil.which("chromium")
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (CHROMIUM and NODE and (SCRIPTS / "node_modules").is_dir()),
        reason="needs Chromium, Node.js and npm ci --prefix tests/browser",
    ),
]

SEEN = ("slow_cpu_rank", "healthy", "likely", "truncated", "cpu_only", "hostile", "world64")
USED = ("slow_cpu_rank", "hostile", "world8")
WHITE, DARK = "rgb(255, 255, 255)", "rgb(20, 23, 26)"
MOST_PAGES = {"slow_cpu_rank": 7, "world8": 12, "hostile": 16}


def run_script(script: str, page: Path) -> dict[str, Any]:
    """Open a page with one of the scripts of tests/browser and return what it saw."""
    assert CHROMIUM
    assert NODE
    command = [NODE, str(SCRIPTS / script), CHROMIUM, str(page)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def _write(name: str, folder: Path) -> Path:
    report = builder.ALL[name]()
    timeline = None if name == "cpu_only" else builder.timeline(max(len(report.ranks), 1))
    page = folder / "report.html"
    page.write_text(html.render(report, timeline=timeline), encoding="utf-8")
    return page


@pytest.fixture(scope="module", params=SEEN)
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    return run_script("visit.mjs", _write(request.param, tmp_path_factory.mktemp("seen")))


@pytest.fixture(scope="module", params=USED)
def used(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    page = _write(request.param, tmp_path_factory.mktemp("used"))
    return {"name": request.param, **run_script("use.mjs", page)}


@pytest.mark.parametrize("view", ["light", "dark", "narrow", "plain"])
def test_no_request_no_error(seen: dict[str, Any], view: str) -> None:
    assert seen[view]["requests"] == []
    assert seen[view]["errors"] == []


@pytest.mark.parametrize("view", ["light", "dark", "narrow"])
def test_no_axe_violation(seen: dict[str, Any], view: str) -> None:
    assert seen[view]["violations"] == []


def test_hostile_text_does_nothing(used: dict[str, Any]) -> None:
    assert used["errors"] == []
    assert used["dialogs"] == []


def test_verdict_stands_above_the_fold(used: dict[str, Any]) -> None:
    if used["name"] == "hostile":
        pytest.skip("its headline is made to be long")
    for part in ("h1", "next", "ruler"):
        assert used["seen"][part] <= 800
    assert used["seen"]["trust"] <= 800


def test_theme_turns_and_is_remembered(used: dict[str, Any]) -> None:
    assert used["themes"] == [WHITE, WHITE, DARK, WHITE]
    assert used["remembered"] == DARK


def test_tables_sort_by_value_and_unknown_comes_last(used: dict[str, Any]) -> None:
    if used["name"] != "slow_cpu_rank":
        pytest.skip("one table is enough")
    numbers = [float(text) for text in used["sorted"]["down"]]
    assert numbers == sorted(numbers, reverse=True)
    assert used["sorted"]["state"] == "descending"
    assert [float(text) for text in used["sorted"]["up"]] == sorted(numbers)
    names = [re.sub(r"[^a-z]", "", text.split("…")[0].lower()) for text in used["sorted"]["names"]]
    assert names[0] < names[-1]


def test_copied_text_is_the_markdown(used: dict[str, Any]) -> None:
    assert used["copied"] == markdown.render(builder.ALL[used["name"]]())


def test_saved_file_has_the_bytes_of_the_command_line(used: dict[str, Any]) -> None:
    assert used["saved"].encode() == json_report.render(builder.ALL[used["name"]]())
    assert used["saved_name"].endswith(".trace-report.json")
    assert "/" not in used["saved_name"]


def test_link_opens_a_folded_finding(used: dict[str, Any]) -> None:
    assert used["opened"] in {True, None}


def test_keyboard(used: dict[str, Any]) -> None:
    assert used["first_stop"] == "Skip to the verdict"
    assert used["ring"] == "solid"
    assert used["small_targets"] == []


def test_page_never_scrolls_sideways(used: dict[str, Any]) -> None:
    assert used["overflow"] == {"1280": 0, "960": 0, "720": 0, "390": 0, "320": 0}


def test_paper(used: dict[str, Any]) -> None:
    assert used["print"] == {"ground": WHITE, "bar": "none"}
    for pages in used["pages"].values():
        assert 1 <= pages <= MOST_PAGES[used["name"]]


def test_complete_without_scripts(used: dict[str, Any]) -> None:
    assert used["plain_buttons"] == 0
    text = used["plain_text"]
    for section in ("Findings", "Where a step goes", "Timeline", "NCCL", "Kernels", "Glossary"):
        assert section in text
