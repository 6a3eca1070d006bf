"""GPU002 elementwise-chain.

## What it finds
Three or more element-wise kernels in a row (additions, products, activations, dropout) over tensors
of the same size.

## Why it costs
Each of them reads its operands from GPU memory and writes its result back, and does next to nothing
in between. Memory bandwidth decides their time, and every one is a launch for the host.

## How it is measured
Neighbours on one stream, with equally many elements by their launch shape, of at least 5 µs each,
make a chain. The replay leaves one kernel of each chain, as long as its longest, and takes the
others out with the operators that launch nothing else. Optimizer steps are another rule's.

## When it is wrong
Neighbours of the same size need not feed each other; then a fused kernel still reads all their
operands. Copies and casts are not counted as members. One recorded run gained 9 % less than this says:
its matrix kernels ran a few percent slower without the chains between them, perhaps for want of power.

## What to do
Compile the module, use the fused form of the operation, or write one kernel for the chain.

## References
PyTorch performance tuning guide: fuse operations. `torch.compile`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer.analyses.elementwise_chains import elementwise_chains
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.kernel_sets import (
    busy_ns,
    computing,
    listed,
    marked,
    saved_ns,
    take_out,
    worst,
)
from trace_analyzer.rules.rule import Answer, Cause, Passed, Rule

if TYPE_CHECKING:
    from trace_analyzer.analyses.elementwise_chains import Chains
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.schema import BoolArray, Int64Array


def find(context: Context) -> Answer:
    """Return one cause for all ranks with chains of element-wise kernels."""
    chains: dict[int, Chains] = {}
    chosen: dict[int, Int64Array] = {}
    for number, item in context.ranks.items():
        found = elementwise_chains(item.rank, item.steps)
        if bool(context.in_steady(number)[found.row].any()):
            chains[number], chosen[number] = found, found.row
    if not chosen:
        return Passed(reason="no three element-wise kernels of one size follow each other")
    number, ceiling = worst(context, chosen)
    stays = {rank: _longest(context, rank, found) for rank, found in chains.items()}
    operations = context.study.ranks[number].rank.operations
    length = (operations.end_ns - operations.start_ns)[chosen[number]]
    after = np.where(stays[number], length, 0)
    saved = saved_ns(context, number, chosen[number], after)
    steady = context.in_steady(number)[chosen[number]]
    count = len(np.unique(chains[number].chain[steady])) / context.steady_count(number)
    members = int(steady.sum()) / context.steady_count(number)

    def edit(change: Edit) -> None:
        for rank, rows in chosen.items():
            take_out(context, change, rank, rows[~stays[rank]])

    return [
        Cause(
            title=(
                f"{members:.0f} element-wise kernels a step form {count:.0f} "
                f"chain{'' if round(count) == 1 else 's'} on {rank_list(chosen)}, each kernel going "
                "over the whole tensor again."
            ),
            ranks=tuple(chosen),
            ceiling_ns=ceiling,
            edit=edit,
            edit_text="one kernel does the work of each chain",
            proof=(
                f"They take {ceiling / 1e6:.1f} ms a step on rank {number}; one kernel a chain "
                f"would take {(ceiling - saved) / 1e6:.1f} ms."
            ),
            rival=(
                "Not matrix products. Chains take "
                f"{100 * ceiling / max(_compute_ns(context, number), 1.0):.0f} % of all computing."
            ),
            limits="That they feed each other is concluded from their order and size.",
            evidence=(
                listed(
                    context,
                    number,
                    chosen[number],
                    after,
                    f"Kernels in chains on rank {number}; one of each chain stays",
                ),
            ),
            ranges=marked(context, chosen, "element-wise chain"),
            actions=(
                "Compile the module that the marked kernels belong to: `torch.compile(block)`.",
                (
                    "Use one operation for the chain where PyTorch has it: `functional.gelu`, "
                    "`functional.silu`, `torch.addcmul`, `functional.scaled_dot_product_attention`."
                ),
            ),
            explains_late=len(chosen) < len(context.ranks),
        )
    ]


def _longest(context: Context, number: int, found: Chains) -> BoolArray:
    """Return which operation of each chain is its longest."""
    operations = context.study.ranks[number].rank.operations
    length = (operations.end_ns - operations.start_ns)[found.row]
    order = np.lexsort((-length, found.chain))
    first = np.unique(found.chain[order], return_index=True)[1]
    stays = np.zeros(len(found.row), dtype=np.bool_)
    stays[order[first]] = True
    return stays


def _compute_ns(context: Context, number: int) -> float:
    return busy_ns(context, number, np.flatnonzero(computing(context, number)))


RULE = Rule(
    code="GPU002",
    name="elementwise-chain",
    kind="opportunity",
    status="stable",
    needs="names and launch shapes of kernels",
    find=find,
)
