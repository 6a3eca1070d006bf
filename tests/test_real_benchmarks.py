"""Benchmarks that were run on two H200 are read as they were written."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

import trace_analyzer
from trace_analyzer.readers.bench_results import read

FOLDER = Path(__file__).parent / "data" / "bench"
SCHEMA = Path(trace_analyzer.__file__).parent / "data" / "schemas" / "bench.schema.json"


@pytest.mark.parametrize("kind", ["links", "allreduce"])
def test_the_documents_meet_their_schema(kind: str) -> None:
    document = json.loads((FOLDER / f"bench_{kind}.json").read_text())
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))


def test_links_in_both_directions() -> None:
    result = read(FOLDER / "bench_links.json")
    assert result is not None
    assert result.is_reference
    found = {(link.source, link.destination): link for link in result.links}
    assert set(found) == {(0, 1), (1, 0)}
    for link in found.values():
        assert link.bandwidth_gbs == pytest.approx(358.7, abs=1)
        assert link.latency_us == pytest.approx(9.8, abs=0.5)
        assert link.limit_gbs == pytest.approx(478.1, abs=0.1)


def test_all_reduce_by_size() -> None:
    result = read(FOLDER / "bench_allreduce.json")
    assert result is not None
    by_size = {size.bytes: size.busbw_gbs for size in result.sizes}
    assert by_size[256 << 20] == pytest.approx(297.6, abs=0.1)
    assert sorted(by_size.values()) == list(by_size.values())
