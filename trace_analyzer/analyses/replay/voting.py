"""Dependencies between streams where the recording names the stream that waits, but not for what.

torch.profiler records that a stream waits for an event, and rarely which record of the event is
meant. Programs repeat the same pattern in every layer and step: so each pair of streams has one
lag, the number of operations of the source stream that were launched since the awaited one. For
every wait of a step, the smallest lag is taken that no step of any rank contradicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.replay.host import NO_CALL, HostSequence
from trace_analyzer.model import Rank
from trace_analyzer.schema import BoolArray, Int32Array, Int64Array, is_na
from trace_analyzer.tables import SyncKind

# Recorded times are exact to about a microsecond; this is beyond any doubt.
TOLERANCE_NS = 3_000
LARGEST_LAG = 3
# A lag is contradicted where more waits than this ended before what they are taken to wait for.
CONTRADICTED_SHARE = 0.01


def launch_order(node: Int32Array, chosen: BoolArray) -> tuple[Int64Array, Int64Array]:
    """Return (operations, their nodes) of the chosen launched operations, in order of launch."""
    rows = np.flatnonzero(chosen & (node != NO_CALL))
    order = np.argsort(node[rows], kind="stable")
    return rows[order].astype(np.int64), node[rows][order].astype(np.int64)


def last_before(rows: Int64Array, nodes: Int64Array, at: Int64Array, back: int = 0) -> Int64Array:
    """Return the last operation launched before each node, or the `back`-th before that; else -1."""
    position = np.searchsorted(nodes, at, side="left") - 1 - back
    return np.where(position >= 0, rows[np.maximum(position, 0)] if len(rows) else -1, -1)


def next_after(rows: Int64Array, nodes: Int64Array, at: Int64Array) -> Int64Array:
    """Return the first operation launched after each node, -1 where there is none."""
    position = np.searchsorted(nodes, at, side="right")
    inside = position < len(rows)
    safe = np.minimum(position, max(len(rows) - 1, 0))
    return np.where(inside, rows[safe] if len(rows) else -1, -1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Waits:
    """Waits of one rank's stream: nodes, next operations, and their place in the step."""

    at: Int64Array
    after: Int64Array
    place: Int64Array


def voted_edges(
    ranks: Sequence[tuple[Rank, HostSequence, Int32Array]],
) -> list[tuple[Int64Array, Int64Array]]:
    """Return, for each rank, (source, target) operations of the waits between its streams.

    Ranks and steps vote together on the lag of each place in the step: only a rank that others
    wait for would show nothing of what it depends on.
    """
    waits = [_waits(*item) for item in ranks]
    lanes = [_lanes(rank, node) for rank, _, node in ranks]
    found: list[list[tuple[Int64Array, Int64Array]]] = [[] for _ in ranks]
    for waiting in sorted(set().union(*waits)):
        here = [(k, own[waiting]) for k, own in enumerate(waits) if waiting in own]
        for awaited in sorted(set().union(*lanes)):
            if awaited != waiting:
                _vote(ranks, here, lanes, awaited, found)
    nothing = np.empty(0, dtype=np.int64)
    return [
        (
            np.concatenate([pair[0] for pair in pairs] or [nothing]),
            np.concatenate([pair[1] for pair in pairs] or [nothing]),
        )
        for pairs in found
    ]


def _waits(rank: Rank, host: HostSequence, node: Int32Array) -> dict[int, _Waits]:
    """Return the recorded waits of a rank by the stream that waits."""
    operations, syncs = rank.operations, rank.syncs
    row_of = _call_rows(rank)
    rows = np.flatnonzero(
        (syncs.kind == SyncKind.STREAM_WAIT_EVENT) & ~is_na(syncs.stream) & (syncs.stream >= 0)
    )
    call = np.array(
        [row_of.get(number, NO_CALL) for number in syncs.correlation[rows].tolist()],
        dtype=np.int64,
    )
    at = np.where(call != NO_CALL, host.node_of_call[np.maximum(call, 0)], NO_CALL)
    stream, at = syncs.stream[rows][at != NO_CALL], at[at != NO_CALL]
    step = np.maximum.accumulate(np.where(host.step == NO_CALL, -1, host.step))
    result: dict[int, _Waits] = {}
    for waiting in np.unique(stream).tolist():
        lane = launch_order(node, operations.stream == waiting)
        own = np.sort(at[stream == waiting])
        begin = np.searchsorted(step[own], step[own], side="left")
        result[int(waiting)] = _Waits(
            at=own, after=next_after(*lane, own), place=np.arange(len(own)) - begin
        )
    return result


def _lanes(rank: Rank, node: Int32Array) -> dict[int, tuple[Int64Array, Int64Array]]:
    stream = rank.operations.stream
    return {int(value): launch_order(node, stream == value) for value in np.unique(stream).tolist()}


def _vote(
    ranks: Sequence[tuple[Rank, HostSequence, Int32Array]],
    here: Sequence[tuple[int, _Waits]],
    lanes: Sequence[dict[int, tuple[Int64Array, Int64Array]]],
    awaited: int,
    found: list[list[tuple[Int64Array, Int64Array]]],
) -> None:
    """Add the pairs between two streams: of every place in the step, the least lag that stands."""
    members = [(k, own) for k, own in here if awaited in lanes[k]]
    if not members:
        return
    places = 1 + max(int(own.place.max(initial=0)) for _, own in members)
    open_places = np.ones(places, dtype=np.bool_)
    for lag in range(LARGEST_LAG + 1):
        seen, against = np.zeros(places), np.zeros(places)
        pairs: list[tuple[int, _Waits, Int64Array, BoolArray, BoolArray]] = []
        for k, own in members:
            before = last_before(*lanes[k][awaited], own.at, lag)
            both = (before >= 0) & (own.after >= 0)
            operations = ranks[k][0].operations
            late = both & (
                operations.end_ns[before] > operations.start_ns[own.after] + TOLERANCE_NS
            )
            np.add.at(seen, own.place[both], 1)
            np.add.at(against, own.place[late], 1)
            pairs.append((k, own, before, both, late))
        stands = open_places & (seen > 0) & (against <= CONTRADICTED_SHARE * seen)
        for k, own, before, both, late in pairs:
            kept = both & ~late & stands[own.place]
            found[k].append((before[kept], own.after[kept]))
        open_places &= ~stands


def _call_rows(rank: Rank) -> dict[int, int]:
    """Return the row of every call by its correlation; the first where several share it."""
    rows: dict[int, int] = {}
    for row, correlation in enumerate(rank.calls.correlation.tolist()):
        rows.setdefault(correlation, row)
    return rows
