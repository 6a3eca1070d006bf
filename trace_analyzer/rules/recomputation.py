"""GPU006 recomputation.

## What it finds
Parts of the forward pass that run a second time inside the backward pass: activation checkpointing.

## Why it costs
The kernels of every checkpointed layer run twice, and the host launches them twice. That buys
memory; where memory is free, it buys nothing.

## How it is measured
The thread that launches the backward pass launches kernels in the same order, with the same launch
shapes, as the forward pass did: five in a row at least. The replay takes them out, with the host
time from the first to the last of each such part, and with what entering such a part costs the
forward pass. What its hooks cost inside other operators stays, so the gain is a low estimate where
the host decides.

## When it is wrong
The memory may be needed: without checkpointing the run may not fit. The trace does not say how much
is free. Recomputation inside compiled kernels, and backward passes that the program's own thread
launches, are not seen.

## What to do
Checkpoint fewer layers, as many as memory allows, or keep what is expensive to compute and
recompute the rest.

## References
PyTorch: `torch.utils.checkpoint`, selective activation checkpointing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trace_analyzer.analyses.recomputation import entering, recomputed
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.kernel_sets import (
    busy_ns,
    computing,
    kernel_codes,
    listed,
    marked,
    take_out,
    worst,
)
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.schema import Int64Array


def find(context: Context) -> Answer:
    """Return one cause for all ranks that compute activations again."""
    if not any(len(item.rank.calls) for item in context.ranks.values()):
        return NotApplicable(reason="no runtime calls were recorded", needs="CUDA runtime calls")
    chosen: dict[int, Int64Array] = {}
    for number, item in context.ranks.items():
        rows = recomputed(item.rank, item.steps, kernel_codes(context, number))
        if bool(context.in_steady(number)[rows].any()):
            chosen[number] = rows
    if not chosen:
        return Passed(reason="no part of the forward pass runs again in the backward pass")
    number, ceiling = worst(context, chosen)
    rows = chosen[number]
    count = context.per_step_ns(number, int(context.in_steady(number)[rows].sum()))
    total = _computing_ns(context, number)

    def edit(change: Edit) -> None:
        for rank, again in chosen.items():
            take_out(context, change, rank, again, runs=True)
            change.host(rank, entering(context.study.ranks[rank].rank))

    return [
        Cause(
            title=(
                f"{count:.0f} kernels of the forward pass run a second time in every backward pass "
                f"on {rank_list(chosen)}."
            ),
            ranks=tuple(chosen),
            ceiling_ns=ceiling,
            edit=edit,
            edit_text="activations are kept: nothing of the forward pass runs again",
            proof=(
                f"The backward pass repeats sequences of the forward pass for {ceiling / 1e6:.1f} ms "
                f"a step on rank {number}, {100 * ceiling / max(total, 1.0):.0f} % of all "
                "computing."
            ),
            rival=(
                "Not more micro-batches. The thread of the backward pass launches these kernels."
            ),
            limits="Kept activations need memory; the trace does not say how much is free.",
            evidence=(
                listed(context, number, rows, None, f"Kernels that run again on rank {number}"),
            ),
            ranges=marked(context, chosen, "forward pass again"),
            actions=(
                (
                    "Checkpoint fewer layers: see `torch.cuda.max_memory_allocated()`, and leave out "
                    "as many `checkpoint(...)` calls as the free memory allows."
                ),
                (
                    "Keep what is expensive: `checkpoint(layer, x, use_reentrant=False, "
                    "context_fn=...)` with `create_selective_checkpoint_contexts` that saves "
                    "matrix products and attention."
                ),
                "Spread parameters and optimizer over ranks (FSDP) to make room for activations.",
            ),
            explains_late=len(chosen) < len(context.ranks),
        )
    ]


def _computing_ns(context: Context, number: int) -> float:
    return busy_ns(context, number, computing(context, number).nonzero()[0])


RULE = Rule(
    code="GPU006",
    name="recomputation",
    kind="opportunity",
    status="stable",
    needs="runtime calls with their threads",
    find=find,
)
