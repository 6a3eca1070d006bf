"""When timing a run ends: sharp enough, never to be sharp, or at the most pairs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from trace_analyzer.collectors.faultlab import timing
from trace_analyzer.collectors.faultlab.matrix import runs
from trace_analyzer.collectors.faultlab.workload import Workload

SPEC = runs(Workload(model="gpt", size="tiny"), "healthy")[0]


class _Programs:
    """Stands in for processes: only what `measure` asks for when nothing fails."""

    workload = SPEC.workload

    def prepare(self, _spec: object, places: Any) -> dict[Any, str]:
        return dict.fromkeys(places, "program")

    def group(self, _key: object) -> Any:
        class _Group:
            pids = (1, 2)

        return _Group()


def pairs_taken(monkeypatch: pytest.MonkeyPatch, noise: float) -> int:
    """Return how many pairs are timed where single steps vary by `noise` (a share of a step)."""
    random = np.random.default_rng(3)

    def rows(_: object) -> Any:
        for _index in itertools.count():
            yield tuple(
                [
                    {"step_ms": (10 * (1 + noise * random.standard_normal(7))).tolist()}
                    for _rank in range(2)
                ]
                for _state in range(2)
            )

    monkeypatch.setattr(timing._Timer, "blocks", rows)
    monkeypatch.setattr(timing._Timer, "segments", rows)
    protocol = timing.Protocol(pairs=10, max_pairs=30)
    return len(timing.measure(_Programs(), SPEC, protocol).faulty)  # type: ignore[arg-type]


def test_a_sharp_label_ends_at_the_fewest_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pairs_taken(monkeypatch, 0.005) == 10


def test_a_label_that_more_pairs_make_sharp_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 10 < pairs_taken(monkeypatch, 0.018) <= 30


def test_a_label_that_cannot_get_sharp_takes_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pairs_taken(monkeypatch, 0.3) == 10
