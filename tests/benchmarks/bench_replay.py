"""How long executing a program takes, compiled and by the reference. Run by hand:

python -m tests.benchmarks.bench_replay

The bar: a rank and step of 5,000 operations in 5 ms, compiled, its checks included; time a rank
and operation does not grow with the number of ranks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from trace_analyzer import _native
from trace_analyzer.analyses.replay.checks import check_program
from trace_analyzer.analyses.replay.program import COMM, COPY, MATRIX, NONE, OTHER, Program
from trace_analyzer.analyses.replay.simulate import simulate, simulate_reference
from trace_analyzer.schema import Int64Array

BAR_MS = 5.0
# Ranks, operations of each, host nodes of each; the first is the bar.
CASES = ((1, 5_000, 7_000), (2, 10_500, 15_000), (8, 10_500, 15_000), (64, 10_500, 15_000))
REFERENCE_OPERATIONS = 100_000  # above it the reference is left out
PART_COMM, PART_COPY, PART_MATRIX = 0.02, 0.02, 0.3


def training(ranks: int, operations: int, nodes: int) -> Program:
    """Make a program like training: kernels on one stream, communication and copies beside it.

    Every rank has the same kinds in the same order, so that its communication matches.
    """
    dice = np.random.default_rng(0)
    kind = dice.choice(
        np.array([COMM, COPY, MATRIX, OTHER]),
        operations,
        p=[PART_COMM, PART_COPY, PART_MATRIX, 1 - PART_COMM - PART_COPY - PART_MATRIX],
    )
    member = np.cumsum(kind == COMM) - 1
    collectives = int(member[-1]) + 1
    total, count = ranks * nodes, ranks * operations
    rank = np.repeat(np.arange(ranks), operations)
    launch = np.sort(dice.choice(nodes, operations, replace=False))
    # Communication waits for the kernel before it, and the next copy for the communication.
    beside = np.flatnonzero((kind == COMM) | (kind == COPY))
    beside = beside[beside > 0]
    dep_count = np.zeros(operations, dtype=np.int64)
    dep_count[beside] = 1
    waits = np.zeros(nodes, dtype=np.int64)
    waits[-1] = 1
    return Program(
        ranks=tuple(range(ranks)),
        node_first=np.arange(ranks + 1, dtype=np.int64) * nodes,
        node_gap_ns=dice.integers(500, 8_000, total),
        node_cost_ns=dice.integers(2_000, 6_000, total),
        node_step=np.where(np.arange(total) % nodes == 0, 0, NONE).astype(np.int32),
        node_queue=np.full(total, NONE, dtype=np.int32),
        wait_first=_first(np.tile(waits, ranks)),
        wait_operation=(np.arange(1, ranks + 1) * operations - 1).astype(np.int32),
        op_rank=rank.astype(np.int32),
        op_node=(np.tile(launch, ranks) + rank * nodes).astype(np.int32),
        op_fixed_ns=np.zeros(count, dtype=np.int64),
        op_stream=(
            np.tile(np.where(kind == COMM, 1, np.where(kind == COPY, 2, 0)), ranks) + 3 * rank
        ).astype(np.int32),
        op_class=np.tile(kind, ranks).astype(np.int8),
        op_base_ns=dice.integers(1_000, 15_000, count),
        op_latency_ns=dice.integers(4_000, 6_000, count),
        op_gap_ns=dice.integers(500, 1_500, count),
        op_collective=np.tile(np.where(kind == COMM, member, NONE), ranks).astype(np.int32),
        op_end_offset_ns=dice.integers(-3_000, 1, count),
        dep_first=_first(np.tile(dep_count, ranks)),
        dep_operation=(
            np.tile(beside - 1, ranks) + np.repeat(np.arange(ranks) * operations, len(beside))
        ).astype(np.int32),
        collective_size=np.full(collectives, ranks, dtype=np.int32),
        collective_transfer_ns=dice.integers(20_000, 200_000, collectives),
        alpha=np.array([0.55, 0.13, 0.0, 0.0]),
        steps=(0,),
    )


def _first(counts: Int64Array) -> Int64Array:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def milliseconds(work: Callable[[], object], repeat: int) -> float:
    """Return the time of the fastest of `repeat` runs."""
    best = float("inf")
    for _ in range(repeat):
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return best * 1e3


def main() -> None:
    """Print a table: size, ms of the checks, ms compiled with them, ms of the reference."""
    print(_native.PROBLEM or "compiled")
    print("ranks    nodes  operations  checks ms  simulate ms  ns an operation  reference ms")
    for ranks, operations, nodes in CASES:
        made = training(ranks, operations, nodes)
        checks = milliseconds(partial(check_program, made), 20)
        taken = milliseconds(partial(simulate, made), 20)
        plain = "-"
        if made.operations <= REFERENCE_OPERATIONS:
            plain = f"{milliseconds(partial(simulate_reference, made), 2):.0f}"
        print(
            f"{ranks:5}  {made.nodes:7,}  {made.operations:10,}  {checks:9.2f}  {taken:11.2f}"
            f"  {taken * 1e6 / made.operations:15.0f}  {plain:>12}"
        )
        if ranks == 1 and not _native.PROBLEM:
            print(f"{'the bar':>16}  {BAR_MS:10} ms: {'met' if taken <= BAR_MS else 'MISSED'}")


if __name__ == "__main__":
    main()
