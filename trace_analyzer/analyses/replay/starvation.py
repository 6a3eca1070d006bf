"""Where the GPU waits for the host in the step without the profiler, and what the host does then.

The recording cannot tell: under a profiler the host is slower, and waits appear that are none. So
the base program of the replay is executed, and each stretch in which a rank's GPU is idle until a
late launch is charged to the host time that lies in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.replay.build import Built
from trace_analyzer.analyses.replay.host import HostSequence
from trace_analyzer.analyses.replay.program import NONE, Execution, Program, completions_ns
from trace_analyzer.analyses.replay.simulate import simulate
from trace_analyzer.analyses.replay.steady_state import repeated
from trace_analyzer.intervals import Intervals
from trace_analyzer.schema import Float64Array, Int64Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Starvation:
    """Idle time of one rank's GPU that its host causes, ns a step.

    `gap_ns` and `cost_ns` have one entry a host node: idle time charged to the gap before it and to
    the node itself. `total_ns` is all of it, waits for batches of a loader's workers included.
    """

    host: HostSequence
    gap_ns: Float64Array
    cost_ns: Float64Array
    total_ns: float

    def within(self, spans: Intervals) -> float:
        """Return what is charged to host time inside `spans` of the rank's trace clock, ns a step."""
        host = self.host
        before = np.concatenate([host.start_ns[:1], host.end_ns[:-1]])
        in_gap = intervals.coverage(spans, before, host.start_ns) / np.maximum(
            host.start_ns - before, 1
        )
        in_node = intervals.coverage(spans, host.start_ns, host.end_ns) / np.maximum(
            host.end_ns - host.start_ns, 1
        )
        return float(self.gap_ns @ in_gap + self.cost_ns @ in_node)


def starvation(built: Built, base: Program) -> Mapping[int, Starvation]:
    """Return, for each rank, where the settled base program's GPU waits for its host.

    Raises `ReplayError` where the program cannot finish.
    """
    steps = len(base.steps)
    longer = repeated(base, 2)
    done = simulate(longer)
    ends = completions_ns(longer, done)
    result: dict[int, Starvation] = {}
    for place, number in enumerate(base.ranks):
        window = (int(ends[place, steps - 1]), int(ends[place, 2 * steps - 1]))
        late = _late_launches(longer, done, place, window)
        nodes = slice(int(longer.node_first[place]), int(longer.node_first[place + 1]))
        start, end = done.node_start_ns[nodes], done.node_end_ns[nodes]
        before = np.concatenate([start[:1], end[:-1]])
        gap = intervals.coverage(late, before, start).astype(np.float64)
        # A node that waits for the device is not what the device waits for.
        cost = np.minimum(longer.node_cost_ns[nodes], end - start)
        node = intervals.coverage(late, end - cost, end).astype(np.float64)
        count = len(start) // 2
        result[number] = Starvation(
            host=built.parts[number].host,
            gap_ns=(gap[:count] + gap[count:]) / steps,
            cost_ns=(node[:count] + node[count:]) / steps,
            total_ns=late.total / steps,
        )
    return result


def _late_launches(
    program: Program, done: Execution, place: int, window: tuple[int, int]
) -> Intervals:
    """Return when a rank's device is idle up to the launch of what it runs next."""
    mine = np.flatnonzero(
        (program.op_rank == place) & (program.op_stream >= 0) & (program.op_node != NONE)
    )
    start, end = done.op_start_ns[mine], done.op_end_ns[mine]
    order = np.lexsort((end, start))
    mine, start, end = mine[order], start[order], end[order]
    busy = intervals.union(start, end)
    idle_from, idle_to = busy.end[:-1], busy.start[1:]
    lasting = end > start
    first = np.flatnonzero(lasting)[np.searchsorted(start[lasting], idle_to)]
    launched: Int64Array = done.node_start_ns[program.op_node[mine[first]]]
    late = intervals.union(idle_from, np.clip(launched, idle_from, idle_to))
    return intervals.clip(late, *window)
