"""GPU001 no-tensor-cores.

## What it finds
Matrix products, convolutions or attention that run in float32 or TF32, where half precision
(bfloat16 or float16) on tensor cores would do.

## Why it costs
Tensor cores multiply half-precision numbers 2 to 16 times as fast as the GPU's ordinary units
multiply float32, and the operands take half the memory.

## How it is measured
By the names of the kernels, which say how they multiply. Traces do not hold how many operations a
kernel does, so the replay divides its duration by the ratio of the hardware's rates, of which
products reach 80 %; without a known GPU by the least ratio of any. No kernel becomes shorter than
5 µs: small ones are bound by memory and launch. Element-wise kernels between them whose operation
runs in half precision elsewhere in the recording move half the bytes and take half the time; casts
of their tensors go. For operations that run in float32 only, which autocast may keep so, and for
those further away, the interval of the gain allows the same.

## When it is wrong
Some mathematics needs float32: losses, solvers, accumulations over long sequences. Casts that
half precision adds are not counted; nor is what smaller activations save in normalisation.

## What to do
Run forward pass and loss under autocast with bfloat16 (float16 before Ampere); where float32 must
stay, allow TF32. Look for modules that leave autocast.

## References
PyTorch: automatic mixed precision; `torch.set_float32_matmul_precision`. NVIDIA architecture
papers: rates of tensor cores by format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer.analyses.contention import matrix_names
from trace_analyzer.analyses.float_activations import FloatActivations, float_activations
from trace_analyzer.analyses.matrix_rates import Format, alignments, formats, speedup
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.kernel_sets import (
    computing,
    listed,
    marked,
    saved_ns,
    take_out,
    worst,
)
from trace_analyzer.rules.rule import Answer, Cause, Passed, Rule

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.schema import Float64Array, Int64Array

# What a small product takes whatever its format: start, a few waves of memory, end (measured).
SHORTEST_NS = 5_000
# From this share of the gain on, what may stay in float32 makes it less sure.
DOUBTED_SHARE = 0.25
_AMPERE = (8, 0)
_TEXT = {
    Format.FLOAT32: "float32 without tensor cores",
    Format.TF32_THREEFOLD: "float32 as three TF32 products",
    Format.TF32: "TF32",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Slow:
    """One rank's matrix kernels in slow formats, what each takes after the fix, and what is beside."""

    row: Int64Array
    after_ns: Float64Array
    beside: FloatActivations
    formats: str


def find(context: Context) -> Answer:
    """Return one cause for all ranks with slow number formats in matrix kernels."""
    found: dict[int, _Slow] = {}
    total = 0
    known = True
    for number, item in context.ranks.items():
        rank = item.rank
        operations = rank.operations
        matrix = computing(context, number) & matrix_names(rank)[operations.name]
        total += int(matrix.sum())
        kind = formats(rank.names)[operations.name]
        aligned = alignments(rank.names)[operations.name]
        # In half precision, rows that are not aligned load two bytes at a time: sizes come first.
        slow = matrix & (kind != Format.OTHER) & ((aligned == 0) | (aligned == 16))
        rows = np.flatnonzero(slow)
        if not len(rows) or not bool(context.in_steady(number)[rows].any()):
            continue
        length = (operations.end_ns - operations.start_ns)[rows].astype(np.float64)
        factor = np.array([speedup(Format(value), rank.devices) for value in kind[rows].tolist()])
        found[number] = _Slow(
            row=rows,
            after_ns=np.minimum(np.maximum(length / factor, SHORTEST_NS), length),
            beside=float_activations(rank, matrix, slow),
            formats=" and ".join(
                text for value, text in _TEXT.items() if bool(np.any(kind[rows] == value))
            ),
        )
        known = known and any(device.compute_capability for device in rank.devices)
    if not found:
        return Passed(
            reason=f"none of {total} matrix kernels is one of float32 or TF32 with aligned rows"
        )
    chosen = {rank: slow.row for rank, slow in found.items()}
    number, ceiling = worst(context, chosen)
    share, beside = found[number].formats, found[number].beside
    left = ceiling - saved_ns(context, number, chosen[number], found[number].after_ns)
    activations = np.concatenate([beside.halved, beside.cast])
    after = np.concatenate(
        [_halved(context, number, beside.halved), np.zeros(len(beside.cast), dtype=np.float64)]
    )
    saved = saved_ns(context, number, activations, after)
    doubt = np.concatenate([beside.doubtful, beside.doubtful_cast])
    doubted = saved_ns(context, number, doubt, _halved(context, number, doubt))
    unsure = doubted > DOUBTED_SHARE * (ceiling - left + saved)

    return [
        Cause(
            title=(
                f"Matrix kernels compute in {share} for {ceiling / 1e6:.1f} ms a step "
                f"on {rank_list(chosen)}."
            ),
            ranks=tuple(chosen),
            ceiling_ns=ceiling + saved,
            edit=_faster(context, found, casts=True, halved=True),
            limits_of_gain=(
                _faster(context, found),
                _faster(context, found, casts=True, halved=True, doubtful=True),
            ),
            edit_text="these kernels run in half precision on tensor cores"
            + (", what is between them too" if len(activations) else ""),
            proof=(
                f"Their names say {share}. In half precision the hardware needs "
                f"{left / 1e6:.1f} ms for the same products."
                + (
                    f" Element-wise kernels and casts between them take {saved / 1e6:.1f} ms less."
                    if len(activations)
                    else ""
                )
            ),
            rival=("Not too much mathematics. Half precision does the same products in less time."),
            limits=(
                "The gain is a ratio of hardware rates"
                + ("" if known else ", the least of any GPU because this one is unknown")
                + "; operations of a kernel are not in the trace. Some products may need float32."
            ),
            evidence=(
                listed(
                    context,
                    number,
                    chosen[number],
                    found[number].after_ns,
                    f"Matrix kernels in slow formats on rank {number}",
                ),
            )
            + (
                (
                    listed(
                        context,
                        number,
                        activations,
                        after,
                        f"Activations in float32 between them on rank {number}",
                    ),
                )
                if len(activations)
                else ()
            ),
            ranges=marked(context, chosen, "no half precision"),
            confidence="medium" if unsure else "high",
            confidence_reason=(
                "what autocast would leave in float32 beside the matrix kernels is not known"
                if unsure
                else ""
            ),
            actions=_actions(context),
            explains_late=len(chosen) < len(context.ranks),
        )
    ]


