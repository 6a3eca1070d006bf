"""The columns of one rank in a program: host nodes, operations, and their recorded times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.contention import matrix_names
from trace_analyzer.analyses.cross_rank import CrossRank
from trace_analyzer.analyses.partition import Busy
from trace_analyzer.analyses.replay.built import RankProgram
from trace_analyzer.analyses.replay.host import NO_CALL
from trace_analyzer.analyses.replay.program import COMM, COPY, MATRIX, NONE, OTHER
from trace_analyzer.analyses.replay.supply import batch_columns
from trace_analyzer.model import Rank
from trace_analyzer.schema import NA_INT64, Float64Array, Int8Array, Int64Array
from trace_analyzer.tables import OperationKind, WorkClass

# Operations that may be pending on a stream before a launch call blocks (measured).
QUEUE_LENGTH = 1022
# A launch call at the full queue that takes longer than this waits for a place in it.
QUEUE_WAIT_NS = 30_000
# Enqueued this long before its predecessor starts, an operation certainly did not wait for launch.
SURELY_QUEUED_NS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Timing:
    """Latency and gap of one rank's operations, so that a replay repeats what was recorded."""

    latency_ns: Int64Array
    gap_ns: Int64Array


def host_columns(rank: Rank, part: RankProgram, first_op: int) -> dict[str, Int64Array]:
    host, operations = part.host, rank.operations
    start, end = host.start_ns + part.shift_ns, host.end_ns + part.shift_ns
    gap = start.copy()
    gap[1:] -= end[:-1]
    position = np.full(len(operations), NONE, dtype=np.int64)
    position[part.op_row] = np.arange(len(part.op_row))
    wait_node, wait_op = part.edges.host_node, position[part.edges.host_operation]
    known = wait_op != NONE
    wait_node, wait_op = wait_node[known], wait_op[known]
    order = np.argsort(wait_node, kind="stable")
    wait_node, wait_op = wait_node[order], wait_op[order]
    awaited = host.start_ns.copy()
    np.maximum.at(awaited, wait_node, operations.end_ns[part.op_row[wait_op]])
    queue = _queue(rank, part, awaited)
    cost = np.maximum(host.end_ns - np.maximum(awaited, host.start_ns), 0)
    if part.supply is not None:
        # The wait for a batch stands at the mark that begins the step, not in the gap behind it.
        before = np.concatenate([host.start_ns[:1], host.end_ns[:-1]])
        gap -= intervals.coverage(part.supply.blocked, before, host.start_ns)
        marks = np.flatnonzero(host.call == NO_CALL)
        wait_node = np.concatenate([wait_node, marks])
        wait_op = np.concatenate([wait_op, len(part.op_row) + np.arange(len(marks))])
        order = np.argsort(wait_node, kind="stable")
        wait_node, wait_op = wait_node[order], wait_op[order]
    return {
        "gap": gap,
        "cost": cost,
        "step": host.step.astype(np.int64),
        "queue": np.where(queue == NONE, NONE, queue + first_op),
        "wait_count": np.bincount(wait_node, minlength=len(host)).astype(np.int64),
        "wait_op": wait_op + first_op,
    }


def _queue(rank: Rank, part: RankProgram, awaited: Int64Array) -> Int64Array:
    """Return the operation whose start frees the place that a launch needs; raises `awaited`."""
    operations, host = rank.operations, part.host
    queue = np.full(len(host), NONE, dtype=np.int64)
    stream = operations.stream[part.op_row]
    for value in np.unique(stream).tolist():
        line = np.flatnonzero((stream == value) & (part.op_node != NO_CALL))
        if len(line) <= QUEUE_LENGTH:
            continue
        node = part.op_node[line[QUEUE_LENGTH:]]
        full = line[:-QUEUE_LENGTH]
        queue[node] = full
        started = operations.start_ns[part.op_row[full]]
        waited = (host.end_ns[node] - host.start_ns[node] > QUEUE_WAIT_NS) & (
            started <= host.end_ns[node]
        )
        np.maximum.at(awaited, node[waited], started[waited])
    return queue


def _classes(rank: Rank, rows: Int64Array) -> Int8Array:
    work, name = rank.operations.work[rows], rank.operations.name[rows]
    kind = np.where(matrix_names(rank)[name], MATRIX, OTHER)
    kind = np.where(work == WorkClass.COMM, COMM, kind)
    return np.where(rank.operations.kind[rows] != OperationKind.KERNEL, COPY, kind).astype(np.int8)


