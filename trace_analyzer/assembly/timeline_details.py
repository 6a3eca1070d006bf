"""What the slices of GPU operations say when they are looked at: shape, size, launch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from trace_analyzer.analyses.kernel_table import Shape, launch_shape
from trace_analyzer.assembly.tables import group_label
from trace_analyzer.model import Rank
from trace_analyzer.nccl_names import bus_factor, operation_of, type_label, type_of
from trace_analyzer.schema import NA_INT32, NA_INT64, Int32Array, Int64Array, is_na, widened
from trace_analyzer.tables import WorkClass
from trace_analyzer.timeline import WorkDetail


@dataclass(slots=True)
class DetailTable:
    """The distinct details of a timeline, in order of first use."""

    items: dict[WorkDetail, int] = field(default_factory=dict)

    def position(self, detail: WorkDetail) -> int:
        """Return the position of a detail, adding it if it is new."""
        return self.items.setdefault(detail, len(self.items))


def operation_details(rank: Rank, table: DetailTable) -> Int32Array:
    """Return the detail of every GPU operation, NA where nothing is known; one entry an operation."""
    operations = rank.operations
    found = np.full(len(operations), NA_INT32, dtype=np.int32)
    config = widened(operations.launch_config)
    comm = np.asarray(operations.work == WorkClass.COMM)
    shapes, inverse = np.unique(config[~comm], return_inverse=True)
    known = []
    for code in shapes.tolist():
        grid, block = _shape(rank, code)
        known.append(_place(table, WorkDetail(grid=grid, block=block)))
    found[~comm] = np.array(known, dtype=np.int32)[inverse]
    codes = np.stack([widened(operations.name), config, _collective_classes(rank)])[:, comm]
    distinct, inverse = np.unique(codes, axis=1, return_inverse=True)
    told = [_place(table, _communication(rank, *codes)) for codes in distinct.T.tolist()]
    found[comm] = np.array(told, dtype=np.int32)[inverse.reshape(-1)]
    return found


def _place(table: DetailTable, detail: WorkDetail) -> int:
    return NA_INT32 if detail == WorkDetail() else table.position(detail)


def _collective_classes(rank: Rank) -> Int64Array:
    """Return, for every operation, the first collective that has the same operation, group and type."""
    collective = rank.operations.collective
    known = ~is_na(collective)
    found = np.full(len(collective), NA_INT64, dtype=np.int64)
    if not bool(known.any()):
        return found
    same = rank.collectives
    keys = np.stack([widened(same.operation), widened(same.group), widened(same.dtype)])
    _, first, inverse = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    found[known] = first[inverse.reshape(-1)][collective[known]]
    return found


def _shape(rank: Rank, config: int) -> tuple[Shape | None, Shape | None]:
    if config == NA_INT64:
        return None, None
    shape = launch_shape(rank, config)
    return shape.grid, shape.block


def _communication(rank: Rank, kernel: int, config: int, collective: int) -> WorkDetail:
    name, rows = rank.names[kernel], rank.collectives
    operation, dtype, group = operation_of(name), type_of(name), None
    if collective != NA_INT64:
        operation = rank.names[int(rows.operation[collective])]
        if int(rows.dtype[collective]) != NA_INT32:
            dtype = rank.names[int(rows.dtype[collective])]
        if int(rows.group[collective]) != NA_INT32:
            group = rank.groups[int(rows.group[collective])]
    size = None if group is None else group.size or len(group.ranks) or None
    label = group_label(group) or ""
    grid, block = _shape(rank, config)
    return WorkDetail(
        grid=grid,
        block=block,
        operation=operation or "",
        group=f"{label}, {size} ranks" if size and label else label,
        dtype=type_label(dtype) or "",
        bus_factor=None if size is None or not operation else bus_factor(operation, size),
    )


def message_bytes(rank: Rank, rows: Int64Array) -> Int64Array:
    """Return the size of copies and of collectives, NA elsewhere; shape of `rows`."""
    size = rank.operations.bytes[rows].copy()
    collective = rank.operations.collective[rows]
    known = ~is_na(collective)
    size[known] = rank.collectives.message_bytes[collective[known]]
    return size


def launch_delays_ns(rank: Rank, rows: Int64Array) -> Int64Array:
    """Return, for GPU operations, how long before their start the launch call began; NA if unknown."""
    launch = rank.operations.launch[rows]
    known = ~is_na(launch)
    delay = np.full(len(rows), NA_INT64, dtype=np.int64)
    began = rank.calls.start_ns[launch[known]]
    delay[known] = np.maximum(rank.operations.start_ns[rows[known]] - began, 0)
    return delay
