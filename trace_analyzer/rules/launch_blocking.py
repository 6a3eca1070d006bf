"""HOST005 launch-blocking.

## What it finds
A debugging aid is left on: `CUDA_LAUNCH_BLOCKING=1`, with which every launch waits until its kernel
has ended, or autograd's anomaly detection, which reads a value of every gradient on the host and
keeps a stack of every forward operator.

## Why it costs
Host and GPU no longer overlap: the GPU idles from each kernel's end to the next launch.

## How it is measured
Blocking launches: launch calls of long kernels return only after their kernel. The replay lets all
launches return at once. Anomaly detection: `isnan` and `item` in the nodes of backward. The replay
takes the checks out (kernels, copies and waits), and the time before a forward operator's first
call beyond what it usually is.

## When it is wrong
Hardly: no program launches all its kernels synchronously by accident. A loss scaler's or a
clipping's check reads once a step, not in every node.

## What to do
Unset `CUDA_LAUNCH_BLOCKING`; remove `torch.autograd.set_detect_anomaly(True)` and
`detect_anomaly()`; detach debuggers.

## References
CUDA programming guide: asynchronous concurrent execution. PyTorch documentation of
torch.autograd.detect_anomaly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.replay.edges import launches_block
from trace_analyzer.findings import Evidence
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule
from trace_analyzer.schema import Int64Array, is_na
from trace_analyzer.tables import CallKind, HostCategory

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.intervals import Intervals
    from trace_analyzer.model import Rank

# What a launch call takes when nobody waits for it (measured on x86).
ASYNCHRONOUS_CALL_NS = 5_000
_NODE = re.compile(r"^autograd::engine::evaluate_function")
_CHECK, _READ = "aten::isnan", "aten::item"
# Checks in this share of the nodes of backward are no accident.
LEAST_SHARE_OF_NODES = 0.3
# An operator's first call or part comes 2 to 20 µs after its start, recorded; keeping a stack takes
# 150 µs and more.
USUAL_BEGIN_NS, STACK_NS = 20_000, 60_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Anomaly:
    """The checks of one rank: their spans, and where forward operators keep their stacks."""

    spans: Intervals
    stacks: Intervals
    checks: int


def find(context: Context) -> Answer:
    """Return up to two causes: blocking launches, anomaly detection."""
    if not any(len(item.rank.calls) for item in context.ranks.values()):
        return NotApplicable(reason="no runtime calls were recorded", needs="CUDA runtime calls")
    blocking = tuple(n for n, item in context.ranks.items() if launches_block(item.rank))
    checked = {
        number: found
        for number, item in context.ranks.items()
        if (found := _anomaly(item.rank)) is not None
    }
    causes: list[Cause] = []
    if blocking:
        causes.append(_blocking(context, blocking))
    if checked:
        causes.append(_detection(context, checked))
    return causes or Passed(
        reason="launches return before their kernels end, and no gradient is checked on the host"
    )


def _blocking(context: Context, ranks: tuple[int, ...]) -> Cause:
    worst = max(ranks, key=lambda number: _launch_idle(context, number))

    def edit(change: Edit) -> None:
        for number in ranks:
            change.asynchronous(number, _launch_calls(change.ranks[number]), ASYNCHRONOUS_CALL_NS)

    calls = _launch_calls(context.ranks[worst].rank)
    count = int(context.calls_in_steady(worst)[calls].sum()) / context.steady_count(worst)
    return Cause(
        title=f"Every launch waits for its kernel on {rank_list(ranks)}.",
        ranks=ranks,
        ceiling_ns=_launch_idle(context, worst),
        edit=edit,
        edit_text="launches return at once",
        proof=(
            f"On rank {worst} {count:.0f} launch calls a step return only when their kernel has "
            f"ended; the GPU is idle for {_launch_idle(context, worst) / 1e6:.1f} ms a step between "
            "them."
        ),
        rival="Not small kernels. Launches of long kernels return after them, too.",
        limits="Without the waiting, kernels and communication overlap and slow each other.",
        evidence=(
            Evidence(
                title="GPU idle time in front of late launches",
                columns=["rank", "ms a step"],
                rows=[[n, round(_launch_idle(context, n) / 1e6, 3)] for n in ranks],
            ),
        ),
        actions=(
            "Unset `CUDA_LAUNCH_BLOCKING` in the job's environment and in the code.",
            "To find an asynchronous error, set it for a single short run only.",
        ),
    )


def _launch_calls(rank: Rank) -> Int64Array:
    launch = rank.operations.launch
    return np.unique(launch[~is_na(launch)]).astype(np.int64)


def _launch_idle(context: Context, number: int) -> float:
    item = context.ranks[number]
    return float(np.mean(item.idle.launch_ns[item.steady])) if bool(item.steady.any()) else 0.0


def _detection(context: Context, checked: dict[int, _Anomaly]) -> Cause:
    def edit(change: Edit) -> None:
        for number, found in checked.items():
            rank = change.ranks[number]
            calls = np.flatnonzero(Context.starts_in(rank.calls.start_ns, found.spans))
            inside = np.zeros(len(rank.calls), dtype=np.bool_)
            inside[calls] = True
            launch = rank.operations.launch
            change.remove(number, np.flatnonzero(~is_na(launch) & inside[np.maximum(launch, 0)]))
            change.no_wait(number, calls[rank.calls.kind[calls] == CallKind.SYNC])
            change.host(number, intervals.merge(found.spans, found.stacks))

    times = {
        number: (
            context.per_step_ns(
                number, intervals.intersect(found.spans, context.host_windows(number)).total
            ),
            context.per_step_ns(
                number, intervals.intersect(found.stacks, context.host_windows(number)).total
            ),
        )
        for number, found in checked.items()
    }
    worst = max(times, key=lambda number: sum(times[number]))
    checks, stacks = times[worst]
    whole = intervals.merge(checked[worst].spans, checked[worst].stacks)
    return Cause(
        title=f"Autograd's anomaly detection is on, on {rank_list(checked)}.",
        ranks=tuple(checked),
        ceiling_ns=context.idle_ns(worst, whole),
        edit=edit,
        edit_text="no checks of gradients, no stacks of forward operators",
        proof=(
            f"Rank {worst} checks gradients for {checks / 1e6:.1f} ms a step in backward and "
            f"spends {stacks / 1e6:.1f} ms a step at the begin of forward operators."
        ),
        rival="Not logging. Values are read in the nodes of backward, after each.",
        evidence=(
            Evidence(
                title="Anomaly detection",
                columns=["rank", "checks recorded", "ms a step in checks", "ms a step for stacks"],
                rows=[
                    [number, found.checks, *(round(ns / 1e6, 3) for ns in times[number])]
                    for number, found in checked.items()
                ],
            ),
        ),
        actions=(
            "Remove `torch.autograd.set_detect_anomaly(True)` and `with detect_anomaly():`.",
            "To find a NaN, switch it on for the few steps that produce it.",
        ),
        explains_late=len(checked) < len(context.ranks),
    )


def _anomaly(rank: Rank) -> _Anomaly | None:
    """Return what anomaly detection does on a rank; None where it is off."""
    events = rank.events
    names = np.array(
        [
            1 if _NODE.search(text) else 2 if text == _CHECK else 3 if text == _READ else 0
            for text in rank.names
        ],
        dtype=np.int8,
    )
    kind = np.where(events.category == HostCategory.OPERATOR, names[events.name], 0)
    nodes, checks, reads = (np.flatnonzero(kind == number) for number in (1, 2, 3))
    if not len(nodes) or not len(checks) or not len(reads):
        return None
    backward = intervals.union(events.start_ns[nodes], events.end_ns[nodes])
    checks = checks[Context.starts_in(events.start_ns[checks], backward)]
    if len(checks) < LEAST_SHARE_OF_NODES * len(nodes):
        return None
    # Each check ends with the read of its answer.
    after = np.searchsorted(events.start_ns[reads], events.start_ns[checks])
    have = after < len(reads)
    spans = intervals.intersect(
        intervals.union(
            events.start_ns[checks[have]],
            events.end_ns[reads[np.minimum(after, len(reads) - 1)]][have],
        ),
        backward,
    )
    return _Anomaly(spans=spans, stacks=_stacks(rank, backward), checks=len(checks))


def _stacks(rank: Rank, backward: Intervals) -> Intervals:
    """Return the long beginnings of operators outside backward."""
    events, calls = rank.events, rank.calls
    operators = events.category == HostCategory.OPERATOR
    rows = np.flatnonzero(operators & ~Context.starts_in(events.start_ns, backward))
    boundaries = np.unique(
        np.concatenate(
            [events.start_ns[operators], events.end_ns[operators], calls.start_ns, calls.end_ns]
        )
    )
    start = events.start_ns[rows]
    first = np.searchsorted(boundaries, start, side="right")
    until = boundaries[np.minimum(first, max(len(boundaries) - 1, 0))]
    until = np.minimum(until, events.end_ns[rows])
    long = until - start > STACK_NS
    return intervals.union(start[long] + USUAL_BEGIN_NS, until[long])


RULE = Rule(
    code="HOST005",
    name="launch-blocking",
    kind="fault",
    status="stable",
    needs="CUDA runtime calls; operators, for anomaly detection",
    find=find,
)
