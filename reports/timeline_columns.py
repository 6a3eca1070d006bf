"""The timeline's slices as compressed columns inside the page; `static/timeline.js` reads them.

A frame of little-endian bytes, deflated, as base64: the length of a JSON header (4 bytes), the
header, then byte planes. A column of n numbers of w bytes is written as the n lowest bytes, then
the n next ones, and so on: the upper planes are nearly empty and cost nothing. Columns run over
all lanes in the header's order:

- `gap` (4 bytes): from the end of the slice before, in units of `unit_ns`; the first of a lane
  counts from the timeline's start;
- `length` (4): in units;
- `type` (2): position in the header's `types`, or `TOGETHER_TYPE` + kind for slices drawn together;
- `delay` (1), lanes of GPU streams only: `delay_code` of the launch delay, 0 where unknown;
- `wait` (4), slices of communication only: 1 + waiting time in units, 0 where unknown;
- `at`, `busy`, `count` (4 each), slices drawn together only: position in the lane as the distance
  from the one before, busy time in units, number of slices.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trace_analyzer.reports.timeline_thin import TOGETHER, Drawn
from trace_analyzer.schema import AnyArray, Int64Array
from trace_analyzer.timeline import LaneKind, SliceKind

TOGETHER_TYPE = 0xFF00
_DELAY_STEPS = 12  # codes a doubling: the delay is told to 3 %
_LEVEL = 6  # of zlib: 9 takes three times as long for 1 % less


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaneData:
    """A lane to be packed: its slices, and the type of each as a position in the header."""

    kind: LaneKind
    slices: Drawn
    types: Int64Array


def planes(values: AnyArray, width: int) -> bytes:
    """Return non-negative integers as `width` planes of bytes, the lowest first."""
    wide = np.ascontiguousarray(values, dtype="<u8").view(np.uint8).reshape(-1, 8)
    return wide[:, :width].T.tobytes()


def delay_codes(delay_ns: Int64Array) -> Int64Array:
    """Return the logarithm of a launch delay in one byte; 0 where it is unknown (-1)."""
    known = delay_ns >= 0
    codes = 1 + np.rint(_DELAY_STEPS * np.log2(1 + np.maximum(delay_ns, 0) / 1e3))
    return np.where(known, np.minimum(codes, 255), 0).astype(np.int64)


def least_unit_ns(length_ns: int) -> int:
    """Return the finest unit in which a timeline of this length fits 31 bits: a power of two."""
    return 1 << max(0, length_ns.bit_length() - 31)


def packed(header: dict[str, Any], lanes: Sequence[LaneData], origin_ns: int, unit_ns: int) -> str:
    """Return header and lanes as base64 of the deflated frame; same input, same text."""
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
    parts = [len(text).to_bytes(4, "little"), text]
    gap, length, types, delay, wait = [], [], [], [], []
    at, busy, count = [], [], []
    for lane in lanes:
        slices = lane.slices
        start = (slices.start_ns - origin_ns) // unit_ns
        end = (slices.end_ns - origin_ns) // unit_ns
        gap.append(start - np.concatenate([[0], end[:-1]])[: len(start)])
        length.append(end - start)
        types.append(lane.types)
        if lane.kind in {LaneKind.STREAM, LaneKind.COMM}:
            delay.append(delay_codes(slices.delay_ns))
        comm = slices.kind == SliceKind.COMM
        known = slices.wait_ns[comm] >= 0
        wait.append(np.where(known, 1 + slices.wait_ns[comm] // unit_ns, 0))
        rows = np.flatnonzero(slices.name == TOGETHER)
        at.append(np.diff(rows, prepend=0))
        busy.append(slices.busy_ns[rows] // unit_ns)
        count.append(slices.count[rows])
    for columns, width in (
        (gap, 4),
        (length, 4),
        (types, 2),
        (delay, 1),
        (wait, 4),
        (at, 4),
        (busy, 4),
        (count, 4),
    ):
        parts.append(planes(np.concatenate([np.empty(0, dtype=np.int64), *columns]), width))
    return base64.b64encode(zlib.compress(b"".join(parts), _LEVEL)).decode()
