"""The shipped samples: their numbers, how the demo's copy was made, and what is said of them."""

from __future__ import annotations

import gzip
import json
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from tests.traces import ROOT
from trace_analyzer.analyses.study import Study, study
from trace_analyzer.readers.discovery import open_run

RUN = ROOT / "samples" / "slow_cpu_rank"
DEMO = ROOT / "trace_analyzer" / "data" / "sample"
MAKE_DEMO = runpy.run_path(str(ROOT / "samples" / "make_demo.py"))
RENDER = runpy.run_path(str(ROOT / "samples" / "render.py"))


@pytest.fixture(scope="module")
def run() -> Study:
    return study(open_run(str(RUN)))


@pytest.fixture(scope="module")
def demo() -> Study:
    return study(open_run(str(DEMO)))


def _trace(path: Path) -> bytes:
    packed = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(packed)
    return zstandard.ZstdDecompressor().decompressobj().decompress(packed)


@pytest.mark.parametrize(
    ("rank", "window_ns", "compute_ns", "comm_ns", "idle_ns"),
    [
        (0, 309349021, 149764583, 236240947, 2583273),
        (1, 287804652, 120942981, 14708084, 156287030),
    ],
)
def test_sample_has_the_reference_numbers(
    run: Study, rank: int, window_ns: int, compute_ns: int, comm_ns: int, idle_ns: int
) -> None:
    window = run.ranks[rank].window
    found = (window.length_ns, window.compute_ns, window.comm_ns, window.idle_ns)
    assert tuple(int(part[0]) for part in found) == (window_ns, compute_ns, comm_ns, idle_ns)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("table", ["window", "parts"])
def test_demo_has_the_partition_of_the_run(run: Study, demo: Study, rank: int, table: str) -> None:
    ours, theirs = getattr(demo.ranks[rank], table), getattr(run.ranks[rank], table)
    for part in ("length", "compute", "comm", "comm_exposed", "copy_exposed", "idle"):
        name = f"{part}_ns"
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)


@pytest.mark.parametrize("rank", [0, 1])
def test_demo_has_the_idle_causes_of_the_run(run: Study, demo: Study, rank: int) -> None:
    ours, theirs = demo.ranks[rank].idle, run.ranks[rank].idle
    np.testing.assert_array_equal(ours.launch_ns, theirs.launch_ns)
    np.testing.assert_array_equal(ours.latency_ns, theirs.latency_ns)
    for cause, expected in theirs.launch_by_host.items():
        np.testing.assert_array_equal(ours.launch_by_host[cause], expected, err_msg=cause)


def test_demo_has_the_tables_of_the_run(run: Study, demo: Study) -> None:
    assert demo.kernels == run.kernels
    assert [row.key for row in demo.collectives] == [row.key for row in run.collectives]
    for ours, theirs in zip(demo.collectives, run.collectives, strict=True):
        assert ours.exposed_ns == theirs.exposed_ns


@pytest.mark.parametrize("rank", [0, 1])
def test_demo_is_what_the_script_makes(rank: int) -> None:
    original = _trace(RUN / f"rank{rank}.pt.trace.json.gz")
    shipped = _trace(DEMO / f"rank{rank}.pt.trace.json.zst")
    assert MAKE_DEMO["reduced"](original) == shipped


def test_numbers_that_would_lose_digits_are_refused() -> None:
    with pytest.raises(ValueError, match="lose digits"):
        MAKE_DEMO["reduced"](b'{"traceEvents": [{"ph": "X", "ts": 1712142709123456.7891}]}')


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    path = tmp_path_factory.mktemp("report") / "report.json"
    text = RENDER["run"]("slow_cpu_rank", "--json", str(path))
    return text, json.loads(path.read_text(encoding="utf-8"))


HINT = "the report has changed: run samples/render.py and look at the difference"


def test_committed_report_is_what_the_program_writes(printed: tuple[str, dict[str, Any]]) -> None:
    committed = json.loads((RUN / "report.json").read_text(encoding="utf-8"))
    for section, expected in printed[1].items():
        assert committed.get(section) == expected, HINT
    assert committed.keys() == printed[1].keys(), HINT


def test_committed_page_shows_the_verdict(printed: tuple[str, dict[str, Any]]) -> None:
    page = (RUN / "report.html").read_text(encoding="utf-8")
    shown = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert " ".join(printed[1]["verdict"]["headline"].split()) in shown, HINT


def test_readme_shows_what_is_printed(printed: tuple[str, dict[str, Any]]) -> None:
    found = RENDER["EXAMPLE"].search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found
    assert found[2] == RENDER["example"](printed[0]), HINT
    assert found[2].count("\n") > 20
