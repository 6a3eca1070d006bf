"""What the profiler itself adds to host tasks, and the program without it.

Every profiled operator, annotation and Python frame costs a little at its start and at its end,
every runtime call a little around it, and buffers are requested and flushed now and then. These
costs lie in the gaps between calls and inside calls; both keep a floor, because no correction makes
a host infinitely fast. Device times are not corrected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.idle import launching_threads
from trace_analyzer.analyses.replay.build import Built, RankProgram
from trace_analyzer.analyses.replay.host import NO_CALL
from trace_analyzer.analyses.replay.program import Program
from trace_analyzer.model import Rank, SourceKind
from trace_analyzer.schema import Float64Array, Int64Array, is_na
from trace_analyzer.tables import HostCategory

_AUTOGRAD = re.compile(r"^autograd::|Backward\d*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerCosts:
    """Costs of recording, ns an event on a host of speed 1; see `slowness`.

    `operator_ns` is for dispatched operators, `autograd_ns` for the nodes of backward and what
    wraps them, `annotation_ns` for ranges and Python frames, `call_ns` for runtime calls and
    `launch_ns` for those that launch something. `factor` is what all host time was multiplied by
    besides. `floor` is the share of a gap or call that is always left. `basis` says where the
    numbers come from.
    """

    operator_ns: float
    autograd_ns: float
    annotation_ns: float
    call_ns: float
    launch_ns: float
    factor: float
    floor: float
    basis: str


# Fitted to labelled runs of the fault lab's tuning half (torch 2.11 on an x86 server with two
# H200, eager GPT, DDP and alone, shapes recorded or not). Kinds of events come in nearly fixed
# proportions, so that one constant alone means little; together they give the step.
DEFAULT_KINETO = ProfilerCosts(
    operator_ns=4_000.0,
    autograd_ns=13_800.0,
    annotation_ns=2_600.0,
    call_ns=2_900.0,
    launch_ns=2_700.0,
    factor=1.0,
    floor=0.15,
    basis="default for torch.profiler",
)
# Fitted to nsys recordings of the same runs: its injection slows all host work, not calls alone.
DEFAULT_NSYS = ProfilerCosts(
    operator_ns=0.0,
    autograd_ns=0.0,
    annotation_ns=0.0,
    call_ns=3_000.0,
    launch_ns=8_000.0,
    factor=1.0 / 0.85,
    floor=0.1,
    basis="default for nsys",
)
# Medians of recorded durations where the costs above hold, ns. These operators do next to nothing
# themselves, so that their recorded length is mostly the profiler's cost on this host, in this run.
REFERENCE_NS = {"aten::as_strided": 800.0, "aten::transpose": 2_800.0, "aten::empty": 5_800.0}
LEAST_SAMPLES = 20
# 100 recordings of one kind of server lie between 0.6 and 1.8; a profiler of 2021 on another server
# recorded 4 and 9, and its costs are not 9 times those of today.
FARTHEST = 2.5


def default_costs(source: SourceKind) -> ProfilerCosts:
    """Return the costs that are taken where the recording brings no calibration."""
    return DEFAULT_NSYS if source == SourceKind.NSYS else DEFAULT_KINETO


def slowness(rank: Rank) -> float:
    """Return how many times slower a rank's host recorded than where the default costs were set.

    Two ranks of one machine differ by up to half. 1 where too few of the operators are there, and
    where their length is so far off that another profiler than the reference's recorded them.
    """
    events = rank.events
    length = events.end_ns - events.start_ns
    ratios: list[float] = []
    for name, usual_ns in REFERENCE_NS.items():
        if name not in rank.names:
            continue
        found = length[events.name == list(rank.names).index(name)]
        if len(found) >= LEAST_SAMPLES:
            ratios.append(float(np.median(found)) / usual_ns)
    ratio = float(np.mean(ratios)) if ratios else 1.0
    return ratio if 1 / FARTHEST <= ratio <= FARTHEST else 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeCosts:
    """What recording cost around the nodes of one rank, ns; arrays have one entry a node."""

    gap_ns: Float64Array
    inside_ns: Float64Array


def node_costs(rank: Rank, part: RankProgram, costs: ProfilerCosts) -> NodeCosts:
    """Return the recording costs in the gap before every node of a rank and inside it."""
    events, host = rank.events, part.host
    kinds = (HostCategory.OPERATOR, HostCategory.ANNOTATION, HostCategory.PYTHON)
    mine = np.isin(events.thread, launching_threads(rank)) & np.isin(events.category, kinds)
    slow = slowness(rank)
    each = _event_costs(rank)[mine] @ np.array(
        [slow * costs.operator_ns, slow * costs.autograd_ns, slow * costs.annotation_ns]
    )
    at = np.concatenate([events.start_ns[mine], events.end_ns[mine]])
    order = np.argsort(at, kind="stable")
    edges = at[order]
    spent = np.concatenate([[0.0], np.cumsum(np.concatenate([each, each])[order] / 2)])
    overhead = events.category == HostCategory.OVERHEAD
    busy = intervals.union(events.start_ns[overhead], events.end_ns[overhead])
    start, end = host.start_ns, host.end_ns
    before = np.concatenate([start[:1], end[:-1]])
    is_call = host.call != NO_CALL
    launches = np.zeros(len(rank.calls), dtype=np.bool_)
    launch = rank.operations.launch
    launches[launch[~is_na(launch)]] = True
    own = np.where(launches[np.where(is_call, host.call, 0)], costs.launch_ns, costs.call_ns)
    half = slow * own / 2 * is_call

    def within(low: Int64Array, high: Int64Array) -> Float64Array:
        first, last = np.searchsorted(edges, low), np.searchsorted(edges, high)
        found: Float64Array = spent[np.maximum(last, first)] - spent[first]
        total: Float64Array = found + half + intervals.coverage(busy, low, high)
        return total

    return NodeCosts(gap_ns=within(before, start), inside_ns=within(start, end))


def _event_costs(rank: Rank) -> Float64Array:
    """Return which class every host event is of, shape (events, 3): 1 in its column."""
    autograd = np.array([_AUTOGRAD.search(text) is not None for text in rank.names], dtype=np.bool_)
    operator = rank.events.category == HostCategory.OPERATOR
    back = operator & autograd[rank.events.name]
    return np.stack([operator & ~back, back, ~operator], axis=1).astype(np.float64)


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
        seen = node_costs(ranks[number], part, costs)
        gaps.append(_less(program.node_gap_ns[nodes], seen.gap_ns, costs, scale))
        tasks.append(_less(program.node_cost_ns[nodes], seen.inside_ns, costs, scale))
    return replace(program, node_gap_ns=np.concatenate(gaps), node_cost_ns=np.concatenate(tasks))


def _less(times: Int64Array, cost: Float64Array, costs: ProfilerCosts, scale: float) -> Int64Array:
    left = np.maximum(times / costs.factor - cost, costs.floor * times) * scale
    rounded: Int64Array = np.rint(left).astype(np.int64)
    return rounded