def op_columns(
    rank: Rank,
    part: RankProgram,
    work: Busy,
    cross: CrossRank | None,
    alpha: Float64Array,
    place: tuple[int, int, int],
) -> dict[str, Int64Array]:
    position, first_node, first_op = place
    operations, rows = rank.operations, part.op_row
    start, end = operations.start_ns[rows], operations.end_ns[rows]
    kind = _classes(rank, rows)
    collective, offset = _members(rank, part, cross)
    # Backlog communication has no peers here; it ends when it did.
    beside = intervals.coverage(work.comm, start, end) / np.maximum(end - start, 1)
    base = np.rint((end - start) / (1.0 + alpha[kind] * beside)).astype(np.int64)
    local = np.full(len(operations), NONE, dtype=np.int64)
    local[rows] = np.arange(len(rows))
    source, target = local[part.edges.device_from], local[part.edges.device_to]
    known = (source != NONE) & (target != NONE)
    source, target = source[known], target[known]
    order = np.argsort(target, kind="stable")
    source, target = source[order], target[order]
    stream = np.unique(operations.stream[rows], return_inverse=True)[1].reshape(-1)
    timing = _timing(part, start, end, stream, (source, target), kind)
    columns = {
        "rank": np.full(len(rows), position, dtype=np.int64),
        "node": np.where(part.op_node == NO_CALL, NONE, part.op_node + first_node).astype(np.int64),
        "fixed": start + part.shift_ns,
        "stream": stream.astype(np.int64),
        "streams": np.array([len(np.unique(stream))], dtype=np.int64),
        "class": kind.astype(np.int64),
        "base": base,
        "latency": np.where(part.op_node == NO_CALL, 0, timing.latency_ns),
        "gap": timing.gap_ns,
        "collective": collective,
        "offset": offset,
        "dep_count": np.bincount(target, minlength=len(rows)).astype(np.int64),
        "dep_op": source + first_op,
        "start": start + part.shift_ns,
        "end": end + part.shift_ns,
    }
    if part.supply is not None:
        for name, values in batch_columns(part.supply, part.shift_ns, position, first_node).items():
            columns[name] = np.concatenate([columns[name], values])
    return columns


def _members(
    rank: Rank, part: RankProgram, cross: CrossRank | None
) -> tuple[Int64Array, Int64Array]:
    """Return the collective of each operation, NONE where unmatched, and its end offset."""
    rows = part.op_row
    collective = np.full(len(rows), NONE, dtype=np.int64)
    offset = np.zeros(len(rows), dtype=np.int64)
    if cross is None:
        return collective, offset
    mine = np.flatnonzero(cross.events.rank[cross.matches.event] == rank.rank)
    of_row = np.full(len(rank.operations), NONE, dtype=np.int64)
    of_row[cross.events.row[cross.matches.event[mine]]] = cross.matches.instance[mine]
    collective = np.where(part.op_node == NO_CALL, NONE, of_row[rows])
    return collective, offset


def _timing(
    part: RankProgram,
    start: Int64Array,
    end: Int64Array,
    stream: Int64Array,
    edges: tuple[Int64Array, Int64Array],
    kind: Int8Array,
) -> _Timing:
    """Split each start into what launch and what the device asked for.

    An operation whose last dependency ended well after its launch was bound by it: the gap after
    that end is its own, and its latency the usual one of an idle stream. Otherwise the other way.
    """
    after = np.full(len(start), NA_INT64, dtype=np.int64)
    order = np.lexsort((np.arange(len(start)), stream))
    same = stream[order][1:] == stream[order][:-1]
    after[order[1:][same]] = end[order[:-1][same]]
    np.maximum.at(after, edges[1], end[edges[0]])
    launched = part.op_node != NO_CALL
    issue = np.where(launched, part.host.start_ns[np.maximum(part.op_node, 0)], start)
    latency = start - issue
    idle = launched & (after < issue)
    queued = launched & (after != NA_INT64) & (issue + SURELY_QUEUED_NS < after)
    gap = np.where(after == NA_INT64, 0, start - after)
    usual_latency = np.zeros(len(start), dtype=np.int64)
    usual_gap = int(np.median(gap[queued])) if bool(queued.any()) else 0
    for group in (kind == COMM, kind != COMM):
        sample = latency[idle & group]
        usual_latency[group] = int(np.median(sample)) if len(sample) else 0
    bound_by_device = (after != NA_INT64) & (
        after > issue + np.minimum(usual_latency, latency) - usual_gap
    )
    return _Timing(
        latency_ns=np.where(bound_by_device, np.minimum(usual_latency, latency), latency),
        gap_ns=np.where(bound_by_device, gap, np.minimum(usual_gap, gap)),
    )
