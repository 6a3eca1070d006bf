"""The tables of one rank: the single place where columns, units and meanings are declared.

All times are int64 nanoseconds on the rank's own trace clock; intervals are half-open. Adding
`Rank.clock_base_ns` gives Unix time. Names are positions in `Rank.names`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from trace_analyzer.schema import (
    BoolArray,
    Float64Array,
    Int8Array,
    Int16Array,
    Int32Array,
    Int64Array,
    Table,
    column,
)


class OperationKind(IntEnum):
    """What a GPU operation is."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2


class WorkClass(IntEnum):
    """Which part of the partition a GPU operation belongs to (DESIGN: C, N, M)."""

    COMPUTE = 0
    COMM = 1
    COPY = 2


class HostCategory(IntEnum):
    """What a host event is."""

    OPERATOR = 0  # aten and other dispatched operators
    ANNOTATION = 1  # record_function, NVTX ranges, ProfilerStep
    PYTHON = 2  # Python frames (with_stack)
    OVERHEAD = 3  # the profiler's own work
    OS = 4  # operating-system calls (nsys OSRT)
    OTHER = 5


class CallKind(IntEnum):
    """What a CUDA or HIP runtime or driver call does."""

    OTHER = 0
    LAUNCH = 1
    GRAPH_LAUNCH = 2
    MEMCPY = 3
    MEMSET = 4
    SYNC = 5  # blocks the host: stream, device or event synchronisation
    EVENT = 6  # record, query or wait of an event
    ALLOC = 7
    FREE = 8


class SyncKind(IntEnum):
    """What a synchronisation record says."""

    EVENT_SYNC = 1  # host waits for an event
    STREAM_WAIT_EVENT = 2  # a stream waits for an event
    STREAM_SYNC = 3  # host waits for a stream
    CONTEXT_SYNC = 4  # host waits for the device
    EVENT_RECORD = 5  # an event is recorded on a stream


