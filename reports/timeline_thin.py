"""Fewer slices for the same picture: short neighbours become one slice that knows how busy it was.

What is drawn together keeps its busy time, its waiting time and its number of slices, so that the
shading of a lane stays the share of time that was busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trace_analyzer.schema import BoolArray, Int8Array, Int32Array, Int64Array, is_na, widened
from trace_analyzer.timeline import SliceKind, Slices

TOGETHER = -1  # the name of slices that are drawn together
# Copies join the kernels around them; waiting for peers and blocked calls stay apart.
_FAMILY = np.array(
    [SliceKind.COMPUTE if kind == SliceKind.COPY else kind for kind in SliceKind], dtype=np.int8
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drawn:
    """Slices as they go into the page; all arrays have one entry a slice.

    `wait_ns` is -1 where it is not known. `busy_ns` is the length of a slice, or the sum of the
    lengths of the `count` slices that are drawn together in it; `name` is `TOGETHER` then.
    """

    start_ns: Int64Array
    end_ns: Int64Array
    kind: Int8Array
    name: Int32Array
    detail: Int32Array
    bytes: Int64Array
    delay_ns: Int64Array
    wait_ns: Int64Array
    busy_ns: Int64Array
    count: Int64Array

    def __len__(self) -> int:
        return len(self.start_ns)


def inside(slices: Slices, spans: Sequence[tuple[int, int]]) -> BoolArray:
    """Return which slices touch one of the spans (start, end), ns; shape of the slices."""
    hit = np.zeros(len(slices), dtype=np.bool_)
    for start, end in spans:
        low = int(np.searchsorted(slices.end_ns, start, side="right"))
        high = int(np.searchsorted(slices.start_ns, end, side="left"))
        hit[low:high] = True
    return hit


def run_starts(slices: Slices, bucket_ns: Int64Array) -> Int64Array:
    """Return where runs of slices begin that may be drawn together.

    A run holds neighbours of one family, each shorter than `bucket_ns` (one entry a slice, 0 for
    slices that stay as they are), that begin in one stretch of that length.
    """
    if not len(slices):
        return np.empty(0, dtype=np.int64)
    short = slices.end_ns - slices.start_ns < bucket_ns
    family = _FAMILY[slices.kind]
    place = slices.start_ns // np.maximum(bucket_ns, 1)
    joins = (
        short[1:]
        & short[:-1]
        & (bucket_ns[1:] == bucket_ns[:-1])
        & (family[1:] == family[:-1])
        & (place[1:] == place[:-1])
    )
    return np.concatenate([[0], np.flatnonzero(~joins) + 1]).astype(np.int64)


def thinned(slices: Slices, bucket_ns: Int64Array) -> Drawn:
    """Draw together what `run_starts` finds."""
    first = run_starts(slices, bucket_ns)
    last = np.append(first[1:], len(slices))[: len(first)] - 1
    count = last - first + 1
    length = slices.end_ns - slices.start_ns
    known = ~is_na(slices.transfer_start_ns)
    wait = np.where(known, slices.transfer_start_ns - slices.start_ns, 0)

    def total(values: Int64Array) -> Int64Array:
        return np.add.reduceat(values, first) if len(first) else np.empty(0, dtype=np.int64)

    busy = total(length)
    merged = count > 1
    copies = total(np.where(slices.kind == SliceKind.COPY, length, 0))
    kind = slices.kind[first]
    kind = np.where(
        merged & (kind == SliceKind.COMPUTE) & (2 * copies > busy), SliceKind.COPY, kind
    )
    kind = np.where(
        merged & (kind == SliceKind.COPY) & (2 * copies <= busy), SliceKind.COMPUTE, kind
    )

    def single(values: Int64Array, missing: int) -> Int64Array:
        return np.where(merged | is_na(values[first]), missing, values[first]).astype(np.int64)

    return Drawn(
        start_ns=slices.start_ns[first],
        end_ns=slices.end_ns[last],
        kind=kind.astype(np.int8),
        name=np.where(merged, TOGETHER, slices.name[first]).astype(np.int32),
        detail=single(widened(slices.detail), -1).astype(np.int32),
        bytes=single(slices.bytes, -1),
        delay_ns=single(slices.launch_delay_ns, -1),
        wait_ns=np.where(total(known.astype(np.int64)) > 0, total(wait), -1).astype(np.int64),
        busy_ns=busy,
        count=count.astype(np.int64),
    )
