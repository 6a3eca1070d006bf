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
from trace_analyzer.analyses.replay.descheduled import descheduled_ns
from trace_analyzer.analyses.replay.host import NO_CALL
from trace_analyzer.analyses.replay.program import Program
from trace_analyzer.analyses.replay.slowness import (
    KINETO_REFERENCES,
    NSYS_REFERENCES,
    Reference,
    node_slowness,
)
from trace_analyzer.model import Rank, SourceKind
from trace_analyzer.schema import BoolArray, Float64Array, Int64Array, is_na
from trace_analyzer.tables import HostCategory

_AUTOGRAD = re.compile(r"^autograd::|Backward\d*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerCosts:
    """Costs of recording, ns an event on a host of the usual pace; see `slowness`.

    `operator_ns` is for dispatched operators, `autograd_ns` for the nodes of backward and what
    wraps them, `annotation_ns` for ranges and Python frames, `call_ns` for runtime calls and
    `launch_ns` for those that launch something. `factor` is what all host time was multiplied by
    besides, but for gaps of `SILENT_NS` and more: a pause, or work of libraries that the recorder
    does not see. `floor` is the share of a gap that is always left, `call_floor` that of a call, some
    of which is waiting for room in the launch queue; what they keep in one of `neighbours` nodes that
    follow each other is taken from the others. `references` tell the host's pace. `basis` says where
    the numbers come from.
    """

    operator_ns: float
    autograd_ns: float
    annotation_ns: float
    call_ns: float
    launch_ns: float
    factor: float
    floor: float
    call_floor: float
    neighbours: int
    references: tuple[Reference, ...]
    basis: str


# Fitted to fifteen recordings of the fault lab's tuning half whose step the host decides (torch 2.11 on
# an x86 server with two H200, eager GPT, DDP, FSDP and alone) and that lie between plain steps of
# seconds before and after. Kinds of events come in nearly fixed proportions, so that one constant
# alone means little; together they give the step. Loops that do nothing else record for less: their
# code and the buffers are in the core's cache.
DEFAULT_KINETO = ProfilerCosts(
    operator_ns=1_300.0,
    autograd_ns=8_500.0,
    annotation_ns=300.0,
    call_ns=2_900.0,
    launch_ns=4_400.0,
    factor=1.0,
    floor=0.35,
    call_floor=0.15,
    neighbours=32,
    references=KINETO_REFERENCES,
    basis="default for torch.profiler",
)
# Fitted to nsys recordings of the same runs: its injection slows all host work, not calls alone. A
# call stands for the operators around it, which nsys does not record.
DEFAULT_NSYS = ProfilerCosts(
    operator_ns=0.0,
    autograd_ns=0.0,
    annotation_ns=0.0,
    call_ns=5_600.0,
    launch_ns=8_400.0,
    factor=1.0 / 0.85,
    floor=0.1,
    call_floor=0.1,
    neighbours=1,
    references=NSYS_REFERENCES,
    basis="default for nsys",
)
# Recording suffers a little more from a slow core than the references do: it writes more memory. The
# host-bound tuning runs of two occasions, one with slow hosts and one with fast ones, both fit best
# with 1.2 to 1.4; with 1 slow ones come out up to 13 % too long, with 2 fast ones.
PACE_EXPONENT = 1.25
# nsys has no share in a gap this long: what takes it makes no calls, so that nothing of it is recorded.
SILENT_NS = 1_000_000


def default_costs(source: SourceKind) -> ProfilerCosts:
    """Return the costs that are taken where the recording brings no calibration."""
    return DEFAULT_NSYS if source == SourceKind.NSYS else DEFAULT_KINETO


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeCosts:
    """What recording cost around the nodes of one rank, ns; arrays have one entry a node."""

    gap_ns: Float64Array
    inside_ns: Float64Array


def node_costs(rank: Rank, part: RankProgram, costs: ProfilerCosts) -> NodeCosts:
    """Return the recording costs in the gap before every node of a rank and inside it.

    They grow with the thread's slowness at that moment, because recording took that much longer. The
    work that the events stand for keeps its length: the unprofiled step is that of a host as fast as
    it was during the recording.
    """
    events, host = rank.events, part.host
    kinds = (HostCategory.OPERATOR, HostCategory.ANNOTATION, HostCategory.PYTHON)
    mine = np.isin(events.thread, launching_threads(rank)) & np.isin(events.category, kinds)
    each = _event_costs(rank, costs)[mine]
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
    half = own / 2 * is_call
    slowed = node_slowness(rank, host, costs.references) ** PACE_EXPONENT

    def within(low: Int64Array, high: Int64Array) -> Float64Array:
        first, last = np.searchsorted(edges, low), np.searchsorted(edges, high)
        found: Float64Array = spent[np.maximum(last, first)] - spent[first]
        total: Float64Array = slowed * (found + half) + intervals.coverage(busy, low, high)
        return total

    return NodeCosts(gap_ns=within(before, start), inside_ns=within(start, end))


def _event_costs(rank: Rank, costs: ProfilerCosts) -> Float64Array:
    """Return what recording every host event costs, ns."""
    autograd = np.array([_AUTOGRAD.search(text) is not None for text in rank.names], dtype=np.bool_)
    operator = rank.events.category == HostCategory.OPERATOR
    back = operator & autograd[rank.events.name]
    kinds: list[BoolArray] = [operator & ~back, back]
    each: Float64Array = np.select(
        kinds, [costs.operator_ns, costs.autograd_ns], costs.annotation_ns
    )
    return each


def unperturbed(built: Built, ranks: Mapping[int, Rank], costs: ProfilerCosts) -> Program:
    """Return the program with the profiler's costs taken out of its host tasks.

    Where the host waited for cores it shares, it waits less when it has less to do, and so do the
    loader's workers.
    """
    program = built.program
    gap = program.node_gap_ns.astype(np.float64)
    task = program.node_cost_ns.astype(np.float64)
    base = program.op_base_ns.astype(np.float64)
    for position, (number, part) in enumerate(built.parts.items()):
        nodes = slice(int(program.node_first[position]), int(program.node_first[position + 1]))
        seen = node_costs(ranks[number], part, costs)
        step = np.maximum.accumulate(part.host.step)
        waits = descheduled_ns(program.node_gap_ns[nodes], step, len(program.steps))
        had = gap[nodes] - waits, task[nodes]
        factor = np.where(had[0] >= SILENT_NS, 1.0, costs.factor)
        clean = had[0] / factor, had[1] / costs.factor
        spent = seen.gap_ns, seen.inside_ns
        left = _left(had, clean, spent, costs)
        gap[nodes], task[nodes] = left
        if waits.any():
            busy = float(had[0].sum() + had[1].sum())
            share = float(left[0].sum() + left[1].sum()) / max(busy, 1.0)
            gap[nodes] += share * waits
            base[(program.op_rank == position) & (program.op_stream < 0)] *= share
    return replace(
        program,
        node_gap_ns=_whole(gap),
        node_cost_ns=_whole(task),
        op_base_ns=_whole(base),
    )


def _left(
    had: tuple[Float64Array, Float64Array],
    clean: tuple[Float64Array, Float64Array],
    spent: tuple[Float64Array, Float64Array],
    costs: ProfilerCosts,
) -> tuple[Float64Array, Float64Array]:
    """Return what is left of the gaps and calls of a rank when recording costs nothing, ns.

    A gap too short for what was recorded in it shows that the constants are means: another of the
    `neighbours` cost more. A silent gap has no share in that, because it is no recorder's.
    """
    least = costs.floor * had[0], costs.call_floor * had[1]
    left = np.maximum(clean[0] - spent[0], least[0]), np.maximum(clean[1] - spent[1], least[1])
    if costs.neighbours <= 1 or not len(left[0]):
        return left
    over = sum(rest - (full - cost) for rest, full, cost in zip(left, clean, spent, strict=True))
    room = tuple(
        np.where(time >= SILENT_NS, 0.0, np.maximum(rest - kept, 0.0))
        for time, rest, kept in zip(had, left, least, strict=True)
    )
    first = np.arange(0, len(left[0]), costs.neighbours)
    owed = np.add.reduceat(over, first)
    there = np.add.reduceat(room[0] + room[1], first)
    share = np.minimum(1.0, owed / np.maximum(there, 1.0))
    each = np.repeat(share, np.diff(np.append(first, len(left[0]))))
    return left[0] - each * room[0], left[1] - each * room[1]


def _whole(times: Float64Array) -> Int64Array:
    rounded: Int64Array = np.rint(times).astype(np.int64)
    return rounded
