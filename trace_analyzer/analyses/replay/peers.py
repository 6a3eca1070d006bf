"""Giving one rank the times of its peers: the test of whether that rank is to blame."""

from __future__ import annotations

import numpy as np

from trace_analyzer.analyses.replay.program import COMM, NONE, Program
from trace_analyzer.schema import AnyArray, Float64Array, Int64Array


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


def like_peers_device(program: Program, place: int) -> Int64Array:
    """Return `op_base_ns` with one rank's kernels and copies as long as its peers' median.

    Operations are compared in order of their stream inside a step; streams and steps in which
    ranks differ in number are left as they are.
    """
    base = program.op_base_ns.copy()
    step = program.step_of_operation()
    peers = [other for other in range(len(program.ranks)) if other != place]
    counted = program.op_class != COMM
    lanes = _lanes(program, place, step, counted)
    others = [_lanes(program, peer, step, counted) for peer in peers]
    for key, rows in lanes.items():
        found = [lane[key] for lane in others if key in lane and len(lane[key]) == len(rows)]
        if found:
            median = np.median([program.op_base_ns[other] for other in found], axis=0)
            base[rows] = np.rint(median)
    return base


def balanced_device(program: Program) -> Int64Array:
    """Return `op_base_ns` with every kernel and copy as long as the mean over all ranks.

    Compared as in `like_peers_device`: what ranks do in different number stays as it is.
    """
    base = program.op_base_ns.copy()
    step = program.step_of_operation()
    counted = program.op_class != COMM
    lanes = [_lanes(program, place, step, counted) for place in range(len(program.ranks))]
    for key, rows in lanes[0].items():
        found = [lane[key] for lane in lanes if key in lane and len(lane[key]) == len(rows)]
        if len(found) == len(lanes):
            mean = np.mean([program.op_base_ns[other] for other in found], axis=0)
            for other in found:
                base[other] = np.rint(mean)
    return base


def _lanes(
    program: Program, place: int, step: AnyArray, counted: AnyArray
) -> dict[tuple[int, int], Int64Array]:
    """Return the operations of one rank by (ordinal of the stream, step)."""
    mine = np.flatnonzero((program.op_rank == place) & counted & (step != NONE))
    if not len(mine):
        return {}
    stream = program.op_stream[mine] - int(program.op_stream[program.op_rank == place].min())
    order = np.lexsort((mine, step[mine], stream))
    mine, stream = mine[order], stream[order]
    change = np.flatnonzero(
        np.concatenate([[True], (stream[1:] != stream[:-1]) | (step[mine][1:] != step[mine][:-1])])
    )
    parts = np.split(mine, change[1:])
    return {
        (int(stream[at]), int(step[mine[at]])): part
        for at, part in zip(change.tolist(), parts, strict=True)
    }
