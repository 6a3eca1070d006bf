"""RANK003 unequal-work.

## What it finds
Ranks that have more to compute than their peers: kernels that the others do not launch, or the same
kernels over larger tensors (a larger batch, longer sequences). Also work that differs from step to
step, so that another rank has most every time.

## Why it costs
A collective waits for the last rank. Every step is as long as that of the rank with most to do.

## How it is measured
The kernels of ranks are lined up by name, step by step, and their launch sizes compared. The replay
takes out what only one rank launches; where sizes differ, it gives the rank its peers' durations;
where the largest changes from step to step, every rank takes the mean.

## When it is wrong
Pipeline stages and experts do different work by design. Where the work must be done by somebody,
sharing it out gives back less than its removal: each of n ranks takes an n-th of it.

## What to do
Give every rank the same number of samples or tokens: a sampler that pads, buckets by length or packs
sequences. Move work of one rank (metrics, sampling) out of the step.

## References
PyTorch: `DistributedSampler`, uneven inputs and `Join`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer.analyses.unequal_work import LEAST_LARGER, Comparison, Work, compare, works
from trace_analyzer.findings import Evidence
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.kernel_sets import listed, marked, take_out, worst
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.schema import Int64Array

# Ranks of which less lines up do different things by design.
LEAST_ALIKE = 0.5
# In how many steps of ten a rank must have more than its peers to have more in general.
MOST_STEPS = 0.8


def find(context: Context) -> Answer:
    """Return causes for kernels that only some ranks launch, and for larger ones."""
    if len(context.ranks) < 2:
        return NotApplicable(reason="one rank was recorded", needs="all ranks of the run")
    work = works(context.ranks)
    against = {number: _reference(work, number) for number in work}
    found = {number: compare(work[number], work[peer]) for number, peer in against.items()}
    alike = min(_alike(work[number], found[number]) for number in work)
    if alike < LEAST_ALIKE:
        return NotApplicable(
            reason=f"only {100 * alike:.0f} % of the kernels are alike: ranks differ by design",
            needs="ranks that do the same work",
        )
    causes: list[Cause] = []
    surplus = {number: item.surplus for number, item in found.items() if len(item.surplus)}
    if surplus:
        causes.append(_surplus(context, surplus))
    larger = _larger(context, found)
    if larger is not None:
        causes.append(larger)
    if not causes:
        count = sum(item.lined_up for item in found.values())
        return Passed(reason=f"{count} kernels line up between ranks, with equal launch sizes")
    return causes


def _reference(work: dict[int, Work], number: int) -> int:
    """Return the peer in the middle: with the (lower) median number of kernels, then of blocks."""
    peers = [other for other in work if other != number]
    peers.sort(key=lambda other: (len(work[other].row), int(work[other].blocks.sum()), other))
    return peers[(len(peers) - 1) // 2]


def _alike(own: Work, found: Comparison) -> float:
    return found.lined_up / max(len(own.row), found.lined_up + found.missing, 1)


def _surplus(context: Context, surplus: dict[int, Int64Array]) -> Cause:
    number, ceiling = worst(context, surplus)
    count = len(surplus[number]) / context.steady_count(number)

    def edit(change: Edit) -> None:
        for rank, rows in surplus.items():
            take_out(context, change, rank, rows)

    return Cause(
        title=(
            f"{rank_list(surplus).capitalize()} {_verb(surplus, 'computes', 'compute')} "
            f"{count:.0f} kernels a step that the peers do not."
        ),
        ranks=tuple(surplus),
        ceiling_ns=ceiling,
        edit=edit,
        edit_text="these kernels are not launched",
        proof=(
            f"Lined up with its peers', rank {number}'s kernels leave {count:.0f} a step over, which "
            f"take {ceiling / 1e6:.1f} ms."
        ),
        rival="Not a slow GPU. The kernels that ranks have in common are compared one by one.",
        limits=_shared_out(context),
        evidence=(
            listed(
                context,
                number,
                surplus[number],
                None,
                f"Kernels that only rank {number} launches",
            ),
        ),
        ranges=marked(context, surplus, "only this rank"),
        actions=(
            "Look at what launches the marked kernels; run it on all ranks, or outside the step.",
            "Let every rank make the same number of micro-batches of the same size.",
        ),
    )


def _larger(context: Context, found: dict[int, Comparison]) -> Cause | None:
    """Return the cause of larger launches, None where there are none."""
    sized = {number: item for number, item in found.items() if item.resized}
    always = [
        number
        for number, item in sized.items()
        if item.blocks_more >= LEAST_LARGER and _more_often(item) >= MOST_STEPS
    ]
    if always and len(always) < len(found):
        return _always_larger(context, found, always)
    spread = max((_spread(item) for item in sized.values()), default=0.0)
    if always or spread < LEAST_LARGER:
        return None
    return _in_turn(context, found)


def _more_often(item: Comparison) -> float:
    """Return in which share of steps the rank has more blocks than its reference."""
    return float(np.mean([more > 0 for more in item.step_blocks.values()]))


def _spread(item: Comparison) -> float:
    """Return the mean absolute difference of a step's blocks, as a share of them."""
    if not item.blocks:
        return 0.0
    return float(np.mean([abs(more) for more in item.step_blocks.values()])) / item.blocks


