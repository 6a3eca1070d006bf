"""GPU003 low-occupancy.

## What it finds
Kernels that cannot use the whole GPU because of the sizes they are given: matrix products whose
rows are not aligned for tensor cores, launches with fewer blocks than the GPU has multiprocessors,
and products whose last wave of blocks is nearly empty.

## Why it costs
Unaligned rows force the library to kernels that load two bytes at a time. Multiprocessors without a
block do nothing until the kernel ends.

## How it is measured
Alignment stands in the names of kernels ("align1"); such products are divided by the ratio measured
on the same kind of GPU, or by two. Blocks and what fits on a multiprocessor follow from the launch
shape. A product with an empty last wave becomes shorter by the empty share; a kernel with few
blocks by as much, but by no more than half, because memory may decide instead.

## When it is wrong
Kernels of other streams may fill the gaps. Kernels bound by memory do not gain by full waves. Tiny
kernels have few blocks by nature; those below 20 µs are left out, and so is what is slow only because
convolutions keep their channels first, which is another rule's.

## What to do
Make sizes multiples of 64 or 128: pad the vocabulary and hidden sizes. For few blocks, larger
batches, or another implementation of the operation.

## References
NVIDIA: matrix multiplication background, tensor core requirements, tile and wave quantization.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer.analyses.channels_first import channels_first
from trace_analyzer.analyses.contention import matrix_names
from trace_analyzer.analyses.launch_fill import device_of, fill, with_blocks
from trace_analyzer.analyses.matrix_rates import alignment_measured, alignment_speedup, alignments
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.kernel_sets import Rows, computing, listed, marked, saved_ns, worst
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.schema import Float64Array, Int64Array

SHORTEST_NS = 5_000  # a product takes no less, however well it is shaped
# Kernels below this have few blocks because there is little to do.
LEAST_NS = 20_000
# From this share of unused multiprocessors on it is worth another shape.
LEAST_UNUSED = 0.25
# What a kernel with few blocks keeps at least: with more blocks memory decides.
FEW_BLOCKS_KEEP = 0.5


def find(context: Context) -> Answer:
    """Return a cause for unaligned products, and one for launches that leave much of the GPU unused."""
    unaligned: dict[int, Int64Array] = {}
    unfilled: dict[int, Int64Array] = {}
    after: dict[int, Float64Array] = {}
    known = False
    for number, item in context.ranks.items():
        rank, operations = item.rank, item.rank.operations
        length = (operations.end_ns - operations.start_ns).astype(np.float64)
        left = length.copy()
        computes = computing(context, number)
        # Slow because of their layout, whose fix is another rule's.
        computes[channels_first(rank).row] = False
        matrix = computes & matrix_names(rank)[operations.name]
        aligned = alignments(rank.names)[operations.name]
        badly = matrix & (aligned > 0) & (aligned < 16)
        factor = np.array([alignment_speedup(int(value), rank.devices) for value in aligned])
        left[badly] = np.minimum(np.maximum(length / factor, SHORTEST_NS), length)[badly]
        device = device_of(rank)
        empty = np.zeros(len(length), dtype=np.bool_)
        if device is not None:
            known = True
            config = operations.launch_config
            share = np.ones(len(length))
            launched = config >= 0
            # Waves matter where mathematics decides; elsewhere only whether there are blocks at all.
            share[launched] = np.where(
                matrix[launched],
                fill(rank, device)[config[launched]],
                with_blocks(rank, device)[config[launched]],
            )
            empty = computes & ~badly & (length >= LEAST_NS) & (share <= 1.0 - LEAST_UNUSED)
            few = np.maximum(share, FEW_BLOCKS_KEEP)
            left[empty] = (length * np.where(matrix, share, few))[empty]
        after[number] = left
        for chosen, mask in ((unaligned, badly), (unfilled, empty)):
            rows = np.flatnonzero(mask)
            if bool(context.in_steady(number)[rows].any()):
                chosen[number] = rows
    causes: list[Cause] = []
    if unaligned:
        causes.append(_unaligned(context, unaligned, after))
    if unfilled:
        causes.append(_unfilled(context, unfilled, after))
    if causes:
        return causes
    if not known:
        return NotApplicable(
            reason="no matrix kernel is unaligned, and the GPU's multiprocessors are not known",
            needs="the GPU's properties in the trace",
        )
    return Passed(
        reason="no matrix kernel is unaligned, and no long kernel leaves a quarter unused"
    )


def _shorter(
    context: Context, chosen: Rows, after: Mapping[int, Float64Array]
) -> Callable[[Edit], None]:
    def edit(change: Edit) -> None:
        for rank, rows in chosen.items():
            operations = context.study.ranks[rank].rank.operations
            length = np.maximum((operations.end_ns - operations.start_ns)[rows], 1)
            change.scale_duration(rank, rows, after[rank][rows] / length)

    return edit


def _unaligned(context: Context, chosen: Rows, after: Mapping[int, Float64Array]) -> Cause:
    number, busy = worst(context, chosen)
    rows = chosen[number]
    saved = saved_ns(context, number, rows, after[number][rows])
    measured = _measured(context, number, rows)
    return Cause(
        title=(
            f"Matrix products with unaligned sizes take {busy / 1e6:.1f} ms a step "
            f"on {rank_list(chosen)}."
        ),
        ranks=tuple(chosen),
        ceiling_ns=busy,
        edit=_shorter(context, chosen, after),
        edit_text="these products have aligned sizes",
        proof=(
            "Their names say that their rows are not aligned to 16 bytes. With sizes in multiples of 8 "
            f"the same products take about {(busy - saved) / 1e6:.1f} ms."
        ),
        rival="Not the number format. These kernels use tensor cores, a few bytes at a time.",
        limits=(
            "The gain is the least ratio that was measured for such kernels on H200, not of these shapes."
            if measured
            else "The gain takes aligned products to be twice as fast, which was not measured for these."
        ),
        confidence="high" if measured else "medium",
        confidence_reason=(
            "" if measured else "how much faster these products are when aligned was not measured"
        ),
        evidence=(
            listed(
                context,
                number,
                rows,
                after[number][rows],
                f"Matrix kernels for unaligned sizes on rank {number}",
            ),
        ),
        ranges=marked(context, chosen, "unaligned product"),
        actions=(
            (
                "Pad the vocabulary to a multiple of 64 (50257 becomes 50304), and ignore the added "
                "tokens in the loss."
            ),
            (
                "Make every size that a `Linear` sees a multiple of 8 in bfloat16 (64 is better): "
                "hidden size, head size, number of classes, length of padded sequences."
            ),
        ),
        explains_late=len(chosen) < len(context.ranks),
    )


def _measured(context: Context, number: int, rows: Int64Array) -> bool:
    """Return whether most of the unaligned time has a ratio that was measured."""
    rank = context.study.ranks[number].rank
    size = alignments(rank.names)[rank.operations.name[rows]]
    length = (rank.operations.end_ns - rank.operations.start_ns)[rows]
    known = np.array([alignment_measured(int(value), rank.devices) for value in size], np.bool_)
    return bool(length[known].sum() > length.sum() / 2)


def _unfilled(context: Context, chosen: Rows, after: Mapping[int, Float64Array]) -> Cause:
    number, busy = worst(context, chosen)
    rows = chosen[number]
    saved = saved_ns(context, number, rows, after[number][rows])
    device = device_of(context.study.ranks[number].rank)
    count = device.sm_count if device is not None and device.sm_count else 0
    return Cause(
        title=(
            f"Kernels that leave much of the GPU unused take {busy / 1e6:.1f} ms a step "
            f"on {rank_list(chosen)}."
        ),
        ranks=tuple(chosen),
        ceiling_ns=busy,
        edit=_shorter(context, chosen, after),
        edit_text="these kernels fill all multiprocessors",
        proof=(
            f"Their blocks do not fill {count} multiprocessors; {saved / 1e6:.1f} ms a step go by "
            "with a quarter or more of them idle."
        ),
        rival="Not too little work at once. Each of these kernels takes 20 µs or more.",
        limits="Kernels that memory decides gain less; what runs beside them is not considered.",
        evidence=(
            listed(
                context,
                number,
                rows,
                after[number][rows],
                f"Kernels with few blocks or an empty last wave on rank {number}",
            ),
        ),
        ranges=marked(context, chosen, "GPU partly unused"),
        actions=(
            (
                "For matrix products, change batch or layer sizes so that the number of tiles is a "
                "multiple of the multiprocessors."
            ),
            (
                "For reductions with few blocks (gradients of norms and embeddings), compile the "
                "module or use another implementation of the operation."
            ),
        ),
        confidence="medium",
        confidence_reason="what fills the GPU is concluded from launch shapes",
        explains_late=len(chosen) < len(context.ranks),
    )


RULE = Rule(
    code="GPU003",
    name="low-occupancy",
    kind="opportunity",
    status="stable",
    needs="names and launch shapes of kernels; the GPU's properties",
    find=find,
)
