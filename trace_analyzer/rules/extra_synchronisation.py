"""COMM009 extra-synchronisation.

## What it finds
Ranks meet in every step although gradients do not need it: metrics are reduced over ranks and read
by the host, barriers are called, or buffers are broadcast before every forward pass.

## Why it costs
A rank that reads a reduced value waits for its own GPU and for the slowest rank. Until then its host
launches nothing, so that the GPU idles when it goes on. Ranks that could have evened out over a step
are brought into line several times.

## How it is measured
Small collectives (64 KiB at most) whose result the host reads at once, or for which it waits without
reading; and broadcasts inside DDP's forward. In the replay they are gone on all ranks, with the
reads and waits behind them; what the step gains is the finding. Small collectives that nobody waits
for cost next to nothing and do not count.

## When it is wrong
A value that decides what runs next, such as an overflow check over all ranks, is needed. Batch
normalisation may need its buffers broadcast, where ranks evaluate with them.

## What to do
Keep metrics on the GPU and reduce them every N steps, all in one tensor. Remove `dist.barrier()`
from the loop: collectives order ranks by themselves. Set `broadcast_buffers=False` in DDP where no
rank needs the other's buffers in training.

## References
PyTorch documentation of DistributedDataParallel: `broadcast_buffers`. PyTorch distributed notes:
DDP itself calls no barrier.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.host_syncs import HostSyncs, SyncFor, host_syncs, small_runs
from trace_analyzer.findings import Evidence, Range
from trace_analyzer.intervals import Intervals
from trace_analyzer.model import Rank
from trace_analyzer.nccl_names import operation_of
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule
from trace_analyzer.schema import NA_INT64, Int64Array, is_na
from trace_analyzer.tables import WorkClass

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit

DDP_FORWARD = re.compile(r"^DistributedDataParallel\.forward$")
_COPY = re.compile(r"copy|Memcpy DtoD", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Extra:
    """What one rank does too much: operations, waiting calls, and host time, in all steps."""

    operations: Int64Array
    calls: Int64Array
    host: Intervals
    a_step: float  # collectives a steady step


def find(context: Context) -> Answer:
    """Return up to three causes: reduced values that are read, barriers, and buffers."""
    if len(context.ranks) < 2 and context.study.cross is None:
        ranks = context.study.run.ranks
        if all((rank.world_size or 1) < 2 for rank in ranks):
            return NotApplicable(reason="one rank was recorded", needs="a run of several ranks")
    found: dict[str, dict[int, _Extra]] = {"metrics": {}, "barriers": {}, "buffers": {}}
    for number, item in context.ranks.items():
        rank = item.rank
        if not len(rank.calls):
            continue
        syncs, runs = host_syncs(rank), small_runs(rank)
        extras = {
            "metrics": _waited(context, number, syncs, runs, SyncFor.READ_REDUCED),
            "barriers": _waited(context, number, syncs, runs, SyncFor.COLLECTIVE),
            "buffers": _buffers(context, number),
        }
        for kind, extra in extras.items():
            if extra is not None and extra.a_step >= 1.0:
                found[kind][number] = extra
    causes = [_cause(context, kind, extras) for kind, extras in found.items() if extras]
    if causes:
        return causes
    return Passed(reason="no rank waits for small collectives or broadcasts buffers in every step")


def _waited(
    context: Context, number: int, syncs: HostSyncs, runs: Int64Array, purpose: SyncFor
) -> _Extra | None:
    """Return the small collectives that the host of a rank waits for."""
    mine = syncs.purpose == purpose
    if not bool(mine.any()):
        return None
    last = syncs.collective[mine]
    operations = np.flatnonzero(np.isin(runs, runs[last]) & (runs != NA_INT64))
    count = float(context.in_steady(number)[operations].sum()) / context.steady_count(number)
    copies = syncs.copy[mine]
    return _Extra(
        operations=np.unique(np.concatenate([operations, copies[copies != NA_INT64]])),
        calls=syncs.call[mine],
        host=intervals.empty(),
        a_step=count,
    )


def _buffers(context: Context, number: int) -> _Extra | None:
    """Return DDP's broadcasts of buffers, with the copies into and out of their buckets."""
    rank = context.study.ranks[number].rank
    events, operations, calls = rank.events, rank.operations, rank.calls
    forward = np.flatnonzero(context.named(number, DDP_FORWARD)[events.name])
    linked = np.flatnonzero(~is_na(operations.launch))
    if not len(forward) or not len(linked):
        return None
    launched = calls.start_ns[operations.launch[linked]]
    order = np.argsort(launched, kind="stable")
    linked, launched = linked[order], launched[order]
    broadcast = _broadcasts(rank)[linked]
    copying = np.array([bool(_COPY.search(text)) for text in rank.names], dtype=np.bool_)
    chosen: list[Int64Array] = []
    start: list[int] = []
    end: list[int] = []
    # A few forward passes a step: this loop is over them, not over events.
    for row in forward.tolist():
        first, last = np.searchsorted(launched, [events.start_ns[row], events.end_ns[row]])
        inside = np.flatnonzero(broadcast[first:last])
        if not len(inside):
            continue
        # After the last broadcast come the copies from its bucket, then the model itself.
        behind = linked[first + inside[-1] + 1 : last]
        model = np.flatnonzero(~copying[operations.name[behind]])
        until = first + inside[-1] + 1 + (model[0] if len(model) else len(behind))
        chosen.append(linked[first:until])
        start.append(int(events.start_ns[row]))
        end.append(int(calls.end_ns[operations.launch[linked[until - 1]]]))
    if not chosen:
        return None
    rows = np.concatenate(chosen)
    sent = rows[_broadcasts(rank)[rows]]
    return _Extra(
        operations=rows,
        calls=np.empty(0, dtype=np.int64),
        host=intervals.union(np.array(start, dtype=np.int64), np.array(end, dtype=np.int64)),
        a_step=float(context.in_steady(number)[sent].sum()) / context.steady_count(number),
    )


