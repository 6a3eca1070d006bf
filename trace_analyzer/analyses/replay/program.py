"""The dependency graph of a run in columns: what the simulator executes.

A host node is a CUDA call, or a mark without length; nodes of a rank follow each other. An
operation is released by its launch node and runs on its stream in order. Collectives join
operations of several ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trace_analyzer.schema import Float64Array, Int8Array, Int32Array, Int64Array

NONE = -1

MATRIX, OTHER, COMM, COPY = 0, 1, 2, 3  # classes of operations; the first two are slowed by COMM


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """A run to be executed. Positions refer to the columns of this object; NONE is -1.

    Host nodes, in order of (rank, time):
      `node_gap_ns` from the previous node's end to this one's start; `node_cost_ns` from the start,
      or from the end of what it waits for, to its end; `node_step` the step that a mark begins;
      `wait_first` (one entry more) delimits each node's part of `wait_operation`, the operations
      whose end it waits for; `node_queue` an operation that must have started before it may end.
    Operations, in order of (rank, release):
      `op_node` the launch node, NONE for backlog, which starts at `op_fixed_ns`; `op_base_ns` the
      duration without contention; `op_latency_ns` from the launch node's start to a start on an
      idle stream; `op_gap_ns` from the end of the last thing waited for on the device to the start;
      `dep_first`/`dep_operation` the operations of other streams that must have ended;
      `op_collective` and `op_end_offset_ns`, by which a member ends after the collective does.
    A negative `op_stream` is no device's: it brings the batches of a loader's workers, and marks
    wait for them.
    `alpha[class]` is how much longer a kernel of the class takes beside communication.
    """

    ranks: tuple[int, ...]
    node_first: Int64Array  # where each rank's nodes begin; one entry more
    node_gap_ns: Int64Array
    node_cost_ns: Int64Array
    node_step: Int32Array
    node_queue: Int32Array
    wait_first: Int64Array
    wait_operation: Int32Array
    op_rank: Int32Array  # position in `ranks`
    op_node: Int32Array
    op_fixed_ns: Int64Array
    op_stream: Int32Array
    op_class: Int8Array
    op_base_ns: Int64Array
    op_latency_ns: Int64Array
    op_gap_ns: Int64Array
    op_collective: Int32Array
    op_end_offset_ns: Int64Array
    dep_first: Int64Array
    dep_operation: Int32Array
    collective_size: Int32Array
    collective_transfer_ns: Int64Array
    alpha: Float64Array
    steps: tuple[int, ...]

    @property
    def nodes(self) -> int:
        """Number of host nodes."""
        return len(self.node_gap_ns)

    @property
    def operations(self) -> int:
        """Number of operations."""
        return len(self.op_node)

    def step_of_node(self) -> Int32Array:
        """Return, for each node, the position in `steps` of the step it lies in; NONE before."""
        step = np.full(self.nodes, NONE, dtype=np.int32)
        for rank in range(len(self.ranks)):
            part = slice(int(self.node_first[rank]), int(self.node_first[rank + 1]))
            step[part] = np.maximum.accumulate(self.node_step[part]) if self.nodes else NONE
        return step

    def step_of_operation(self) -> Int32Array:
        """Return, for each operation, the position in `steps` in which it was launched.

        NONE for backlog, and for batches: no step ends with them.
        """
        step = np.full(self.operations, NONE, dtype=np.int32)
        launched = (self.op_node >= 0) & (self.op_stream >= 0)
        step[launched] = self.step_of_node()[self.op_node[launched]]
        return step


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Execution:
    """When everything happened, ns; NA-free: a program that does not finish raises instead."""

    node_start_ns: Int64Array
    node_end_ns: Int64Array
    op_start_ns: Int64Array
    op_end_ns: Int64Array


def completions_ns(program: Program, execution: Execution) -> Int64Array:
    """Return E_k of every rank and step, shape (ranks, steps): the running maximum of the ends."""
    step = program.step_of_operation()
    table = np.full(
        (len(program.ranks), len(program.steps)), np.iinfo(np.int64).min, dtype=np.int64
    )
    inside = step >= 0
    np.maximum.at(table, (program.op_rank[inside], step[inside]), execution.op_end_ns[inside])
    return np.maximum.accumulate(table, axis=1)
