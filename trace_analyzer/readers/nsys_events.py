"""CUDA tables of an nsys export → GPU operations and host calls of each process.

A correlation id is unique inside a process only, so every join carries the process: the upper 40
bits of `globalPid` and `globalTid` (machine and process id).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trace_analyzer.calls import call_kinds, strip_version
from trace_analyzer.names import NameTable
from trace_analyzer.readers.nsys_columns import (
    Texts,
    distinct,
    distinct_rows,
    first_rows,
    narrowed,
    row_order,
    without,
)
from trace_analyzer.readers.nsys_copies import copy_names, set_names
from trace_analyzer.readers.nsys_schema import Export
from trace_analyzer.schema import NA_INT32, NA_INT64, BoolArray, Int32Array, Int64Array
from trace_analyzer.tables import HostCalls, LaunchConfigs, OperationKind

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"

GRAPH_NAME = "CUDA graph"
PROCESS_SHIFT = 24
PID_MASK = 0xFFFFFF
TID_MASK = 0xFFFFFF
NONE_32 = 0xFFFFFFFF  # how CUPTI writes "no stream", "no event"

_PLACE = ("start", "end", "globalPid", "deviceId", "contextId", "streamId", "correlationId")
_SHAPE = (
    "gridX",
    "gridY",
    "gridZ",
    "blockX",
    "blockY",
    "blockZ",
    "registersPerThread",
    "staticSharedMemory",
    "dynamicSharedMemory",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GpuRows:
    """GPU operations of the whole file, one entry each, in the order of the file.

    `process` is NA where the file does not tell. `name` holds text ids of kernels, and name
    positions of everything else. `shape` are rows of `shapes`. `whole_graph` is 1 for a row that
    stands for all the work of a CUDA graph.
    """

    process: Int64Array
    start: Int64Array
    end: Int64Array
    kind: Int64Array
    name: Int64Array
    device: Int64Array
    context: Int64Array
    stream: Int64Array
    correlation: Int64Array
    graph_node: Int64Array
    bytes: Int64Array
    shape: Int64Array
    copy_kind: Int64Array
    whole_graph: Int64Array
    shapes: LaunchConfigs
    damaged: int  # rows without start or end, or that end before they start

    def __len__(self) -> int:
        return len(self.start)

    def kernel_name_ids(self) -> Int64Array:
        """Return the text ids of the kernels' names."""
        return self.name[self.is_kernel()]

    def is_kernel(self) -> BoolArray:
        """Return which rows are single kernels."""
        kernel = (self.kind == OperationKind.KERNEL) & (self.whole_graph == 0)
        return np.asarray(kernel, dtype=np.bool_)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallRows:
    """Runtime and driver calls of the whole file; `name` holds text ids."""

    process: Int64Array
    thread: Int64Array
    start: Int64Array
    end: Int64Array
    correlation: Int64Array
    name: Int64Array
    damaged: int


def process_of(global_ids: Int64Array) -> Int64Array:
    """Return the process key of global thread or process ids; NA stays NA."""
    return np.where(global_ids == NA_INT64, NA_INT64, global_ids >> PROCESS_SHIFT)


def read_operations(export: Export, names: NameTable) -> GpuRows:
    """Return all kernels, copies, memsets and whole graphs.

    Names of copies are interned here, those of kernels by `name_operations`.
    """
    title = next(
        (c for c in ("demangledName", "shortName", "mangledName") if export.has(KERNEL, c)), ""
    )
    kernels = export.integers(
        KERNEL, [*_PLACE, "graphNodeId", *_SHAPE, *([title] if title else [])]
    )
    shapes, shape = _launch_shapes(kernels)
    copies = export.integers(
        MEMCPY, [*_PLACE, "graphNodeId", "bytes", "copyKind", "srcKind", "dstKind"]
    )
    sets = export.integers(MEMSET, [*_PLACE, "graphNodeId", "bytes", "memKind"])
    graphs = export.integers(GRAPH, _PLACE)
    sources = (kernels, copies, sets, graphs)
    sizes = [len(source["start"]) for source in sources]
    nothing = [np.full(size, NA_INT64, dtype=np.int64) for size in sizes]

    def joined(column: str) -> Int64Array:
        return np.concatenate(
            [source.get(column, nothing[at]) for at, source in enumerate(sources)]
        )

    graph_name = names.intern(GRAPH_NAME) if sizes[3] else 0
    columns = {
        "process": process_of(joined("globalPid")),
        "start": joined("start"),
        "end": joined("end"),
        "kind": np.repeat(
            [
                OperationKind.KERNEL.value,
                OperationKind.MEMCPY.value,
                OperationKind.MEMSET.value,
                OperationKind.KERNEL.value,
            ],
            sizes,
        ).astype(np.int64),
        "name": np.concatenate(
            [
                kernels[title] if title else nothing[0],
                copy_names(copies, names),
                set_names(sets, names),
                np.full(sizes[3], graph_name, dtype=np.int64),
            ]
        ),
        "device": joined("deviceId"),
        "context": joined("contextId"),
        "stream": without(joined("streamId"), NONE_32),
        "correlation": without(joined("correlationId"), 0, NONE_32),
        "graph_node": without(joined("graphNodeId"), 0),
        "bytes": joined("bytes"),
        "shape": np.concatenate([shape, *nothing[1:]]),
        "copy_kind": joined("copyKind"),
        "whole_graph": np.repeat([0, 0, 0, 1], sizes).astype(np.int64),
    }
    sound = _sound(columns["start"], columns["end"])
    damaged = int(len(sound) - np.count_nonzero(sound))
    if damaged:
        columns = {name: values[sound] for name, values in columns.items()}
    return GpuRows(**columns, shapes=shapes, damaged=damaged)


