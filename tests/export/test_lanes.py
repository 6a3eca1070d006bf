"""Tracks on which slices nest: the quick test against every pair, lanes against the definition."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trace_analyzer.export.lanes import divide, nests

_SPANS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=14)


def _crosses(one: tuple[int, int], other: tuple[int, int]) -> bool:
    (a, b), (c, d) = sorted([one, other])
    return a < c < b < d


def _columns(spans: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array([(start, start + length) for start, length in spans], dtype=np.int64)
    pairs = pairs.reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


@given(_SPANS)
def test_nesting_is_told_as_by_looking_at_every_pair(spans: list[tuple[int, int]]) -> None:
    start, end = _columns(sorted(spans, key=lambda span: (span[0], -span[1])))
    pairs = list(zip(start.tolist(), end.tolist(), strict=True))
    crossing = any(_crosses(a, b) for a, b in itertools.combinations(pairs, 2))
    assert nests(start, end) is not crossing


@given(_SPANS, st.integers(1, 3))
def test_slices_of_a_track_never_overlap_in_part(spans: list[tuple[int, int]], keys: int) -> None:
    start, end = _columns(spans)
    key = np.arange(len(spans)) % keys
    lanes = divide(key, start, end)
    assert [lanes.keys[track][0] for track in lanes.track.tolist()] == key.tolist()
    for track in set(lanes.track.tolist()):
        rows = np.flatnonzero(lanes.track == track)
        mine = [(int(start[row]), int(end[row])) for row in rows]
        assert not any(_crosses(a, b) for a, b in itertools.combinations(mine, 2))


@given(_SPANS)
def test_what_nests_needs_one_track(spans: list[tuple[int, int]]) -> None:
    start, end = _columns(spans)
    order = np.lexsort((-end, start))
    lanes = divide(np.zeros(len(spans)), start, end)
    assert (len(lanes.keys) <= 1) is nests(start[order], end[order])


def test_overlapping_kernels_get_a_second_lane() -> None:
    start = np.array([0, 5, 12], dtype=np.int64)
    end = np.array([10, 12, 15], dtype=np.int64)
    lanes = divide(np.zeros(3, dtype=np.int64), start, end)
    assert lanes.track.tolist() == [0, 1, 0]
    assert lanes.keys == [(0, 0), (0, 1)]
