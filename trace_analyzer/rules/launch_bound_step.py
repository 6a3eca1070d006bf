"""HOST001 launch-bound-step.

## What it finds
The GPU finishes kernels faster than Python and PyTorch launch them: many small kernels, small
micro-batches, eager code between compiled parts. Or it keeps up, but a batch is worked off in several
parts, each of which repeats what does not depend on its size.

## Why it costs
Each launch takes the host 5 to 30 µs, with the Python around it. Kernels that are shorter leave the
GPU idle until the next launch. Every further part of a batch casts all weights again, adds all
gradients to those before, and launches everything once more.

## How it is measured
The replay without the profiler's costs says when the GPU waits for a launch, and what the host does
then. Loading, pauses, allocation, the optimizer, compilation and issuing collectives are other
rules'; what is left is launch work. The replay shortens it to a fifth, which CUDA graphs reach;
where a step has several forward passes, it works the batch off in one: fewer launches and gaps,
nothing added up or cast twice, and each kernel as long as all its parts together.

## When it is wrong
A profiler slows launches more than anything else, so that most recordings look launch-bound; what
the replay takes out is an estimate. On one slow rank alone it is that rank's host, not the program.

## What to do
Larger micro-batches; `torch.compile(mode="reduce-overhead")` or CUDA graphs for a step with fixed
shapes; fused operators.

## References
PyTorch performance tuning guide; CUDA graphs in PyTorch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.fetches import fetches
from trace_analyzer.analyses.idle import launching_threads
from trace_analyzer.analyses.optimizer_steps import optimizer_steps
from trace_analyzer.analyses.pauses import find_pauses
from trace_analyzer.analyses.replay.edges import launches_block
from trace_analyzer.findings import Evidence
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.micro_batches import PartsOfStep, parts_answer
from trace_analyzer.rules.recompilation import compiling
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule
from trace_analyzer.schema import Int64Array, is_na
from trace_analyzer.tables import CallKind, HostCategory, OperationKind

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.intervals import Intervals
    from trace_analyzer.model import Rank

# Host time of a step in CUDA graphs, with what cannot be captured, against eager launches.
GRAPH_SHARE = 0.2
LEAST_SHARE = 0.01
# Launch work has to be what the GPU waits for most.
LEAST_OF_WAITING = 0.5
# Issuing collectives, with what FSDP does around them, is the collectives' cost.
_ISSUING = re.compile(r"^(?:FSDP::|c10d::|nccl|record_param_comms)")
# A rank whose host alone is late explains this much of what faster launches would give.
ONE_RANK_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Launching:
    """One rank: its launch work, and how long the GPU waits for it, ns a step."""

    spans: Intervals
    waited_ns: float
    total_ns: float
    launches: float
    kernel_ns: float
    passes: float

    @property
    def parts(self) -> int:
        """Number of micro-batches a step, 0 where unknown."""
        return round(self.passes)


def find(context: Context) -> Answer:
    """Return one cause for the program, on the ranks whose GPUs wait for launches."""
    if context.replay is None:
        return NotApplicable(reason=f"the replay is withheld: {context.withheld}")
    if any(launches_block(item.rank) for item in context.ranks.values()):
        return NotApplicable(
            reason="every launch waits for its kernel", needs="a run without CUDA_LAUNCH_BLOCKING"
        )
    seen = {number: _seen(context, number) for number in context.ranks}
    chosen = {
        number: item
        for number, item in seen.items()
        if item.waited_ns >= LEAST_SHARE * context.step_ns
        and item.waited_ns >= LEAST_OF_WAITING * item.total_ns
    }
    split = all(item.parts >= 2 for item in seen.values())
    if not chosen and not split:
        most = max((item.waited_ns for item in seen.values()), default=0.0)
        return Passed(reason=f"the GPU waits {most / 1e6:.2f} ms a step for launch work at most")
    parts = {
        number: PartsOfStep(context, number, item.parts, item.launches)
        for number, item in seen.items()
    }

    def edit(change: Edit) -> None:
        for number, item in seen.items():
            if item.parts >= 2:
                parts[number].in_one(change, item.spans)
            else:
                change.host(number, item.spans, GRAPH_SHARE)

    change = context.replay.edit()
    edit(change)
    gain = context.replay.gain(change).gain_ns
    if not chosen:
        return parts_answer(context, parts, edit, gain)
    alone = max((swap.host_ns for swap in context.replay.swaps.values()), default=0.0)
    if alone < ONE_RANK_SHARE * gain:
        return [_cause(seen, chosen, edit)]
    return Passed(
        reason=(
            f"one rank's host alone explains {alone / 1e6:.1f} of the {gain / 1e6:.1f} ms a "
            "step that faster launches would give"
        )
    )


def _seen(context: Context, number: int) -> _Launching:
    item = context.ranks[number]
    rank, steps = item.rank, item.steps
    spans = intervals.subtract(
        intervals.single(int(steps.host_start_ns[0]), int(steps.host_end_ns[-1])),
        _other_work(rank, steps.host_start_ns),
    )
    starved = context.starvation[number]
    operations = rank.operations
    mine = context.in_steady(number) & (operations.kind == OperationKind.KERNEL)
    length = (operations.end_ns - operations.start_ns)[mine]
    launch = operations.launch[context.in_steady(number)]
    calls = len(np.unique(launch[~is_na(launch)]))
    return _Launching(
        spans=spans,
        waited_ns=starved.within(spans),
        total_ns=starved.total_ns,
        launches=calls / context.steady_count(number),
        kernel_ns=float(np.median(length)) if len(length) else 0.0,
        passes=_passes(context, number),
    )


def _other_work(rank: Rank, marks_ns: Int64Array) -> Intervals:
    """Return host time that other rules speak of."""
    calls = rank.calls
    found = fetches(rank, marks_ns)
    mine = np.isin(calls.thread, launching_threads(rank))
    rows = mine & np.isin(calls.kind, (CallKind.ALLOC, CallKind.FREE, CallKind.SYNC))
    events = rank.events
    issuing = np.array([_ISSUING.search(text) is not None for text in rank.names], dtype=np.bool_)
    issues = issuing[events.name] & (events.category != HostCategory.PYTHON)
    return intervals.merge(
        intervals.union(found.start_ns, found.end_ns),
        find_pauses(rank, found),
        intervals.union(calls.start_ns[rows], calls.end_ns[rows]),
        optimizer_steps(rank).spans,
        compiling(rank),
        intervals.union(events.start_ns[issues], events.end_ns[issues]),
    )


def _passes(context: Context, number: int) -> float:
    """Return how many forward passes a step has, by the ranges that mark them; 0 if none does."""
    rank = context.ranks[number].rank
    inside = context.events_in_steady(number)
    for name in ("DistributedDataParallel.forward", "FSDP::root_pre_forward", "forward"):
        count = int(np.sum(context.named(number, name.__eq__)[rank.events.name] & inside))
        if count:
            return count / context.steady_count(number)
    return 0.0


def _cause(
    seen: dict[int, _Launching],
    chosen: dict[int, _Launching],
    edit: Callable[[Edit], None],
) -> Cause:
    worst = max(chosen, key=lambda number: chosen[number].waited_ns)
    top = chosen[worst]
    graphs = (
        'Replay the step from CUDA graphs: `torch.compile(model, mode="reduce-overhead")` or '
        "`torch.cuda.make_graphed_callables`; shapes must not change."
    )
    larger = (
        "Give each launch more work: a larger batch, fewer and larger kernels (fused operators)."
    )
    parts = (
        f"Work off the batch in fewer parts: the step has {top.passes:.0f} forward passes, each "
        "with all its launches."
    )
    return Cause(
        title=(
            f"The GPU waits for launches on {rank_list(chosen)}: {top.launches:.0f} a step, half "
            f"of the kernels are shorter than {top.kernel_ns / 1e3:.0f} µs."
        ),
        ranks=tuple(chosen),
        ceiling_ns=top.waited_ns,
        edit=edit,
        edit_text=(
            "the batch is worked off in one part"
            if top.parts >= 2
            else "launching takes a fifth of its time, as with CUDA graphs"
        ),
        proof=(
            f"Without the profiler rank {worst}'s GPU waits {top.total_ns / 1e6:.1f} ms a step for "
            f"its host, {top.waited_ns / 1e6:.1f} ms of them for launch work."
        ),
        rival="Not the profiler alone. Its costs are taken out.",
        limits="What the profiler costs is estimated; measure the step without it.",
        evidence=(
            Evidence(
                title="GPU time spent on waiting for launch work, without the profiler",
                columns=[
                    "rank",
                    "ms a step",
                    "ms a step for the host in all",
                    "launches a step",
                    "median kernel µs",
                    "forward passes a step",
                ],
                rows=[
                    [
                        number,
                        round(item.waited_ns / 1e6, 3),
                        round(item.total_ns / 1e6, 3),
                        round(item.launches, 1),
                        round(item.kernel_ns / 1e3, 1),
                        round(item.passes, 1),
                    ]
                    for number, item in seen.items()
                ],
            ),
        ),
        actions=(parts, graphs, larger) if top.parts >= 2 else (graphs, larger),
        explains_late=False,
    )


RULE = Rule(
    code="HOST001",
    name="launch-bound-step",
    kind="opportunity",
    status="stable",
    needs="a replay of the step: launches, kernels and their links",
    find=find,
)
