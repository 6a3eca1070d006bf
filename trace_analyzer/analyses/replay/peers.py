"""Giving one rank the times of its peers: the test of whether that rank is to blame."""

from __future__ import annotations

import numpy as np

from trace_analyzer.analyses.replay.program import COMM, COPY, NONE, Program
from trace_analyzer.analyses.unequal_work import line_up
from trace_analyzer.schema import AnyArray, Float64Array, Int64Array

# The median of so many peers stands for all, where kernels have to be lined up by name.
MOST_PEERS = 7


def like_peers_host(program: Program, place: int) -> tuple[Int64Array, Int64Array]:
    """Return (`node_gap_ns`, `node_cost_ns`) with one rank's host as fast as its peers' median.

    Host time between two launches is compared launch by launch, where ranks launch equally often
    in a step; otherwise the step as a whole is. A rank alone is returned as it is.
    """
    gap, cost = program.node_gap_ns.copy(), program.node_cost_ns.copy()
    peers = [other for other in range(len(program.ranks)) if other != place]
    if not peers:
        return gap, cost
    own = _Pieces(program, place)
    others = [_Pieces(program, peer) for peer in peers]
    factor = np.ones(own.count)
    extra = np.zeros(own.count)
    for step in range(len(program.steps)):
        mine = np.flatnonzero(own.step == step)
        theirs = [np.flatnonzero(piece.step == step) for piece in others]
        same = [k for k, rows in enumerate(theirs) if len(rows) == len(mine)]
        if same and len(mine):
            wanted = np.median([others[k].length[theirs[k]] for k in same], axis=0)
            have = own.length[mine]
            factor[mine] = np.where(have > 0, wanted / np.maximum(have, 1), 1.0)
            extra[mine] = np.where(have > 0, 0.0, wanted)
        elif len(mine):
            wanted = np.median([others[k].length[rows].sum() for k, rows in enumerate(theirs)])
            factor[mine] = wanted / max(float(own.length[mine].sum()), 1.0)
    nodes = own.nodes
    gap[nodes] = np.rint(gap[nodes] * factor[own.piece] + _at_last(own, extra))
    cost[nodes] = np.rint(cost[nodes] * factor[own.piece])
    return gap, cost


def peer_pace(program: Program, place: int) -> float:
    """Return how much faster than a rank's own loader workers its peers' median is, at most 1.

    0 where the median peer never waits for its loader, 1 for a rank that does not.
    """

    def pace(rank: int) -> float:
        mine = (program.op_rank == rank) & (program.op_stream < 0)
        return float(program.op_base_ns[mine].sum())

    own = pace(place)
    others = [pace(peer) for peer in range(len(program.ranks)) if peer != place]
    return min(float(np.median(others)) / own, 1.0) if own and others else 1.0


class _Pieces:
    """A rank's host time cut after every launch; `length` of each piece, ns."""

    def __init__(self, program: Program, place: int) -> None:
        first, last = int(program.node_first[place]), int(program.node_first[place + 1])
        self.nodes = slice(first, last)
        launches = np.zeros(last - first, dtype=np.bool_)
        node = program.op_node[program.op_node != NONE]
        launches[node[(node >= first) & (node < last)] - first] = True
        step = program.step_of_node()[first:last]
        # A new piece begins after a launch, and where a step begins.
        begins = np.zeros(last - first, dtype=np.bool_)
        begins[1:] = launches[:-1] | (step[1:] != step[:-1])
        self.piece: Int64Array = np.cumsum(begins).astype(np.int64)
        self.count = int(self.piece[-1]) + 1 if len(self.piece) else 0
        time = program.node_gap_ns[first:last] + program.node_cost_ns[first:last]
        time[:1] = program.node_cost_ns[first : first + 1]  # the rest is before the window
        self.length: Float64Array = np.bincount(
            self.piece, weights=time, minlength=self.count
        ).astype(np.float64)
        edge = np.ones(min(last - first, 1), dtype=np.bool_)
        self.step = step[np.concatenate([edge, begins[1:]])]
        self.last = np.flatnonzero(np.concatenate([begins[1:], edge]))


def _at_last(own: _Pieces, extra: Float64Array) -> Float64Array:
    added = np.zeros(own.nodes.stop - own.nodes.start)
    added[own.last] = extra
    return added


