"""Changes to a program: what a fix would alter, said in rows of the ranks' own tables.

Host time is shortened where it lies in given intervals of a rank's trace clock, so that a rule
needs no knowledge of nodes. What is removed stays in the program with length zero: positions, and
with them the positions of everything else, never change. No change at all gives the same program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from trace_analyzer.analyses.replay.build import Built
from trace_analyzer.analyses.replay.peers import (
    balanced_device,
    like_peers_device,
    like_peers_host,
    peer_pace,
)
from trace_analyzer.analyses.replay.program import COMM, COPY, MATRIX, NONE, OTHER, Program
from trace_analyzer.intervals import Intervals, coverage, union
from trace_analyzer.model import Rank
from trace_analyzer.schema import AnyArray, BoolArray, Int64Array


class Edit:
    """Changes that are collected and then made to a copy of `base`; rows are those of a rank."""

    def __init__(self, built: Built, ranks: Mapping[int, Rank], base: Program) -> None:
        self.built, self.ranks, self.base = built, ranks, base
        self._columns: dict[str, AnyArray] = {}
        self._dropped_waits = np.zeros(len(base.wait_operation), dtype=np.bool_)
        self._dropped_deps = np.zeros(len(base.dep_operation), dtype=np.bool_)

    def column(self, name: str) -> AnyArray:
        """Return a writable copy of a column, the same one every time."""
        if name not in self._columns:
            self._columns[name] = getattr(self.base, name).copy()
        return self._columns[name]

    def place(self, rank: int) -> int:
        """Return the position of a rank in the program."""
        return self.base.ranks.index(rank)

    def node_slice(self, rank: int) -> slice:
        """Return where a rank's nodes stand."""
        at = self.place(rank)
        return slice(int(self.base.node_first[at]), int(self.base.node_first[at + 1]))

    def operations(self, rank: int, rows: Iterable[int] | AnyArray) -> Int64Array:
        """Return the positions of GPU operations; those outside the program are left out."""
        part = self.built.parts[rank]
        position = np.full(len(self.ranks[rank].operations), NONE, dtype=np.int64)
        first = int(np.searchsorted(self.base.op_rank, self.place(rank)))
        position[part.op_row] = np.arange(len(part.op_row)) + first
        found = position[np.asarray(rows, dtype=np.int64)]
        kept: Int64Array = found[found != NONE]
        return kept

    def nodes(self, rank: int, call_rows: Iterable[int] | AnyArray) -> Int64Array:
        """Return the nodes of runtime calls; those outside the program are left out."""
        part = self.built.parts[rank]
        node = part.host.node_of_call[np.asarray(call_rows, dtype=np.int64)]
        found: Int64Array = np.unique(node[node != NONE]) + self.node_slice(rank).start
        return found

    # Host -----------------------------------------------------------------------------------

    def host(self, rank: int, spans: Intervals, factor: float = 0.0) -> None:
        """Multiply the host time of a rank that lies in `spans` (its trace clock) by `factor`."""
        own, host = self.node_slice(rank), self.built.parts[rank].host
        traced = self.built.program
        before = np.concatenate([host.start_ns[:1], host.end_ns[:-1]])
        gap = host.start_ns - before
        cost = np.minimum(traced.node_cost_ns[own], host.end_ns - host.start_ns)
        in_gap = coverage(spans, before, host.start_ns) / np.maximum(gap, 1)
        in_cost = coverage(spans, host.end_ns - cost, host.end_ns) / np.maximum(cost, 1)
        self._scale("node_gap_ns", own, 1.0 - (1.0 - factor) * in_gap)
        self._scale("node_cost_ns", own, 1.0 - (1.0 - factor) * in_cost)

    def all_host(self, rank: int, factor: float) -> None:
        """Multiply all host time of a rank by `factor`, that of its loader's workers too."""
        own = self.node_slice(rank)
        self._scale("node_gap_ns", own, factor)
        self._scale("node_cost_ns", own, factor)
        self.batches(rank, factor)

    def batches(self, rank: int, factor: float) -> None:
        """Multiply what a rank's loader workers need for a batch, where they set the pace."""
        mine = (self.base.op_rank == self.place(rank)) & (self.base.op_stream < 0)
        if bool(mine.any()):
            base = self.column("op_base_ns")
            base[mine] = np.rint(base[mine] * factor)

    def launches(self, rank: int, factor: float, call_rows: AnyArray | None = None) -> None:
        """Multiply the host time of launch calls and of what prepares them by `factor`."""
        own = self.node_slice(rank)
        if call_rows is None:
            nodes = np.unique(self.base.op_node[self.base.op_node != NONE]).astype(np.int64)
            nodes = nodes[(nodes >= own.start) & (nodes < own.stop)]
        else:
            nodes = self.nodes(rank, call_rows)
        for name in ("node_gap_ns", "node_cost_ns"):
            values = self.column(name)
            values[nodes] = np.rint(values[nodes] * factor)

    def no_wait(self, rank: int, call_rows: Iterable[int] | AnyArray) -> None:
        """Let calls return without waiting for the device; their own time goes too."""
        nodes = self.nodes(rank, call_rows)
        self._drop_waits(nodes)
        self.column("node_cost_ns")[nodes] = 0
        self.column("node_queue")[nodes] = NONE

    def asynchronous(self, rank: int, call_rows: Iterable[int] | AnyArray, cost_ns: int) -> None:
        """Let calls return without waiting for the device, after `cost_ns` of their own."""
        nodes = self.nodes(rank, call_rows)
        self._drop_waits(nodes)
        cost = self.column("node_cost_ns")
        cost[nodes] = np.minimum(cost[nodes], cost_ns)

    def like_peers(self, rank: int, *, host: bool = False, device: bool = False) -> None:
        """Give a rank the host times, or the durations of kernels, that its peers have."""
        # Only the rank's own values are set: another edit may have changed those of its peers.
        if host:
            own = self.node_slice(rank)
            gap, cost = like_peers_host(self.base, self.place(rank))
            self.column("node_gap_ns")[own] = gap[own]
            self.column("node_cost_ns")[own] = cost[own]
            self.batches(rank, peer_pace(self.base, self.place(rank)))
        if device:
            mine = self.base.op_rank == self.place(rank)
            found = like_peers_device(self.base, self.place(rank), self._identity())
            self.column("op_base_ns")[mine] = found[mine]

    def balanced(self) -> None:
        """Let every rank's kernels take the mean over ranks, as if work were shared out evenly."""
        self.column("op_base_ns")[:] = balanced_device(self.base, self._identity())

    def _identity(self) -> Int64Array:
        """Return a number for each operation of the program, equal for the same name on any rank."""
        numbers: dict[str, int] = {}
        found = np.full(self.base.operations, NONE, dtype=np.int64)
        for number, part in self.built.parts.items():
            rank = self.ranks[number]
            codes = np.array(
                [numbers.setdefault(text, len(numbers)) for text in rank.names], dtype=np.int64
            )
            first = int(np.searchsorted(self.base.op_rank, self.place(number)))
            found[first : first + len(part.op_row)] = codes[rank.operations.name[part.op_row]]
        return found

    # Device ---------------------------------------------------------------------------------

    def remove(self, rank: int, op_rows: Iterable[int] | AnyArray, *, launch: bool = True) -> None:
        """Take GPU operations out; with `launch`, the calls that launch them and nothing else too.

        A collective is taken out on every rank that is named; where all its members are, nobody
        waits for it any more.
        """
        operations = self.operations(rank, op_rows)
        self._empty(operations)
        if not launch:
            return
        node = self.base.op_node[operations]
        node = np.unique(node[node != NONE])
        kept = np.bincount(self.base.op_node[self.base.op_node != NONE], minlength=self.base.nodes)
        gone = np.bincount(
            self.base.op_node[operations][self.base.op_node[operations] != NONE],
            minlength=self.base.nodes,
        )
        node = node[kept[node] == gone[node]]
        self._drop_waits(node)
        self.column("node_cost_ns")[node] = 0
        self.column("node_gap_ns")[node] = 0
        self.column("node_queue")[node] = NONE

    def duration(
        self, rank: int, op_rows: Iterable[int] | AnyArray, duration_ns: AnyArray | float
    ) -> None:
        """Set how long GPU operations take without contention, ns; one value, or one a row."""
        rows = np.asarray(op_rows, dtype=np.int64)
        known = np.isin(rows, self.built.parts[rank].op_row)
        values = np.broadcast_to(np.asarray(duration_ns, dtype=np.float64), rows.shape)
        self.column("op_base_ns")[self.operations(rank, rows)] = np.rint(values[known])

    def scale_duration(
        self, rank: int, op_rows: Iterable[int] | AnyArray, factor: AnyArray | float
    ) -> None:
        """Multiply how long GPU operations take."""
        rows = np.asarray(op_rows, dtype=np.int64)
        known = np.isin(rows, self.built.parts[rank].op_row)
        values = np.broadcast_to(np.asarray(factor, dtype=np.float64), rows.shape)[known]
        base, at = self.column("op_base_ns"), self.operations(rank, rows)
        base[at] = np.rint(base[at] * values)

    def scale_gaps(self, rank: int, op_rows: Iterable[int] | AnyArray, factor: float) -> None:
        """Multiply the device's pause before GPU operations that follow others."""
        gap, at = self.column("op_gap_ns"), self.operations(rank, op_rows)
        gap[at] = np.rint(gap[at] * factor)

    def transfer(self, instances: AnyArray, transfer_ns: AnyArray | float) -> None:
        """Set the transfer of matched collectives, ns; `instances` are those of the matches."""
        wanted = np.asarray(instances, dtype=np.int64)
        values = np.broadcast_to(np.asarray(transfer_ns, dtype=np.float64), wanted.shape)
        number = self.collectives(wanted)
        self.column("collective_transfer_ns")[number[number != NONE]] = np.rint(
            values[number != NONE]
        )

    def collectives(self, instances: AnyArray) -> Int64Array:
        """Return the collective of each matched instance, NONE where it is not in the program."""
        size = int(self.built.instance.max(initial=-1)) + 1
        size = max(size, int(np.max(instances, initial=-1)) + 1)
        number = np.full(size, NONE, dtype=np.int64)
        number[self.built.instance] = np.arange(len(self.built.instance))
        found: Int64Array = number[np.asarray(instances, dtype=np.int64)]
        return found

    def contention(self, factor: float) -> None:
        """Multiply by how much kernels are slowed beside communication."""
        self._columns["alpha"] = self.column("alpha") * factor

    def crowd(self, held: tuple[float, float], later: tuple[float, float]) -> None:
        """Let matrix kernels and others beside communication take at least `later` shares longer.

        `held` is by how much the recorded ones were slowed beyond what the program knows of.
        """
        program, alpha = self.base, self.column("alpha")
        base = self.column("op_base_ns")
        start, end = self.built.op_start_ns, self.built.op_end_ns
        for place in range(len(program.ranks)):
            mine = (program.op_rank == place) & (program.op_stream >= 0)
            comm = mine & (program.op_class == COMM)
            resident = union(start[comm], end[comm])
            for kind, share in zip((MATRIX, OTHER), held, strict=True):
                at = np.flatnonzero(mine & (program.op_class == kind))
                beside = coverage(resident, start[at], end[at]) / np.maximum(end[at] - start[at], 1)
                base[at] = np.rint(base[at] / (1.0 + share * beside))
        known = alpha[[MATRIX, OTHER]]
        alpha[[MATRIX, OTHER]] = np.maximum(known + np.array(held), later)

    def no_dependencies(self, operations: AnyArray, on_class: int | None = None) -> None:
        """Let operations (positions in the program) start without waiting for other streams.

        With `on_class`, only what they wait for of that class of operations.
        """
        owner = np.repeat(np.arange(self.base.operations), np.diff(self.base.dep_first))
        chosen = np.isin(owner, operations)
        if on_class is not None:
            chosen &= self.base.op_class[self.base.dep_operation] == on_class
        self._dropped_deps |= chosen

    def detach(self, operations: AnyArray) -> None:
        """Let operations (positions in the program) wait for none but each other on the device."""
        owner = np.repeat(np.arange(self.base.operations), np.diff(self.base.dep_first))
        outside = ~np.isin(self.base.dep_operation, operations)
        self._dropped_deps |= np.isin(owner, operations) & outside

    # Making it ------------------------------------------------------------------------------

    def program(self) -> Program:
        """Return the changed program."""
        columns: dict[str, Any] = dict(self._columns)
        if bool(self._dropped_waits.any()):
            columns |= _kept(self.base.wait_first, ~self._dropped_waits, "wait")
            columns["wait_operation"] = self.base.wait_operation[~self._dropped_waits]
        if bool(self._dropped_deps.any()):
            columns |= _kept(self.base.dep_first, ~self._dropped_deps, "dep")
            columns["dep_operation"] = self.base.dep_operation[~self._dropped_deps]
        return replace(self.base, **columns) if columns else self.base

    def _scale(self, name: str, own: slice, factor: AnyArray | float) -> None:
        values = self.column(name)
        values[own] = np.rint(values[own] * factor)

    def _drop_waits(self, nodes: AnyArray) -> None:
        owner = np.repeat(np.arange(self.base.nodes), np.diff(self.base.wait_first))
        self._dropped_waits |= np.isin(owner, nodes)

    def _empty(self, operations: Int64Array) -> None:
        kind, collective = self.column("op_class"), self.column("op_collective")
        size = self.column("collective_size")
        member = operations[collective[operations] != NONE]
        np.subtract.at(size, collective[member], 1)
        collective[operations] = NONE
        self.column("op_base_ns")[operations] = 0
        self.column("op_gap_ns")[operations] = 0
        self.column("op_latency_ns")[operations] = 0
        kind[operations[kind[operations] == COMM]] = OTHER
        kind[operations[kind[operations] == COPY]] = OTHER


def _kept(first: Int64Array, kept: BoolArray, name: str) -> dict[str, Int64Array]:
    count = np.concatenate([[0], np.cumsum(kept)])
    return {f"{name}_first": count[first].astype(np.int64)}
