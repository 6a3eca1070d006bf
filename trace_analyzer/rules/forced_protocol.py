"""COMM010 forced-protocol.

## What it finds
Large messages travel by a protocol or an algorithm that wastes bandwidth, usually because NCCL_PROTO
or NCCL_ALGO is set.

## Why it costs
NCCL's low-latency protocol sends a flag with every four bytes, so that it reaches half of the
bandwidth at most. It is meant for small messages; NCCL chooses by itself where it pays.

## How it is measured
The kernel's launch shape shows it: the low-latency protocol has 256 or 512 threads a channel, where
large messages would have 288 or 544. The name of the kernel tells nothing. It counts where large
transfers take 1.6 times as long as the links allow, or more. In the replay they take what the
reference gives.

## When it is wrong
Some platforms cannot use other protocols. Symmetric-memory kernels have the same launch shape, but
not their low bandwidth. Without a benchmark of the machine the reference is what GPUs of this kind
reach.

## What to do
Remove NCCL_PROTO and NCCL_ALGO from the environment. NCCL's documentation discourages both outside
of debugging.

## References
NCCL user guide, environment variables: NCCL_PROTO, NCCL_ALGO. NCCL sources, `tuning.cc`: ring LL is
limited to half of the bus bandwidth.
"""

from __future__ import annotations

from trace_analyzer.analyses.slow_transfers import LL_BLOCKS, PROTOCOLS, Reason
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule
from trace_analyzer.rules.transfer_causes import (
    at_reference,
    basis_of,
    ceiling_ns,
    evidence_of,
    members,
    set_text,
    slow_by,
    transfer_ranges,
)


def find(context: Context) -> Answer:
    """Return one cause for all groups whose large messages use a slow protocol."""
    groups = slow_by(context, Reason.PROTOCOL)
    if isinstance(groups, NotApplicable):
        return groups
    if not groups:
        return Passed(reason="no group moves large messages by a protocol that wastes bandwidth")
    worst = max(groups, key=lambda item: float(item.transfers.transfer_ns[item.slow].sum()))
    ranks = members(context, groups)
    low_latency = worst.block in LL_BLOCKS
    way = "NCCL's low-latency protocol" if low_latency else "a forced protocol or algorithm"
    shape = (
        f"{worst.block} threads a channel are those of the low-latency protocol. "
        if low_latency
        else ""
    )
    return [
        Cause(
            title=(
                f"Large messages of {rank_list(ranks)} go by {way} and reach "
                f"{worst.busbw_gbs or 0:.0f} of {worst.reference.busbw_gbs:.0f} GB/s."
            ),
            ranks=ranks,
            ceiling_ns=ceiling_ns(context, groups),
            edit=at_reference(context, groups, more_channels=False),
            edit_text="transfers at the reference bandwidth",
            proof=(shape + set_text(groups, PROTOCOLS)).strip(),
            rival="Not a late rank. These are transfer times, without waits for peers.",
            limits=basis_of(groups),
            evidence=(evidence_of(context, groups),),
            ranges=transfer_ranges(
                context, worst.transfers.instance[worst.slow], "transfer by a slow protocol"
            ),
            actions=(
                "Unset NCCL_PROTO and NCCL_ALGO on all ranks, also in launch scripts and nccl.conf.",
                "Leave NCCL's choice to NCCL: it uses the low-latency protocol where it pays.",
            ),
        )
    ]


RULE = Rule(
    code="COMM010",
    name="forced-protocol",
    kind="fault",
    status="experimental",
    needs="all ranks of the run with message sizes; a benchmark, an NCCL log, or GPUs with NVLink",
    find=find,
)
