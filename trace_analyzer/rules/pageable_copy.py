"""DATA002 pageable-copy.

## What it finds
Batches go to the GPU from ordinary, pageable memory; or they are pinned, but in the training step
itself, or the host waits for their copy.

## Why it costs
The driver copies pageable memory piece by piece through a buffer of its own, at a fraction of the
bandwidth, while the host is blocked in the call. Pinning in the step is a copy by the host as well.
A blocking copy empties the GPU's queue.

## How it is measured
Copies to the device of more than 64 KiB by the step's own threads. The replay gives them the
bandwidth of pinned copies (of this run, else what PCIe reaches), lets the calls return at once, and
leaves out pinning.

## When it is wrong
A copy that runs beside the step on a stream and thread of its own costs nothing and is not counted.
Without operators in the recording (nsys), pinning is guessed: host silence right before a pinned
copy, up to 1 ms for 2 MB.

## What to do
`DataLoader(pin_memory=True)` and `batch.to(device, non_blocking=True)`.

## References
PyTorch tutorial on pin_memory() and non_blocking; CUDA C++ best practices guide: pinned memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.host_copies import (
    HostCopies,
    host_copies,
    pinned_bytes_per_ns,
    round_trips,
)
from trace_analyzer.analyses.idle import launching_threads
from trace_analyzer.findings import Evidence
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule
from trace_analyzer.schema import NA_INT64, Int64Array
from trace_analyzer.tables import HostCategory

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.intervals import Intervals
    from trace_analyzer.model import Rank

# What a copy's call takes when nobody waits for it (measured on x86).
ASYNCHRONOUS_CALL_NS = 5_000
# One core copies memory at 3 to 10 GB/s; slower than this is something else.
SLOWEST_PINNING_BYTES_PER_NS = 2.0
_PINNING = ("aten::pin_memory", "aten::_pin_memory")
LEAST_SHARE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Copies:
    """What one rank's step does to bring its batches; times in ns a step."""

    copies: HostCopies
    pinning: Intervals
    calls: Int64Array
    exposed: Intervals
    exposed_ns: float
    megabytes: float
    blocked_ns: float
    pinning_ns: float

    @property
    def pageable(self) -> bool:
        """Whether most of it comes from pageable memory."""
        mine = self.copies
        return 2 * int(mine.bytes[mine.pageable].sum()) > int(mine.bytes.sum())


def find(context: Context) -> Answer:
    """Return one cause for all ranks whose steps wait for copies to the device."""
    if not any(len(item.rank.calls) for item in context.ranks.values()):
        return NotApplicable(reason="no runtime calls were recorded", needs="CUDA runtime calls")
    chosen: dict[int, _Copies] = {}
    largest = 0.0
    for number in context.ranks:
        seen = _seen(context, number)
        largest = max(largest, seen.exposed_ns)
        if seen.exposed_ns >= LEAST_SHARE * context.step_ns:
            chosen[number] = seen
    if not chosen:
        return Passed(
            reason=f"copies of batches that block delay the GPU by {largest / 1e6:.2f} ms a step at most"
        )
    return [_cause(context, chosen)]


def _seen(context: Context, number: int) -> _Copies:
    item = context.ranks[number]
    rank = item.rank
    copies = host_copies(rank)
    # What was taken from the GPU and comes back is no batch.
    steady = context.calls_in_steady(number)[copies.call] & ~round_trips(copies)
    copies = copies.take(copies.to_device & steady & (copies.pageable | (copies.wait != NA_INT64)))
    calls = np.unique(np.concatenate([copies.call, copies.wait[copies.wait != NA_INT64]]))
    pinning = intervals.intersect(_pinning(rank, copies), context.host_windows(number))
    call_time = intervals.union(rank.calls.start_ns[calls], rank.calls.end_ns[calls])
    operations = rank.operations
    row = copies.operation
    whole = intervals.merge(
        call_time, pinning, intervals.union(operations.start_ns[row], operations.end_ns[row])
    )
    exposed = intervals.subtract(
        intervals.intersect(whole, context.steady_windows(number)),
        intervals.merge(item.busy.compute, item.busy.comm),
    )
    return _Copies(
        copies=copies,
        pinning=pinning,
        calls=calls,
        exposed=exposed,
        exposed_ns=context.per_step_ns(number, exposed.total),
        megabytes=context.per_step_ns(number, int(copies.bytes.sum())) / 1e6,
        blocked_ns=context.per_step_ns(number, call_time.total),
        pinning_ns=context.per_step_ns(number, pinning.total),
    )


