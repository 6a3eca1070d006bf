"""What could hide a communication kernel: the computation that neither it nor its first use waits for.

This is a fact of the program, not of the recorded times: neither a slow host nor a late rank changes
it. A reduction that is launched when backward is through has nothing left that could hide it, and
neither has a gathering of parameters that waits for the layer before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.replay.build import Built
from trace_analyzer.analyses.replay.program import COMM, MATRIX, NONE, OTHER, Program
from trace_analyzer.schema import BoolArray, Float64Array, Int64Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hideable:
    """Communication of one rank in the replayed steps, in order of launch.

    `operation` are rows of the rank's GPU operations, `position` those in the program, `step`
    positions in the program's steps. Of the rank's main computing stream, without contention,
    `after_ns` is the work launched between each and what first waits for it, `free_ns` that which
    in addition it does not wait for itself, `before_ns` all work before it in its step, and
    `total_ns` all of the step. `used` says whether the program has anything that waits for it; else
    its step's end counts.
    """

    operation: Int64Array
    position: Int64Array
    step: Int64Array
    after_ns: Float64Array
    free_ns: Float64Array
    before_ns: Float64Array
    total_ns: Float64Array
    used: BoolArray


class _Order:
    """One rank's operations in order of launch, with what they wait for; places, not positions."""

    def __init__(self, program: Program, place: int) -> None:
        mine = np.flatnonzero(
            (program.op_rank == place) & (program.op_stream >= 0) & (program.op_node != NONE)
        )
        self.mine: Int64Array = mine[np.argsort(program.op_node[mine], kind="stable")]
        self.kind, self.stream = program.op_class[self.mine], program.op_stream[self.mine]
        computes = (self.kind == MATRIX) | (self.kind == OTHER)
        base = np.where(computes, program.op_base_ns[self.mine], 0)
        streams, at = np.unique(self.stream, return_inverse=True)
        main = streams[np.argmax(np.bincount(at.reshape(-1), weights=base))] if len(streams) else 0
        self.on_main: BoolArray = self.stream == main
        self.work_before: Float64Array = np.concatenate(
            [[0.0], np.cumsum(np.where(self.on_main, base, 0), dtype=np.float64)]
        )
        order = np.full(program.operations, NONE, dtype=np.int64)
        order[self.mine] = np.arange(len(self.mine))
        owner = np.repeat(np.arange(program.operations), np.diff(program.dep_first))
        inside = (order[owner] != NONE) & (order[program.dep_operation] != NONE)
        self.waits: dict[int, list[int]] = {}
        pairs = zip(
            order[owner[inside]].tolist(),
            order[program.dep_operation[inside]].tolist(),
            strict=True,
        )
        for waiting, awaited in pairs:
            self.waits.setdefault(waiting, []).append(awaited)

    def bounds(self) -> tuple[Int64Array, Int64Array]:
        """Return, for each operation, the last of the main stream before it and the first behind it.

        "Before" and "behind" go over any number of other streams; NONE and the number of operations
        where there is none.
        """
        count = len(self.mine)
        latest = np.full(count, NONE, dtype=np.int64)
        first = np.full(count, count, dtype=np.int64)
        latest[self.on_main] = np.flatnonzero(self.on_main)
        first[self.on_main] = np.flatnonzero(self.on_main)
        others = np.flatnonzero(~self.on_main).tolist()
        # Streams that do not compute hold few operations: this is no loop over all of them.
        previous: dict[int, int] = {}
        for place in others:
            waits = self.waits.get(place, [])
            before = previous.get(int(self.stream[place]))
            bound = [int(latest[k]) for k in (*waits, *([] if before is None else [before]))]
            latest[place] = max(bound, default=NONE)
            previous[int(self.stream[place])] = place
        for waiting, awaited in self.waits.items():
            if self.on_main[waiting]:
                for one in awaited:
                    if not self.on_main[one]:
                        first[one] = min(first[one], waiting)
        for place in reversed(others):
            for one in self.waits.get(place, []):
                if not self.on_main[one]:
                    first[one] = min(first[one], first[place])
        return latest, first


def hideable(built: Built, program: Program) -> Mapping[int, Hideable]:
    """Return, for each rank, what could hide its communication; `program` is a variant of `built`'s."""
    step = program.step_of_operation().astype(np.int64)
    return {
        number: _of_rank(built, program, place, number, step)
        for place, number in enumerate(program.ranks)
    }


def _of_rank(built: Built, program: Program, place: int, number: int, step: Int64Array) -> Hideable:
    order = _Order(program, place)
    latest, behind = order.bounds()
    comm = np.flatnonzero(order.kind == COMM)
    # On the main stream itself, the neighbours are what it waits for and what waits for it.
    main = order.on_main[comm]
    since = np.where(main, comm, latest[comm] + 1)
    until = np.where(main, comm + 1, behind[comm])
    mine = order.mine
    at_step = step[mine[comm]]
    ends = np.searchsorted(step[mine], np.arange(len(program.steps)), side="right")
    starts = np.searchsorted(step[mine], np.arange(len(program.steps)), side="left")
    used = until < len(mine)
    until = np.where(used, until, ends[at_step])
    work = order.work_before
    first = int(np.searchsorted(program.op_rank, place))
    return Hideable(
        operation=built.parts[number].op_row[mine[comm] - first],
        position=mine[comm],
        step=at_step,
        after_ns=np.maximum(work[until] - work[comm], 0.0),
        free_ns=np.maximum(work[until] - work[np.minimum(since, until)], 0.0),
        before_ns=work[comm] - work[starts[at_step]],
        total_ns=work[ends[at_step]] - work[starts[at_step]],
        used=used,
    )


def chained(program: Program, positions: Int64Array) -> Int64Array:
    """Return operations with all that they wait for on streams other than their rank's main one."""
    found: set[int] = set()
    for place in np.unique(program.op_rank[positions]).tolist():
        order = _Order(program, place)
        at = np.full(program.operations, NONE, dtype=np.int64)
        at[order.mine] = np.arange(len(order.mine))
        open_places = at[positions[program.op_rank[positions] == place]].tolist()
        seen: set[int] = set()
        while open_places:
            one = open_places.pop()
            if one == NONE or one in seen or order.on_main[one]:
                continue
            seen.add(one)
            open_places.extend(order.waits.get(one, []))
        found |= set(order.mine[sorted(seen)].tolist())
    return np.array(sorted(found), dtype=np.int64)
