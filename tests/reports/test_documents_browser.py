"""The pages of `scaling` and `compare` in Chromium: no request, no error, no axe violation.

Needs what `test_browser` needs; skipped where it is absent.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.reports import made_documents as made
from tests.reports.test_browser import pytestmark as needs_a_browser
from tests.reports.test_browser import run_script
from trace_analyzer.reports import compare_html, scaling_html

pytestmark = needs_a_browser

PAGES: dict[str, Callable[[], str]] = {
    "scaled": lambda: scaling_html.render(made.scaled()),
    "numbers": lambda: scaling_html.render(made.numbers()),
    "refused": lambda: scaling_html.render(made.refused()),
    "slow": lambda: compare_html.render(made.slow()),
    "channels": lambda: compare_html.render(made.channels()),
    "hostile": lambda: compare_html.render(made.hostile_comparison()),
}


@pytest.fixture(scope="module", params=PAGES)
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    page: Path = tmp_path_factory.mktemp("seen") / "page.html"
    page.write_text(PAGES[request.param](), encoding="utf-8")
    return run_script("visit.mjs", page)


@pytest.mark.parametrize("view", ["light", "dark", "narrow", "plain"])
def test_no_request_no_error(seen: dict[str, Any], view: str) -> None:
    assert seen[view]["requests"] == []
    assert seen[view]["errors"] == []


@pytest.mark.parametrize("view", ["light", "dark", "narrow"])
def test_no_axe_violation(seen: dict[str, Any], view: str) -> None:
    assert seen[view]["violations"] == []


def test_the_page_never_scrolls_sideways(seen: dict[str, Any]) -> None:
    assert seen["narrow"]["width"] == 390
    assert seen["light"]["width"] == 1280


def test_it_prints_on_few_pages(seen: dict[str, Any]) -> None:
    assert 1 <= seen["pdf_pages"] <= 6
