"""What waits for what on the device and for it: recorded event edges, else inferred ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.replay.host import NO_CALL, HostSequence
from trace_analyzer.analyses.replay.voting import last_before, launch_order, next_after, voted_edges
from trace_analyzer.model import Rank
from trace_analyzer.schema import Int32Array, Int64Array, is_na
from trace_analyzer.tables import CallKind, HostCategory, OperationKind, SyncKind, WorkClass

# A call returns at most this long before the operation it waited for is recorded to end.
RETURN_TOLERANCE_NS = 3_000
# A kernel that lasts longer than this has not ended when an asynchronous launch call returns.
LONG_KERNEL_NS = 20_000
# Launches are blocking where more of them than this return after their kernel's end.
BLOCKING_SHARE = 0.9


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


def find_edges(ranks: Sequence[tuple[Rank, HostSequence, Int32Array]]) -> list[Edges]:
    """Return the edges of every rank, given with its host and the launch node of each operation."""
    voted: dict[int, tuple[Int64Array, Int64Array]] = {}
    by_vote = [k for k, (rank, _, _) in enumerate(ranks) if _is_voted(rank)]
    if by_vote:
        pairs = voted_edges([ranks[k] for k in by_vote])
        voted = dict(zip(by_vote, pairs, strict=True))
    return [_rank_edges(*item, voted.get(k)) for k, item in enumerate(ranks)]


def _rank_edges(
    rank: Rank,
    host: HostSequence,
    node: Int32Array,
    voted: tuple[Int64Array, Int64Array] | None,
) -> Edges:
    if voted is not None:
        source, target = voted
    elif _is_recorded(rank):
        source, target = _recorded_edges(rank, host, node)
    else:
        source, target = _inferred_edges(rank, host, node)
    operations = rank.operations
    fits = operations.end_ns[source] <= operations.start_ns[target] + RETURN_TOLERANCE_NS
    waits = _host_waits(rank, host, node)
    return Edges(
        device_from=source[fits],
        device_to=target[fits],
        host_node=waits[0],
        host_operation=waits[1],
        recorded=_is_recorded(rank),
        violated=int(np.sum(~fits)),
    )


def _is_recorded(rank: Rank) -> bool:
    """Return whether the recording says which event record each wait of a stream is for."""
    return bool(np.any(rank.syncs.kind == SyncKind.STREAM_WAIT_EVENT)) and bool(
        np.any(~is_na(rank.syncs.record_correlation))
    )


def _is_voted(rank: Rank) -> bool:
    """Return whether ranks vote on what streams wait for: collectives use several streams (FSDP).

    With one stream for all collectives, torch's own order says it better.
    """
    comm = rank.operations.work == WorkClass.COMM
    waits = rank.syncs.kind == SyncKind.STREAM_WAIT_EVENT
    several = len(np.unique(rank.operations.stream[comm])) > 1
    return several and bool(waits.any()) and not _is_recorded(rank)


def _inferred_edges(
    rank: Rank, host: HostSequence, node: Int32Array
) -> tuple[Int64Array, Int64Array]:
    """Edges by how torch uses its streams.

    A communication kernel waits for what was launched before it on the computing streams. Each
    cudaStreamWaitEvent outside a collective's own range takes the oldest collective that nothing
    waits for yet, and the next computing operation waits for those taken.
    """
    is_comm = rank.operations.work == WorkClass.COMM
    comm, comm_node = launch_order(node, is_comm)
    rest, rest_node = launch_order(node, ~is_comm)
    before = last_before(rest, rest_node, comm_node)
    known = before >= 0
    waits = _stream_waits_outside_collectives(rank, host)
    source: list[int] = []
    target: list[int] = []
    taken = 0
    # A few collectives a step: this loop is over waits, not over events.
    launched = np.searchsorted(comm_node, waits, side="left")
    following = next_after(rest, rest_node, waits)
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
        int(stream): launch_order(node, operations.stream == stream)
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
        first = int(last_before(*from_lane, at[:1])[0])
        second = int(next_after(*to_lane, at[1:])[0])
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
        launch_order(node, operations.stream == stream) for stream in np.unique(operations.stream)
    ]
    result_node: list[int] = []
    result_op: list[int] = []
    for position in np.flatnonzero((kind == CallKind.SYNC) | (kind == CallKind.FREE)).tolist():
        at = nodes[position : position + 1].astype(np.int64)
        last = [int(last_before(*lane, at)[0]) for lane in lanes if len(lane[0])]
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


def launches_block(rank: Rank) -> bool:
    """Return whether launch calls return only after their kernel: CUDA_LAUNCH_BLOCKING is set."""
    operations, calls = rank.operations, rank.calls
    kernels = np.flatnonzero(
        (operations.kind == OperationKind.KERNEL)
        & (operations.work == WorkClass.COMPUTE)
        & ~is_na(operations.launch)
    )
    kernels = kernels[operations.end_ns[kernels] - operations.start_ns[kernels] > LONG_KERNEL_NS]
    if not len(kernels):
        return False
    call = operations.launch[kernels]
    after = calls.end_ns[call] + RETURN_TOLERANCE_NS >= operations.end_ns[kernels]
    return float(np.mean(after)) > BLOCKING_SHARE


def _blocking_copies(
    rank: Rank, host: HostSequence, node: Int32Array
) -> tuple[Int64Array, Int64Array]:
    """Operations whose call returns only once they are done: the host waits for them.

    Copies one by one, except for those inside the device, for which no call waits; kernels only
    where nearly all calls do so (CUDA_LAUNCH_BLOCKING), because a short kernel is often over before
    its call returns.
    """
    operations = rank.operations
    launched = node != NO_CALL
    inside = np.array(["DtoD" in text or "PtoP" in text for text in rank.names], dtype=np.bool_)
    is_copy = (operations.kind == OperationKind.MEMCPY) & ~inside[operations.name]
    rows = np.flatnonzero(launched & (is_copy | launches_block(rank)))
    returned = host.end_ns[node[rows]]
    ended = operations.end_ns[rows]
    began = host.start_ns[node[rows]]
    blocking = (returned + RETURN_TOLERANCE_NS >= ended) & (ended > began)
    rows = rows[blocking]
    return node[rows].astype(np.int64), rows.astype(np.int64)