def _actions(context: Context) -> tuple[str, ...]:
    """Return what to do; GPUs before Ampere multiply no bfloat16 on tensor cores, and no TF32."""
    known = [
        device.compute_capability
        for item in context.ranks.values()
        for device in item.rank.devices
        if device.compute_capability
    ]
    outside = (
        "Where most products are in half precision already, look for `.float()` and "
        "`autocast(enabled=False)` around the marked kernels."
    )
    if known and max(known) < _AMPERE:
        return (
            (
                "Wrap forward pass and loss: "
                '`with torch.autocast("cuda", dtype=torch.float16): loss = model(x)`, and scale the '
                'loss with `torch.amp.GradScaler("cuda")`.'
            ),
            outside,
        )
    return (
        (
            "Wrap forward pass and loss: "
            '`with torch.autocast("cuda", dtype=torch.bfloat16): loss = model(x)`.'
        ),
        outside,
        (
            "With FSDP2 pass "
            "`mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16)` to `fully_shard`."
        ),
        'Where float32 must stay, allow TF32: `torch.set_float32_matmul_precision("high")`.',
    )


def _halved(context: Context, number: int, rows: Int64Array) -> Float64Array:
    """Return what kernels bound by memory take with half the bytes, ns."""
    operations = context.study.ranks[number].rank.operations
    length = (operations.end_ns - operations.start_ns)[rows].astype(np.float64)
    found: Float64Array = np.minimum(np.maximum(length / 2, SHORTEST_NS), length)
    return found


def _faster(
    context: Context,
    found: Mapping[int, _Slow],
    *,
    casts: bool = False,
    halved: bool = False,
    doubtful: bool = False,
) -> Callable[[Edit], None]:
    """Return the edit: matrix kernels in half precision, and some of what is between them."""

    def edit(change: Edit) -> None:
        for rank, slow in found.items():
            operations = context.study.ranks[rank].rank.operations
            length = np.maximum(operations.end_ns - operations.start_ns, 1)
            change.scale_duration(rank, slow.row, slow.after_ns / length[slow.row])
            for rows, smaller in ((slow.beside.halved, halved), (slow.beside.doubtful, doubtful)):
                if smaller:
                    after = _halved(context, rank, rows)
                    change.scale_duration(rank, rows, after / length[rows])
            gone = slow.beside.cast if casts else slow.beside.cast[:0]
            if doubtful:
                gone = np.concatenate([gone, slow.beside.doubtful_cast])
            if len(gone):
                take_out(context, change, rank, gone)

    return edit


RULE = Rule(
    code="GPU001",
    name="no-tensor-cores",
    kind="opportunity",
    status="stable",
    needs="names of kernels",
    find=find,
)
