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
5 µs: small ones are bound by memory and launch.

## When it is wrong
Some mathematics needs float32: losses, solvers, accumulations over long sequences. Casts that
half precision adds are not counted; nor is what smaller activations save elsewhere.

## What to do
Run forward pass and loss under autocast with bfloat16; where float32 must stay, allow TF32. Look
for modules that leave autocast.

## References
PyTorch: automatic mixed precision; `torch.set_float32_matmul_precision`. NVIDIA architecture
papers: rates of tensor cores by format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer.analyses.contention import matrix_names
from trace_analyzer.analyses.matrix_rates import Format, formats, speedup
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.kernel_sets import computing, listed, marked, saved_ns, worst
from trace_analyzer.rules.rule import Answer, Cause, Passed, Rule

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.schema import Float64Array, Int64Array

# What a small product takes whatever its format: start, a few waves of memory, end (measured).
SHORTEST_NS = 5_000
_TEXT = {
    Format.FLOAT32: "float32 without tensor cores",
    Format.TF32_THREEFOLD: "float32 as three TF32 products",
    Format.TF32: "TF32",
}


def find(context: Context) -> Answer:
    """Return one cause for all ranks with slow number formats in matrix kernels."""
    chosen: dict[int, Int64Array] = {}
    after: dict[int, Float64Array] = {}
    share: dict[int, str] = {}
    total = 0
    known = True
    for number, item in context.ranks.items():
        rank = item.rank
        operations = rank.operations
        matrix = computing(context, number) & matrix_names(rank)[operations.name]
        total += int(matrix.sum())
        kind = formats(rank.names)[operations.name]
        rows = np.flatnonzero(matrix & (kind != Format.OTHER))
        if not len(rows) or not bool(context.in_steady(number)[rows].any()):
            continue
        length = (operations.end_ns - operations.start_ns)[rows].astype(np.float64)
        factor = np.array([speedup(Format(value), rank.devices) for value in kind[rows].tolist()])
        chosen[number] = rows
        after[number] = np.minimum(np.maximum(length / factor, SHORTEST_NS), length)
        share[number] = " and ".join(
            text for value, text in _TEXT.items() if bool(np.any(kind[rows] == value))
        )
        known = known and any(device.compute_capability for device in rank.devices)
    if not chosen:
        return Passed(reason=f"none of {total} matrix kernels is one of float32 or TF32")
    number, ceiling = worst(context, chosen)
    left = ceiling - saved_ns(context, number, chosen[number], after[number])

    def edit(change: Edit) -> None:
        for rank, rows in chosen.items():
            operations = context.study.ranks[rank].rank.operations
            length = np.maximum((operations.end_ns - operations.start_ns)[rows], 1)
            change.scale_duration(rank, rows, after[rank] / length)

    return [
        Cause(
            title=(
                f"Matrix kernels compute in {share[number]} for {ceiling / 1e6:.1f} ms a step "
                f"on {rank_list(chosen)}."
            ),
            ranks=tuple(chosen),
            ceiling_ns=ceiling,
            edit=edit,
            edit_text="these kernels run in half precision on tensor cores",
            proof=(
                f"Their names say {share[number]}. In half precision the hardware needs "
                f"{left / 1e6:.1f} ms for the same products."
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
                    after[number],
                    f"Matrix kernels in slow formats on rank {number}",
                ),
            ),
            ranges=marked(context, chosen, "no half precision"),
            actions=(
                (
                    "Wrap forward pass and loss: "
                    '`with torch.autocast("cuda", dtype=torch.bfloat16): loss = model(x)`.'
                ),
                (
                    "Where most products are in half precision already, look for `.float()` and "
                    "`autocast(enabled=False)` around the marked kernels."
                ),
                (
                    "With FSDP2 pass "
                    "`mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16)` to `fully_shard`."
                ),
                (
                    "Where float32 must stay, allow TF32: "
                    '`torch.set_float32_matmul_precision("high")`.'
                ),
            ),
            explains_late=len(chosen) < len(context.ranks),
        )
    ]


RULE = Rule(
    code="GPU001",
    name="no-tensor-cores",
    kind="opportunity",
    status="stable",
    needs="names of kernels",
    find=find,
)
