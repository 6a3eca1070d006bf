"""HOST002 per-step-sync.

## What it finds
The host stops in every step until the GPU has caught up: it reads a value (`.item()`, `print` of a
tensor, a loss or metric that is logged), or synchronises outright.

## Why it costs
Until the value is there the host launches nothing. When it goes on, the GPU's queue is empty, and
the GPU idles until the first new launches arrive. A synchronisation while the GPU has plenty left
to do elsewhere costs nothing.

## How it is measured
Blocking calls of the launching threads that read at most 64 KiB, or that wait without a copy. The
replay leaves them out, with the copies and the operators that make them; what the step gains is the
finding. The time spent inside the calls
is not the cost: most of it is ordinary waiting for the GPU.

## When it is wrong
The program may need the value: a loss scaler's overflow check or a data-dependent branch. Then the
read can be moved, but not removed. Under a profiler the host is slower than in reality and hides
part of the cost; the replay takes that out.

## What to do
Read values every N steps instead of every step; keep sums on the GPU (`loss.detach()`), copy with
`non_blocking=True` and read them one step later; drop `torch.cuda.synchronize()` from the loop.

## References
PyTorch performance tuning guide: avoid unnecessary CPU-GPU synchronization.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.host_syncs import SyncFor, host_syncs
from trace_analyzer.analyses.operator_spans import spans_of_launches
from trace_analyzer.findings import Evidence
from trace_analyzer.intervals import Intervals
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule
from trace_analyzer.schema import Int64Array

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Reads:
    """Blocking calls of one rank, the copies that they wait for, and the operators around them."""

    calls: Int64Array
    copies: Int64Array
    spans: Intervals


def find(context: Context) -> Answer:
    """Return one cause for all ranks that read values or synchronise in most steps."""
    chosen: dict[int, _Reads] = {}
    rows: list[list[str | float | int | None]] = []
    ceiling = 0.0
    for number, item in context.ranks.items():
        rank = item.rank
        if not len(rank.calls):
            continue
        found = _reads(context, number)
        call = found.calls
        count = len(call) / context.steady_count(number)
        if count < 1.0:
            continue
        chosen[number] = found
        start, end = rank.calls.start_ns[call], rank.calls.end_ns[call]
        blocked = context.per_step_ns(number, int((end - start).sum()))
        idle = _idle_after(context, number, end)
        ceiling = max(ceiling, idle)
        rows.append([number, round(count, 1), round(blocked / 1e6, 3), round(idle / 1e6, 3)])
    if not any(len(item.rank.calls) for item in context.ranks.values()):
        return NotApplicable(reason="no runtime calls were recorded", needs="CUDA runtime calls")
    if not chosen:
        return Passed(reason="no rank reads values or synchronises once a step")
    most = max(float(str(row[1])) for row in rows)

    def edit(change: Edit) -> None:
        for number, found in chosen.items():
            change.remove(number, found.copies)
            change.no_wait(number, found.calls)
            change.host(number, found.spans)

    return [
        Cause(
            title=(
                f"The host waits for the GPU {most:.0f} times a step on {rank_list(chosen)} "
                "to read values or to synchronise."
            ),
            ranks=tuple(chosen),
            ceiling_ns=ceiling,
            edit=edit,
            edit_text="nothing is read and nothing waited for in these places",
            proof=(
                f"Up to {most:.0f} blocking calls a step. Each takes the host's lead over the GPU "
                f"away: in this trace the GPU is idle for {ceiling / 1e6:.1f} ms a step right after "
                "them, and the host launches the rest of the step without a lead."
            ),
            rival="Not the waiting itself. While the host waits in these calls, the GPU is mostly busy.",
            limits="A value that decides what runs next must be waited for, only later or less often.",
            evidence=(
                Evidence(
                    title="Blocking calls that read values or synchronise",
                    columns=[
                        "rank",
                        "calls a step",
                        "ms in them a step",
                        "ms idle after them a step",
                    ],
                    rows=rows,
                ),
            ),
            ranges=tuple(
                piece
                for number, found in chosen.items()
                for piece in context.ranges(
                    number,
                    context.study.ranks[number].rank.calls.start_ns[found.calls],
                    context.study.ranks[number].rank.calls.end_ns[found.calls],
                    "host waits for a value",
                )[:4]
            ),
            actions=(
                "Log every N steps: `if step % 50 == 0: log(loss.item())`.",
                "Accumulate on the GPU: `total += loss.detach()`, and read `total` once in N steps.",
                "Copy with `non_blocking=True` into pinned memory and read the value one step later.",
                "Remove `torch.cuda.synchronize()` and timers that call it from the training loop.",
            ),
            explains_late=len(chosen) < len(context.ranks),
        )
    ]


def _reads(context: Context, number: int) -> _Reads:
    rank = context.study.ranks[number].rank
    syncs = host_syncs(rank)
    chosen = np.isin(syncs.purpose, (int(SyncFor.READ_VALUE), int(SyncFor.EXPLICIT)))
    chosen &= context.calls_in_steady(number)[syncs.call]
    copies = np.unique(syncs.copy[chosen & (syncs.purpose == SyncFor.READ_VALUE)])
    launch = rank.operations.launch[copies]
    spans = spans_of_launches(rank, np.unique(launch[launch >= 0]).astype(np.int64))
    return _Reads(calls=syncs.call[chosen], copies=copies, spans=spans)


def _idle_after(context: Context, number: int, returned_ns: Int64Array) -> float:
    """Return the GPU's idle time, ns a step, in gaps that hold the return of a chosen call."""
    gaps = context.study.ranks[number].gaps
    at = np.searchsorted(gaps.start_ns, returned_ns, side="right") - 1
    hit = (
        (at >= 0) & (returned_ns < gaps.end_ns[np.maximum(at, 0)]) if len(gaps.start_ns) else at > 0
    )
    rows = np.unique(at[hit])
    return context.idle_ns(number, intervals.union(gaps.start_ns[rows], gaps.end_ns[rows]))


RULE = Rule(
    code="HOST002",
    name="per-step-sync",
    kind="fault",
    status="stable",
    needs="CUDA runtime calls of the launching threads",
    find=find,
)
