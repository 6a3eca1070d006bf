"""The report as a reader sees it: in Chromium, offline, in both themes, narrow, printed, without scripts.

Needs Chromium (`TRACE_ANALYZER_CHROMIUM` names another than `chromium`) and Node.js with what
`npm ci --prefix tests/browser` installs; skipped where one is absent.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.traces import ROOT, real_trace
from trace_analyzer.cli import cli

HERE = Path(__file__).resolve().parent
CHROMIUM = os.environ.get("TRACE_ANALYZER_CHROMIUM") or shutil.which("chromium")
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (CHROMIUM and NODE and (HERE / "node_modules").is_dir()),
        reason="needs Chromium, Node.js and npm ci --prefix tests/browser",
    ),
]

Visit = dict[str, Any]
RUNS: dict[str, Callable[[], Path]] = {
    "two ranks": lambda: ROOT / "samples" / "slow_cpu_rank",
    "eight ranks": lambda: real_trace("public/param/dlrm_kineto"),
    "nsys without steps": lambda: real_trace("public-nsys/lizhieffe_ddp53_profile.sqlite"),
    "no GPU": lambda: real_trace("public/HolisticTraceAnalysis/cpu_only"),
}
VIEWS = ("light", "dark", "narrow", "plain")


@pytest.fixture(scope="module", params=RUNS)
def visited(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Visit:
    folder = tmp_path_factory.mktemp("report")
    page, data = folder / "report.html", folder / "report.json"
    run = str(RUNS[request.param]())
    made = CliRunner().invoke(cli, ["analyze", run, "--html", str(page), "--json", str(data)])
    assert made.exit_code == 0, made.output
    assert CHROMIUM
    assert NODE
    command = [NODE, str(HERE / "visit.mjs"), CHROMIUM, str(page)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    headline = json.loads(data.read_text(encoding="utf-8"))["verdict"]["headline"]
    return {"headline": headline, **json.loads(done.stdout)}


@pytest.mark.parametrize("view", VIEWS)
def test_asks_for_nothing_and_reports_no_error(visited: Visit, view: str) -> None:
    assert visited[view]["requests"] == []
    assert visited[view]["errors"] == []


@pytest.mark.parametrize("view", ["light", "dark", "narrow"])
def test_is_accessible(visited: Visit, view: str) -> None:
    assert visited[view]["violations"] == []


@pytest.mark.parametrize("view", VIEWS)
def test_shows_the_verdict(visited: Visit, view: str) -> None:
    shown = " ".join(visited[view]["text"].split())
    assert " ".join(visited["headline"].split()) in shown


def test_fits_a_narrow_screen(visited: Visit) -> None:
    assert visited["narrow"]["width"] <= 390


def test_prints(visited: Visit) -> None:
    assert 1 <= visited["pdf_pages"] <= 30
