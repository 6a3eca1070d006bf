"""HOST007 cpu-contention.

## What it finds
The threads that launch work are taken off their cores all the time: too many threads or processes
share too few cores, because of CPU affinity, `OMP_NUM_THREADS`, loader workers, or a neighbour.

## Why it costs
Each interruption delays the next launch by milliseconds. In a distributed run the slowest host sets
the pace of all.

## How it is measured
Calls that only enqueue work take microseconds. Where one of them a step or more takes over 0.3 ms
while the GPU is idle, threads are interrupted. So they are where gaps between calls are longer by
0.5 ms or more than the gap at the same place of other steps, three times a step or more, each time
at other places. The replay takes out these interruptions and the pauses between calls; a loader's
workers share the cores, and gain as much.

## When it is wrong
A trace does not show who had the core. Page faults and a machine that is throttled look alike.
Short interruptions, below 0.1 ms, are not counted.

## What to do
Give each rank cores of its own (`taskset`, `numactl`, the scheduler's binding), and not one core to
all; set `OMP_NUM_THREADS` to cores a rank; keep ranks times loader workers below the cores; look for
other processes on the machine.

## References
PyTorch performance tuning guide: NUMA and OpenMP settings; torchrun's OMP_NUM_THREADS.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.preemption import Preemption, find_preemption
from trace_analyzer.analyses.replay.descheduled import descheduled_ns
from trace_analyzer.findings import Evidence
from trace_analyzer.intervals import Intervals
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit

# Of 110 recordings on hosts with free cores none has more than three such calls in five steps; a
# core that is shared interrupts several times a step.
LEAST_INSIDE = 4
LEAST_INSIDE_A_STEP = 1.0


def find(context: Context) -> Answer:
    """Return one cause for all ranks whose launching threads are interrupted."""
    if not any(len(item.rank.calls) for item in context.ranks.values()):
        return NotApplicable(reason="no runtime calls were recorded", needs="CUDA runtime calls")
    seen = {number: preempted(context, number) for number in context.ranks}
    chosen = {n: item for n, item in seen.items() if is_contended(context, n, item)}
    if not chosen:
        most = max(item.inside for item in seen.values())
        return Passed(
            reason=f"{most} calls of microseconds took over 0.3 ms with an idle GPU, on any rank"
        )
    windows = {number: _windows(context, number) for number in chosen}

    def edit(change: Edit) -> None:
        for number, item in chosen.items():
            change.host(number, item.spans)
            if item.waits:
                window, _ = windows[number]
                lost = intervals.intersect(item.spans, window).total
                change.batches(number, 1.0 - lost / max(window.total, 1))

    def time_ns(number: int) -> float:
        window, steps = windows[number]
        return intervals.intersect(chosen[number].spans, window).total / steps

    worst = max(chosen, key=time_ns)
    top = chosen[worst]
    return [
        Cause(
            title=(
                f"The launching threads are taken off their cores on {rank_list(chosen)}, for "
                f"{time_ns(worst) / 1e6:.1f} ms a step."
            ),
            ranks=tuple(chosen),
            ceiling_ns=context.idle_ns(worst, top.spans),
            edit=edit,
            edit_text="calls and the host between them are not interrupted",
            proof=_proof(context, worst, top, windows[worst][1]),
            rival="Not garbage collection. It does not fall into CUDA calls.",
            limits="The trace does not show who had the core.",
            evidence=(
                Evidence(
                    title="Interrupted calls",
                    columns=[
                        "rank",
                        "calls over 0.3 ms a step",
                        "longest ms",
                        "longer gaps a step",
                        "ms a step in all",
                    ],
                    rows=[
                        [
                            number,
                            round(item.inside / context.steady_count(number), 2),
                            round(item.longest_ns / 1e6, 3),
                            round(item.waits / windows[number][1], 2),
                            round(time_ns(number) / 1e6, 3),
                        ]
                        for number, item in chosen.items()
                    ],
                ),
            ),
            ranges=tuple(
                piece
                for number, item in chosen.items()
                for piece in context.ranges(
                    number, item.spans.start, item.spans.end, "interrupted"
                )[:6]
            ),
            actions=(
                (
                    f"On the machine of {rank_list(chosen)}: `taskset -cp PID` shows the allowed "
                    "cores; give each rank cores of its own."
                ),
                "Set `OMP_NUM_THREADS` and loader workers so that ranks x threads <= cores.",
                "Look for other busy processes (`top`, `pidstat -t`) and for CPU limits of the container.",
            ),
        )
    ]


def _proof(context: Context, number: int, item: Preemption, steps: int) -> str:
    """Return what shows that a rank's threads are interrupted."""
    parts: list[str] = []
    if item.inside:
        rate = item.inside / context.steady_count(number)
        parts.append(
            f"On rank {number} {rate:.1f} calls of microseconds a step take over 0.3 ms with an "
            f"idle GPU, the longest {item.longest_ns / 1e6:.1f} ms."
        )
    if item.waits:
        parts.append(
            f"On rank {number} {item.waits / steps:.1f} gaps a step between calls are longer "
            "by 0.5 ms or more than at the same place of other steps."
        )
    return " ".join(parts)


def preempted(context: Context, number: int) -> Preemption:
    """Return the interruptions of a rank in its steady steps."""
    item = context.ranks[number]
    found = find_preemption(item.rank, item.busy, context.host_windows(number))
    waits = intervals.intersect(_waits(context, number), _windows(context, number)[0])
    return replace(found, waits=len(waits), spans=intervals.merge(found.spans, waits))


def is_contended(context: Context, number: int, item: Preemption) -> bool:
    """Return whether a rank is interrupted too often for chance."""
    often = max(LEAST_INSIDE, LEAST_INSIDE_A_STEP * context.steady_count(number))
    return item.waits > 0 or item.inside >= often


def _waits(context: Context, number: int) -> Intervals:
    """Return when a rank's host waited for a core between calls, in the replay's steps."""
    if context.replay is None:
        return intervals.empty()
    program, host = context.replay.built.program, context.replay.built.parts[number].host
    before = np.concatenate([host.start_ns[:1], host.end_ns[:-1]])
    place = program.ranks.index(number)
    own = slice(int(program.node_first[place]), int(program.node_first[place + 1]))
    lost = descheduled_ns(host.start_ns - before, program.step_of_node()[own], len(program.steps))
    rows = np.flatnonzero(lost > 0)
    return intervals.union(
        host.start_ns[rows] - np.rint(lost[rows]).astype(np.int64), host.start_ns[rows]
    )


def _windows(context: Context, number: int) -> tuple[Intervals, int]:
    """Return the host part of a rank's steady steps, and their number.

    Of steady steps that are replayed, where there are any: gaps are compared in these only.
    """
    item = context.ranks[number]
    chosen = item.steady.copy()
    if context.replay is not None:
        replayed = np.isin(item.steps.index, context.replay.base.steps)
        chosen &= replayed | ~np.any(chosen & replayed)
    windows = intervals.union(item.steps.host_start_ns[chosen], item.steps.host_end_ns[chosen])
    return windows, max(int(chosen.sum()), 1)


RULE = Rule(
    code="HOST007",
    name="cpu-contention",
    kind="fault",
    status="stable",
    needs="CUDA runtime calls of the launching threads",
    find=find,
)
