"""The interval kernel against a brute-force bitmap."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from trace_analyzer import intervals
from trace_analyzer.intervals import Intervals

SIZE = 40
pairs = st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)), max_size=12)
Bitmap = npt.NDArray[np.bool_]


def columns(items: list[tuple[int, int]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return (
        np.array([s for s, _ in items], dtype=np.int64),
        np.array([e for _, e in items], dtype=np.int64),
    )


def make(items: list[tuple[int, int]]) -> Intervals:
    return intervals.union(*columns(items))


def bitmap_of(items: list[tuple[int, int]]) -> Bitmap:
    bits = np.zeros(SIZE, dtype=np.bool_)
    for start, end in items:
        bits[start:end] = True
    return bits


def bitmap(a: Intervals) -> Bitmap:
    return bitmap_of(list(zip(a.start.tolist(), a.end.tolist(), strict=True)))


def assert_normal(a: Intervals) -> None:
    assert np.all(a.end > a.start)
    assert np.all(a.start[1:] > a.end[:-1])
    assert a.start.dtype == a.end.dtype == np.int64


@given(pairs)
def test_union_covers_what_any_interval_covers(items: list[tuple[int, int]]) -> None:
    result = make(items)
    assert_normal(result)
    assert np.array_equal(bitmap(result), bitmap_of(items))
    assert result.total == int(bitmap_of(items).sum())


@given(pairs, pairs)
def test_set_operations_equal_bitmaps(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    a, b = make(left), make(right)
    for result, expected in (
        (intervals.merge(a, b), bitmap(a) | bitmap(b)),
        (intervals.intersect(a, b), bitmap(a) & bitmap(b)),
        (intervals.subtract(a, b), bitmap(a) & ~bitmap(b)),
    ):
        assert_normal(result)
        assert np.array_equal(bitmap(result), expected)


@given(pairs, st.integers(0, SIZE), st.integers(0, SIZE))
def test_clip_and_complement(items: list[tuple[int, int]], start: int, end: int) -> None:
    a = make(items)
    inside = np.zeros(SIZE, dtype=np.bool_)
    inside[start:end] = True
    clipped, gaps = intervals.clip(a, start, end), intervals.complement(a, start, end)
    assert_normal(clipped)
    assert_normal(gaps)
    assert np.array_equal(bitmap(clipped), bitmap(a) & inside)
    assert np.array_equal(bitmap(gaps), ~bitmap(a) & inside)


@given(pairs, pairs)
def test_coverage_counts_each_window(
    items: list[tuple[int, int]], windows: list[tuple[int, int]]
) -> None:
    a = make(items)
    result = intervals.coverage(a, *columns(windows))
    expected = [int(bitmap(a)[s:e].sum()) for s, e in windows]
    assert result.tolist() == expected


def test_epoch_nanoseconds_stay_exact() -> None:
    epoch = 1_790_857_026_123_456_789
    a = make([(epoch, epoch + 1), (epoch + 3, epoch + 4)])
    assert a.total == 2
    assert intervals.complement(a, epoch, epoch + 4).total == 2


def test_sets_compare_by_value() -> None:
    assert make([(1, 2), (2, 3)]) == make([(1, 3)])
    assert make([(1, 2)]) != make([(1, 3)])
    assert make([]) == intervals.empty()


def test_outermost_intervals_lie_in_no_earlier_one() -> None:
    start, end = columns([(0, 10), (2, 5), (10, 12), (11, 14), (14, 15)])
    assert intervals.outermost(start, end).tolist() == [True, False, True, False, True]
    nothing = np.empty(0, dtype=np.int64)
    assert intervals.outermost(nothing, nothing).tolist() == []