def read_calls(export: Export) -> CallRows:
    """Return all runtime and driver calls."""
    raw = export.integers(RUNTIME, ["start", "end", "globalTid", "correlationId", "nameId"])
    sound = _sound(raw["start"], raw["end"])
    damaged = int(len(sound) - np.count_nonzero(sound))
    if damaged:
        raw = {name: values[sound] for name, values in raw.items()}
    return CallRows(
        process=process_of(raw["globalTid"]),
        thread=raw["globalTid"],
        start=raw["start"],
        end=raw["end"],
        correlation=without(raw["correlationId"], 0),
        name=raw["nameId"],
        damaged=damaged,
    )


def _sound(start: Int64Array, end: Int64Array) -> BoolArray:
    return np.asarray((start != NA_INT64) & (end != NA_INT64) & (end >= start), dtype=np.bool_)


def _launch_shapes(kernels: dict[str, Int64Array]) -> tuple[LaunchConfigs, Int64Array]:
    count = len(kernels["start"])
    if not count:
        return LaunchConfigs.empty(), np.empty(0, dtype=np.int64)
    columns = [kernels[name] for name in _SHAPE]
    first, shape = distinct_rows(columns)
    shared = [column[first] for column in columns[7:]]
    shared_bytes = np.where(
        (shared[0] == NA_INT64) | (shared[1] == NA_INT64), NA_INT64, shared[0] + shared[1]
    )
    configs = LaunchConfigs.from_columns(
        len(first),
        **{
            name: narrowed(column[first])
            for name, column in zip(
                ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers"),
                columns,
                strict=False,
            )
        },
        shared_bytes=shared_bytes,
    )
    return configs, shape


def name_operations(rows: GpuRows, texts: Texts) -> Int32Array:
    """Return the name position of every operation."""
    kernels = rows.is_kernel()
    positions = rows.name.copy()
    positions[kernels] = texts.positions(rows.name[kernels])
    return positions.astype(np.int32)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OrderedCalls:
    """Calls of one process in table order: by start, outer before inner."""

    start: Int64Array
    end: Int64Array
    thread: Int64Array
    correlation: Int64Array
    name: Int32Array

    def table(self, names: NameTable, thread_rows: Int32Array) -> HostCalls:
        """Return the table; `thread_rows` gives the row in threads of every call."""
        found, inverse = distinct(self.name.astype(np.int64))
        kinds = call_kinds([names.texts[position] for position in found.tolist()])
        return HostCalls.from_columns(
            len(self.start),
            start_ns=self.start,
            end_ns=self.end,
            kind=kinds[inverse],
            name=self.name,
            thread=thread_rows,
            correlation=self.correlation,
        )


def calls_of(rows: CallRows, chosen: BoolArray | slice, texts: Texts) -> OrderedCalls:
    """Return the calls of one process."""
    start, end = rows.start[chosen], rows.end[chosen]
    order = row_order(start, -end)
    return OrderedCalls(
        start=start[order],
        end=end[order],
        thread=rows.thread[chosen][order],
        correlation=rows.correlation[chosen][order],
        name=texts.positions(rows.name[chosen][order], strip_version),
    )


def launch_rows(calls: OrderedCalls, correlation: Int64Array) -> Int32Array:
    """Return, for every operation, the row of the outermost call with its correlation id.

    Calls are ordered by start and outer before inner, so the outermost is the first. Where rows
    of several processes had to be pooled, an id that two of them used links nothing.
    """
    rows = first_rows(calls.correlation, correlation)
    process = process_of(calls.thread)
    if len(process) and bool((process != process[0]).any()):
        last = len(calls.start) - 1 - first_rows(calls.correlation[::-1], correlation)
        linked = rows != NA_INT64
        clash = linked.copy()
        clash[linked] = process[rows[linked]] != process[last[linked]]
        rows[clash] = NA_INT64
    return np.where(rows == NA_INT64, NA_INT32, rows).astype(np.int32)
