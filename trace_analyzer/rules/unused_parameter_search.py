"""COMM006 unused-parameter-search.

## What it finds
DDP walks through the graph of every forward pass to find parameters that got no gradient, because it
was built with `find_unused_parameters=True`.

## Why it costs
The walk takes host time at the end of forward, when backward could be launched already, and one more
small all-reduce tells all ranks what was found. Where the GPU has enough queued, it costs nothing.

## How it is measured
DDP's range of the search, and the small all-reduces and copies behind the accumulation of gradients.
In the replay both are gone. The effect is often nil; only what the step gains counts.

## When it is wrong
A model with parameters that take no part in some steps needs the search, or ends in an error. nsys
records no range of it.

## What to do
Set `find_unused_parameters=False`, DDP's default. Where unused parameters are always the same, use
`static_graph=True`.

## References
PyTorch distributed notes: DDP and unused parameters; DistributedDataParallel, `static_graph`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.gradient_sync import after_accumulation
from trace_analyzer.analyses.host_syncs import SMALL_COPY_BYTES, small_collectives
from trace_analyzer.findings import Evidence
from trace_analyzer.intervals import Intervals
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule
from trace_analyzer.schema import Int64Array
from trace_analyzer.tables import OperationKind

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit

_SEARCH = re.compile(r"search_unused_parameters$")
_FORWARD = re.compile(r"^DistributedDataParallel\.forward$")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Search:
    """What the search takes on one rank: host time, and operations that tell what was found."""

    host: Intervals
    operations: Int64Array
    host_ns: float
    idle_ns: float


def find(context: Context) -> Answer:
    """Return one cause for all ranks on which DDP searches."""
    found: dict[int, _Search] = {}
    ddp = False
    for number, item in context.ranks.items():
        rank = item.rank
        ddp |= bool(context.named(number, _FORWARD).any())
        rows = np.flatnonzero(context.named(number, _SEARCH)[rank.events.name])
        if not len(rows):
            continue
        host = intervals.union(rank.events.start_ns[rows], rank.events.end_ns[rows])
        inside = intervals.intersect(host, context.host_windows(number))
        found[number] = _Search(
            host=host,
            operations=_told(context, number),
            host_ns=context.per_step_ns(number, inside.total),
            idle_ns=context.idle_ns(number, host),
        )
    if not found and not ddp:
        return NotApplicable(
            reason="no range of DDP was recorded", needs="a trace of torch.profiler"
        )
    if not found:
        return Passed(reason="DDP does not search for unused parameters")
    worst = max(found.values(), key=lambda item: item.host_ns)
    idle = max(item.idle_ns for item in found.values())

    def edit(change: Edit) -> None:
        for number, search in found.items():
            change.host(number, search.host)
            change.remove(number, search.operations)

    return [
        Cause(
            title=f"DDP searches for unused parameters in every step on {rank_list(found)}.",
            ranks=tuple(found),
            ceiling_ns=worst.host_ns,
            edit=edit,
            edit_text="DDP does not search for unused parameters",
            proof=(
                f"The search takes {worst.host_ns / 1e6:.1f} ms of host time a step; the GPU is idle "
                f"for {idle / 1e6:.1f} ms of it."
            ),
            rival="Not a slow forward pass. The time is in DDP's own range.",
            limits="A model with parameters that take no part in some steps needs the search.",
            evidence=(
                Evidence(
                    title="DDP's search",
                    columns=["rank", "host ms a step", "of them GPU idle", "operations"],
                    rows=[
                        [
                            number,
                            round(item.host_ns / 1e6, 3),
                            round(item.idle_ns / 1e6, 3),
                            len(item.operations),
                        ]
                        for number, item in found.items()
                    ],
                ),
            ),
            ranges=tuple(
                piece
                for number, item in found.items()
                for piece in context.ranges(
                    number, item.host.start, item.host.end, "DDP searches the graph"
                )[:4]
            ),
            actions=(
                "Set `find_unused_parameters=False` in DistributedDataParallel.",
                "Where the same parameters are unused in every step, set `static_graph=True`.",
            ),
            explains_late=len(found) < len(context.ranks),
        )
    ]


def _told(context: Context, number: int) -> Int64Array:
    """Return the small all-reduces that DDP launches behind gradients, and the copies before them."""
    rank = context.study.ranks[number].rank
    start, end = after_accumulation(rank)
    behind = context.launched_in(number, intervals.union(start, end))
    operations = rank.operations
    reduced = behind[small_collectives(rank)[behind]]
    small = (operations.kind[behind] == OperationKind.MEMCPY) & (
        operations.bytes[behind] <= SMALL_COPY_BYTES
    )
    copies = behind[small]
    # The copy is launched right before its all-reduce, on the same thread.
    call, before = operations.launch[reduced], operations.launch[copies]
    order = np.argsort(before, kind="stable")
    at = np.searchsorted(before[order], call) - 1
    return np.union1d(reduced, copies[order][at[at >= 0]]).astype(np.int64)


RULE = Rule(
    code="COMM006",
    name="unused-parameter-search",
    kind="fault",
    status="experimental",
    needs="a trace of torch.profiler",
    find=find,
)
