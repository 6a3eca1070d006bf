"""Programs made up at random: every feature of one, and every way not to finish."""

from __future__ import annotations

from typing import Any

import numpy as np

from trace_analyzer.analyses.replay.program import COMM, COPY, MATRIX, NONE, OTHER, Program

Array = np.ndarray[Any, np.dtype[Any]]


def first_of(counts: Array) -> Array:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def random_program(seed: int, *, ranks: int, nodes: int, broken: float = 0.0) -> Program:
    """Make a program of `nodes` host nodes a rank that launch about as many operations.

    `broken` is the share of links that may point forward, so that something waits for itself.
    """
    dice = np.random.default_rng(seed)
    # The first makes many things happen at once, the last shows how doubles were rounded.
    scale = int(dice.choice([3, 100, 10**9, 10**16]))
    total = ranks * nodes
    launches = dice.integers(0, 3, total)
    op_node = np.repeat(np.arange(total), launches)
    backlog = dice.random(len(op_node)) < dice.choice([0.0, 0.1])
    operations = len(op_node)
    op_rank = op_node // nodes if operations else op_node
    streams = int(dice.integers(1, 4))
    kind = dice.choice([MATRIX, OTHER, COMM, COPY], operations, p=[0.4, 0.2, 0.2, 0.2])
    collective, size = _collectives(dice, op_rank, kind, broken)

    def times(low: int, count: int) -> Array:
        return dice.integers(low, scale, count).astype(np.int64)

    def links(rank: Array, before: Array, most: int, share: float) -> tuple[Array, Array]:
        """Return delimiters and what each row waits for: of its rank and `before` it, as a rule."""
        low = np.maximum(first_op[rank], before - 40)
        number = np.where(before > low, dice.binomial(most, share, len(rank)), 0)
        low, high = np.repeat(low, number), np.repeat(before, number)
        anything = dice.random(len(low)) < broken
        chosen = dice.integers(np.where(anything, 0, low), np.where(anything, operations, high))
        return first_of(number), chosen.astype(np.int32)

    first_op = np.searchsorted(op_node, np.arange(ranks + 1) * nodes)
    node_rank = np.repeat(np.arange(ranks), nodes)
    launched = np.searchsorted(op_node, np.arange(total), side="right")
    dep_first, dep_operation = links(op_rank, np.arange(operations), 2, 0.2)
    wait_first, wait_operation = links(node_rank, launched, 2, 0.1)
    queue_first, queue_operation = links(node_rank, launched, 1, 0.1)
    queue = np.full(total, NONE)
    queue[np.diff(queue_first) == 1] = queue_operation
    stream = dice.integers(0, streams, operations)
    if not (broken and dice.random() < 0.3):
        stream[kind == COMM] = 0  # else ranks may communicate in different orders
    return Program(
        ranks=tuple(range(ranks)),
        node_first=np.arange(ranks + 1, dtype=np.int64) * nodes,
        node_gap_ns=times(-scale // 10, total),
        node_cost_ns=times(0, total),
        node_step=np.where(np.arange(total) % max(nodes, 1) == 0, 0, NONE).astype(np.int32),
        node_queue=queue.astype(np.int32),
        wait_first=wait_first,
        wait_operation=wait_operation,
        op_rank=op_rank.astype(np.int32),
        op_node=np.where(backlog, NONE, op_node).astype(np.int32),
        op_fixed_ns=times(-scale, operations),
        op_stream=(op_rank * streams + stream).astype(np.int32),
        op_class=kind.astype(np.int8),
        op_base_ns=times(-scale // 100, operations) * int(dice.integers(1, 4)),
        op_latency_ns=times(-scale // 10, operations),
        op_gap_ns=times(-scale // 10, operations),
        op_collective=collective.astype(np.int32),
        op_end_offset_ns=times(-scale, operations),
        dep_first=dep_first,
        dep_operation=dep_operation,
        collective_size=size.astype(np.int32),
        collective_transfer_ns=times(0, len(size)),
        alpha=np.array([*dice.choice([-0.1, 0.0, 0.013, 0.55, 1.0], 2), 0.0, 0.0]),
        steps=(0,),
    )


def _collectives(
    dice: np.random.Generator, op_rank: Array, kind: Array, broken: float
) -> tuple[Array, Array]:
    """Join the k-th communication of every rank; some stay alone, some lack a member."""
    collective = np.full(len(kind), NONE)
    alone = bool(dice.random() < 0.3)
    for rank in np.unique(op_rank):
        mine = np.flatnonzero((op_rank == rank) & (kind == COMM))
        collective[mine] = NONE if alone else np.arange(len(mine))
    if broken and bool(dice.random() < 0.5):
        # A member that is no communication never arrives.
        collective[dice.integers(0, max(len(kind), 1), 1) if len(kind) else []] = 0
    size = np.bincount(collective[collective != NONE])
    return collective, size + (dice.random(len(size)) < broken)
