"""The host side of a rank as one sequence of nodes.

Launching threads are merged by the start of their calls: the main thread blocks in backward()
while the autograd thread runs, so that they take turns. Where calls of two threads overlap all the
same, the later one is taken to begin when the earlier one ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.idle import launching_threads
from trace_analyzer.model import Rank
from trace_analyzer.schema import Int32Array, Int64Array, is_na

NO_CALL = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostSequence:
    """Nodes of one rank in order; arrays have one entry a node.

    `call` is the row in the rank's calls, NO_CALL for the marks that begin steps and for the one
    that ends the window. Nodes do not overlap. `node_of_call` maps every call to the node it is or lies in, NO_CALL outside.
    """

    call: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    step: Int32Array  # position of the step that a mark begins, NO_CALL for calls
    node_of_call: Int64Array
    overlap_ns: int

    def __len__(self) -> int:
        return len(self.call)


def host_sequence(rank: Rank, marks_ns: Int64Array, until_ns: int) -> HostSequence:
    """Return the nodes between the first mark and `until_ns`; `marks_ns` begin the steps."""
    calls = rank.calls
    threads = launching_threads(rank)
    inside = (calls.start_ns >= marks_ns[0]) & (calls.start_ns < until_ns)
    chosen: list[Int64Array] = []
    node_of_call = np.full(len(calls), NO_CALL, dtype=np.int64)
    container = np.full(len(calls), NO_CALL, dtype=np.int64)
    for thread in threads.tolist():
        rows = np.flatnonzero(inside & (calls.thread == thread))
        free = intervals.outermost(calls.start_ns[rows], calls.end_ns[rows])
        chosen.append(rows[free])
        container[rows] = rows[free][np.cumsum(free) - 1] if len(rows) else rows
    row = np.concatenate(chosen) if chosen else np.empty(0, dtype=np.int64)
    # A last mark closes the window, so that the time after the last call is not lost.
    until_ns = max(until_ns, int(calls.end_ns[row].max(initial=until_ns)))
    marks = np.append(marks_ns, until_ns)
    start = np.concatenate([marks, calls.start_ns[row]])
    end = np.concatenate([marks, calls.end_ns[row]])
    call = np.concatenate([np.full(len(marks), NO_CALL, dtype=np.int64), row])
    step = np.concatenate(
        [
            np.arange(len(marks_ns), dtype=np.int32),
            np.full(len(row) + 1, NO_CALL, dtype=np.int32),
        ]
    )
    order = np.lexsort((end, start))
    start, end, call, step = start[order], end[order], call[order], step[order]
    reach = np.maximum.accumulate(end)
    before = np.concatenate([start[:1], reach[:-1]])
    overlap = int(np.maximum(before - start, 0).sum())
    node_of_call[call[call != NO_CALL]] = np.flatnonzero(call != NO_CALL)
    known = container != NO_CALL
    node_of_call[known] = node_of_call[container[known]]
    return HostSequence(
        call=call,
        start_ns=np.maximum(start, before),
        end_ns=np.maximum(end, before),
        step=step,
        node_of_call=node_of_call,
        overlap_ns=overlap,
    )


def launch_nodes(rank: Rank, host: HostSequence) -> Int32Array:
    """Return the node that launched each GPU operation, NO_CALL where it lies outside."""
    launch = rank.operations.launch
    node = np.full(len(launch), NO_CALL, dtype=np.int32)
    linked = ~is_na(launch)
    node[linked] = host.node_of_call[launch[linked]]
    return node
