"""HOST003 host-pause.

## What it finds
The host of one or more ranks stands still for milliseconds, in every step or now and then: Python's
garbage collector, logging or writing in the loop, a sleep, a process that takes its core.

## Why it costs
Nothing is launched during a pause, and the GPU runs dry. In a distributed run all ranks wait for
the one that pauses; pauses at different steps on different ranks add up.

## How it is measured
Stretches of 1 ms or more without the start or end of any operator, range or CUDA call on the
launching threads, outside the loader; inside the optimizer's step of 2.5 ms or more. The replay
takes them out. Where they come and go, the mean step counts, not the median.

## When it is wrong
The trace shows that nothing is recorded meanwhile, not why. A long function of Python or numpy
between two operators looks the same.

## What to do
For pauses that come and go: `gc.freeze()` after warm-up, then `gc.disable()` and a `gc.collect(1)`
every N steps on all ranks at the same step. For pauses in every step: see what the code does at the
marked place; write logs and metrics every N steps, or from another thread.

## References
Python documentation of gc; reports of synchronised garbage collection in large training runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.extra_work import extra_work
from trace_analyzer.analyses.fetches import fetches
from trace_analyzer.analyses.idle import launching_threads
from trace_analyzer.analyses.optimizer_steps import optimizer_steps
from trace_analyzer.analyses.pauses import find_pauses
from trace_analyzer.findings import Evidence
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.cpu_contention import is_contended, preempted
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule
from trace_analyzer.rules.single_process_data_parallel import forward_passes
from trace_analyzer.tables import HostCategory

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.intervals import Intervals
    from trace_analyzer.model import Rank

LEAST_SHARE = 0.01
# A pause in nearly every step shows in the median step; others show in the mean only.
EVERY_STEP = 0.9
# Ranks that pause this much less than the one that pauses most are not named.
NAMED_SHARE = 0.25

# Inside the optimizer's step Python walks through all parameters and records nothing meanwhile:
# 1 to 2 ms for 300 of them, or for 50 sharded ones between two launches. A collection is longer.
OPTIMIZER_WALK_NS = 2_500_000

_SHOWN_NAMES = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pauses:
    """The pauses of one rank in the steps that count; times in ns."""

    spans: Intervals
    steps: int
    hit: int
    mean_ns: float
    longest_ns: int
    idle_ns: float
    inside: str


def find(context: Context) -> Answer:
    """Return one cause for all ranks whose hosts pause."""
    if not context.ranks:
        return NotApplicable(reason="no complete step was recorded", needs="complete steps")
    # Where calls are interrupted as well, pauses are interruptions.
    seen = {
        number: _seen(context, number)
        for number in context.ranks
        if not is_contended(context, number, preempted(context, number))
    }
    if not seen:
        return Passed(reason="pauses fall into calls as well: see HOST007")
    most = max(item.mean_ns for item in seen.values())
    if most < LEAST_SHARE * context.mean_step_ns:
        return Passed(reason=f"pauses of 1 ms or more add up to {most / 1e6:.2f} ms a step at most")
    chosen = {number: item for number, item in seen.items() if item.mean_ns >= NAMED_SHARE * most}
    worst = max(chosen, key=lambda number: chosen[number].mean_ns)
    top = chosen[worst]
    steady = all(item.hit >= EVERY_STEP * item.steps for item in chosen.values())

    def edit(change: Edit) -> None:
        for number, item in chosen.items():
            change.host(number, item.spans)

    where = rank_list(chosen)
    took = f"{top.mean_ns / 1e6:.1f} ms a step"
    if steady:
        title = f"The host stands still in every step on {where}: {took}."
    else:
        title = (
            f"The host stands still now and then on {where}: {took} on average, up to "
            f"{top.longest_ns / 1e6:.0f} ms at once."
        )
    return [
        Cause(
            title=title,
            ranks=tuple(chosen),
            ceiling_ns=top.idle_ns,
            edit=edit,
            edit_text="the host does not pause",
            proof=(
                f"On rank {worst} nothing is recorded on the launching threads for {took}, in "
                f"{top.hit} of {top.steps} steps{top.inside and f', inside {top.inside}'}."
            ),
            rival="Not a slow launch loop. No call at all is made meanwhile.",
            limits="The trace does not tell what the host does in a pause, unless stacks were recorded.",
            evidence=(
                Evidence(
                    title="Pauses of 1 ms or more",
                    columns=[
                        "rank",
                        "steps with a pause",
                        "steps",
                        "ms a step",
                        "longest ms",
                        "ms a step with an idle GPU",
                        "inside",
                    ],
                    rows=[
                        [
                            number,
                            item.hit,
                            item.steps,
                            round(item.mean_ns / 1e6, 3),
                            round(item.longest_ns / 1e6, 3),
                            round(item.idle_ns / 1e6, 3),
                            item.inside,
                        ]
                        for number, item in chosen.items()
                    ],
                ),
            ),
            ranges=tuple(
                piece
                for number, item in chosen.items()
                for piece in context.ranges(
                    number, item.spans.start, item.spans.end, "host stands still"
                )[:6]
            ),
            actions=_actions(every_step=steady, where=where),
            mean=not steady,
        )
    ]


def _actions(*, every_step: bool, where: str) -> tuple[str, ...]:
    look = (
        f"See what the code of {where} does at the marked place; record again with "
        "`with_stack=True` to have the function's name."
    )
    collect = (
        "If it is garbage collection: after warm-up `gc.collect(); gc.freeze(); gc.disable()`, "
        "then `gc.collect(1)` every 100 steps, at the same step on all ranks."
    )
    log = "Write logs, metrics and progress bars every N steps, or from another thread."
    return (look, log, collect) if every_step else (collect, look, log)


def _seen(context: Context, number: int) -> _Pauses:
    item = context.ranks[number]
    rank, steps = item.rank, item.steps
    # What comes and goes makes outliers: all steps from the first steady one on count.
    first = int(np.argmax(item.steady)) if bool(item.steady.any()) else 0
    begin, end = steps.host_start_ns[first:], steps.host_end_ns[first:]
    window = intervals.single(int(begin[0]), int(end[-1]))
    found = fetches(rank, steps.host_start_ns)
    # Writing a checkpoint, what comes between two evaluations, and DataParallel's threads are other
    # rules' causes.
    others = intervals.merge(extra_work(rank, steps).spans, forward_passes(rank))
    pauses = intervals.subtract(find_pauses(rank, found), others)
    walks = intervals.intersect(pauses, optimizer_steps(rank).spans)
    short = walks.length < OPTIMIZER_WALK_NS
    pauses = intervals.subtract(pauses, intervals.union(walks.start[short], walks.end[short]))
    spans = intervals.intersect(pauses, window)
    count = len(begin)
    each = intervals.coverage(spans, begin, end)
    idle = intervals.subtract(spans, item.busy.any)
    return _Pauses(
        spans=spans,
        steps=count,
        hit=int(np.sum(each > 0)),
        mean_ns=spans.total / count,
        longest_ns=int(spans.length.max(initial=0)),
        idle_ns=idle.total / count,
        inside=_inside(rank, spans),
    )


def _inside(rank: Rank, spans: Intervals) -> str:
    """Return the names of the innermost ranges or functions around the longest pauses."""
    events = rank.events
    mine = np.isin(events.thread, launching_threads(rank)) & np.isin(
        events.category, (HostCategory.ANNOTATION, HostCategory.PYTHON, HostCategory.OPERATOR)
    )
    start, end, name = events.start_ns[mine], events.end_ns[mine], events.name[mine]
    time: dict[str, int] = {}
    for row in np.argsort(-spans.length)[:8].tolist():
        begin, until = int(spans.start[row]), int(spans.end[row])
        around = np.flatnonzero((start <= begin) & (end >= until))
        if len(around):
            inner = around[np.argmin(end[around] - start[around])]
            text = rank.names[int(name[inner])]
            if not text.startswith("ProfilerStep"):
                time[text] = time.get(text, 0) + until - begin
    ordered = sorted(time, key=lambda text: -time[text])[:_SHOWN_NAMES]
    return ", ".join(f"`{text[:60]}`" for text in ordered)


RULE = Rule(
    code="HOST003",
    name="host-pause",
    kind="fault",
    status="stable",
    needs="operators, ranges or CUDA calls of the launching threads",
    find=find,
)
