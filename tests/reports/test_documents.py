"""`scaling` and `compare` as page, markdown and terminal text: complete, safe, and to scale."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from itertools import pairwise

import pytest

from tests.reports import made_documents as made
from tests.reports.page import Node, parse
from trace_analyzer.findings import encode
from trace_analyzer.reports import (
    compare_html,
    compare_markdown,
    compare_terminal,
    compare_words,
    scaling_html,
    scaling_markdown,
    scaling_terminal,
    scaling_words,
)
from trace_analyzer.reports.names import display_width

NAMES = [*(("scaling", name) for name in made.SCALING), *(("compare", n) for n in made.COMPARISON)]


@cache
def page(kind: str, name: str) -> str:
    if kind == "scaling":
        return scaling_html.render(made.SCALING[name]())
    return compare_html.render(made.COMPARISON[name]())


def markdown(kind: str, name: str) -> str:
    if kind == "scaling":
        return scaling_markdown.render(made.SCALING[name]())
    return compare_markdown.render(made.COMPARISON[name]())


def terminal(
    kind: str, name: str, width: int = 80, *, color: bool = False, plain: bool = False
) -> str:
    if kind == "scaling":
        return scaling_terminal.render(made.SCALING[name](), color=color, width=width, plain=plain)
    return compare_terminal.render(made.COMPARISON[name](), color=color, width=width, plain=plain)


def document(kind: str, name: str) -> bytes:
    return encode((made.SCALING if kind == "scaling" else made.COMPARISON)[name]())


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_pages_are_whole_and_ask_for_nothing(kind: str, name: str) -> None:
    text = page(kind, name)
    root = parse(text)
    assert len(root.all("h1")) == 1
    identifiers = [n.attributes["id"] for n in root.all() if "id" in n.attributes]
    assert len(identifiers) == len(set(identifiers))
    anchors = {a.attributes["href"][1:] for a in root.one("nav").all("a")}
    assert anchors <= set(identifiers)
    for attribute in ("src", "srcset", "action"):
        assert not any(attribute in node.attributes for node in root.all())
    for node in root.all("a") + root.all("link"):
        assert node.attributes["href"].startswith(("#", "data:"))
    assert "url(http" not in text
    assert not any(key.startswith("on") for node in root.all() for key in node.attributes)
    for section in root.all("section"):
        assert section.attributes["aria-labelledby"] in identifiers


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_the_policy_names_style_and_script_by_their_hash(kind: str, name: str) -> None:
    root = parse(page(kind, name))
    policy = next(
        node.attributes["content"]
        for node in root.all("meta")
        if node.attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'")
    for tag in ("style", "script"):
        for node in root.all(tag):
            if node.attributes.get("type") == "application/json":
                continue
            digest = base64.b64encode(hashlib.sha256(node.raw.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in policy


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_the_document_is_inside_the_page(kind: str, name: str) -> None:
    inside = parse(page(kind, name)).one("script", id="report").raw
    assert json.loads(inside) == json.loads(document(kind, name))
    copied = json.loads(parse(page(kind, name)).one("script", id="summary").raw)
    assert copied == markdown(kind, name)


@pytest.mark.parametrize("kind", ["scaling", "compare"])
def test_hostile_text_is_text(kind: str) -> None:
    root = parse(page(kind, "hostile"))
    clean = parse(page(kind, "scaled" if kind == "scaling" else "channels"))
    tags = {node.tag for node in root.all()}
    assert tags <= {node.tag for node in clean.all()} | {"details", "summary", "code"}
    assert len(root.all("script")) == len(clean.all("script"))
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b]", page(kind, "hostile"))
    written = markdown(kind, "hostile")
    assert not re.search(r"(?<!\\)<", written)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_terminal_lines_fit(kind: str, name: str, width: int) -> None:
    text = terminal(kind, name, width)
    assert max(display_width(line) for line in text.splitlines()) <= width
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u200b]", text)
    assert not re.search(r"\bnan\b|\bNone\b|\binf\b", text)
    assert text.endswith("\n")


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_nothing_reads_as_a_missing_value(kind: str, name: str) -> None:
    for text in (parse(page(kind, name)).one("main").text, markdown(kind, name)):
        assert not re.search(r"\bnan\b|\bNone\b|\binf\b|\bTrue\b|\bFalse\b", text)


@pytest.mark.parametrize("kind", ["scaling", "compare"])
def test_terminal_without_unicode_and_with_colour(kind: str) -> None:
    name = "scaled" if kind == "scaling" else "slow"
    terminal(kind, name, plain=True).encode("ascii")
    coloured = terminal(kind, name, color=True)
    assert "\x1b[" in coloured
    stripped = re.sub(r"\x1b\[[\d;]*m", "", coloured)
    plain = terminal(kind, name)
    assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()


def rects(node: Node, cls: str) -> list[tuple[float, float]]:
    return [
        (float(r.attributes["x"].rstrip("%")), float(r.attributes["width"].rstrip("%")))
        for r in node.all("rect", cls)
    ]


def test_the_waterfall_leads_from_the_ideal_to_the_measured_step() -> None:
    report = made.scaled()
    rows = scaling_words.waterfall(report, report.points[-1])
    assert [row.total for row in rows] == [True, *[False] * (len(rows) - 2), True]
    assert rows[0].end_ms == rows[1].start_ms
    for before, after in pairwise(rows[1:-1]):
        assert after.start_ms == before.end_ms
    assert rows[-2].end_ms == pytest.approx(rows[-1].end_ms, abs=1e-5)
    assert [row.label for row in rows][-2] == "Not explained"


def test_the_waterfall_is_drawn_to_scale() -> None:
    report = made.scaled()
    rows = scaling_words.waterfall(report, report.points[-1])
    root = parse(page("scaling", "scaled")).one("div", "fall")
    drawn = [
        (float(r.attributes["x"].rstrip("%")), float(r.attributes["width"].rstrip("%")))
        for svg in root.all("svg")
        for r in svg.all("rect")
    ]
    assert len(drawn) == len(rows)
    scale = drawn[0][1] / rows[0].end_ms
    for (x, width), row in zip(drawn, rows, strict=True):
        low, high = sorted((row.start_ms, row.end_ms))
        assert x == pytest.approx(low * scale, abs=0.02)
        assert width == pytest.approx(max((high - low) * scale, 0.2), abs=0.02)


def test_the_comparison_waterfall_sums_too() -> None:
    report = made.slow()
    rows = compare_words.waterfall(report)
    assert rows[0].end_ms == pytest.approx(report.ranks[0].step.base_ms)
    assert rows[-1].end_ms == pytest.approx(report.ranks[0].step.other_ms)
    assert rows[-2].end_ms == pytest.approx(rows[-1].end_ms, abs=0.005)
    assert "Idle: host silent" in [row.label for row in rows]


def test_scaling_says_what_it_must() -> None:
    for text in (terminal("scaling", "scaled", 160), markdown("scaling", "scaled")):
        assert "E = 68.2 %" in text
        assert "Not explained" in text
        assert "three runs of each" in text
        assert "with rare long steps" in text
    drifting = parse(page("scaling", "drifting")).one("main").text
    assert "changes its level" in drifting
    assert "1 warm-up" in drifting
    assert "1 outlier" in drifting
    numbers = parse(page("scaling", "numbers")).one("main").text
    assert "16, projected" in numbers
    assert "takes for granted" in numbers


def test_a_refused_efficiency_gives_the_reasons_in_place_of_the_chart() -> None:
    root = parse(page("scaling", "refused"))
    assert root.all("div", "fall") == []
    text = root.one("main").text
    assert "Nothing is divided: the runs are not comparable" in text
    assert "aten::conv ×40" in text
    assert "E =" not in text.replace("E = T1", "")


def test_compare_says_what_it_must() -> None:
    text = parse(page("compare", "slow")).one("main").text
    assert "gemm_bf16_b" in text
    assert "slower" in text
    assert "not told apart" in text
    assert "No kernel is told from no change" in parse(page("compare", "same")).one("main").text
    channels = parse(page("compare", "channels")).one("main").text
    assert "24 → 1" in channels
    apart = parse(page("compare", "apart")).one("main").text
    assert "World size: 1 against 2" in apart
    assert "side by side" in apart
