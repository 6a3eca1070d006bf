"""Numbers read the same everywhere, and none is invented, hidden or rounded to nothing."""

from __future__ import annotations

import itertools
import math

import pytest

from trace_analyzer.reports import units


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (8.5, "8.5"),
        (34.26, "34.3"),
        (12345.67, "12,345.7"),
        (0.0, "0.0"),
        (0.04, "< 0.1"),
        (-0.04, "> −0.1"),
        (-2.25, "−2.2"),
        (None, "unknown"),
        (math.nan, "unknown"),
        (math.inf, "unknown"),
    ],
)
def test_ms(value: float | None, shown: str) -> None:
    assert units.ms(value) == shown


def test_table_ms_shows_zero_only_where_it_is_zero() -> None:
    assert units.ms_cell(0.0) == "0.00"
    assert units.ms_cell(0.004) == "< 0.01"
    assert units.ms_cell(0.006) == "0.01"


@pytest.mark.parametrize(
    ("fraction", "shown"),
    [(0.25, "25 %"), (0.026, "2.6 %"), (0.0, "0 %"), (1.5, "150 %"), (0.0003, "< 0.1 %")],
)
def test_percent(fraction: float, shown: str) -> None:
    assert units.percent(fraction).replace(units.NBSP, " ") == shown


def test_signed_percent() -> None:
    assert units.signed_percent(0.593).replace(units.NBSP, " ") == "+59 %"
    assert units.signed_percent(-0.031).replace(units.NBSP, " ") == "−3 %"
    assert units.signed_percent(0.002).replace(units.NBSP, " ") == "±0 %"


def test_interval() -> None:
    assert units.interval([7.9, 10.12]) == "[7.9, 10.1]"
    assert units.interval(None) == ""
    assert units.interval([math.nan, 1.0]) == ""


def test_sizes_are_decimal_but_shared_memory_is_not() -> None:
    assert units.megabytes(147_900_000) == "147.9"
    assert units.megabytes(16) == "0.000016"
    assert units.megabytes(0) == "0.0"
    assert units.kibibytes(212_992) == "208"
    assert units.size(910_000).replace(units.NBSP, " ") == "910 kB"
    assert units.size(3_410_042_880).replace(units.NBSP, " ") == "3.4 GB"


def test_bandwidth() -> None:
    assert units.gb_per_s(288.2) == "288"
    assert units.gb_per_s(2.34) == "2.3"
    assert units.gb_per_s(0.034) == "0.03"


def test_launch_shapes_drop_trailing_ones_only() -> None:
    assert units.launch_shape([24, 1, 1], [544, 1, 1]).replace(units.NBSP, " ") == "24 × 544"
    assert units.shape([264, 3, 1]).replace(units.NBSP, " ") == "264 × 3"
    assert units.shape([1, 1, 8]).replace(units.NBSP, " ") == "1 × 1 × 8"
    assert units.launch_shape([2, 3, 1], [32, 1, 1]).replace(units.NBSP, " ") == "(2 × 3) × 32"
    assert units.launch_shape(None, [1]) == "unknown"


@pytest.mark.parametrize(
    ("numbers", "world", "shown"),
    [
        ([1], 2, "rank 1"),
        ([0, 1], 2, "both ranks"),
        ([0, 1, 2, 3], 4, "all 4 ranks"),
        ([3, 7, 9, 11, 12, 13, 14, 20], 32, "ranks 3, 7 and 6 more"),
        ([1, 2], 8, "ranks 1 and 2"),
        ([4, 5, 6, 7], 64, "ranks 4–7"),
        ([], 8, "–"),
        ([0], 1, "rank 0"),
    ],
)
def test_ranks_are_named(numbers: list[int], world: int, shown: str) -> None:
    assert units.ranks(numbers, world).replace(units.NBSP, " ") == shown


@pytest.mark.parametrize("largest", [0.003, 0.4, 1.0, 7.3, 15.4, 54.6, 60.0, 99.0, 1234.0, 8e6])
def test_axes_begin_at_zero_and_end_at_the_next_round_number(largest: float) -> None:
    ticks = units.nice_ticks(largest)
    assert ticks[0] == 0
    assert largest <= ticks[-1] * (1 + 1e-9)
    assert ticks[-1] <= 1.6 * largest
    assert 4 <= len(ticks) <= 7
    steps = {round((b - a) / ticks[1], 6) for a, b in itertools.pairwise(ticks)}
    assert steps == {1.0}
    labels = [units.tick_label(tick, ticks[1]) for tick in ticks]
    assert len(set(labels)) == len(labels)
    assert labels[0] == "0"


def test_axis_of_nothing() -> None:
    assert units.nice_ticks(0.0) == [0.0, 1.0]
    assert units.nice_ticks(math.nan) == [0.0, 1.0]


def test_runs_of_numbers_are_folded() -> None:
    assert units.ranges([3, 4, 5, 9, 7, 6]) == "3–7, 9"
    assert units.ranges([]) == ""
