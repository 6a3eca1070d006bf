"""Thousands of runs: what one costs the client does not depend on how many came before."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from tests.batch.archives import batch, old, rows, write_run
from tests.batch.instant import Instantly, model_of, units
from tests.reports.page import parse
from trace_analyzer.batch import pages as page_module
from trace_analyzer.batch.driver import Batch, Settings, Tally
from trace_analyzer.batch.executors import Pool
from trace_analyzer.batch.index import Index
from trace_analyzer.batch.output import opened_output
from trace_analyzer.batch.pages import pages
from trace_analyzer.batch.rows import RunRows
from trace_analyzer.batch.storage import place
from trace_analyzer.reports import archive_html

COUNT = 630
EARLY, LATE = (60, 120), (570, 630)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> RunRows:
    base = tmp_path_factory.mktemp("model")
    write_run(base / "archive" / "run", 1)
    old(base / "archive")
    batch(base / "archive", base / "out")
    return model_of(base / "out")


def test_cost_and_memory_stay_the_same(
    model: RunRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "_ON_ONE_PAGE", 600)
    monkeypatch.setattr(page_module, "_A_PAGE", 300)
    settings = Settings(archive=str(tmp_path), out=str(tmp_path / "out"))
    planned = units(COUNT)
    statements: list[int] = []
    held: list[int] = []
    with opened_output(place(settings.out)) as output, Index(output.index, "") as index:
        executed = 0

        def count(_: str) -> None:
            nonlocal executed
            executed += 1

        def progress(_: Tally) -> None:
            statements.append(executed)
            held.append(tracemalloc.get_traced_memory()[0])

        index.connection.set_trace_callback(count)
        tracemalloc.start()
        pool = Pool(Instantly(model), window=1, share=1)
        Batch(settings, index, output, pool, Tally()).run(planned, COUNT, progress)
        tracemalloc.stop()
        index.connection.set_trace_callback(None)
        made = [
            (name, parse(archive_html.render(page))) for name, page in pages(index.connection, "x")
        ]
    assert len(statements) == COUNT
    early, late = (statements[last - 1] - statements[first] for first, last in (EARLY, LATE))
    # Now and then the search index merges its parts, which takes a few more.
    assert late < 1.2 * early
    assert held[LATE[1] - 1] - held[EARLY[0]] < 1_000_000
    assert rows(tmp_path / "out", "SELECT COUNT(*) FROM runs") == [(COUNT,)]

    # More runs than one page takes: pages of fewer, by gain, each run on one of them.
    assert [name for name, _ in made] == ["index.html", "index-2.html", "index-3.html"]
    names = [
        row.one("th").text
        for _, page in made
        for row in page.one("table", id="table").one("tbody").all("tr")
    ]
    assert len(names) == len(set(names)) == COUNT
    assert names[0] == f"day{(COUNT - 1) // 100}/run{COUNT - 1:05}"
    assert made[0][1].all("section", id="causes")
    assert not made[1][1].all("section", id="causes")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM runs WHERE name = 'x'",
        "SELECT * FROM runs WHERE job = 'x' ORDER BY started",
        "SELECT * FROM kernels WHERE run_id = 'x'",
        "SELECT * FROM kernels WHERE name_id = 5",
        "SELECT * FROM files WHERE sha256 = 'x'",
        "SELECT * FROM findings WHERE code = 'x' ORDER BY recoverable_ms DESC",
        "SELECT id, digest FROM runs WHERE unit = 'x' AND failure NOT IN ('killed')",
        "DELETE FROM warnings WHERE run_id = 'x'",
    ],
)
def test_common_questions_use_an_index(query: str, tmp_path: Path) -> None:
    with Index(tmp_path / "index.db", "") as index:
        plan = index.connection.execute(f"EXPLAIN QUERY PLAN {query}").fetchall()
    assert any("USING INDEX" in step[3] or "USING COVERING INDEX" in step[3] for step in plan), plan
    assert not any(step[3].startswith("SCAN") for step in plan), plan
