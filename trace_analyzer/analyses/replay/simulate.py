"""Executes a program in order of time: compiled where it can be, else by the plain reference.

Hosts run ahead until they wait. Operations start in order on their stream, once launched and once
what they depend on has ended. A collective moves data from its last arrival on. While a
communication kernel is resident on a rank's device, from its arrival and not only from the start
of its transfer, the rank's other kernels run at the rate 1 / (1 + alpha of their class).

`_Machine` defines all this. `_native/machine.c` does the same, step by step and to the bit, so a
change of one is a change of both; tests compare them.
"""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np

from trace_analyzer import _native
from trace_analyzer.analyses.replay.checks import check_program
from trace_analyzer.analyses.replay.program import COMM, COPY, NONE, Execution, Program
from trace_analyzer.errors import TraceAnalyzerError

_START, _END = 0, 1


class ReplayError(TraceAnalyzerError):
    """A program that cannot finish: a cycle, or a collective that lacks a member."""


class _Machine:
    """State of one execution; plain lists, because single elements are read and written."""

    def __init__(self, program: Program) -> None:
        p = self.p = program
        self.gap, self.cost = p.node_gap_ns.tolist(), p.node_cost_ns.tolist()
        self.queue = p.node_queue.tolist()
        self.wait_first, self.wait_op = p.wait_first.tolist(), p.wait_operation.tolist()
        self.op_node, self.stream = p.op_node.tolist(), p.op_stream.tolist()
        self.rank, self.kind = p.op_rank.tolist(), p.op_class.tolist()
        self.base, self.latency = p.op_base_ns.tolist(), p.op_latency_ns.tolist()
        self.op_gap, self.collective = p.op_gap_ns.tolist(), p.op_collective.tolist()
        self.offset, self.fixed = p.op_end_offset_ns.tolist(), p.op_fixed_ns.tolist()
        self.dep_first, self.dep_op = p.dep_first.tolist(), p.dep_operation.tolist()
        self.transfer = p.collective_transfer_ns.tolist()
        self.missing = p.collective_size.tolist()
        self.alpha = p.alpha.tolist()
        count, nodes = p.operations, p.nodes
        self.node_start: list[int] = [0] * nodes
        self.node_end: list[int] = [0] * nodes
        self.release: list[int | None] = [None] * count
        self.start: list[int | None] = [None] * count
        self.end: list[int | None] = [None] * count
        self.members: dict[int, list[int]] = {}
        self.of_node: dict[int, list[int]] = {}
        self.order: dict[int, list[int]] = {}
        for op in range(count):
            if self.op_node[op] >= 0:
                self.of_node.setdefault(self.op_node[op], []).append(op)
            self.order.setdefault(self.stream[op], []).append(op)
            if self.collective[op] != NONE:
                self.members.setdefault(self.collective[op], []).append(op)
        self.head = dict.fromkeys(self.order, 0)
        self.free_at: dict[int, int] = {}
        self.dependents: dict[int, list[int]] = {}
        for op in range(count):
            for k in range(self.dep_first[op], self.dep_first[op + 1]):
                self.dependents.setdefault(self.dep_op[k], []).append(op)
        self.node_at = p.node_first[:-1].tolist()
        self.node_stop = p.node_first[1:].tolist()
        self.host_time = [0] * len(p.ranks)
        self.blocked: dict[int, list[int]] = {}  # operation → ranks whose host waits for its end
        self.queued: dict[int, list[int]] = {}  # operation → ranks whose host waits for its start
        self.resident = [0] * len(p.ranks)
        self.running: list[set[int]] = [set() for _ in p.ranks]
        self.left: dict[int, float] = {}  # work left of a running kernel, ns at full rate
        self.since: dict[int, int] = {}
        self.version = [0] * count
        self.heap: list[tuple[int, int, int, int]] = []

    def run(self) -> Execution:
        for op in range(len(self.op_node)):
            if self.op_node[op] == NONE:
                self.release[op] = self.fixed[op]
        for rank in range(len(self.node_at)):
            self.advance(rank)
        for stream in self.order:
            self.try_start(stream)
        while self.heap:
            now, what, op, version = heapq.heappop(self.heap)
            if what == _START:
                self.begin(op, now)
            elif version == self.version[op]:
                self.finish(op, now)
        if any(end is None for end in self.end) or self.node_at != self.node_stop:
            raise _stopped(sum(end is None for end in self.end))
        return Execution(
            node_start_ns=np.array(self.node_start, dtype=np.int64),
            node_end_ns=np.array(self.node_end, dtype=np.int64),
            op_start_ns=np.array(self.start, dtype=np.int64),
            op_end_ns=np.array(self.end, dtype=np.int64),
        )

    def advance(self, rank: int) -> None:
        """Run a host until it waits for something that has not happened."""
        while self.node_at[rank] < self.node_stop[rank]:
            node = self.node_at[rank]
            begin = self.host_time[rank] + self.gap[node]
            self.node_start[node] = begin
            for op in self.of_node.get(node, ()):
                if self.release[op] is None:
                    self.release[op] = begin
                    self.try_start(self.stream[op])
            ready = begin
            for k in range(self.wait_first[node], self.wait_first[node + 1]):
                end = self.end[self.wait_op[k]]
                if end is None:
                    self.blocked.setdefault(self.wait_op[k], []).append(rank)
                    return
                ready = max(ready, end)
            full = self.queue[node]
            if full != NONE:
                started = self.start[full]
                if started is None:
                    self.queued.setdefault(full, []).append(rank)
                    return
                ready = max(ready, started)
            self.host_time[rank] = self.node_end[node] = ready + self.cost[node]
            self.node_at[rank] += 1

    def try_start(self, stream: int) -> None:
        """Schedule the start of a stream's next operation, once its time is known."""
        position = self.head[stream]
        line = self.order[stream]
        if position >= len(line):
            return
        op = line[position]
        released = self.release[op]
        if released is None or (position and self.end[line[position - 1]] is None):
            return
        after = self.free_at.get(stream)
        for k in range(self.dep_first[op], self.dep_first[op + 1]):
            end = self.end[self.dep_op[k]]
            if end is None:
                return
            after = end if after is None else max(after, end)
        at = released + self.latency[op]
        if self.op_node[op] != NONE and after is not None:
            at = max(at, after + self.op_gap[op])
        self.head[stream] = position + 1
        heapq.heappush(self.heap, (at, _START, op, 0))

    def begin(self, op: int, now: int) -> None:
        self.start[op] = now
        for rank in self.queued.pop(op, ()):
            self.advance(rank)
        rank = self.rank[op]
        if self.kind[op] == COMM:
            self.change(rank, now, +1)
            group = self.collective[op]
            if group == NONE:
                heapq.heappush(self.heap, (now + self.base[op], _END, op, 0))
                return
            self.missing[group] -= 1
            if self.missing[group] == 0:
                done = now + self.transfer[group]
                for member in self.members[group]:
                    began = self.start[member] or 0
                    heapq.heappush(
                        self.heap, (max(done + self.offset[member], began), _END, member, 0)
                    )
        elif self.kind[op] == COPY:
            heapq.heappush(self.heap, (now + self.base[op], _END, op, 0))
        else:
            self.running[rank].add(op)
            self.left[op], self.since[op] = float(self.base[op]), now
            self.schedule(op, now)

    def rate(self, op: int) -> float:
        if self.resident[self.rank[op]]:
            return 1.0 / (1.0 + float(self.alpha[self.kind[op]]))
        return 1.0

    def schedule(self, op: int, now: int) -> None:
        at = now + round(self.left[op] / self.rate(op))
        heapq.heappush(self.heap, (at, _END, op, self.version[op]))

    def change(self, rank: int, now: int, by: int) -> None:
        """Communication arrives on a device or leaves it: running kernels change their rate."""
        before = self.resident[rank] > 0
        if before == (self.resident[rank] + by > 0):
            self.resident[rank] += by
            return
        for op in self.running[rank]:
            self.left[op] -= (now - self.since[op]) * self.rate(op)
            self.left[op], self.since[op] = max(self.left[op], 0.0), now
        self.resident[rank] += by
        for op in self.running[rank]:
            self.version[op] += 1
            self.schedule(op, now)

    def finish(self, op: int, now: int) -> None:
        self.end[op] = now
        rank, stream = self.rank[op], self.stream[op]
        self.running[rank].discard(op)
        self.free_at[stream] = now
        if self.kind[op] == COMM:
            self.change(rank, now, -1)
        self.try_start(stream)
        for dependent in self.dependents.get(op, ()):
            self.try_start(self.stream[dependent])
        for waiting in self.blocked.pop(op, ()):
            self.advance(waiting)


