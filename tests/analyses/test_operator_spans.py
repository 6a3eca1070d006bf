"""Host time that exists only to launch given operations."""

from __future__ import annotations

import numpy as np

from tests.builder import RankBuilder
from trace_analyzer.analyses.operator_spans import (
    last_boundary,
    launched_inside,
    sole_launches,
    spans_of_launches,
    spans_of_runs,
)
from trace_analyzer.model import Rank
from trace_analyzer.tables import HostCategory


def made() -> Rank:
    """Return three operators: one with one launch, one with two of which one stays, one nested."""
    builder = RankBuilder()
    for name, start, end in (
        ("node", 0, 300),
        ("a", 100, 190),
        ("b", 200, 290),
        ("c", 400, 500),
        ("d", 600, 700),
    ):
        builder.event(name, start, end, category=HostCategory.OPERATOR)
    for row, start in enumerate((150, 220, 260, 450, 650)):
        builder.operation(f"k{row}", 1_000 + row, 1_001 + row, launch=(start, start + 10))
    return builder.build()


def test_operators_that_launch_nothing_else_are_whole() -> None:
    rank = made()
    calls = sole_launches(rank, np.array([0, 1, 3]))
    assert rank.calls.start_ns[calls].tolist() == [150, 220, 450]
    spans = spans_of_launches(rank, calls)
    # `b` launches something that stays, and so does `node` around it.
    assert list(zip(spans.start.tolist(), spans.end.tolist(), strict=True)) == [
        (100, 190),
        (400, 500),
    ]


def test_an_operator_around_all_goes_with_them() -> None:
    spans = spans_of_launches(made(), sole_launches(made(), np.array([0, 1, 2])))
    assert (spans.start.tolist(), spans.end.tolist()) == ([0], [300])


def test_runs_hold_what_lies_between_and_what_prepares_them() -> None:
    rank = made()
    spans = spans_of_runs(rank, sole_launches(rank, np.array([3, 4])))
    assert (spans.start.tolist(), spans.end.tolist()) == ([300], [700])


def test_last_boundary_counts_events_and_calls() -> None:
    found = last_boundary(made(), 0, np.array([0, 400, 455]))
    assert found.tolist() == [0, 300, 450]


def test_launched_inside_means_on_the_same_thread_and_before_the_end() -> None:
    builder = RankBuilder()
    builder.event("wanted", 0, 100, category=HostCategory.OPERATOR)
    builder.event("wanted", 20, 30, category=HostCategory.OPERATOR)  # inside the other
    builder.event("wanted", 200, 300, category=HostCategory.OPERATOR, thread=1)
    builder.event("other", 400, 500, category=HostCategory.OPERATOR)
    for row, start in enumerate((10, 50, 150, 250, 450)):
        builder.operation(f"k{row}", 1_000 + row, 1_001 + row, launch=(start, start + 10))
    builder.operation("unlaunched", 2_000, 2_001)
    rank = builder.build()
    named = np.array([name == "wanted" for name in rank.names])
    every = np.arange(len(rank.operations))
    assert launched_inside(rank, every, named).tolist() == [True, True] + 4 * [False]
    assert launched_inside(rank, every[1:3], named).tolist() == [True, False]
    assert not launched_inside(rank, every, np.zeros(len(rank.names), dtype=np.bool_)).any()
