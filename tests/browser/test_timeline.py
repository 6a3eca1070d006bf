"""The timeline in Chromium: keys, pointer, fingers, search, links, themes, paper, old browsers.

Needs what test_report.py needs; skipped where that is absent.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.browser.test_report import CHROMIUM, HERE, NODE
from tests.browser.test_report import pytestmark as needs
from tests.reports import builder
from trace_analyzer.findings import Range
from trace_analyzer.reports import html

pytestmark = needs

Used = dict[str, Any]
RUNS = ("slow_cpu_rank", "world8", "hostile")
MARKS = [(119.0, 134.5), (174.0, 189.5)]  # ms; the windows of the made timeline begin at zero


@pytest.fixture(scope="module", params=RUNS)
def used(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Used:
    report = builder.ALL[request.param]()
    label = builder.HOSTILE if request.param == "hostile" else "no host activity 15.5 ms"
    places = [
        Range(rank=1, start_ns=int(a * builder.MS), end_ns=int(b * builder.MS), label=label)
        for a, b in MARKS
    ]
    first = builder.change(report.findings[0], ranges=places)
    report = builder.change(report, findings=[first, *report.findings[1:]])
    timeline = builder.timeline(max(len(report.ranks), 1))
    page = tmp_path_factory.mktemp("timeline") / "report.html"
    page.write_text(html.render(report, timeline=timeline), encoding="utf-8")
    assert CHROMIUM
    assert NODE
    command = [NODE, str(HERE / "timeline.mjs"), CHROMIUM, str(page)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return {"name": request.param, **json.loads(done.stdout)}


def _only(used: Used, name: str) -> None:
    if used["name"] != name:
        pytest.skip(f"of {name} only")


def test_nothing_is_asked_for_and_nothing_runs(used: Used) -> None:
    assert used["requests"] == []
    assert used["errors"] == []
    assert used["dialogs"] == []


def test_stands_in_place_of_the_picture(used: Used) -> None:
    assert used["live"] == {"live": True, "still": False, "problem": False}
    assert used["paper"] == {"live": False, "still": True}
    assert used["plain"] == {"live": False, "still": True, "problem": ""}


def test_says_so_where_it_cannot_be_unpacked(used: Used) -> None:
    for kind, word in (("old", "DecompressionStream"), ("damaged", "could not be unpacked")):
        assert (used[kind]["live"], used[kind]["still"]) == (False, True)
        assert word in used[kind]["problem"]
        assert "The picture below stands in." in used[kind]["problem"]


def test_opens_on_the_step_that_the_picture_shows(used: Used) -> None:
    # Step 5 of the made timeline is [119, 174) ms; its zero is the first event, at 9 ms.
    assert used["first"] == {"step": "Step 5", "from": 107.8, "to": 169.4}


def test_keys_zoom_and_walk(used: Used) -> None:
    assert used["whole"] == {"step": "Whole recording", "from": 0, "to": 272}
    assert used["step"]["step"] == "Step 3"
    assert used["next_step"] == {"step": "Step 4", "from": 52.8, "to": 112.2}
    assert used["closer"]["to"] - used["closer"]["from"] == pytest.approx(59.4 / 1.5**3, abs=0.2)
    assert used["panned"]["from"] - used["next_step"]["from"] == pytest.approx(59.4 / 4, abs=0.2)


def test_a_slice_tells_shape_size_wait_and_launch(used: Used) -> None:
    _only(used, "slow_cpu_rank")
    kernel, collective = used["slice"], used["lane_below"]
    assert kernel["name"] == "nvjet 256x128_64x4"
    assert kernel["where"] == "rank 0 · GPU · stream 7 · step 4"
    assert kernel["time"].endswith("ms for 110 µs")
    assert kernel["shape"].replace("\N{NO-BREAK SPACE}", " ") == "(2 × 66) × 384 · stream 7"
    assert kernel["launched"] == "≈ 2.0 ms before start"
    assert kernel["full"] == "nvjet_tst_256x128_64x4"
    assert collective["name"] == "AllReduce #1 of 13"
    assert collective["size"] == "33.6 MB · f32"
    assert collective["shape"].replace("\N{NO-BREAK SPACE}", " ") == "24 × 544 · stream 17"
    assert collective["wait"] == "18.80 + 0.50 ms"
    assert collective["bus"] == "67 GB/s"  # 33.6 MB in 0.5 ms, two ranks
    assert "wait and transfer 18.80 + 0.50 ms" in used["spoken"]
    assert used["full_open"]
    assert used["buttons_have_names"]


def test_search_counts_and_finds(used: Used) -> None:
    ranks = {"slow_cpu_rank": 2, "world8": 8, "hostile": 2}[used["name"]]
    assert used["search_focus"] == "search"
    assert used["found"].split(" of ")[0] == f"{65 * ranks}"
    assert used["found_slice"]["name"].startswith("AllReduce #1 of 13")
    assert used["search_left"] == ""


def test_findings_are_bookmarks(used: Used) -> None:
    mark = used["mark"]
    assert mark["from"] == pytest.approx(110 - 0.12 * 15.5, abs=0.1)
    assert mark["to"] == pytest.approx(125.5 + 0.12 * 15.5, abs=0.1)
    assert mark["name"].startswith("Finding 1: RANK001 ")
    assert mark["where"].startswith("rank 1 · ")
    assert mark["link"] == "#finding-1"
    assert used["second_mark"]["from"] == pytest.approx(mark["from"] + 55, abs=0.2)
    assert used["back_mark"]["from"] == mark["from"]


def test_a_link_of_the_proof_shows_its_range_and_can_be_sent(used: Used) -> None:
    jump = used["jump"]
    assert jump["hash"] == "#t=108.14-127.36&r=1"
    assert (jump["from"], jump["to"]) == (108.1, 127.4)
    assert (jump["focus"], jump["top"]) == ("tl-canvas", 0)
    assert used["again"] == {key: jump[key] for key in ("step", "from", "to")}
    assert used["kept"] == jump["hash"]


def test_pointer_drags_and_only_ctrl_wheel_zooms(used: Used) -> None:
    assert used["dragged_share"] == pytest.approx(100, abs=2)
    assert used["wheel_scrolls"] == -120
    assert used["wheel"]["zoomed"] < 0.7 * used["wheel"]["plain"]
    assert used["strip"]["from"] == 0


def test_two_fingers_zoom(used: Used) -> None:
    assert 2.2 < used["pinch"] < 3.2


def test_ranks_fold_and_keep_the_keyboard(used: Used) -> None:
    opened = {"slow_cpu_rank": 2, "world8": 4, "hostile": 2}[used["name"]]
    assert used["expanded"].count("true") == opened
    assert used["closed"]["expanded"].count("true") == opened - 1
    assert used["closed"]["height"] < 0
    assert used["closed"]["focus"].startswith("▸ Rank ")


def test_follows_the_theme(used: Used) -> None:
    assert used["ground"] == {"light": [255, 255, 255], "dark": [20, 23, 26]}


def test_small_runs_lose_nothing(used: Used) -> None:
    assert used["said"] == ""