def simulate(program: Program) -> Execution:
    """Execute a program.

    Raises `ReplayError` where it cannot finish, `SchemaError` where its columns are wrong.
    """
    check_program(program)
    if not _native.PROBLEM:
        try:
            return _compiled(program)
        except OverflowError:
            pass  # integers of the reference have no bound: whether the results fit, it can tell
    return _Machine(program).run()


def simulate_reference(program: Program) -> Execution:
    """Do what `simulate` does, always in Python."""
    check_program(program)
    return _Machine(program).run()


def _compiled(program: Program) -> Execution:
    from trace_analyzer._native import core

    stream = program.op_stream
    if len(stream) and not 0 <= int(stream.min()) <= int(stream.max()) < len(stream):
        # Any numbers tell streams apart; there they are positions in tables of this length.
        dense = np.unique(stream, return_inverse=True)[1].reshape(-1)
        program = replace(program, op_stream=dense.astype(np.int32))
    done = Execution(
        node_start_ns=np.empty(program.nodes, dtype=np.int64),
        node_end_ns=np.empty(program.nodes, dtype=np.int64),
        op_start_ns=np.empty(program.operations, dtype=np.int64),
        op_end_ns=np.empty(program.operations, dtype=np.int64),
    )
    stuck = core.simulate(
        program, done.node_start_ns, done.node_end_ns, done.op_start_ns, done.op_end_ns
    )
    if stuck is not None:
        raise _stopped(stuck)
    return done


def _stopped(stuck: int) -> ReplayError:
    return ReplayError(f"the replay stops with {stuck} operations waiting for each other")