def like_peers_device(program: Program, place: int, identity: Int64Array) -> Int64Array:
    """Return `op_base_ns` with one rank's kernels and copies as long as its peers' median.

    Operations are compared in order of their stream inside a step, kernels and copies by
    themselves. Where no peer has as many, they are lined up by `identity` (one number for each
    operation, equal for the same kernel); what has no counterpart is left as it is.
    """
    base = program.op_base_ns.copy()
    step = program.step_of_operation()
    peers = [other for other in range(len(program.ranks)) if other != place]
    counted = (program.op_class != COMM) & (program.op_stream >= 0)
    lanes = _lanes(program, place, step, counted)
    others = [_lanes(program, peer, step, counted) for peer in peers]
    lined = _LinedUp(identity)
    for key, rows in lanes.items():
        there = [lane[key] for lane in others if key in lane]
        found = [other for other in there if len(other) == len(rows)]
        if found:
            median = np.median([program.op_base_ns[other] for other in found], axis=0)
            base[rows] = np.rint(median)
            continue
        usual = np.full((min(len(there), MOST_PEERS), len(rows)), np.nan)
        for number, other in enumerate(there[:MOST_PEERS]):
            mine, theirs = lined.up(rows, other)
            usual[number, mine] = program.op_base_ns[other[theirs]]
        known = ~np.isnan(usual).all(axis=0)
        base[rows[known]] = np.rint(np.nanmedian(usual[:, known], axis=0))
    return base


def balanced_device(program: Program, identity: Int64Array) -> Int64Array:
    """Return `op_base_ns` with every kernel and copy as long as the mean over all ranks.

    Compared as in `like_peers_device`, with the first rank's; what not all ranks do stays as it is.
    """
    base = program.op_base_ns.copy()
    step = program.step_of_operation()
    counted = (program.op_class != COMM) & (program.op_stream >= 0)
    lanes = [_lanes(program, place, step, counted) for place in range(len(program.ranks))]
    lined = _LinedUp(identity)
    for key, rows in lanes[0].items():
        if not all(key in lane for lane in lanes):
            continue
        table = np.full((len(lanes), len(rows)), NONE, dtype=np.int64)
        for place, lane in enumerate(lanes):
            mine, theirs = lined.up(rows, lane[key])
            table[place, mine] = lane[key][theirs]
        table = table[:, (table != NONE).all(axis=0)]
        base[table] = np.rint(np.mean(program.op_base_ns[table], axis=0))
    return base


class _LinedUp:
    """Lines up operations by identity; the same sequences once."""

    def __init__(self, identity: Int64Array) -> None:
        self.identity = identity
        self.known: dict[tuple[bytes, bytes], tuple[Int64Array, Int64Array]] = {}

    def up(self, own: Int64Array, other: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return positions in both that belong together."""
        a, b = self.identity[own], self.identity[other]
        key = (a.tobytes(), b.tobytes())
        if key not in self.known:
            self.known[key] = line_up(a, b)
        return self.known[key]


def _lanes(
    program: Program, place: int, step: AnyArray, counted: AnyArray
) -> dict[tuple[int, bool, int], Int64Array]:
    """Return the operations of one rank by (ordinal of the stream, copies or kernels, step).

    A library clears workspaces for some sizes and not for others, so that copies (and what sets
    memory) say nothing about whether kernels line up.
    """
    mine = np.flatnonzero((program.op_rank == place) & counted & (step != NONE))
    if not len(mine):
        return {}
    own = (program.op_rank == place) & (program.op_stream >= 0)
    stream = program.op_stream[mine] - int(program.op_stream[own].min())
    copy = program.op_class[mine] == COPY
    order = np.lexsort((mine, step[mine], copy, stream))
    mine, stream, copy = mine[order], stream[order], copy[order]
    keys = np.stack([stream, copy, step[mine]])
    change = np.flatnonzero(np.concatenate([[True], (keys[:, 1:] != keys[:, :-1]).any(axis=0)]))
    parts = np.split(mine, change[1:])
    return {
        (int(stream[at]), bool(copy[at]), int(step[mine[at]])): part
        for at, part in zip(change.tolist(), parts, strict=True)
    }
