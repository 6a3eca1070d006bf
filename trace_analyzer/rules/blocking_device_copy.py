"""DATA003 blocking-device-copy.

## What it finds
Large tensors leave the GPU in every step while the host waits: activations or images that are
logged, predictions moved with `.cpu()`, parameters or optimizer state that visit host memory and
come back.

## Why it costs
The host waits until the GPU has caught up and the copy is done, and launches nothing meanwhile.
Into ordinary, pageable memory the copy is slow as well.

## How it is measured
Copies of more than 64 KiB from the device in most steady steps, whose call or a following
synchronisation waits for them; with a copy of the same size back, the way back counts too. The
replay takes copies and waiting out: a copy into pinned memory on a stream of its own runs beside
the step.

## When it is wrong
Offloading may be what makes the model fit. Then only the part that prefetching hides can be gained.

## What to do
Log every N steps, reduce on the GPU first, copy into pinned memory with `non_blocking=True` on a
side stream and read it a step later; offload with prefetching, or to more GPUs.

## References
PyTorch CUDA semantics: asynchronous execution and pinned buffers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.extra_work import extra_work
from trace_analyzer.analyses.host_copies import HostCopies, host_copies, round_trips
from trace_analyzer.findings import Evidence
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule
from trace_analyzer.schema import NA_INT64

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.intervals import Intervals
    from trace_analyzer.schema import Int64Array

LEAST_SHARE = 0.01
# What happens in fewer steps than this is a checkpoint or a report, not a habit of the loop.
LEAST_STEPS_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Copies:
    """Large copies from the device, and back, of one rank; times in ns a step."""

    copies: HostCopies
    calls: Int64Array
    exposed: Intervals
    exposed_ns: float
    megabytes: float
    back_megabytes: float
    blocked_ns: float


def find(context: Context) -> Answer:
    """Return one cause for all ranks whose hosts wait for large copies from the GPU."""
    if not any(len(item.rank.calls) for item in context.ranks.values()):
        return NotApplicable(reason="no runtime calls were recorded", needs="CUDA runtime calls")
    seen = {number: found for number in context.ranks if (found := _seen(context, number))}
    chosen = {
        number: found
        for number, found in seen.items()
        if found.exposed_ns >= LEAST_SHARE * context.step_ns
    }
    if not chosen:
        most = max((found.exposed_ns for found in seen.values()), default=0.0)
        return Passed(
            reason=f"large copies from the GPU hold the host for {most / 1e6:.2f} ms a step at most"
        )

    def edit(change: Edit) -> None:
        for number, found in chosen.items():
            change.remove(number, found.copies.operation)
            change.no_wait(number, found.calls)

    worst = max(chosen, key=lambda number: chosen[number].exposed_ns)
    top = chosen[worst]
    back = f", and {top.back_megabytes:.1f} MB come back" if top.back_megabytes else ""
    return [
        Cause(
            title=(
                f"The host waits for {top.megabytes:.1f} MB a step from the GPU on "
                f"{rank_list(chosen)}{back}."
            ),
            ranks=tuple(chosen),
            ceiling_ns=top.exposed_ns,
            edit=edit,
            edit_text="these copies run beside the step, and nobody waits for them",
            proof=(
                f"On rank {worst} the host is blocked for {top.blocked_ns / 1e6:.1f} ms a step; "
                f"nothing is computed for {top.exposed_ns / 1e6:.1f} ms of it."
            ),
            rival="Not single values. The copies are larger than 64 KiB.",
            limits=(
                "Where the model does not fit otherwise, only what prefetching hides is gained."
                if top.back_megabytes
                else ""
            ),
            evidence=(
                Evidence(
                    title="Large copies from the GPU that the host waits for",
                    columns=[
                        "rank",
                        "MB a step from the GPU",
                        "MB a step back",
                        "ms blocked a step",
                        "ms not hidden a step",
                    ],
                    rows=[
                        [
                            number,
                            round(found.megabytes, 2),
                            round(found.back_megabytes, 2),
                            round(found.blocked_ns / 1e6, 3),
                            round(found.exposed_ns / 1e6, 3),
                        ]
                        for number, found in chosen.items()
                    ],
                ),
            ),
            ranges=tuple(
                piece
                for number, found in chosen.items()
                for piece in context.ranges(
                    number, found.exposed.start, found.exposed.end, "waits for a large copy"
                )[:6]
            ),
            actions=(
                "Copy every N steps only, and reduce on the GPU first (`.mean()`, `.half()`).",
                (
                    "Copy into pinned memory without waiting: `buffer.copy_(x, non_blocking=True)` on "
                    "a side stream, and read `buffer` one step later."
                ),
                "For offloading, prefetch the next layer, offload less, or shard over more GPUs.",
            ),
            explains_late=len(chosen) < len(context.ranks),
        )
    ]


def _seen(context: Context, number: int) -> _Copies | None:
    item = context.ranks[number]
    rank = item.rank
    every = host_copies(rank)
    steady = context.calls_in_steady(number)[every.call]
    # What only some steps do, a checkpoint above all, is no habit of the loop.
    usual = ~context.starts_in(rank.calls.start_ns[every.call], extra_work(rank, item.steps).spans)
    out = every.take(steady & usual & ~every.to_device & (every.wait != NA_INT64))
    if not len(out):
        return None
    step = np.searchsorted(item.steps.host_start_ns, rank.calls.start_ns[out.call], side="right")
    if len(np.unique(step)) < max(LEAST_STEPS_SHARE * context.steady_count(number), 2):
        return None
    back = every.take(steady & round_trips(every))
    rows = np.concatenate([out.operation, back.operation])
    waits = np.concatenate([out.wait, back.wait[back.wait != NA_INT64]])
    calls = np.unique(np.concatenate([out.call, back.call, waits]))
    call_time = intervals.union(rank.calls.start_ns[calls], rank.calls.end_ns[calls])
    operations = rank.operations
    whole = intervals.merge(
        call_time, intervals.union(operations.start_ns[rows], operations.end_ns[rows])
    )
    exposed = intervals.subtract(
        intervals.intersect(whole, context.steady_windows(number)),
        intervals.merge(item.busy.compute, item.busy.comm),
    )
    return _Copies(
        copies=every.take(np.isin(every.operation, rows)),
        calls=calls,
        exposed=exposed,
        exposed_ns=context.per_step_ns(number, exposed.total),
        megabytes=context.per_step_ns(number, int(out.bytes.sum())) / 1e6,
        back_megabytes=context.per_step_ns(number, int(back.bytes.sum())) / 1e6,
        blocked_ns=context.per_step_ns(number, call_time.total),
    )


RULE = Rule(
    code="DATA003",
    name="blocking-device-copy",
    kind="fault",
    status="stable",
    needs="copies between host and device, with their calls",
    find=find,
)
