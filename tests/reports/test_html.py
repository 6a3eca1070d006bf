"""The page: one file, no request, complete without its script, for every kind of report."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator

import pytest

from tests.reports import builder
from tests.reports.page import Node, parse
from trace_analyzer.reports import html
from trace_analyzer.reports import json as json_report
from trace_analyzer.reports.page import script_text, static_text

SECTIONS = (
    "verdict", "findings", "step", "timeline", "late", "links", "nccl", "kernels", "environment",
    "inputs", "checks", "glossary",
)  # fmt: skip


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    made = {}
    for name, make in builder.ALL.items():
        report = make()
        timeline = None if name == "cpu_only" else builder.timeline(max(len(report.ranks), 1))
        made[name] = html.render(report, timeline=timeline)
    return made


@pytest.fixture(scope="module")
def pages(texts: dict[str, str]) -> dict[str, Node]:
    return {name: parse(text) for name, text in texts.items()}


def _each(pages: dict[str, Node]) -> Iterator[tuple[str, Node]]:
    return iter(pages.items())


def test_sections_stand_in_order(pages: dict[str, Node]) -> None:
    for name, page in _each(pages):
        order = [node.attributes["id"] for node in page.all("section")]
        assert order == list(SECTIONS), name


def test_structure_for_readers_of_any_kind(pages: dict[str, Node]) -> None:
    for name, page in _each(pages):
        assert page.one("html").attributes["lang"] == "en", name
        assert len(page.all("h1")) == 1
        page.one("main")
        page.one("header", "bar")
        page.one("nav")
        assert page.one("a", "skip").attributes["href"] == "#verdict"
        identifiers = [n.attributes["id"] for n in page.all() if "id" in n.attributes]
        assert len(identifiers) == len(set(identifiers)), name
        for section in page.all("section"):
            assert section.attributes["aria-labelledby"] in identifiers
        for link in page.all("a"):
            target = link.attributes["href"]
            assert target.startswith("#"), f"{name}: {target}"
            assert target[1:] in identifiers, f"{name}: {target}"


def test_tables_have_captions_and_scopes(pages: dict[str, Node]) -> None:
    for name, page in _each(pages):
        for table in page.all("table"):
            assert table.one("caption").text, name
            for head in table.first("thead").all("th"):
                assert head.attributes["scope"] == "col"
            for row in table.first("tbody").all("tr"):
                assert row.one("th").attributes["scope"] == "row"
            widths = {len(r.all("th") + r.all("td")) for r in table.all("tr")}
            assert len(widths) == 1, f"{name}: {table.one('caption').text}: {widths}"
        for figure in page.all("svg"):
            hidden = figure.attributes.get("aria-hidden") == "true"
            nested = "viewbox" in figure.attributes or "focusable" not in figure.attributes
            assert hidden or nested or figure.attributes["aria-label"], name


def test_policy_names_what_may_run_by_its_hash(
    texts: dict[str, str], pages: dict[str, Node]
) -> None:
    for name, page in _each(pages):
        head = page.one("head")
        policy = head.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"]
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        scripts = [s for s in page.all("script") if s.attributes.get("type") != "application/json"]
        assert len(scripts) == (1 if name == "cpu_only" else 2), name
        assert len(page.all("style")) == 1
        for nodes, rule in ((scripts, "script-src"), (page.all("style"), "style-src")):
            digests = [hashlib.sha256(node.raw.encode()).digest() for node in nodes]
            named = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
            assert rules[rule].split() == named, name
        assert rules["default-src"] == "'none'"
        assert rules["img-src"] == "data:"
        assert rules["base-uri"] == "'none'"
        assert rules["form-action"] == "'none'"
        assert "unsafe" not in policy
        order = [node.tag for node in head.children if isinstance(node, Node)]
        assert order.index("meta") < order.index("style")


def test_nothing_is_fetched_and_nothing_is_styled_or_handled_inline(pages: dict[str, Node]) -> None:
    for name, page in _each(pages):
        for node in page.all():
            for key, value in node.attributes.items():
                assert key != "style", name
                assert not key.startswith("on"), f"{name}: {key}"
                assert key not in {"src", "srcset", "action", "xlink:href", "poster"}, name
                assert "://" not in value or node.tag == "title" or name == "hostile", (
                    f"{name}: {value}"
                )
        assert [link.attributes["href"] for link in page.all("link")] == ["data:,"]
        assert not re.search(r"@import|url\((?!#)", page.one("style").raw)


def test_same_report_same_bytes(texts: dict[str, str]) -> None:
    for name in ("slow_cpu_rank", "world8", "hostile"):
        report = builder.ALL[name]()
        again = html.render(report, timeline=builder.timeline(max(len(report.ranks), 1)))
        assert again == texts[name]


def test_no_number_is_nan_none_or_a_template(texts: dict[str, str], pages: dict[str, Node]) -> None:
    for name, page in _each(pages):
        body = page.one("body").text
        assert not re.search(r"\bnan\b|\binf\b|\bNone\b|\bundefined\b|\{\{|\[object", body), name
        marks = re.sub(r"<script.*?</script>|<style.*?</style>", "", texts[name], flags=re.DOTALL)
        assert not re.search(r'="[^"]*\b(?:nan|inf)\b', marks, flags=re.IGNORECASE), name


def test_report_inside_is_the_report(texts: dict[str, str], pages: dict[str, Node]) -> None:
    for name, page in _each(pages):
        inside = page.one("script", id="report").raw
        assert "<" not in inside
        assert json.loads(inside) == json.loads(json_report.render(builder.ALL[name]())), name


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("slow_cpu_rank", 400_000),
        ("one_rank", 400_000),
        ("world8", 800_000),
        ("world64", 2_000_000),
    ],
)
def test_size(texts: dict[str, str], name: str, limit: int) -> None:
    assert len(texts[name].encode()) <= limit


def test_style_and_script_stay_small() -> None:
    assert len(static_text("report.css", "timeline.css").encode()) <= 28_000
    assert len(script_text("report.js").encode()) <= 10_000
    assert len(script_text(*html._LIVE_SCRIPTS).encode()) <= 55_000


# Hostile text


def test_hostile_text_is_text(texts: dict[str, str], pages: dict[str, Node]) -> None:
    page = pages["hostile"]
    assert page.all("img") == []
    assert len(page.all("script")) == 5
    outside = re.sub(r'<script type="application/json".*?</script>', "", texts["hostile"])
    for character in ("\u202e", "\u0000", "\x1b", "\u200b", "\u2066"):
        assert character not in texts["hostile"]
    assert "</script><img" not in outside
    assert "onerror=alert(1)>⟦U+202E⟧gnp.exe␀␛[31m⟦U+200B⟧" in page.one("h1").text


def test_long_names_are_short_and_whole_on_demand(pages: dict[str, Node]) -> None:
    table = pages["hostile"].one("section", id="kernels").first("table")
    opened = table.all("details", "full")
    longest = max(opened, key=lambda node: len(node.one("code").text))
    assert len(longest.one("summary").text) <= 32
    assert len(longest.one("code").text) > 4000


# What it says


def test_verdict_of_a_fault(pages: dict[str, Node]) -> None:
    verdict = pages["slow_cpu_rank"].one("section", id="verdict")
    assert verdict.one("p", "state").text == "▲ Cause found · confidence high"
    headline = verdict.one("h1")
    assert (
        headline.raw.replace("\N{NO-BREAK SPACE}", " ") == builder.slow_cpu_rank().verdict.headline
    )
    assert headline.one("span", "gain").text == "8.5 of 34.3 ms"
    assert verdict.one("div", "next").text.startswith("Do next Look at what rank 1 executes")
    assert verdict.one("div", "next").first("code").text == "model(x)"
    assert [p.first("strong").text for p in verdict.one("div", "answer").all("p")[1:3]] == [
        "Proof.",
        "Not the network.",
    ]


def test_states(pages: dict[str, Node]) -> None:
    shown = {name: page.one("p", "state").text for name, page in _each(pages)}
    assert shown["healthy"] == "✓ Nothing worth fixing"
    assert shown["likely"] == "▲ Cause likely · confidence medium"
    assert shown["truncated"] == "! No verdict: data not trustworthy"
    assert shown["bare"] == "! No verdict"


def test_ruler(pages: dict[str, Node]) -> None:
    ruler = pages["slow_cpu_rank"].one("div", "ruler")
    lines = [line.text for line in ruler.all("div", "line")]
    assert lines == [
        "In this trace (profiler on: not the real speed) 54.6 ms",
        "Unprofiled, measured (12 steps) 34.3 ms",
        "Replayed: rank 1's host as fast as rank 0's 25.8 ms [24.2, 26.4]",
    ]
    bars = [node.all("rect") for node in ruler.all("svg")]
    # 60 ms are 100 %: 34.26 ms outlined, 20.34 ms beyond; 25.76 ms stay, 8.5 ms come back.
    assert [(r.attributes["x"], r.attributes["width"]) for r in bars[0]] == [
        ("0%", "57.1%"),
        ("57.1%", "33.9%"),
    ]
    assert [(r.attributes["class"], r.attributes["width"]) for r in bars[1]] == [
        ("muted", "42.93%"),
        ("bad", "14.17%"),
    ]
    assert [r.attributes["width"] for r in bars[2]] == ["42.93%"]
    assert ruler.all("text", "axis")[0].text == "0 ms"
    assert ruler.all("text", "axis")[-1].text == "60 ms"


def test_ruler_of_a_predicted_step(pages: dict[str, Node]) -> None:
    lines = [line.text for line in pages["likely"].one("div", "ruler").all("div", "line")]
    assert lines[1] == "Unprofiled, predicted 34.1 ms [31.0, 37.5]"
    page = pages["likely"].one("details", id="finding-1")
    assert page.first("span", "below").text.endswith("predicted")


def test_ruler_where_nothing_is_worth_fixing(pages: dict[str, Node]) -> None:
    lines = [line.text for line in pages["healthy"].one("div", "ruler").all("div", "line")]
    assert lines[2] == "Largest single gain, replayed 0.4 ms, under the 3 % line"


def test_untrustworthy_data_shows_what_can_be_answered(pages: dict[str, Node]) -> None:
    verdict = pages["truncated"].one("section", id="verdict")
    assert verdict.all("div", "ruler") == []
    rows = [row.text for row in verdict.one("div", "answers").all("div")]
    assert rows == [
        "Kernels of step 4 ✓ yes",
        "Where a step goes ! 1 step, partial",
        "Late ranks, wait, links – needs the other ranks",
        "Recoverable time – needs 2 complete steps",
    ]
    names = [dt.text for dt in verdict.one("div", "trust").all("dt")]
    assert names == ["TRC001 truncated-input", "TRC002 missing-rank", "TRC009 malformed-events"]
    assert "Rank 0 · partial" in pages["truncated"].one("section", id="step").text


def test_questions_are_folded_where_a_ruler_answers_first() -> None:
    report = builder.change(builder.bare(), answers=builder.truncated().answers)
    page = parse(html.render(report))
    assert page.one("details", "answers").one("summary").text == (
        "What these files can answer: 1 of 4 questions"
    )
    assert len(page.one("details", "answers").all("div")) == 4


def test_warnings_heading(pages: dict[str, Node]) -> None:
    assert "! Data usable, with 2 warnings." in pages["slow_cpu_rank"].one("div", "trust").text
    assert pages["healthy"].one("p", "trusted").text == "✓ Data good : no warning"


def test_findings_open_and_closed(pages: dict[str, Node]) -> None:
    findings = pages["slow_cpu_rank"].all("details", "finding")
    assert ["open" in node.attributes for node in findings] == [True, False, False]
    assert [node.first("span", "no").text for node in findings] == ["1", "2", "–"]
    assert [node.first("span", "big").text for node in findings] == ["8.5", "0.9", "≈ 0"]
    first = findings[0]
    assert [h.text for h in first.all("h3")] == [
        "Proof: step 5, both ranks on one clock",
        "What to do",
        "Why this is not the network",
        "When this finding is wrong",
        "How sure",
    ]
    assert len(first.all("li")) == 3
    assert "Expect 25.7 ms a step" in first.one("div", "todo").text
    jump = first.one("div", "proof").one("a", href="#timeline")
    assert jump.text == "Show in timeline"
    # The range inside step 5, which the picture shows; the left edge is the first event, at 9 ms.
    assert (jump.attributes["data-t"], jump.attributes["data-r"]) == ("110.0000-125.5000", "1")
    bars = [node.first("svg").all("rect") for node in findings]
    # The scale ends at 16 ms, the first round number above the largest ceiling, 15.4 ms.
    assert [r.attributes["width"] for r in bars[0]] == ["53.12%"]
    assert bars[2] == []
    ceiling = findings[0].first("svg").all("line", "ceiling")
    assert [line.attributes["x1"] for line in ceiling] == ["96.25%"]
    assert (
        "fixing them together replays to 24.9 ms, 9.4 ms less"
        in pages["slow_cpu_rank"].one("section", id="findings").text
    )


def test_evidence_links_to_its_places(pages: dict[str, Node]) -> None:
    evidence = pages["slow_cpu_rank"].all("details", "finding")[0].one("div", "evidence")
    cells = [link for row in evidence.all("tr") for link in row.all("a")]
    assert [link.text for link in cells] == ["5 of 5"] * 3
    assert {link.attributes["data-t"] for link in cells} == {"0.0000-15.0000"}
    line = evidence.one("p", "places")
    assert line.text == "In the timeline: step 3 , step 4 , step 5 , step 6 , step 7"
    assert [link.attributes["data-t"] for link in line.all("a")][1] == "55.0000-70.0000"


def test_series_are_bars_from_zero(pages: dict[str, Node]) -> None:
    figure = pages["slow_cpu_rank"].all("details", "finding")[1].one("figure", "series")
    assert figure.one("figcaption").text.replace("\N{NO-BREAK SPACE}", " ") == (
        "Unprofiled step of rank 0, 8 steps from 12: median 34.3 ms, largest 61.2 ms at step 14; "
        "red: what the finding is about."
    )
    bars = figure.all("rect")
    assert [bar.attributes["class"] for bar in bars].count("bad") == 2
    assert len(bars) == 7  # one value is unknown
    tall = [float(bar.attributes["height"]) for bar in bars]
    assert tall[2] / tall[0] == pytest.approx(61.2 / 34.3, rel=0.01)


def test_findings_without_replay(pages: dict[str, Node]) -> None:
    section = pages["likely"].one("section", id="findings")
    rows = [
        (n.first("span", "big").text, n.first("span", "below").text)
        for n in section.all("details", "finding")
    ]
    assert rows[1] == ("≤ 2.0", "at most: ceiling only")
    assert rows[2] == ("–", "on evidence")
    assert "experimental" in section.all("details", "finding")[1].text
    assert "caused by RANK001" in section.all("details", "finding")[1].text
    assert "Opportunities" in section.one("h3", "apart").text


def test_partition_bars_hold_the_numbers_of_the_table(pages: dict[str, Node]) -> None:
    section = pages["slow_cpu_rank"].one("section", id="step")
    rows = section.all("div", "bar-row")[:2]
    assert [row.one("span", "total").text for row in rows] == ["54.6 ms", "55.1 ms"]
    parts = [(r.attributes["class"], r.attributes["width"]) for r in rows[0].all("rect")]
    # 60 ms are 100 %.
    assert parts == [
        ("compute", "45.82%"),
        ("transfer", "4.7%"),
        ("wait", "39.83%"),
        ("copy", "0.05%"),
        ("idle", "0.63%"),
        ("transfer", "26.48%"),
    ]
    cells = [c.text for c in section.first("table").first("tbody").first("tr").all("td")]
    assert cells == [
        "54.62",
        "27.49",
        "2.82",
        "23.90",
        "0.03",
        "0.38",
        "0.00",
        "0.30",
        "0.08",
        "15.89",
    ]


def test_partition_of_one_rank_says_that_wait_is_not_known(pages: dict[str, Node]) -> None:
    section = pages["one_rank"].one("section", id="step")
    assert "one rank: wait cannot be told from transfer" in section.text
    assert section.all("rect", "wait") == []
    assert "One rank was recorded" in pages["one_rank"].one("section", id="late").text


def test_partition_without_steps_is_of_the_window(pages: dict[str, Node]) -> None:
    section = pages["no_steps"].one("section", id="step")
    assert section.one("h2").text == "Where the time goes"
    assert "No step boundary was found" in section.text
    cells = [c.text for c in section.first("table").first("tbody").first("tr").all("td")]
    assert cells[0] == "283.10"


def test_without_gpu_work_blocks_shrink_to_a_line(pages: dict[str, Node]) -> None:
    page = pages["cpu_only"]
    for section in (
        "findings",
        "step",
        "timeline",
        "late",
        "links",
        "nccl",
        "kernels",
        "environment",
        "checks",
    ):
        node = page.one("section", id=section)
        assert node.all("table") == []
        assert len(node.all("p")) == 1, section


def test_many_ranks_are_summed_up(pages: dict[str, Node]) -> None:
    page = pages["world64"]
    bars = [row.one("strong").text for row in page.one("div", "bars").all("span", "rank-name")]
    assert bars[0] == "Rank 3 ▲"
    assert len(bars) <= 8
    strips = page.one("svg", "strips")
    assert len([n for n in strips.children if isinstance(n, Node) and n.tag == "svg"]) == 64
    assert (
        "64 ranks" in page.one("section", id="step").text
        or "All 64" in page.one("section", id="step").text
    )
    heads = [th.text for th in page.one("section", id="nccl").first("thead").all("th")]
    assert heads[6:9] == ["▼ Wait ms/step, median", "Wait ms/step, p95", "Wait ms/step, max (rank)"]
    assert "61 ranks drawn as the mean of a group" in page.one("section", id="timeline").text
    assert len(page.one("svg", "heat-strip").all("rect")) == 64 * 5


def test_nccl_table(pages: dict[str, Node]) -> None:
    section = pages["slow_cpu_rank"].one("section", id="nccl")
    head = [th.text for th in section.first("thead").all("th")]
    assert head == [
        "Collective", "Size MB", "Type", "Calls /step", "Grid × block channels × threads",
        "Transfer µs, p50", "▼ Wait r0 ms/step", "Wait r1 ms/step", "Exposed ms/step",
        "Algorithm GB/s", "Bus GB/s",
    ]  # fmt: skip
    rows = [[c.text for c in row.all("td")] for row in section.first("tbody").all("tr")]
    assert rows[0][:6] == ["131.1", "fp32", "1", "24 × 544", "502", "20.41"]
    total = section.first("tfoot").first("tr").all("td")
    assert total[0].text == "681.6"
    assert total[5].text == "41.76"


def test_nccl_table_before_matching(pages: dict[str, Node]) -> None:
    section = pages["bare"].one("section", id="nccl")
    head = [th.text for th in section.first("thead").all("th")]
    assert head[5:9] == ["Duration µs, p50", "Duration µs, p99", "▼ Total r0 ms", "Total r1 ms"]
    assert "a rank that arrives early counts longer" in section.text


def test_lateness_and_links(pages: dict[str, Node]) -> None:
    late = pages["slow_cpu_rank"].one("section", id="late")
    rows = [
        [(c.text, c.attributes["class"]) for c in row.all("td")]
        for row in late.first("tbody").all("tr")
    ]
    assert rows[0] == [("0.0", "s1")] * 6
    assert rows[1] == [
        ("16.7", "s4"),
        ("18.5", "s4"),
        ("24.3", "s5"),
        ("18.7", "s4"),
        ("23.9", "s5"),
        ("18.7", "s4"),
    ]
    links = pages["world8"].one("section", id="links")
    cells = [[c.text for c in row.all("td")] for row in links.first("tbody").all("tr")]
    assert cells[2][5] == "▲ 131"
    assert cells[0][0] == "–"
    assert "less than half of the median" in links.text
    groups = pages["world64"].one("section", id="links")
    assert "cannot be told from this trace" in groups.text
    assert "62 %" in groups.text.replace("\N{NO-BREAK SPACE}", " ")


def test_environment_puts_differences_first(pages: dict[str, Node]) -> None:
    section = pages["world8"].one("section", id="environment")
    assert "OMP_NUM_THREADS is 1 on rank 3" in section.one("ul", "differences").text
    differing = section.one("div", "differs").text.replace("\N{NO-BREAK SPACE}", " ")
    assert differing == "OMP_NUM_THREADS 4 (ranks 0, 1 and 5 more) · 1 (rank 3)"
    assert "Nothing recorded" in pages["slow_cpu_rank"].one("section", id="environment").text


def test_command_and_checks(pages: dict[str, Node]) -> None:
    page = pages["slow_cpu_rank"]
    assert (
        page.one("pre", "command").text
        == "trace-analyzer analyze slow_cpu_rank/ --html slow_cpu_rank.html"
    )
    assert "replay error 0.3 %" in page.one("section", id="inputs").text.replace(
        "\N{NO-BREAK SPACE}", " "
    )
    checks = page.one("section", id="checks")
    assert [item.first("span", "glyph").text for item in checks.all("li")][:2] == ["✕", "✓"]
    assert checks.one("p", "how").text.replace("\N{NO-BREAK SPACE}", " ") == (
        "14 causes: 3 listed above, 7 passed, 1 not distinguishable, 2 not applicable, 1 in error."
    )


def test_terms_are_explained(pages: dict[str, Node]) -> None:
    for name in ("slow_cpu_rank", "bare"):
        terms = {link.attributes["href"] for link in pages[name].all("a", "term")}
        assert "#g-wait" in terms
        assert "#g-transfer" in terms


def test_words_that_the_copy_rules_forbid(pages: dict[str, Node]) -> None:
    forbidden = re.compile(
        r"bottleneck|inefficien|utili[sz]ation|significant|investigate|consider", re.IGNORECASE
    )
    for name, page in _each(pages):
        assert not forbidden.search(page.one("body").text), name
