"""The timeline's columns read back from a page, as the script in it reads them."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
TOGETHER = 0xFF00


@dataclass
class UnpackedLane:
    header: dict[str, Any]
    start: Ints
    end: Ints
    type: Ints
    delay: Ints
    wait: Ints  # -1 where unknown; slices of communication only
    together: dict[int, tuple[int, int]]  # row → busy, count


@dataclass
class Unpacked:
    header: dict[str, Any]
    lanes: dict[tuple[int, int], UnpackedLane]  # (rank, position)

    def names(self, lane: UnpackedLane) -> list[str]:
        of_type, names = self.header["types"]["name"], self.header["names"]
        return [names[of_type[t]] if t < TOGETHER else "" for t in lane.type.tolist()]


def of_page(page: str) -> Unpacked | None:
    found = re.search(
        r'<script type="application/json" id="timeline-data">"([^"<]*)"</script>', page
    )
    return None if found is None else unpacked(found[1])


def unpacked(text: str) -> Unpacked:
    frame = zlib.decompress(base64.b64decode(text, validate=True))
    size = int.from_bytes(frame[:4], "little")
    header = json.loads(frame[4 : 4 + size])
    at = 4 + size

    def column(count: int, width: int) -> Ints:
        nonlocal at
        planes = np.frombuffer(frame, np.uint8, count * width, at).reshape(width, count)
        at += count * width
        weights = (1 << (8 * np.arange(width, dtype=np.int64)))[:, None]
        values: Ints = (planes.astype(np.int64) * weights).sum(axis=0)
        return values

    lanes = [(rank["rank"], lane) for rank in header["ranks"] for lane in rank["lanes"]]
    total = sum(lane["slices"] for _, lane in lanes)
    gap, length, kind = column(total, 4), column(total, 4), column(total, 2)
    delay = column(sum(lane["slices"] for _, lane in lanes if lane["kind"] >= 2), 1)
    wait = column(sum(lane["comm"] for _, lane in lanes), 4) - 1
    joined = sum(lane["together"] for _, lane in lanes)
    where, busy, count = column(joined, 4), column(joined, 4), column(joined, 4)
    assert at == len(frame)
    found = {}
    s = d = w = j = 0
    position: dict[int, int] = {}
    for rank, lane in lanes:
        n, m = lane["slices"], lane["together"]
        ends = np.cumsum(gap[s : s + n] + length[s : s + n])
        rows = np.cumsum(where[j : j + m]).tolist()
        pairs = zip(busy[j : j + m].tolist(), count[j : j + m].tolist(), strict=True)
        gpu = n if lane["kind"] >= 2 else 0
        place = position.get(rank, 0)
        position[rank] = place + 1
        found[rank, place] = UnpackedLane(
            header=lane,
            start=ends - length[s : s + n],
            end=ends,
            type=kind[s : s + n],
            delay=delay[d : d + gpu],
            wait=wait[w : w + lane["comm"]],
            together=dict(zip(rows, pairs, strict=True)),
        )
        s, d, w, j = s + n, d + gpu, w + lane["comm"], j + m
    return Unpacked(header, found)
