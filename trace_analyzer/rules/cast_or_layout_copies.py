"""GPU005 cast-or-layout-copies.

## What it finds
Kernels that compute nothing: tensors copied into another memory layout, and weights that autocast
casts again for every micro-batch.

## Why it costs
Such a copy reads and writes the whole tensor, and its launch takes the host as long as that of any
kernel. What uses the tensor could often read it as it is.

## How it is measured
Layout copies by the names of their kernels: strided copies of one type, transpositions around
convolutions, and device-to-device copies made by `contiguous` or `clone`. Casts of weights by their
backward node, behind which a gradient is accumulated; a cast is repeated if an earlier forward pass
of the same step made the same ones. The replay takes these kernels out, with the host time of the
operators that launch nothing else.

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
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer.analyses.weight_casts import repeated_casts
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.kernel_sets import (
    Rows,
    computing,
    kernel_codes,
    listed,
    marked,
    take_out,
    worst,
)
from trace_analyzer.rules.rule import Answer, Cause, Passed, Rule
from trace_analyzer.tables import HostCategory, OperationKind

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.model import Rank
    from trace_analyzer.schema import BoolArray, Int64Array

# A strided copy is PyTorch's plain `elementwise_kernel` around its copy functor (contiguous copies are
# "unrolled_" and "vectorized_"); since version 2 it says "nocast" where the type stays.
_STRIDED = re.compile(r"(?<![a-z]_)\belementwise_kernel<.*direct_copy_kernel")
_ONE_TYPE = "gpu_kernel_impl_nocast"
_TRANSPOSED = re.compile(
    r"nchwToNhwc|nhwcToNchw|tensorTransformGeneric|genericTranspose|transpose_read|batched_transpose"
    r"|\bpermute_?kernel",
    re.IGNORECASE,
)
_CONVOLUTION = re.compile(r"nchwToNhwc|nhwcToNchw|tensorTransformGeneric", re.IGNORECASE)
_COPYING = ("aten::contiguous", "aten::clone")


def find(context: Context) -> Answer:
    """Return a cause for layout copies, and one for weights cast again."""
    layout: dict[int, Int64Array] = {}
    casts: dict[int, Int64Array] = {}
    for number, item in context.ranks.items():
        copied = _layout_copies(context, number)
        if bool(context.in_steady(number)[copied].any()):
            layout[number] = copied
        again = repeated_casts(item.rank, item.steps, kernel_codes(context, number))
        if bool(context.in_steady(number)[again].any()):
            casts[number] = again
    causes: list[Cause] = []
    if layout:
        causes.append(_layout_cause(context, layout))
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
    operations, events = rank.operations, rank.events
    device = np.fromiter(("DtoD" in text for text in rank.names), np.bool_, len(rank.names))
    copies = (operations.kind == OperationKind.MEMCPY) & device[operations.name]
    found = np.zeros(len(operations), dtype=np.bool_)
    rows = np.flatnonzero(copies & (operations.launch >= 0))
    asked = np.fromiter((text in _COPYING for text in rank.names), np.bool_, len(rank.names))
    outer = asked[events.name] & (events.category == HostCategory.OPERATOR)
    if not len(rows) or not bool(outer.any()):
        return found
    thread = rank.calls.thread[operations.launch[rows]]
    begun = rank.calls.start_ns[operations.launch[rows]]
    for value in np.unique(thread).tolist():
        here = np.flatnonzero(outer & (events.thread == value))
        mine = thread == value
        reach = np.maximum.accumulate(events.end_ns[here]) if len(here) else events.end_ns[here]
        at = np.searchsorted(events.start_ns[here], begun[mine], side="right") - 1
        found[rows[mine]] = (at >= 0) & (
            begun[mine] < reach[np.maximum(at, 0)] if len(here) else False
        )
    return found


def _without(context: Context, chosen: Rows) -> Callable[[Edit], None]:
    def edit(change: Edit) -> None:
        for rank, rows in chosen.items():
            take_out(context, change, rank, rows)

    return edit


def _layout_cause(context: Context, chosen: Rows) -> Cause:
    number, busy = worst(context, chosen)
    rows = chosen[number]
    count = context.per_step_ns(number, int(context.in_steady(number)[rows].sum()))
    rank = context.study.ranks[number].rank
    around = context.named(number, _CONVOLUTION)[rank.operations.name[rows]]
    general = (
        "Remove `.contiguous()` where the next operation takes strides; keep one layout from "
        "block to block instead of transposing back and forth."
    )
    channels = (
        "For convolutions: `model.to(memory_format=torch.channels_last)` and the same for the "
        "input batch."
    )
    return Cause(
        title=(
            f"{count:.0f} kernels a step only copy tensors into another layout "
            f"on {rank_list(chosen)}."
        ),
        proof=f"They take {busy / 1e6:.1f} ms a step on rank {number} and compute nothing.",
        rival="Not casts of mixed precision. These kernels keep the type.",
        limits="Where an operation needs the other layout, its copy can only move, not go.",
        edit_text="these copies are not made",
        ranks=tuple(chosen),
        ceiling_ns=busy,
        edit=_without(context, chosen),
        evidence=(
            listed(context, number, rows, None, f"Copies into another layout on rank {number}"),
        ),
        ranges=marked(context, chosen, "layout copy"),
        explains_late=len(chosen) < len(context.ranks),
        actions=(channels, general) if bool(around.any()) else (general, channels),
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
