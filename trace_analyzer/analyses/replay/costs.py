"""What the profiler itself adds to host tasks, and the program without it.

Every profiled operator, annotation and Python frame costs a little at its start and at its end,
every runtime call a little around it, and buffers are requested and flushed now and then. These
costs lie in the gaps between calls and inside calls; both keep a floor, because no correction makes
a host infinitely fast. Device times are not corrected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.idle import launching_threads
from trace_analyzer.analyses.replay.build import Built, RankProgram
from trace_analyzer.analyses.replay.host import NO_CALL
from trace_analyzer.analyses.replay.program import Program
from trace_analyzer.model import Rank
from trace_analyzer.schema import Float64Array, Int64Array
from trace_analyzer.tables import HostCategory


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerCosts:
    """Costs of recording, ns an event; `floor` is the share of a gap or call that is always left.

    `basis` says where the numbers come from: "calibration", or "default for …".
    """

    operator_ns: float
    call_ns: float
    floor: float
    basis: str


# Measured with torch 2.11 and record_shapes on an x86 server: the optimum of a grid over five
# labelled runs. Operators and calls trade off against each other in it, so that one alone means
# little; a bundle's own calibration replaces both.
DEFAULT_KINETO = ProfilerCosts(
    operator_ns=6_000.0, call_ns=3_000.0, floor=0.1, basis="default for torch.profiler"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeEvents:
    """Recorded events of one rank's nodes; arrays have one entry a node.

    Halves of events (a start or an end) in the gap before a node and inside it, and the
    profiler's own work there, ns.
    """

    gap_halves: Float64Array
    inside_halves: Float64Array
    gap_overhead_ns: Int64Array
    inside_overhead_ns: Int64Array


def node_events(rank: Rank, part: RankProgram) -> NodeEvents:
    """Count what was recorded around the nodes of a rank, on its launching threads."""
    events, host = rank.events, part.host
    mine = np.isin(events.thread, launching_threads(rank)) & np.isin(
        events.category, (HostCategory.OPERATOR, HostCategory.ANNOTATION, HostCategory.PYTHON)
    )
    edges = np.sort(np.concatenate([events.start_ns[mine], events.end_ns[mine]]))
    overhead = events.category == HostCategory.OVERHEAD
    busy = intervals.union(events.start_ns[overhead], events.end_ns[overhead])
    start, end = host.start_ns, host.end_ns
    before = np.concatenate([start[:1], end[:-1]])

    def count(low: Int64Array, high: Int64Array) -> Float64Array:
        found = np.searchsorted(edges, high, side="left") - np.searchsorted(edges, low, side="left")
        halves: Float64Array = np.maximum(found, 0).astype(np.float64) / 2
        return halves

    return NodeEvents(
        gap_halves=count(before, start),
        inside_halves=count(start, end),
        gap_overhead_ns=intervals.coverage(busy, before, start),
        inside_overhead_ns=intervals.coverage(busy, start, end),
    )


def unperturbed(
    built: Built, ranks: Mapping[int, Rank], costs: ProfilerCosts, scale: float = 1.0
) -> Program:
    """Return the program with the profiler's costs taken out of its host tasks.

    `scale` multiplies what is left of host time: 1 unless it was fitted to a known step time.
    """
    gaps: list[Int64Array] = []
    tasks: list[Int64Array] = []
    program = built.program
    for position, (number, part) in enumerate(built.parts.items()):
        nodes = slice(int(program.node_first[position]), int(program.node_first[position + 1]))
        seen = node_events(ranks[number], part)
        is_call = part.host.call != NO_CALL
        half_call = costs.call_ns / 2 * is_call
        gaps.append(
            _less(
                program.node_gap_ns[nodes],
                costs.operator_ns * seen.gap_halves + half_call + seen.gap_overhead_ns,
                costs.floor,
                scale,
            )
        )
        tasks.append(
            _less(
                program.node_cost_ns[nodes],
                costs.operator_ns * seen.inside_halves + half_call + seen.inside_overhead_ns,
                costs.floor,
                scale,
            )
        )
    return replace(program, node_gap_ns=np.concatenate(gaps), node_cost_ns=np.concatenate(tasks))


def _less(times: Int64Array, cost: Float64Array, floor: float, scale: float) -> Int64Array:
    left = np.maximum(times - cost, floor * times) * scale
    rounded: Int64Array = np.rint(left).astype(np.int64)
    return rounded
