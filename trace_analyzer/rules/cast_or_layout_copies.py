"""GPU005 cast-or-layout-copies.

## What it finds
Kernels that compute nothing: tensors copied into another memory layout, and weights that autocast
casts again for every micro-batch. Where convolutions transpose their operands, also what else is slow
because channels come first.

## Why it costs
Such a copy reads and writes the whole tensor, and its launch takes the host as long as that of any
kernel. What uses the tensor could often read it as it is. With channels first, batch norms give each
channel one block, which fills few multiprocessors, and 1x1 convolutions multiply unaligned rows.

## How it is measured
Layout copies by the names of their kernels: strided copies of one type, transpositions around
convolutions, and device-to-device copies made by `contiguous` or `clone`. Casts of weights by their
backward node, behind which a gradient is accumulated; a cast is repeated if an earlier forward pass
of the same step made the same ones. The replay takes these kernels out, with the host time of the
operators that launch nothing else. Batch norms with channels first, beside transposed convolutions,
take less with channels last: at worst as long for each time they go over a tensor as the transform
among them, at best as the element-wise kernel behind, which has the same tensor. The gain is the
middle, its interval reaches to both. Unaligned products of convolutions: between no gain and the
ratio of aligned ones.

## When it is wrong
Some kernels need a layout, and then the copy moves into them. Casts of activations are not counted:
mixed precision needs them. Recordings without operators (nsys) show no casts of weights.

## What to do
Remove `.contiguous()` and `.transpose()` pairs where the next operation takes strides; use
`channels_last` for convolutions; keep one autocast context around all micro-batches of a step, or
weights in bfloat16.

## References
PyTorch: autocast and its cache of weights; channels last memory format; FSDP2 mixed precision.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer.analyses.channels_first import CONVERSIONS, ChannelsFirst, channels_first
from trace_analyzer.analyses.operator_spans import launched_inside
from trace_analyzer.analyses.weight_casts import repeated_casts
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.kernel_sets import (
    Rows,
    busy_ns,
    computing,
    kernel_codes,
    listed,
    marked,
    saved_ns,
    take_out,
    worst,
)
from trace_analyzer.rules.rule import Answer, Cause, Passed, Rule
from trace_analyzer.tables import OperationKind

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.model import Rank
    from trace_analyzer.schema import BoolArray, Float64Array, Int64Array

# A strided copy is PyTorch's plain `elementwise_kernel` around its copy functor (contiguous copies are
# "unrolled_" and "vectorized_"); since version 2 it says "nocast" where the type stays.
_STRIDED = re.compile(r"(?<![a-z]_)\belementwise_kernel<.*direct_copy_kernel")
_ONE_TYPE = "gpu_kernel_impl_nocast"
_TRANSPOSED = re.compile(
    r"nchwToNhwc|nhwcToNchw|tensorTransformGeneric|genericTranspose|transpose_read|batched_transpose"
    r"|\bpermute_?kernel",
    re.IGNORECASE,
)
_COPYING = ("aten::contiguous", "aten::clone")


def find(context: Context) -> Answer:
    """Return a cause for layout copies, and one for weights cast again."""
    layout: dict[int, Int64Array] = {}
    first: dict[int, ChannelsFirst] = {}
    casts: dict[int, Int64Array] = {}
    for number, item in context.ranks.items():
        copied = _layout_copies(context, number)
        if bool(context.in_steady(number)[copied].any()):
            layout[number] = copied
            first[number] = channels_first(item.rank)
        again = repeated_casts(item.rank, item.steps, kernel_codes(context, number))
        if bool(context.in_steady(number)[again].any()):
            casts[number] = again
    causes: list[Cause] = []
    if layout:
        causes.append(_layout_cause(context, layout, first))
    if casts:
        causes.append(_cast_cause(context, casts))
    if not causes:
        return Passed(
            reason="no kernel only changes a layout, and no weight is cast twice in a step"
        )
    return causes


def _layout_copies(context: Context, number: int) -> Int64Array:
    rank = context.study.ranks[number].rank
    says_type = any(_ONE_TYPE in text for text in rank.names)

    def copies(text: str) -> bool:
        strided = _STRIDED.search(text) is not None and (_ONE_TYPE in text or not says_type)
        return strided or _TRANSPOSED.search(text) is not None

    names = context.named(number, copies)
    kernels = computing(context, number) & names[rank.operations.name]
    return np.flatnonzero(kernels | _copied_whole(rank))


def _copied_whole(rank: Rank) -> BoolArray:
    """Return which device-to-device copies `contiguous` or `clone` made."""
    operations = rank.operations
    device = np.fromiter(("DtoD" in text for text in rank.names), np.bool_, len(rank.names))
    rows = np.flatnonzero((operations.kind == OperationKind.MEMCPY) & device[operations.name])
    asked = np.fromiter((text in _COPYING for text in rank.names), np.bool_, len(rank.names))
    found = np.zeros(len(operations), dtype=np.bool_)
    found[rows[launched_inside(rank, rows, asked)]] = True
    return found


def _without(context: Context, chosen: Rows) -> Callable[[Edit], None]:
    def edit(change: Edit) -> None:
        for rank, rows in chosen.items():
            take_out(context, change, rank, rows)

    return edit


def _channels_last(
    context: Context,
    copies: Rows,
    first: Mapping[int, ChannelsFirst],
    after: Callable[[ChannelsFirst], Float64Array],
) -> Callable[[Edit], None]:
    """Return the edit: no copies, and kernels that channels in front make slow take less."""
    without = _without(context, copies)

    def edit(change: Edit) -> None:
        without(change)
        for number, slow in first.items():
            operations = context.study.ranks[number].rank.operations
            length = np.maximum((operations.end_ns - operations.start_ns)[slow.row], 1)
            change.scale_duration(number, slow.row, after(slow) / length)

    return edit


def _layout_cause(context: Context, chosen: Rows, first: Mapping[int, ChannelsFirst]) -> Cause:
    number, busy = worst(context, chosen)
    rows = chosen[number]
    count = context.per_step_ns(number, int(context.in_steady(number)[rows].sum()))
    rank = context.study.ranks[number].rank
    around = context.named(number, CONVERSIONS)[rank.operations.name[rows]]
    slow = first[number]
    most = saved_ns(context, number, slow.row, slow.shortest_ns)
    general = (
        "Remove `.contiguous()` where the next operation takes strides; keep one layout from "
        "block to block instead of transposing back and forth."
    )
    channels = (
        "For convolutions: `model.to(memory_format=torch.channels_last)` and the same for the "
        "input batch."
    )
    evidence = [listed(context, number, rows, None, f"Copies into another layout on rank {number}")]
    proof = f"They take {busy / 1e6:.1f} ms a step on rank {number} and compute nothing."
    limits = "Where an operation needs the other layout, its copy can only move, not go."
    edit = _without(context, chosen)
    between = None
    if most > 0:
        least = saved_ns(context, number, slow.row, slow.longest_ns)
        taken = busy_ns(context, number, slow.row)
        evidence.append(
            listed(
                context,
                number,
                slow.row,
                slow.middle_ns,
                f"Kernels that are slow because channels come first, on rank {number}",
            )
        )
        proof += (
            f" Batch norms and 1x1 convolutions with channels first take {taken / 1e6:.1f} ms; with "
            f"channels last, {least / 1e6:.1f} to {most / 1e6:.1f} ms less."
        )
        limits += (
            " What channels last saves beside the copies is the middle of two limits:"
            " kernels as fast as the fastest of these batch norms"
            + (", or as the element-wise kernels behind them." if slow.bounded else ", or no gain.")
        )
        edit = _channels_last(context, chosen, first, lambda item: item.middle_ns)
        between = (
            _channels_last(context, chosen, first, lambda item: item.longest_ns),
            _channels_last(context, chosen, first, lambda item: item.shortest_ns),
        )
    return Cause(
        title=(
            f"{count:.0f} kernels a step only copy tensors into another layout "
            f"on {rank_list(chosen)}"
            + (", and others are slow because channels come first." if most > 0 else ".")
        ),
        proof=proof,
        rival="Not casts of mixed precision. These kernels keep the type.",
        limits=limits,
        edit_text=(
            "channels come last: these copies are not made, and batch norms and 1x1 convolutions "
            "take less"
            if most > 0
            else "these copies are not made"
        ),
        ranks=tuple(chosen),
        ceiling_ns=busy + most,
        edit=edit,
        limits_of_gain=between,
        evidence=tuple(evidence),
        ranges=marked(context, chosen, "layout copy"),
        explains_late=len(chosen) < len(context.ranks),
        actions=(channels, general) if bool(around.any()) else (general, channels),
        confidence="medium" if most > 0 else "high",
        confidence_reason=(
            "what the kernels for channels last take is in no trace with channels first"
            if most > 0
            else ""
        ),
    )


def _cast_cause(context: Context, chosen: Rows) -> Cause:
    number, busy = worst(context, chosen)
    count = context.per_step_ns(number, int(context.in_steady(number)[chosen[number]].sum()))
    return Cause(
        title=(
            f"Autocast casts weights {count:.0f} times a step that the same step has cast before, "
            f"on {rank_list(chosen)}."
        ),
        proof=(
            f"Every forward pass of a step makes the same casts; those after the first take "
            f"{busy / 1e6:.1f} ms a step on rank {number}, and the host launches each."
        ),
        rival="Not casts of activations. A gradient is accumulated right behind each of these.",
        edit_text="each weight is cast once a step",
        ranks=tuple(chosen),
        ceiling_ns=busy,
        edit=_without(context, chosen),
        evidence=(
            listed(
                context,
                number,
                chosen[number],
                None,
                f"Casts of weights that repeat on rank {number}",
            ),
        ),
        ranges=marked(context, chosen, "weight cast again"),
        explains_late=len(chosen) < len(context.ranks),
        actions=(
            (
                "Enter autocast once a step: `with torch.autocast(...):` around all micro-batches, "
                "without `cache_enabled=False`."
            ),
            (
                "Or keep the weights in bfloat16; with FSDP2, "
                "`mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16)`."
            ),
        ),
    )


RULE = Rule(
    code="GPU005",
    name="cast-or-layout-copies",
    kind="opportunity",
    status="stable",
    needs="names of kernels; operators for casts of weights",
    find=find,
)