@dataclass(frozen=True, kw_only=True, eq=False)
class GpuOperations(Table):
    """Kernels, copies and memsets, in order of start (then of end)."""

    start_ns: Int64Array = column("int64", "ns", "start of execution on the device")
    end_ns: Int64Array = column("int64", "ns", "end of execution on the device; never before start")
    kind: Int8Array = column("int8", "", "OperationKind: kernel, memcpy or memset")
    work: Int8Array = column("int8", "", "WorkClass: compute, comm or copy")
    name: Int32Array = column("int32", "", "position in the rank's names; demangled for kernels")
    device: Int16Array = column("int16", "", "CUDA ordinal inside the process", nullable=True)
    context: Int32Array = column("int32", "", "CUDA context", nullable=True)
    stream: Int64Array = column("int64", "", "stream of the context", nullable=True)
    correlation: Int64Array = column(
        "int64", "", "id shared with the launch call of the same process", nullable=True
    )
    launch: Int32Array = column(
        "int32",
        "",
        "row in host_calls of the outermost call that launched it; missing where the file holds "
        "none (backlog of an earlier step, or a lost record)",
        nullable=True,
    )
    graph_node: Int64Array = column(
        "int64", "", "node id inside a CUDA graph; missing outside graphs", nullable=True
    )
    external_id: Int64Array = column(
        "int64",
        "",
        "id shared with the operator that launched it (Kineto External id)",
        nullable=True,
    )
    bytes: Int64Array = column("int64", "bytes", "size of a copy or memset", nullable=True)
    launch_config: Int32Array = column(
        "int32", "", "row in launch_configs; missing for copies and memsets", nullable=True
    )
    collective: Int32Array = column(
        "int32", "", "row in collectives that this operation executes", nullable=True
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class LaunchConfigs(Table):
    """Distinct launch shapes of kernels."""

    grid_x: Int32Array = column("int32", "blocks", "grid, x", nullable=True)
    grid_y: Int32Array = column("int32", "blocks", "grid, y", nullable=True)
    grid_z: Int32Array = column("int32", "blocks", "grid, z", nullable=True)
    block_x: Int32Array = column("int32", "threads", "block, x", nullable=True)
    block_y: Int32Array = column("int32", "threads", "block, y", nullable=True)
    block_z: Int32Array = column("int32", "threads", "block, z", nullable=True)
    registers: Int32Array = column("int32", "", "registers a thread", nullable=True)
    shared_bytes: Int64Array = column(
        "int64", "bytes", "static plus dynamic shared memory a block", nullable=True
    )
    occupancy_pct: Float64Array = column(
        "float64", "%", "occupancy as estimated by the profiler", nullable=True
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class HostCalls(Table):
    """CUDA or HIP runtime and driver calls, in order of start (outer before inner)."""

    start_ns: Int64Array = column("int64", "ns", "call entered")
    end_ns: Int64Array = column("int64", "ns", "call returned")
    kind: Int8Array = column("int8", "", "CallKind")
    name: Int32Array = column("int32", "", "position in the rank's names, without version suffix")
    thread: Int32Array = column("int32", "", "row in threads")
    correlation: Int64Array = column(
        "int64", "", "id shared with the GPU operation of the same process", nullable=True
    )
    external_id: Int64Array = column(
        "int64", "", "id of the enclosing operator (Kineto External id)", nullable=True
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class HostEvents(Table):
    """Operators, annotations, Python frames and profiler overhead, in order of start (outer first)."""

    start_ns: Int64Array = column("int64", "ns", "range opened")
    end_ns: Int64Array = column("int64", "ns", "range closed")
    category: Int8Array = column("int8", "", "HostCategory")
    name: Int32Array = column("int32", "", "position in the rank's names")
    thread: Int32Array = column("int32", "", "row in threads")
    external_id: Int64Array = column(
        "int64", "", "operator id that GPU operations and calls refer to", nullable=True
    )
    sequence: Int64Array = column(
        "int64",
        "",
        "autograd sequence number: pairs a backward node with its forward operator",
        nullable=True,
    )
    collective: Int32Array = column(
        "int32", "", "row in collectives that this event issues", nullable=True
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Synchronizations(Table):
    """Recorded synchronisation: host waits, stream waits and event records, in order of start."""

    start_ns: Int64Array = column("int64", "ns", "start")
    end_ns: Int64Array = column("int64", "ns", "end; equal to start for an event record")
    kind: Int8Array = column("int8", "", "SyncKind")
    device: Int16Array = column("int16", "", "CUDA ordinal", nullable=True)
    stream: Int64Array = column(
        "int64", "", "stream that waits, is waited for, or records", nullable=True
    )
    correlation: Int64Array = column("int64", "", "id of the host call", nullable=True)
    event: Int64Array = column(
        "int64",
        "",
        "event handle, or the one-time eventSyncId where the file has it",
        nullable=True,
    )
    record_correlation: Int64Array = column(
        "int64", "", "correlation of the event record that is waited for", nullable=True
    )
    source_stream: Int64Array = column(
        "int64", "", "stream on which the awaited event was recorded", nullable=True
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Collectives(Table):
    """Metadata of communication calls, as recorded by torch or by NCCL's own annotations."""

    operation: Int32Array = column(
        "int32",
        "",
        "position in names: allreduce, allgather, reducescatter, broadcast, reduce, "
        "alltoall, send, recv, sendrecv (both in one launch), barrier, gather, scatter, in this "
        "spelling",
    )
    group: Int32Array = column("int32", "", "position in Rank.groups", nullable=True)
    sequence: Int64Array = column(
        "int64", "", "sequence number inside the group, equal on all ranks", nullable=True
    )
    dtype: Int32Array = column("int32", "", "position in names of the element type", nullable=True)
    in_elements: Int64Array = column(
        "int64", "elements", "elements sent by this rank", nullable=True
    )
    out_elements: Int64Array = column(
        "int64", "elements", "elements received by this rank", nullable=True
    )
    message_bytes: Int64Array = column(
        "int64",
        "bytes",
        "size S as nccl-tests defines it: the larger of what this rank sends and "
        "receives; n times the part for all-gather and reduce-scatter",
        nullable=True,
    )
    root: Int32Array = column("int32", "", "root rank of a rooted collective", nullable=True)
    source_rank: Int32Array = column("int32", "", "sender (global rank)", nullable=True)
    destination_rank: Int32Array = column("int32", "", "receiver (global rank)", nullable=True)
    is_async: Int8Array = column(
        "int8", "", "1 if the call did not block the issuing stream", nullable=True
    )
    calls: Int32Array = column("int32", "", "NCCL calls fused into this one launch, at least 1")


@dataclass(frozen=True, kw_only=True, eq=False)
class Threads(Table):
    """Host threads that own events."""

    process: Int64Array = column("int64", "", "process id", nullable=True)
    thread: Int64Array = column("int64", "", "thread id", nullable=True)
    name: Int32Array = column("int32", "", "position in names", nullable=True)


TABLES: tuple[type[Table], ...] = (
    GpuOperations,
    LaunchConfigs,
    HostCalls,
    HostEvents,
    Synchronizations,
    Collectives,
    Threads,
)

__all__ = [
    "TABLES",
    "BoolArray",
    "CallKind",
    "Collectives",
    "GpuOperations",
    "HostCalls",
    "HostCategory",
    "HostEvents",
    "LaunchConfigs",
    "OperationKind",
    "SyncKind",
    "Synchronizations",
    "Threads",
    "WorkClass",
]
