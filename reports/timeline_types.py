"""What slices of the timeline have in common: kind, name, launch shape and size, kept once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trace_analyzer.reports import units
from trace_analyzer.reports.names import cut_middle, short_names, visible
from trace_analyzer.reports.timeline_columns import TOGETHER_TYPE
from trace_analyzer.reports.timeline_thin import TOGETHER, Drawn
from trace_analyzer.schema import Int64Array
from trace_analyzer.timeline import SliceKind, Timeline, WorkDetail

_LONGEST_NAME = 4000
_LONGEST_SHOWN = 60
_AUTOGRAD = "autograd::engine::evaluate_function: "
_ON_GPU = (SliceKind.COMPUTE, SliceKind.COMM, SliceKind.COPY)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TypeTable:
    """The distinct (kind, name, detail, bytes) of slices; -1 where there is no detail or size."""

    kind: Int64Array
    name: Int64Array
    detail: Int64Array
    bytes: Int64Array


def types_of(
    lanes: Sequence[Drawn], details: Sequence[WorkDetail]
) -> tuple[TypeTable, list[Int64Array]]:
    """Return the distinct types, and for every lane the type of each slice."""
    none = np.empty(0, dtype=np.int64)

    def column(name: str) -> Int64Array:
        return np.concatenate([none, *(getattr(lane, name).astype(np.int64) for lane in lanes)])

    kind, name, detail, size = (column(key) for key in ("kind", "name", "detail", "bytes"))
    single = np.flatnonzero(name != TOGETHER)
    parts = [kind[single], name[single], detail[single], size[single]]
    communicates = np.array([bool(item.operation) for item in details] + [False])
    # Sizes of copies may be all different: they go first where there are too many types.
    while True:
        key = none
        for part in parts:
            values, codes = np.unique(part, return_inverse=True)
            key = codes if not len(key) else key * len(values) + codes
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        if len(first) < TOGETHER_TYPE:
            break
        copies = (parts[3] >= 0) & ~communicates[parts[2]]
        if bool(copies.any()):
            parts[3] = np.where(copies, -1, parts[3])
        elif bool((parts[3] >= 0).any()):
            parts[3] = np.full(len(single), -1)
        elif bool((parts[2] >= 0).any()):
            parts[2] = np.full(len(single), -1)
        else:
            parts[1] = np.minimum(parts[1], TOGETHER_TYPE // 16)
    types = TOGETHER_TYPE + kind
    types[single] = inverse.reshape(-1)
    table = TypeTable(
        kind=parts[0][first], name=parts[1][first], detail=parts[2][first], bytes=parts[3][first]
    )
    ends = np.cumsum([len(lane) for lane in lanes])
    return table, np.split(types, ends[:-1]) if len(lanes) else []


def named(table: TypeTable, timeline: Timeline) -> dict[str, Any]:
    """Return names and details that occur, and the types that refer to them."""
    names, name = np.unique(table.name, return_inverse=True)
    details, detail = np.unique(table.detail[table.detail >= 0], return_inverse=True)
    placed = np.full(len(table.detail), -1)
    placed[table.detail >= 0] = detail.reshape(-1)
    texts = [timeline.names[position] for position in names.tolist()]
    on_gpu = np.isin(names, table.name[np.isin(table.kind, _ON_GPU)])
    short = short_names(text for text, gpu in zip(texts, on_gpu.tolist(), strict=True) if gpu)
    shown = [short.get(text) or visible(text.removeprefix(_AUTOGRAD)) for text in texts]
    full = [visible(cut_middle(text, _LONGEST_NAME)) for text in texts]
    return {
        "names": full,
        "short": {
            str(at): cut_middle(text, _LONGEST_SHOWN)
            for at, (text, whole) in enumerate(zip(shown, full, strict=True))
            if text != whole
        },
        "types": {
            "kind": table.kind.tolist(),
            "name": name.reshape(-1).tolist(),
            "detail": placed.tolist(),
            "bytes": table.bytes.tolist(),
        },
        "details": [_detail(timeline.details[position]) for position in details.tolist()],
    }


def _detail(item: WorkDetail) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if item.grid and item.block:
        found["shape"] = units.launch_shape(item.grid, item.block)
    if item.operation:
        found["operation"] = visible(item.operation)
    if item.group:
        found["group"] = visible(cut_middle(item.group, _LONGEST_SHOWN))
    if item.dtype:
        found["dtype"] = visible(cut_middle(item.dtype, 20))
    if item.bus_factor is not None:
        found["factor"] = item.bus_factor
    return found
