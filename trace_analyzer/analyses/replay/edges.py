"""What waits for what on the device and for it: recorded event edges, else inferred ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.replay.host import NO_CALL, HostSequence
from trace_analyzer.model import Rank
from trace_analyzer.schema import BoolArray, Int32Array, Int64Array, is_na
from trace_analyzer.tables import CallKind, HostCategory, OperationKind, SyncKind, WorkClass

# A call returns at most this long before the operation it waited for is recorded to end.
RETURN_TOLERANCE_NS = 3_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Edges:
    """Pairs of one rank. Operations are rows of the rank's GPU operations, nodes those of its host.

    `device_from[k]` must have ended before `device_to[k]` starts; `host_operation[k]` must have
    ended before `host_node[k]` returns. `recorded` says whether device edges come from events.
    """

    device_from: Int64Array
    device_to: Int64Array
    host_node: Int64Array
    host_operation: Int64Array
    recorded: bool
    violated: int


def find_edges(rank: Rank, host: HostSequence, node: Int32Array) -> Edges:
    """Return the edges of a rank; `node` is the launch node of each operation."""
    recorded = bool(np.any(rank.syncs.kind == SyncKind.STREAM_WAIT_EVENT)) and bool(
        np.any(~is_na(rank.syncs.record_correlation))
    )
    pairs = _recorded_edges(rank, host, node) if recorded else _inferred_edges(rank, host, node)
    operations = rank.operations
    source, target = pairs
    fits = operations.end_ns[source] <= operations.start_ns[target] + RETURN_TOLERANCE_NS
    waits = _host_waits(rank, host, node)
    return Edges(
        device_from=source[fits],
        device_to=target[fits],
        host_node=waits[0],
        host_operation=waits[1],
        recorded=recorded,
        violated=int(np.sum(~fits)),
    )


def _launch_order(node: Int32Array, chosen: BoolArray) -> tuple[Int64Array, Int64Array]:
    """Return (operations, their nodes) of the chosen launched operations, in order of launch."""
    rows = np.flatnonzero(chosen & (node != NO_CALL))
    order = np.argsort(node[rows], kind="stable")
    return rows[order].astype(np.int64), node[rows][order].astype(np.int64)


def _last_before(rows: Int64Array, nodes: Int64Array, at: Int64Array) -> Int64Array:
    """Return the last operation launched before each node, -1 where there is none."""
    position = np.searchsorted(nodes, at, side="left") - 1
    return np.where(position >= 0, rows[np.maximum(position, 0)] if len(rows) else -1, -1)


def _next_after(rows: Int64Array, nodes: Int64Array, at: Int64Array) -> Int64Array:
    """Return the first operation launched after each node, -1 where there is none."""
    position = np.searchsorted(nodes, at, side="right")
    inside = position < len(rows)
    safe = np.minimum(position, max(len(rows) - 1, 0))
    return np.where(inside, rows[safe] if len(rows) else -1, -1)


def _inferred_edges(
    rank: Rank, host: HostSequence, node: Int32Array
) -> tuple[Int64Array, Int64Array]:
    """Edges by how torch uses its streams.

    A communication kernel waits for what was launched before it on the computing streams. Each
    cudaStreamWaitEvent outside a collective's own range takes the oldest collective that nothing
    waits for yet, and the next computing operation waits for those taken.
    """
    is_comm = rank.operations.work == WorkClass.COMM
    comm, comm_node = _launch_order(node, is_comm)
    rest, rest_node = _launch_order(node, ~is_comm)
    before = _last_before(rest, rest_node, comm_node)
    known = before >= 0
    waits = _stream_waits_outside_collectives(rank, host)
    source: list[int] = []
    target: list[int] = []
    taken = 0
    # A few collectives a step: this loop is over waits, not over events.
    launched = np.searchsorted(comm_node, waits, side="left")
    following = _next_after(rest, rest_node, waits)
    for position, successor in zip(launched.tolist(), following.tolist(), strict=True):
        if taken < position and successor >= 0:
            source.append(int(comm[taken]))
            target.append(successor)
            taken += 1
    return (
        np.concatenate([before[known], np.array(source, dtype=np.int64)]).astype(np.int64),
        np.concatenate([comm[known], np.array(target, dtype=np.int64)]).astype(np.int64),
    )


def _stream_waits_outside_collectives(rank: Rank, host: HostSequence) -> Int64Array:
    """Return the nodes of cudaStreamWaitEvent calls that no collective's own range encloses."""
    names = np.array(["StreamWaitEvent" in text for text in rank.names], dtype=np.bool_)
    nodes = np.flatnonzero(host.call != NO_CALL)
    nodes = nodes[names[rank.calls.name[host.call[nodes]]]]
    events = rank.events
    wanted = [
        i
        for i, text in enumerate(rank.names)
        if text == "record_param_comms" or text.startswith(("nccl", "c10d::"))
    ]
    rows = np.flatnonzero(np.isin(events.name, wanted) & (events.category != HostCategory.PYTHON))
    start, end = np.sort(events.start_ns[rows]), np.sort(events.end_ns[rows])
    at = host.start_ns[nodes]
    open_ranges = np.searchsorted(start, at, side="right") - np.searchsorted(end, at, side="right")
    return nodes[open_ranges <= 0].astype(np.int64)


