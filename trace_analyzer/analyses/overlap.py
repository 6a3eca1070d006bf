"""What could hide a communication kernel: the computation launched between it and its first use.

This is a fact of the program, not of the recorded times: neither a slow host nor a late rank changes
it. A reduction that is launched when backward is through has nothing left that could hide it.
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

    `operation` are rows of the rank's GPU operations, `step` positions in the program's steps.
    `after_ns` is the computation launched between each and what waits for it, `before_ns` that
    launched before it in its step, without contention. `used` says whether the program has
    anything that waits for it; else its step's end counts.
    """

    operation: Int64Array
    step: Int64Array
    after_ns: Float64Array
    before_ns: Float64Array
    used: BoolArray


def hideable(built: Built, program: Program) -> Mapping[int, Hideable]:
    """Return, for each rank, what could hide its communication; `program` is a variant of `built`'s."""
    owner = np.repeat(np.arange(program.operations), np.diff(program.dep_first))
    step = program.step_of_operation().astype(np.int64)
    return {
        number: _of_rank(built, program, place, number, owner, step)
        for place, number in enumerate(program.ranks)
    }


def _of_rank(
    built: Built,
    program: Program,
    place: int,
    number: int,
    owner: Int64Array,
    step: Int64Array,
) -> Hideable:
    first = int(np.searchsorted(program.op_rank, place))
    mine = np.flatnonzero(
        (program.op_rank == place) & (program.op_stream >= 0) & (program.op_node != NONE)
    )
    mine = mine[np.argsort(program.op_node[mine], kind="stable")]
    order = np.full(program.operations, NONE, dtype=np.int64)
    order[mine] = np.arange(len(mine))
    kind = program.op_class[mine]
    work = np.where((kind == MATRIX) | (kind == OTHER), program.op_base_ns[mine], 0)
    before = np.concatenate([[0.0], np.cumsum(work, dtype=np.float64)])
    ends = np.searchsorted(step[mine], np.arange(len(program.steps)), side="right")
    starts = np.searchsorted(step[mine], np.arange(len(program.steps)), side="left")
    comm = np.flatnonzero(kind == COMM)
    use = np.full(program.operations, len(mine), dtype=np.int64)
    known = order[owner] != NONE
    np.minimum.at(use, program.dep_operation[known], order[owner[known]])
    # On a stream that computes too, the next operation waits by its place.
    stream = program.op_stream[mine]
    computing = set(np.unique(stream[kind != COMM]).tolist())
    for value in sorted(set(np.unique(stream[comm]).tolist()) & computing):
        line = np.flatnonzero(stream == value)
        behind = np.append(line[1:], len(mine))
        use[mine[line]] = np.minimum(use[mine[line]], behind)
    found = use[mine[comm]]
    used = found < len(mine)
    at_step = step[mine[comm]]
    last = np.where(used, found, ends[at_step])
    return Hideable(
        operation=built.parts[number].op_row[mine[comm] - first],
        step=at_step,
        after_ns=np.maximum(before[last] - before[comm], 0.0),
        before_ns=before[comm] - before[starts[at_step]],
        used=used,
    )
