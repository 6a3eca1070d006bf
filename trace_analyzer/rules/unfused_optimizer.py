"""HOST004 unfused-optimizer.

## What it finds
The optimizer updates parameters with a chain of small kernels, for each parameter (`foreach=False`)
or for groups of them (`foreach=True`), where one fused kernel would do.

## Why it costs
Every link of the chain reads and writes all parameters or states again, and hundreds of launches
take the host longer than the GPU needs. The optimizer comes last in a step, when no more work is
queued that could hide this.

## How it is measured
Kernels launched in the optimizer's step that are not a fused optimizer's. The replay puts a few
fused kernels in their place, which move 0.42 of the bytes (measured for AdamW: 7 passes over memory
instead of 17), and the host time of a fused step.

## When it is wrong
A fused kernel may occupy the GPU worse than the chain does; then the gain is smaller. Optimizers
without a fused form need `torch.compile` on their step.

## What to do
`torch.optim.AdamW(..., fused=True)` (also Adam, SGD, Adagrad).

## References
PyTorch documentation of torch.optim: fused and foreach implementations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.optimizer_steps import OptimizerSteps, optimizer_steps
from trace_analyzer.findings import Evidence
from trace_analyzer.nccl_names import operation_of
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule
from trace_analyzer.tables import WorkClass

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.model import Rank
    from trace_analyzer.schema import Int64Array

# GPU time of a fused AdamW against the chain's: 1.37 ms against 3.28 ms for 134 million parameters.
FUSED_SHARE = 0.42
# Recorded host time of a fused step: 0.7 to 1.0 ms with 52 parameters, most of it before its first
# launch.
FUSED_HOST_NS = 1_000_000
# The same with sharded parameters, whose lists every operation unwraps: 1.8 to 2.2 ms were recorded.
FUSED_SHARDED_HOST_NS = 2_000_000
FUSED_KERNELS = 4
# Fused steps launch a few kernels that are not fused ones (counters); chains launch hundreds.
LEAST_KERNELS = 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Chain:
    """The optimizer of one rank: kernels outside fused ones a step, times in ns a step.

    `fused_host_ns` is what a fused one would take its host.
    """

    found: OptimizerSteps
    fused_host_ns: int
    kernels: float
    host_ns: float
    device_ns: float
    ceiling_ns: float
    fused: bool


def find(context: Context) -> Answer:
    """Return one cause for all ranks whose optimizers launch chains of kernels."""
    chains: dict[int, _Chain] = {}
    most, seen = 0.0, False
    for number in context.ranks:
        chain = _chain(context, number)
        if chain is None:
            continue
        seen = True
        most = max(most, chain.kernels)
        if chain.kernels >= LEAST_KERNELS and not chain.fused:
            chains[number] = chain
    if not seen:
        return NotApplicable(
            reason="no range marks the optimizer's step",
            needs="torch.profiler, or an NVTX range called `optimizer`",
        )
    if not chains:
        return Passed(reason=f"the optimizer's step launches {most:.0f} kernels beside fused ones")

    def edit(change: Edit) -> None:
        for number, chain in chains.items():
            _fuse(change, number, chain)

    worst = max(chains, key=lambda number: chains[number].ceiling_ns)
    top = chains[worst]
    return [
        Cause(
            title=(
                f"The optimizer launches {top.kernels:.0f} small kernels a step on "
                f"{rank_list(chains)}."
            ),
            ranks=tuple(chains),
            ceiling_ns=top.ceiling_ns,
            edit=edit,
            edit_text=(
                f"{FUSED_KERNELS} fused kernels of {FUSED_SHARE:.2f} of the time, launched in "
                f"{top.fused_host_ns / 1e6:.0f} ms"
            ),
            proof=(
                f"On rank {worst} the optimizer's step takes the host {top.host_ns / 1e6:.1f} ms and "
                f"the GPU {top.device_ns / 1e6:.1f} ms; a fused one needs "
                f"{FUSED_SHARE * top.device_ns / 1e6:.1f} ms of the GPU."
            ),
            rival="Not the gradients' reduction. It is over before.",
            evidence=(
                Evidence(
                    title="The optimizer's step",
                    columns=["rank", "kernels a step", "ms of host a step", "ms of GPU a step"],
                    rows=[
                        [
                            number,
                            round(chain.kernels, 1),
                            round(chain.host_ns / 1e6, 3),
                            round(chain.device_ns / 1e6, 3),
                        ]
                        for number, chain in chains.items()
                    ],
                ),
            ),
            ranges=tuple(
                piece
                for number, chain in chains.items()
                for piece in context.ranges(
                    number, chain.found.start_ns, chain.found.end_ns, "unfused optimizer"
                )[:4]
            ),
            actions=(
                "Pass `fused=True`: `torch.optim.AdamW(model.parameters(), lr=..., fused=True)`.",
                "For an optimizer without a fused form, `torch.compile` its step.",
            ),
            explains_late=len(chains) < len(context.ranks),
        )
    ]


def _chain(context: Context, number: int) -> _Chain | None:
    item = context.ranks[number]
    found = optimizer_steps(item.rank)
    if not len(found):
        return None
    steady = context.in_steady(number)[found.operation]
    mine = found.operation[steady & ~found.fused]
    operations = item.rank.operations
    device = intervals.union(operations.start_ns[mine], operations.end_ns[mine])
    host = intervals.intersect(found.spans, context.host_windows(number))
    idle = context.idle_ns(number, found.spans)
    saved = (1 - FUSED_SHARE) * context.per_step_ns(number, device.total)
    own = found.operation[steady & found.fused]
    fused_ns = int((operations.end_ns - operations.start_ns)[own].sum())
    return _Chain(
        found=found,
        fused_host_ns=FUSED_SHARDED_HOST_NS if _is_sharded(item.rank) else FUSED_HOST_NS,
        kernels=len(mine) / context.steady_count(number),
        host_ns=context.per_step_ns(number, host.total),
        device_ns=context.per_step_ns(number, device.total),
        ceiling_ns=idle + saved,
        # With a fused optimizer the rest is something else: clipping, a scaler, an average.
        fused=2 * fused_ns > device.total + fused_ns,
    )


def _is_sharded(rank: Rank) -> bool:
    """Tell whether gradients are scattered over ranks, as FSDP does, and parameters with them."""
    scatters = np.array([operation_of(text) == "reducescatter" for text in rank.names], dtype=bool)
    return bool(scatters[rank.operations.name[rank.operations.work == WorkClass.COMM]].any())


def _fuse(change: Edit, number: int, optimizer: _Chain) -> None:
    """Let the first kernels of each step be fused ones, and take the rest out."""
    found = optimizer.found
    operations = change.ranks[number].operations
    chain, step = found.operation[~found.fused], found.step[~found.fused]
    length = (operations.end_ns - operations.start_ns)[chain]
    total = np.bincount(step, weights=length, minlength=len(found))
    count = np.bincount(step, minlength=len(found))
    place = _place_in_step(step)
    long = count[step] >= LEAST_KERNELS
    kept = chain[long & (place < FUSED_KERNELS)]
    share = FUSED_SHARE * total[step[long & (place < FUSED_KERNELS)]] / FUSED_KERNELS
    change.duration(number, kept, share)
    # The first milliseconds of the host stay as they are: they stand for a fused step's.
    change.remove(number, chain[long & (place >= FUSED_KERNELS)], launch=False)
    chosen = count >= LEAST_KERNELS
    change.host(
        number,
        intervals.union(found.start_ns[chosen] + optimizer.fused_host_ns, found.end_ns[chosen]),
    )


def _place_in_step(step: Int64Array) -> Int64Array:
    """Return how many kernels of the same step come before each; steps stand together."""
    first = np.searchsorted(step, step, side="left")
    return (np.arange(len(step)) - first).astype(np.int64)


RULE = Rule(
    code="HOST004",
    name="unfused-optimizer",
    kind="fault",
    status="stable",
    needs="ranges around the optimizer's step",
    find=find,
    opportunity_below=0.10,
)
