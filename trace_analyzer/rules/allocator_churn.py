"""MEM001 allocator-churn.

## What it finds
GPU memory is allocated from the driver and given back to it in every step, although PyTorch keeps
freed memory in a cache for reuse.

## Why it costs
`cudaMalloc` and `cudaFree` take long, and `cudaFree` waits until the whole GPU is idle. Every step
then starts from an empty queue, and each allocation delays the next launch.

## How it is measured
Calls that allocate or free device memory in steady steps, on threads that launch work. The replay
takes them out, with their waiting for the GPU.

## When it is wrong
The first steps fill the cache; they are left out as warm-up. A library may allocate workspaces of
its own now and then.

## What to do
Remove `torch.cuda.empty_cache()` from the loop. If the calls come from inside operators, memory is
too short and the allocator empties its cache to make room: use less memory, or
`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` against fragmentation; for FSDP,
`limit_all_gathers=True`.

## References
PyTorch CUDA semantics: memory management, `PYTORCH_CUDA_ALLOC_CONF`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.idle import launching_threads
from trace_analyzer.findings import Evidence
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule
from trace_analyzer.tables import CallKind, HostCategory

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.model import Rank
    from trace_analyzer.schema import BoolArray, Int64Array

# Memory of the host is pinned with calls of the same kinds; that is another rule's.
_HOST_MEMORY = ("HostAlloc", "FreeHost", "HostRegister", "HostUnregister", "MallocHost")


def find(context: Context) -> Answer:
    """Return one cause for all ranks that ask the driver for memory in most steps."""
    chosen: dict[int, Int64Array] = {}
    rows: list[list[str | float | int | None]] = []
    ceiling, most, retries, rare = 0.0, 0.0, 0, True
    seen = False
    for number, item in context.ranks.items():
        rank = item.rank
        seen = seen or len(rank.calls) > 0
        call = np.flatnonzero(_device_memory(rank) & context.calls_in_steady(number))
        count = len(call) / context.steady_count(number)
        if not len(call):
            continue
        begin, end = rank.calls.start_ns[call], rank.calls.end_ns[call]
        step = np.searchsorted(item.steps.host_start_ns[item.steady], begin, side="right")
        hit = len(np.unique(step))
        if hit < 2:
            continue  # once is no habit
        rare = rare and 2 * hit < context.steady_count(number)
        chosen[number] = call
        time = context.per_step_ns(number, int((end - begin).sum()))
        idle = context.idle_ns(number, intervals.union(begin, end))
        ceiling, most = max(ceiling, idle), max(most, count)
        freed = call[rank.calls.kind[call] == CallKind.FREE]
        retries += _inside_operators(rank, freed)
        rows.append(
            [
                number,
                round(count, 1),
                round(time / 1e6, 3),
                round(idle / 1e6, 3),
                len(freed),
                _inside_operators(rank, freed),
            ]
        )
    if not seen:
        return NotApplicable(reason="no runtime calls were recorded", needs="CUDA runtime calls")
    if not chosen:
        return Passed(reason="no rank allocates or frees GPU memory in its steady steps")

    def edit(change: Edit) -> None:
        for number, calls in chosen.items():
            change.no_wait(number, calls)

    empties = "Remove `torch.cuda.empty_cache()` from the training loop."
    shorter = (
        "Use less memory (smaller batch, activation checkpointing), so that the cache need not be "
        "emptied; against fragmentation set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`; "
        "with FSDP1 keep `limit_all_gathers=True`."
    )
    worst = max(rows, key=lambda row: float(str(row[2])))
    return [
        Cause(
            title=(
                f"GPU memory is allocated and freed through the driver {most:.0f} times a step "
                f"on {rank_list(chosen)}."
            ),
            ranks=tuple(chosen),
            ceiling_ns=ceiling,
            edit=edit,
            edit_text="memory comes from the cache: no driver call allocates or frees",
            proof=(
                f"On rank {worst[0]} these calls take {worst[2]:.1f} ms a step; the GPU is idle for "
                f"{worst[3]:.1f} ms of it."
            ),
            rival="Not a slow launch loop. The time lies in the allocating and freeing calls.",
            evidence=(
                Evidence(
                    title="Calls that allocate or free GPU memory",
                    columns=[
                        "rank",
                        "calls a step",
                        "ms in them a step",
                        "ms of it with an idle GPU",
                        "frees in all",
                        "of them inside an operator",
                    ],
                    rows=rows,
                ),
            ),
            ranges=tuple(
                piece
                for number, call in chosen.items()
                for piece in context.ranges(
                    number,
                    context.study.ranks[number].rank.calls.start_ns[call],
                    context.study.ranks[number].rank.calls.end_ns[call],
                    "driver allocates or frees",
                )[:6]
            ),
            actions=(shorter, empties) if retries else (empties, shorter),
            mean=rare,
        )
    ]


def _device_memory(rank: Rank) -> BoolArray:
    """Return which calls of launching threads allocate or free device memory."""
    calls = rank.calls
    host = np.array([any(part in text for part in _HOST_MEMORY) for text in rank.names], np.bool_)
    found: BoolArray = (
        np.isin(calls.kind, (CallKind.ALLOC, CallKind.FREE))
        & ~host[calls.name]
        & np.isin(calls.thread, launching_threads(rank))
    )
    return found


def _inside_operators(rank: Rank, call: Int64Array) -> int:
    """Return how many calls lie inside an operator: there the allocator made room for it."""
    events = rank.events
    rows = events.category == HostCategory.OPERATOR
    busy = intervals.union(events.start_ns[rows], events.end_ns[rows])
    return int(np.sum(Context.starts_in(rank.calls.start_ns[call], busy)))


RULE = Rule(
    code="MEM001",
    name="allocator-churn",
    kind="fault",
    status="stable",
    needs="CUDA runtime calls of the launching threads",
    find=find,
)
