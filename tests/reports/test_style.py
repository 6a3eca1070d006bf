"""Colours are the design's, readable on their ground, and the same in every place that sets dark."""

from __future__ import annotations

import re

import pytest

from trace_analyzer.reports.page import static_text

LIGHT = {
    "bg": "#FFFFFF", "bg-2": "#F6F8FA", "line": "#D8DEE4", "line-2": "#EBEEF1", "grid": "#E4E8EC",
    "fg": "#1B1F24", "muted": "#57606A", "bad": "#B42318", "warn": "#8A5A00", "good": "#1A7F37",
    "link": "#0B57D0", "bad-tint": "#FDF3F2", "compute": "#2D5DAA", "comm": "#EA6F00",
    "copy": "#30A393", "other": "#AB74F3", "host": "#725700", "idle": "#353E47",
    "seq-1": "#EAF0F8", "seq-2": "#C6D6EC", "seq-3": "#8FAFD9", "seq-4": "#4A74B4", "seq-5": "#2D5DAA",
}  # fmt: skip
DARK = {
    "bg": "#14171A", "bg-2": "#1B1F24", "line": "#343B43", "line-2": "#262C32", "grid": "#2A3037",
    "fg": "#E6EAEE", "muted": "#9AA4AF", "bad": "#FF8A80", "warn": "#F2C14E", "good": "#56D364",
    "link": "#8AB4F8", "bad-tint": "#241A1B", "compute": "#5083E3", "comm": "#E47826",
    "copy": "#34F6DF", "other": "#A16388", "host": "#F6CC5D", "idle": "#A4A8AE",
    "seq-1": "#1C2430", "seq-2": "#22395F", "seq-3": "#33599B", "seq-4": "#5083E3", "seq-5": "#9DBBF2",
}  # fmt: skip


def _blocks() -> list[dict[str, str]]:
    """Return the token blocks of the style sheet: light, dark twice, paper."""
    style = static_text("report.css")
    found = re.findall(r":root[^{]*\{([^}]*--bg:[^}]*)\}", style)
    return [dict(re.findall(r"--([\w-]+):\s*(#[0-9A-Fa-f]{6})", block)) for block in found]


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_tokens_are_the_designs() -> None:
    light, dark, again, paper = _blocks()
    assert {key: light[key] for key in LIGHT} == LIGHT
    assert {key: dark[key] for key in DARK} == DARK
    assert again == dark
    assert paper == light


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_contrasts(theme: int) -> None:
    tokens = _blocks()[theme]
    for text in ("fg", "muted", "bad", "warn", "good", "link"):
        assert contrast(tokens[text], tokens["bg"]) >= 4.5, text
    assert contrast(tokens["bad"], tokens["bad-tint"]) >= 4.5
    assert contrast(tokens["fg"], tokens["bg-2"]) >= 4.5
    for mark in ("compute", "comm", "copy", "other", "host", "idle", "bad", "muted"):
        assert contrast(tokens[mark], tokens["bg"]) >= 3.0, mark
    assert contrast(tokens["on-compute"], tokens["compute"]) >= 4.5
    assert contrast(tokens["on-comm"], tokens["comm"]) >= 4.5
    assert contrast(tokens["on-bad"], tokens["bad"]) >= 4.5
    for level in (1, 2, 3):
        assert contrast(tokens["on-seq"], tokens[f"seq-{level}"]) >= 4.5, level
    for level in (4, 5):
        assert contrast(tokens["on-seq-high"], tokens[f"seq-{level}"]) >= 4.5, level


def test_charts_name_no_colour() -> None:
    style = static_text("report.css")
    rules = style.split("/* Page */", maxsplit=1)[1].split("@media print", maxsplit=1)[0]
    assert not re.search(r"#[0-9A-Fa-f]{3,8}\b", rules)
