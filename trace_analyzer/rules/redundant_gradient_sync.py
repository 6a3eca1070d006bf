"""COMM005 redundant-gradient-sync.

## What it finds
A step accumulates gradients over several micro-batches, and reduces them over ranks after each one,
although only the sum is needed, once, before the optimizer.

## Why it costs
The reductions of all micro-batches but the last are wasted: their transfer, what they slow on the
GPU beside them, and the host's work of filling buckets and launching. Ranks meet after every micro-batch instead of once a
step, so that whoever is late for a moment is waited for.

## How it is measured
The large all-reduces (DDP) or reduce-scatters (FSDP) of a step are one sequence, repeated once a
forward pass. In the replay those of all micro-batches but the last are gone, with their launches and
with what the host does for them (behind every accumulation of a gradient in DDP, in
`FSDP::post_backward_reduce` in FSDP2; nsys shows neither, so that less is taken out there).

## When it is wrong
FSDP that keeps gradients sharded must reduce them at once, or hold them whole: without the
reductions it needs more memory. Programs that step the optimizer after every micro-batch accumulate
nothing.

## What to do
DDP: run all micro-batches but the last inside `model.no_sync()`. FSDP2:
`model.set_requires_gradient_sync(last)` before each backward. FSDP1: `model.no_sync()`. Accelerate
and Lightning do it by their own settings for accumulation.

## References
PyTorch documentation of DistributedDataParallel.no_sync and of
`fully_shard.set_requires_gradient_sync`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.gradient_sync import GradientSync, early_hooks, gradient_sync
from trace_analyzer.findings import Evidence
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule
from trace_analyzer.schema import Int64Array, is_na

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit


def find(context: Context) -> Answer:
    """Return one cause for all ranks that reduce their gradients more than once a step."""
    found: dict[int, GradientSync] = {}
    for number, item in context.ranks.items():
        sync = gradient_sync(item.rank, item.steps, item.steady)
        if sync is not None:
            found[number] = sync
    if not found:
        return NotApplicable(
            reason="no rank reduces gradients the same way in every step",
            needs="steps with large all-reduces or reduce-scatters",
        )
    repeated = {number: sync for number, sync in found.items() if sync.times > 1}
    if not repeated:
        return Passed(reason="gradients are reduced once a step")
    times = max(sync.times for sync in repeated.values())
    early = {number: sync.early for number, sync in repeated.items()}
    hooks = {
        number: early_hooks(context.ranks[number].rank, context.ranks[number].steps, sync)
        for number, sync in repeated.items()
    }
    rows, ceiling = _table(context, repeated, early)
    sharded = any(_is_sharded(context, number, rows) for number, rows in early.items())

    def edit(change: Edit) -> None:
        for number, operations in early.items():
            behind = context.launched_in(number, hooks[number])
            change.remove(number, np.union1d(operations, behind))
            change.host(number, hooks[number])

    return [
        Cause(
            title=(
                f"Gradients are reduced after each of {times} micro-batches on "
                f"{rank_list(repeated)}, although once a step is enough."
            ),
            ranks=tuple(repeated),
            ceiling_ns=ceiling,
            edit=edit,
            edit_text="gradients are reduced after the last micro-batch only",
            proof=(
                f"The same reductions run {times} times a step, once a forward pass; "
                f"the first {times - 1} move data for {ceiling / 1e6:.1f} ms a step that nothing hides."
            ),
            rival="Not slow links. The same bytes travel several times.",
            limits=(
                "Without reducing at once, FSDP keeps whole gradients in memory between micro-batches."
                if sharded
                else ""
            ),
            evidence=(
                Evidence(
                    title="Reductions of gradients",
                    columns=[
                        "rank",
                        "a step",
                        "repeated",
                        "MB a step",
                        "ms exposed and not needed",
                    ],
                    rows=rows,
                ),
            ),
            ranges=tuple(
                piece
                for number, operations in early.items()
                for piece in context.ranges(
                    number,
                    context.study.ranks[number].rank.operations.start_ns[operations],
                    context.study.ranks[number].rank.operations.end_ns[operations],
                    "gradients reduced too early",
                )[:4]
            ),
            actions=(
                (
                    "DDP: `with model.no_sync() if not last else nullcontext():` around forward and "
                    "backward of every micro-batch."
                ),
                "FSDP2: `model.set_requires_gradient_sync(last)` before each backward.",
                (
                    "Accelerate: `with accelerator.accumulate(model):` and "
                    "`gradient_accumulation_steps` set to the real number."
                ),
            ),
            explains_late=False,
        )
    ]


def _table(
    context: Context, syncs: dict[int, GradientSync], early: dict[int, Int64Array]
) -> tuple[list[list[str | float | int | None]], float]:
    """Return a row a rank, and the longest time of early reductions that nothing hides, ns a step."""
    rows: list[list[str | float | int | None]] = []
    ceiling = 0.0
    for number, sync in syncs.items():
        if not len(sync.step):  # reductions of this rank lie outside its steps
            continue
        item = context.study.ranks[number]
        operations, table = item.rank.operations, item.rank.collectives
        chosen = early[number][context.in_steady(number)[early[number]]]
        cross = context.study.cross
        moving = operations.start_ns if cross is None else cross.ranks[number].transfer_start_ns
        start = np.where(is_na(moving), operations.start_ns, moving)[chosen]
        span = intervals.union(start, operations.end_ns[chosen])
        exposed = context.per_step_ns(number, intervals.subtract(span, item.busy.compute).total)
        ceiling = max(ceiling, exposed)
        first = sync.operation[sync.step == sync.step[0]]
        collective = operations.collective[first]
        size = None
        if len(table) and bool(np.all(collective >= 0)):
            size = round(float(table.message_bytes[collective].sum()) / 1e6, 1)
        rows.append([number, len(first), sync.times, size, round(exposed / 1e6, 3)])
    return rows, ceiling


def _is_sharded(context: Context, number: int, operations: Int64Array) -> bool:
    rank = context.study.ranks[number].rank
    names = {rank.names[name] for name in rank.operations.name[operations].tolist()}
    return any("ReduceScatter" in name for name in names)


RULE = Rule(
    code="COMM005",
    name="redundant-gradient-sync",
    kind="fault",
    status="stable",
    needs="steps with large all-reduces or reduce-scatters",
    find=find,
)