def _recorded_edges(
    rank: Rank, host: HostSequence, node: Int32Array
) -> tuple[Int64Array, Int64Array]:
    """Edges from recorded events: the last operation before the record, the first after the wait."""
    syncs, operations = rank.syncs, rank.operations
    by_call: dict[int, int] = {}
    for row, correlation in enumerate(rank.calls.correlation.tolist()):
        by_call.setdefault(correlation, row)
    waits = np.flatnonzero(
        (syncs.kind == SyncKind.STREAM_WAIT_EVENT) & ~is_na(syncs.record_correlation)
    )
    source: list[int] = []
    target: list[int] = []
    lanes = {
        int(stream): _launch_order(node, operations.stream == stream)
        for stream in np.unique(operations.stream)
    }
    for row in waits.tolist():
        record = by_call.get(int(syncs.record_correlation[row]))
        wait = by_call.get(int(syncs.correlation[row]))
        from_lane = lanes.get(int(syncs.source_stream[row]))
        to_lane = lanes.get(int(syncs.stream[row]))
        if record is None or wait is None or from_lane is None or to_lane is None:
            continue
        at = np.array([host.node_of_call[record], host.node_of_call[wait]], dtype=np.int64)
        if NO_CALL in at.tolist():
            continue
        first = int(_last_before(*from_lane, at[:1])[0])
        second = int(_next_after(*to_lane, at[1:])[0])
        if first >= 0 and second >= 0:
            source.append(first)
            target.append(second)
    return np.array(source, dtype=np.int64), np.array(target, dtype=np.int64)


def _host_waits(rank: Rank, host: HostSequence, node: Int32Array) -> tuple[Int64Array, Int64Array]:
    """Return (node, operation) where the host waits for the device."""
    calls, operations = rank.calls, rank.operations
    nodes = np.flatnonzero(host.call != NO_CALL)
    kind = calls.kind[host.call[nodes]]
    text = [rank.names[name] for name in calls.name[host.call[nodes]]]
    whole = np.array(
        [name.startswith(("cudaDeviceSync", "cuCtxSync", "hipDeviceSync")) for name in text],
        dtype=np.bool_,
    )
    whole |= kind == CallKind.FREE
    lanes = [
        _launch_order(node, operations.stream == stream) for stream in np.unique(operations.stream)
    ]
    result_node: list[int] = []
    result_op: list[int] = []
    for position in np.flatnonzero((kind == CallKind.SYNC) | (kind == CallKind.FREE)).tolist():
        at = nodes[position : position + 1].astype(np.int64)
        last = [int(_last_before(*lane, at)[0]) for lane in lanes if len(lane[0])]
        last = [op for op in last if op >= 0]
        limit = int(host.end_ns[at[0]]) + RETURN_TOLERANCE_NS
        done = [op for op in last if int(operations.end_ns[op]) <= limit]
        if not whole[position] and done:
            done = [max(done, key=lambda op: int(operations.end_ns[op]))]
        result_node.extend([int(at[0])] * len(done))
        result_op.extend(done)
    own = _blocking_copies(rank, host, node)
    return (
        np.concatenate([np.array(result_node, dtype=np.int64), own[0]]),
        np.concatenate([np.array(result_op, dtype=np.int64), own[1]]),
    )


def _blocking_copies(
    rank: Rank, host: HostSequence, node: Int32Array
) -> tuple[Int64Array, Int64Array]:
    """Copies whose call returns only once they are done: the host waits for them."""
    operations = rank.operations
    rows = np.flatnonzero((operations.kind == OperationKind.MEMCPY) & (node != NO_CALL))
    returned = host.end_ns[node[rows]]
    ended = operations.end_ns[rows]
    began = host.start_ns[node[rows]]
    blocking = (returned + RETURN_TOLERANCE_NS >= ended) & (ended > began)
    rows = rows[blocking]
    return node[rows].astype(np.int64), rows.astype(np.int64)