def _always_larger(context: Context, found: dict[int, Comparison], always: list[int]) -> Cause:
    number = max(always, key=lambda rank: found[rank].blocks_more)
    times = {rank: _compute_ns(context, rank) for rank in found}
    peers = [times[rank] for rank in found if rank not in always]
    ceiling = max(max(times[rank] for rank in always) - float(np.mean(peers)), 0.0)
    more = 100 * found[number].blocks_more

    def edit(change: Edit) -> None:
        for rank in always:
            change.like_peers(rank, device=True)

    return Cause(
        title=(
            f"{rank_list(always).capitalize()} {_verb(always, 'has', 'have')} larger tensors to "
            f"compute than the peers: the same kernels with {more:.0f} % more blocks."
        ),
        ranks=tuple(always),
        ceiling_ns=ceiling,
        edit=edit,
        edit_text=f"{rank_list(always)} computes as long as the peers",
        proof=(
            f"Kernels compute for {times[number] / 1e6:.1f} ms a step on rank {number}, "
            f"{float(np.mean(peers)) / 1e6:.1f} ms on its peers; {found[number].resized} of "
            f"{found[number].lined_up} launches are of another size."
        ),
        rival="Not a slow GPU. The launches themselves are larger.",
        limits=_shared_out(context),
        evidence=(_table(found, times),),
        actions=(
            (
                "Give all ranks equal batches: `drop_last=True`, or `DistributedSampler`, which "
                "pads the last one."
            ),
            (
                "With sequences of different length, share out tokens instead of samples: bucket by "
                "length, or pack sequences."
            ),
        ),
    )


def _in_turn(context: Context, found: dict[int, Comparison]) -> Cause:
    times = {rank: _compute_ns(context, rank) for rank in found}
    ceiling = _imbalance_ns(context)

    def edit(change: Edit) -> None:
        change.balanced()

    return Cause(
        title=(
            "Ranks compute tensors of different size, and another rank has the largest from step "
            "to step."
        ),
        ranks=tuple(found),
        ceiling_ns=ceiling,
        edit=edit,
        edit_text="in every step all ranks compute as long as their mean",
        proof=(
            f"In a step the rank with most to do computes {ceiling / 1e6:.1f} ms longer than the "
            "ranks' mean."
        ),
        rival="Not one slow rank. None has the largest launches in most steps.",
        evidence=(_table(found, times),),
        mean=True,
        actions=(
            (
                "Share out tokens or pixels instead of samples: bucket by length, pack sequences, "
                "or sort a global batch so that ranks get equal amounts."
            ),
            "Pad or crop all samples of a step to one size on all ranks.",
        ),
        explains_late=False,
    )


def _compute_ns(context: Context, number: int) -> float:
    item = context.study.ranks[number]
    return context.per_step_ns(number, int(item.parts.compute_ns[item.steady].sum()))


def _imbalance_ns(context: Context) -> float:
    """Return by how much the most computing rank exceeds the ranks' mean, mean over steps, ns."""
    steps = context.study.steady.used
    table = np.array(
        [
            [
                float(item.parts.compute_ns[np.flatnonzero(item.steps.index == k)].sum())
                for k in steps
            ]
            for item in context.ranks.values()
        ]
    )
    return float(np.mean(table.max(axis=0) - table.mean(axis=0))) if table.size else 0.0


def _table(found: dict[int, Comparison], times: dict[int, float]) -> Evidence:
    return Evidence(
        title="What ranks compute, against a peer in the middle",
        columns=["rank", "ms computing a step", "launches of another size", "% more blocks"],
        rows=[
            [rank, round(times[rank] / 1e6, 3), item.resized, round(100 * item.blocks_more, 1)]
            for rank, item in found.items()
        ],
    )


def _verb(ranks: Collection[int], one: str, many: str) -> str:
    return one if len(ranks) == 1 else many


def _shared_out(context: Context) -> str:
    return (
        f"If the work must be done, sharing it out over {len(context.ranks)} ranks gives back "
        f"{100 * (1 - 1 / len(context.ranks)):.0f} % of this."
    )


RULE = Rule(
    code="RANK003",
    name="unequal-work",
    kind="fault",
    status="stable",
    needs="the traces of all ranks",
    find=find,
)