def _pinning(rank: Rank, copies: HostCopies) -> Intervals:
    """Return when the step's threads pin memory."""
    events, calls = rank.events, rank.calls
    threads = launching_threads(rank)
    if bool(np.any(events.category == HostCategory.OPERATOR)):
        wanted = [i for i, text in enumerate(rank.names) if text in _PINNING]
        rows = np.isin(events.name, wanted) & np.isin(events.thread, threads)
        return intervals.union(events.start_ns[rows], events.end_ns[rows])
    pinned = ~copies.pageable
    begin = calls.start_ns[copies.call[pinned]]
    mine = np.isin(calls.thread, threads)
    ends = np.sort(calls.end_ns[mine])
    at = np.searchsorted(ends, begin, side="right") - 1
    since = np.where(at >= 0, ends[np.maximum(at, 0)], begin)
    most = (copies.bytes[pinned] / SLOWEST_PINNING_BYTES_PER_NS).astype(np.int64)
    short = begin - since <= most
    return intervals.union(since[short], begin[short])


def _cause(context: Context, chosen: dict[int, _Copies]) -> Cause:
    bandwidth, basis = pinned_bytes_per_ns(item.rank for item in context.ranks.values())

    def edit(change: Edit) -> None:
        for number, seen in chosen.items():
            operations = change.ranks[number].operations
            copies = seen.copies.take(seen.copies.pageable)
            row = copies.operation
            now = operations.end_ns[row] - operations.start_ns[row]
            change.duration(number, row, np.minimum(copies.bytes / bandwidth, now))
            change.asynchronous(number, seen.calls, ASYNCHRONOUS_CALL_NS)
            change.host(number, seen.pinning)

    worst = max(chosen, key=lambda number: chosen[number].exposed_ns)
    seen = chosen[worst]
    where = rank_list(chosen)
    size = f"{seen.megabytes:.1f} MB a step"
    if seen.pageable:
        title = f"Batches are copied to the GPU from pageable memory on {where}: {size}."
    elif seen.pinning_ns > 0.3 * seen.exposed_ns:
        title = f"The training step pins its batches itself on {where}: {size}."
    else:
        title = f"The host waits for the copies of its batches on {where}: {size}."
    return Cause(
        title=title,
        ranks=tuple(chosen),
        ceiling_ns=seen.exposed_ns,
        edit=edit,
        edit_text=f"copies from pinned memory at {bandwidth:.0f} GB/s ({basis}), not waited for",
        proof=(
            f"On rank {worst} these copies block the host for {seen.blocked_ns / 1e6:.1f} ms a "
            f"step, and nothing is computed for {seen.exposed_ns / 1e6:.1f} ms meanwhile."
        ),
        rival="Not the loader. Its batches are there; their copy takes the time.",
        evidence=(
            Evidence(
                title="Copies to the GPU that block",
                columns=[
                    "rank",
                    "MB a step",
                    "pageable",
                    "ms in the calls a step",
                    "ms pinning a step",
                    "ms not hidden a step",
                ],
                rows=[
                    [
                        number,
                        round(item.megabytes, 2),
                        "yes" if item.pageable else "no",
                        round(item.blocked_ns / 1e6, 3),
                        round(item.pinning_ns / 1e6, 3),
                        round(item.exposed_ns / 1e6, 3),
                    ]
                    for number, item in chosen.items()
                ],
            ),
        ),
        ranges=tuple(
            piece
            for number, item in chosen.items()
            for piece in context.ranges(
                number, item.exposed.start, item.exposed.end, "copies a batch"
            )[:6]
        ),
        actions=(
            "Let the loader pin: `DataLoader(..., pin_memory=True)`.",
            "Copy without waiting: `batch.to(device, non_blocking=True)`.",
            "What is copied in every step unchanged belongs on the GPU once, before the loop.",
        ),
    )


RULE = Rule(
    code="DATA002",
    name="pageable-copy",
    kind="fault",
    status="stable",
    needs="copies between host and device, with their calls",
    find=find,
)
