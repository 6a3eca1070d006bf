"""The step time of a program that goes on and on: the window repeated, without its backlog."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from trace_analyzer.analyses.replay.program import NONE, Program, completions_ns
from trace_analyzer.analyses.replay.simulate import simulate
from trace_analyzer.schema import AnyArray, Float64Array, Int64Array

REPETITIONS = 3  # the window is run this often


def without_backlog(program: Program) -> Program:
    """Return the program without operations that it did not launch itself."""
    kept = program.op_node != NONE
    if bool(kept.all()):
        return program
    renumber = np.full(program.operations, NONE, dtype=np.int64)
    renumber[kept] = np.arange(int(kept.sum()))
    wait = renumber[program.wait_operation]
    dep = renumber[program.dep_operation]
    owner = np.repeat(np.arange(program.operations), np.diff(program.dep_first))
    dep_kept = (dep != NONE) & kept[owner]
    queue = np.where(program.node_queue == NONE, NONE, renumber[np.maximum(program.node_queue, 0)])
    columns: dict[str, Any] = {
        name: getattr(program, name)[kept]
        for name in program.__dataclass_fields__
        if name.startswith("op_")
    }
    return replace(
        program,
        node_queue=queue.astype(np.int32),
        wait_first=_refirst(program.wait_first, wait != NONE),
        wait_operation=wait[wait != NONE].astype(np.int32),
        dep_first=np.concatenate(
            [[0], np.cumsum(np.bincount(renumber[owner[dep_kept]], minlength=int(kept.sum())))]
        ).astype(np.int64),
        dep_operation=dep[dep_kept].astype(np.int32),
        **columns,
    )


def _refirst(first: Int64Array, kept: AnyArray) -> Int64Array:
    """Return delimiters of the entries that are kept."""
    count = np.concatenate([[0], np.cumsum(kept)])
    return count[first].astype(np.int64)


def repeated(program: Program, times: int = REPETITIONS) -> Program:
    """Return a program that runs the window `times` times without a pause.

    Each rank's nodes must stand together, so copies of one rank follow each other.
    """
    program = without_backlog(program)
    ranks, nodes, operations = len(program.ranks), program.nodes, program.operations
    # Node n of copy c: all copies of a rank's nodes are contiguous.
    length = np.diff(program.node_first)
    node_rank = np.repeat(np.arange(ranks), length)
    local = np.arange(nodes) - program.node_first[node_rank]
    place = [
        program.node_first[node_rank] * times + copy * length[node_rank] + local
        for copy in range(times)
    ]
    where = np.concatenate(place)
    order = np.argsort(where, kind="stable")

    def of_nodes(values: AnyArray) -> AnyArray:
        return np.tile(values, times)[order]

    first_nodes = program.node_first[:-1]
    gap = program.node_gap_ns.copy()
    gap[first_nodes] = 0  # the time before the window is not part of a step
    step = np.concatenate(
        [
            np.where(program.node_step == NONE, NONE, program.node_step + copy * len(program.steps))
            for copy in range(times)
        ]
    )[order]

    def moved(values: AnyArray, by: int) -> AnyArray:
        return np.concatenate(
            [np.where(values == NONE, NONE, values + copy * by) for copy in range(times)]
        )

    wait_count = of_nodes(np.diff(program.wait_first))
    wait_rows = _ragged_order(program.wait_first, order, times)
    return replace(
        program,
        node_first=(program.node_first * times).astype(np.int64),
        node_gap_ns=of_nodes(gap),
        node_cost_ns=of_nodes(program.node_cost_ns),
        node_step=step.astype(np.int32),
        node_queue=moved(program.node_queue, operations)[order].astype(np.int32),
        wait_first=np.concatenate([[0], np.cumsum(wait_count)]).astype(np.int64),
        wait_operation=moved(program.wait_operation, operations)[wait_rows].astype(np.int32),
        op_rank=np.tile(program.op_rank, times),
        op_node=np.concatenate([place[c][program.op_node] for c in range(times)]).astype(np.int32),
        op_fixed_ns=np.tile(program.op_fixed_ns, times),
        op_stream=np.tile(program.op_stream, times),
        op_class=np.tile(program.op_class, times),
        op_base_ns=np.tile(program.op_base_ns, times),
        op_latency_ns=np.tile(program.op_latency_ns, times),
        op_gap_ns=np.tile(program.op_gap_ns, times),
        op_collective=moved(program.op_collective, len(program.collective_size)).astype(np.int32),
        op_end_offset_ns=np.tile(program.op_end_offset_ns, times),
        dep_first=np.concatenate(
            [[0], np.cumsum(np.tile(np.diff(program.dep_first), times))]
        ).astype(np.int64),
        dep_operation=moved(program.dep_operation, operations).astype(np.int32),
        collective_size=np.tile(program.collective_size, times),
        collective_transfer_ns=np.tile(program.collective_transfer_ns, times),
        steps=tuple(range(times * len(program.steps))),
    )


def _ragged_order(first: Int64Array, order: AnyArray, times: int) -> Int64Array:
    """Return the rows of a ragged column, tiled `times` times, in the new order of its owners."""
    count = np.tile(np.diff(first), times)
    begin = np.concatenate([first[:-1] + copy * int(first[-1]) for copy in range(times)])
    count, begin = count[order], begin[order]
    total = int(count.sum())
    owner = np.repeat(np.arange(len(count)), count)
    inside = np.arange(total) - np.repeat(np.cumsum(count) - count, count)
    rows: Int64Array = (begin[owner] + inside).astype(np.int64)
    return rows


def step_times_ns(program: Program, times: int = REPETITIONS) -> Float64Array:
    """Return the settled time of every step of the window, shape (ranks, steps), ns.

    The first repetition starts with empty streams and is left out; a step's time is the mean of
    its other repetitions.
    """
    longer = repeated(program, times)
    ends = completions_ns(longer, simulate(longer))
    steps = len(program.steps)
    settled = np.diff(ends, axis=1)[:, steps - 1 :].astype(np.float64)
    each: Float64Array = settled.reshape(len(program.ranks), times - 1, steps).mean(axis=1)
    return each


def step_time_ns(program: Program, times: int = REPETITIONS) -> float:
    """Return T: the maximum over ranks of the median settled step, ns."""
    return float(np.max(np.median(step_times_ns(program, times), axis=1)))
