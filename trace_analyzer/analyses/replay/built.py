"""A program with what was recorded of it, and where its rows come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trace_analyzer.analyses.replay.edges import Edges
from trace_analyzer.analyses.replay.host import HostSequence
from trace_analyzer.analyses.replay.program import Program
from trace_analyzer.analyses.replay.supply import Supply
from trace_analyzer.schema import Int32Array, Int64Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankProgram:
    """One rank's part: recorded times on the common clock, and where they come from.

    `op_row` are rows of the rank's GPU operations; `op_node` is local to the rank's host. With a
    `supply`, its batches follow the operations: that of the first step, then one a step.
    """

    host: HostSequence
    edges: Edges
    op_row: Int64Array
    op_node: Int32Array
    shift_ns: int
    supply: Supply | None

    @property
    def operations(self) -> int:
        """Number of operations in the program."""
        return len(self.op_row) + (0 if self.supply is None else len(self.supply.duration_ns) + 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Built:
    """A program with what was recorded of it: `start_ns`, `end_ns` of operations, and the ranks.

    `instance` is the matched instance of each of the program's collectives.
    """

    program: Program
    parts: Mapping[int, RankProgram]
    op_start_ns: Int64Array
    op_end_ns: Int64Array
    instance: Int64Array
    edges: int
    violated: int
    unmatched: int