def _broadcasts(rank: Rank) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    names = np.array([operation_of(text) == "broadcast" for text in rank.names], dtype=np.bool_)
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = names[rank.operations.name] & (
        rank.operations.work == WorkClass.COMM
    )
    return found


_TEXTS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "metrics": (
        "{count} small collectives a step on {ranks} make values that the host reads at once.",
        "values reduced over ranks are neither made nor read in these steps",
        (
            (
                "Keep metrics on the GPU (`total += loss.detach()`), and reduce and read them once "
                "in N steps."
            ),
            "Put all metrics into one tensor: `dist.all_reduce(torch.stack([loss, accuracy]))`.",
            "Read the result one step later, when it has long arrived.",
        ),
    ),
    "barriers": (
        "{ranks} meet at {count} barriers a step.",
        "the barriers are gone",
        (
            "Remove `dist.barrier()` from the training loop; collectives order ranks by themselves.",
            "Where a barrier protects a file, call it only in the steps that write the file.",
        ),
    ),
    "buffers": (
        "DDP broadcasts buffers before every forward pass on {ranks}, {count} times a step.",
        "no buffer is broadcast",
        (
            (
                "Build DDP with `broadcast_buffers=False` where each rank may train with its own "
                "buffers."
            ),
            "Where batch normalisation needs common statistics, use `SyncBatchNorm`.",
        ),
    ),
}


def _cause(context: Context, kind: str, extras: Mapping[int, _Extra]) -> Cause:
    title, edit_text, actions = _TEXTS[kind]
    count = max(extra.a_step for extra in extras.values())
    rows: list[list[str | float | int | None]] = []
    ceiling = 0.0
    for number, extra in extras.items():
        idle, blocked = _cost(context, number, extra)
        ceiling = max(ceiling, idle)
        rows.append([number, round(extra.a_step, 1), round(blocked / 1e6, 3), round(idle / 1e6, 3)])
    ranks = rank_list(extras)
    text = title.format(count=f"{count:.0f}", ranks=ranks)
    return Cause(
        title=text[0].upper() + text[1:],
        ranks=tuple(extras),
        ceiling_ns=ceiling,
        edit=_gone(extras),
        edit_text=edit_text,
        proof=(
            f"Up to {count:.0f} a step. The GPU computes nothing for {ceiling / 1e6:.1f} ms a step "
            "from the first of them until new work arrives."
        ),
        rival="Not gradient traffic. These messages are small, or buffers that need no gradient.",
        limits=(
            "A value that decides what runs next must be waited for."
            if kind == "metrics"
            else "Evaluation may need the same buffers on all ranks."
            if kind == "buffers"
            else ""
        ),
        evidence=(
            Evidence(
                title="Collectives that bring ranks into line",
                columns=["rank", "a step", "ms in calls that wait", "ms without computation"],
                rows=rows,
            ),
        ),
        ranges=tuple(
            piece for number, extra in extras.items() for piece in _ranges(context, number, extra)
        ),
        actions=actions,
        explains_late=False,
    )


def _gone(extras: Mapping[int, _Extra]) -> Callable[[Edit], None]:
    def edit(change: Edit) -> None:
        for number, extra in extras.items():
            change.remove(number, extra.operations)
            change.no_wait(number, extra.calls)
            change.host(number, extra.host)

    return edit


def _cost(context: Context, number: int, extra: _Extra) -> tuple[float, float]:
    """Return (time without computation around the operations, time in waiting calls), ns a step.

    The former counts the gaps between computing kernels that hold one of them.
    """
    item = context.study.ranks[number]
    rank, compute = item.rank, item.busy.compute
    gaps = intervals.complement(compute, item.steps.window_start_ns, item.steps.window_end_ns)
    chosen = extra.operations[context.in_steady(number)[extra.operations]]
    at = np.searchsorted(gaps.start, rank.operations.end_ns[chosen], side="left") - 1
    at = np.unique(at[at >= 0])
    held = intervals.intersect(
        intervals.union(gaps.start[at], gaps.end[at]), context.steady_windows(number)
    )
    calls = extra.calls[context.calls_in_steady(number)[extra.calls]]
    blocked = int((rank.calls.end_ns[calls] - rank.calls.start_ns[calls]).sum())
    return context.per_step_ns(number, held.total), context.per_step_ns(number, blocked)


def _ranges(context: Context, number: int, extra: _Extra) -> tuple[Range, ...]:
    rank = context.study.ranks[number].rank
    if len(extra.calls):
        start, end = rank.calls.start_ns[extra.calls], rank.calls.end_ns[extra.calls]
        return context.ranges(number, start, end, "host waits for other ranks")[:4]
    rows = extra.operations
    start, end = rank.operations.start_ns[rows], rank.operations.end_ns[rows]
    return context.ranges(number, start, end, "buffers are broadcast")[:4]


RULE = Rule(
    code="COMM009",
    name="extra-synchronisation",
    kind="fault",
    status="stable",
    needs="CUDA runtime calls of the launching threads",
    find=find,
)
