"""Every recorded run that clones have, judged by all rules: the right cause first, controls quiet."""

from __future__ import annotations

import pytest

from tests.benchmarks.bench_diagnosis import Scored, labelled, score
from tests.rules.recorded import FAULTLAB

RUNS = labelled([FAULTLAB])


@pytest.mark.parametrize("folder", RUNS, ids=[path.name for path in RUNS])
def test_the_right_cause_comes_first(folder: object) -> None:
    run: Scored = score((folder, False))  # type: ignore[arg-type]
    assert not run.failure
    if run.kind == "control":
        assert run.faults() == []
    elif run.tested:
        assert run.first, run.found


def test_both_halves_and_all_kinds_are_there() -> None:
    names = {path.name for path in RUNS}
    assert len(names) >= 20
    assert {name.rsplit(".", 1)[1] for name in names} == {"kineto", "nsys"}
