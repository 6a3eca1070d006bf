"""The index page of an archive: what it says, and that it does nothing else."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace

import pytest

from tests.reports import archive_builder as made
from tests.reports.page import Node, parse
from trace_analyzer.archive import Totals
from trace_analyzer.reports import archive_html


@pytest.fixture(scope="module")
def pages() -> dict[str, Node]:
    return {name: parse(archive_html.render(page)) for name, page in made.ALL.items()}


@pytest.fixture(scope="module")
def page(pages: dict[str, Node]) -> Node:
    return pages["design"]


def _row(page: Node, name: str) -> list[str]:
    for row in page.one("table", id="table").one("tbody").all("tr"):
        cells = [cell.text for cell in row.children if isinstance(cell, Node)]
        if cells[0].removesuffix(" †") == name:
            return cells
    raise AssertionError(name)


def test_the_headline_counts_and_names_the_largest_gain(page: Node) -> None:
    assert page.one("h1").text.replace("\xa0", " ") == (
        "5 of 6 judged runs have a cause; the largest known gain is 22.5 ms a step."
    )
    assert page.one("h1").one("span", "gain").text == "22.5 ms"
    assert page.first("p", "meta").text.replace("\xa0", " ") == (
        "Archive h200-ddp and others · 8 runs · 6 judged, 1 not judged, 1 failed, 1 no longer there"
    )
    assert "Most time: nccl_1ch , COMM003 few-channels." in page.text
    assert "Most frequent: DATA001 dataloader-stall, 2" in page.text


@pytest.mark.parametrize(
    ("totals", "said"),
    [
        (made.EMPTY.totals, "No run could be judged."),
        (
            replace(made.TOTALS, with_cause=0, largest=None),
            "None of 6 judged runs has a cause that is worth fixing.",
        ),
        (
            replace(made.TOTALS, judged=1, with_cause=1, largest=None),
            "1 of 1 judged run has a cause; no gain is known.",
        ),
    ],
)
def test_other_headlines(totals: Totals, said: str) -> None:
    shown = parse(archive_html.render(replace(made.PAGE, totals=totals)))
    assert shown.one("h1").text.replace("\xa0", " ") == said


def test_rows_say_what_is_known(page: Node) -> None:
    assert [cell.replace("\xa0", " ") for cell in _row(page, "nccl_1ch")] == [
        "nccl_1ch", "2 × H200", "48.23", "", "▲ COMM003 few-channels", "both", "",
        "22.5 [22.3, 22.6]", "47 %", "none",
    ]  # fmt: skip
    assert _row(page, "slow_cpu_rank")[5].replace("\xa0", " ") == "rank 1"
    assert _row(page, "slow_cpu_rank")[9] == "TRC003 TRC006"
    assert _row(page, "resnet50")[1:3] == ["1 × V100", "176.30 *"]
    assert _row(page, "resnet50")[7:9] == ["unknown", "–"]
    assert _row(page, "healthy")[4] == "✓ none nothing worth fixing"
    assert _row(page, "healthy")[7] == "0"
    assert _row(page, "unfused")[4] == "△ HOST004 unfused-optimizer"
    assert _row(page, "dlrm_kineto")[2:5] == ["unknown", "no step times", "! trust not judged"]
    assert _row(page, "empty_events")[4] == "✕ error traceEvents is empty"
    assert _row(page, "empty_events")[2] == _row(page, "empty_events")[7] == "–"
    assert "† No longer in the archive." in page.text


def test_rows_link_to_reports_and_carry_what_they_are_sorted_by(page: Node) -> None:
    rows = page.one("table", id="table").one("tbody").all("tr")
    assert [row.attributes["data-key"] for row in rows] == [
        "COMM003", "DATA001", "RANK001", "HOST004", "DATA001", "none", "none", "not judged", "error"
    ]  # fmt: skip
    assert [row.attributes["data-gain"] for row in rows] == [
        "22.5000", "18.0000", "8.5000", "2.0000", "", "0", "0", "", ""
    ]  # fmt: skip
    assert rows[0].one("a").attributes["href"] == "runs/nccl_1ch-0123456789ab/report.html"
    assert not rows[-1].all("a")


def test_chips_filter_by_what_the_rows_have(page: Node) -> None:
    picks = [pick.text for pick in page.all("button", "pick")]
    assert picks == [
        "all 9", "DATA001 · 2", "COMM003 · 1", "HOST004 · 1", "RANK001 · 1", "none · 2",
        "not judged · 1", "error · 1",
    ]  # fmt: skip


def test_steps_are_bars_from_zero(page: Node) -> None:
    row = page.one("table", id="table").one("tbody").all("tr")[0]
    drawn = row.all("svg")[0].one("path").attributes["d"]
    assert drawn.count("M") == 4
    assert "v-20h" in drawn  # the longest step takes all of the height


def test_gains_share_one_scale(page: Node) -> None:
    bars = [
        row.all("td")[5].all("rect") for row in page.one("table", id="table").one("tbody").all("tr")
    ]
    widths = [rects[0].attributes["width"] for rects in bars if rects]
    assert widths == ["93.75%", "75%", "35.42%", "8.33%"]
    assert page.one("span", "ticks").text == "0 4 8 12 16 20 24"


def test_causes_are_counted(page: Node) -> None:
    rows = page.one("section", id="causes").one("tbody").all("tr")
    assert [row.text for row in rows] == [
        "▲ DATA001 dataloader-stall 2 3 18.0",
        "▲ COMM003 few-channels 1 1 22.5",
        "△ HOST004 unfused-optimizer 1 4 unknown",
    ]


def test_jobs_show_step_time_causes_and_commits_over_time(page: Node) -> None:
    section = page.one("section", id="jobs")
    head = section.one("h3").text.replace("\xa0", " ")
    assert head == (
        "nightly 8 × NVIDIA H200 · step measured, unprofiled · 7 runs · 3 earlier ones in index.db"
    )
    chart = section.all("svg")[1]
    assert "first 25.0 ms, last 33.0 ms, highest 33.0 ms" in chart.attributes["aria-label"]
    assert len(chart.all("circle", "run")) == 4
    assert len(chart.all("path", "cause")) == 3
    rows = [row.text.replace("\xa0", " ") for row in section.one("tbody").all("tr")]
    assert rows[0] == "2026-11-07 00:00 c0ffee7 33.00 ±0 % ▲ HOST002 per-step-sync nightly/7"
    assert rows[2] == "2026-11-05 00:00 c0ffee5 33.00 ▲ +32 % ▲ HOST002 per-step-sync nightly/5"
    assert rows[5].startswith("2026-11-02 00:00 v1.2 25.00 ±0 %")
    assert rows[6].split()[4] == "–"


def test_runs_stand_apart_by_time(page: Node) -> None:
    history = replace(
        made.JOB,
        runs=tuple(
            replace(run, started=f"2026-11-{day:02}T00:00:00Z", cause=None)
            for run, day in zip(made.NIGHTS[:3], (1, 2, 11), strict=True)
        ),
    )
    shown = parse(archive_html.render(replace(made.PAGE, jobs=(history,))))
    marks = shown.one("section", id="jobs").all("circle", "run")
    assert [float(mark.attributes["cx"].rstrip("%")) for mark in marks] == [1.0, 10.8, 99.0]


def test_pages_name_each_other(pages: dict[str, Node]) -> None:
    links = pages["large"].one("nav", "pages")
    assert [link.attributes["href"] for link in links.all("a")] == ["index.html", "index-3.html"]
    assert links.one("strong").text == "2"
    assert not pages["large"].all("section", id="causes")
    assert len(archive_html.render(made.LARGE).encode()) < 3_000_000


def test_policy_and_structure(pages: dict[str, Node]) -> None:
    for name, shown in pages.items():
        head = shown.one("head")
        policy = head.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"]
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        assert rules["default-src"] == "'none'"
        for tag, rule in (("script", "script-src"), ("style", "style-src")):
            digest = hashlib.sha256(shown.one(tag).raw.encode()).digest()
            assert rules[rule] == f"'sha256-{base64.b64encode(digest).decode()}'", name
        assert "unsafe" not in policy
        assert len(shown.all("h1")) == 1
        identifiers = [node.attributes["id"] for node in shown.all() if "id" in node.attributes]
        assert len(identifiers) == len(set(identifiers))
        for node in shown.all():
            assert "style" not in node.attributes, name
            assert not any(key.startswith("on") for key in node.attributes), name
            assert "src" not in node.attributes, name
        for table in shown.all("table"):
            assert table.one("caption").text
            widths = {len(row.all("th") + row.all("td")) for row in table.all("tr")}
            assert len(widths) == 1, name
        assert "Content-Security-Policy" not in shown.one("body").text


def test_hostile_names_are_text(pages: dict[str, Node]) -> None:
    shown = pages["hostile"]
    assert not shown.all("img")
    assert len(shown.all("script")) == 1
    text = archive_html.render(made.HOSTILE)
    assert "\u202e" not in text
    assert "\x00" not in text
    for link in shown.all("a"):
        assert "<" not in link.attributes["href"]
        assert link.attributes["href"].startswith(("#", "runs/", "index"))


def test_same_archive_same_bytes() -> None:
    assert archive_html.render(made.PAGE) == archive_html.render(made.PAGE)
