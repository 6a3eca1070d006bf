"""COMM003 few-channels.

## What it finds
NCCL moves large messages through one or a few channels, although the links could carry many times
as much.

## Why it costs
A channel is one block of an NCCL kernel; it carries about 20 GB/s over NVLink. With one channel a
large all-reduce takes ten times as long as it could, and what computation does not hide of it
lengthens the step.

## How it is measured
The channels are the launch grid of the collective's kernel. NCCL itself uses few for small
messages, so that only messages count for which bandwidth decides, and only where one channel
delivers what a channel does: then more channels would deliver more. In the replay these transfers
take what the reference gives. Kernels beside them then run slower, as they do beside NCCL with many
channels; the finding is what is left.

## When it is wrong
Few channels may be on purpose, to leave the multiprocessors to computation. Copy-engine and
in-network collectives need few. Without a benchmark of the machine the reference is what GPUs of
this kind reach.

## What to do
Remove NCCL_MAX_NCHANNELS, NCCL_MAX_CTAS and their kin from the environment, and `max_ctas` from the
options of the process group. NCCL chooses the number by the machine and the message.

## References
NCCL user guide, environment variables: NCCL_MAX_CTAS, NCCL_MAX_NCHANNELS. NCCL sources,
`enqueue.cc`: the grid of a kernel is its number of channels.
"""

from __future__ import annotations

from trace_analyzer.analyses.slow_transfers import CHANNEL_GBS, LIMITS, Reason
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
    """Return one cause for all groups that have too few channels."""
    groups = slow_by(context, Reason.CHANNELS)
    if isinstance(groups, NotApplicable):
        return groups
    if not groups:
        return Passed(reason="no group moves large messages through too few channels")
    worst = max(groups, key=lambda item: float(item.transfers.transfer_ns[item.slow].sum()))
    channels = worst.channels or 1
    needed = round(worst.reference.busbw_gbs / CHANNEL_GBS)
    reached = worst.busbw_gbs or channels * CHANNEL_GBS
    about = "" if worst.busbw_gbs else "about "  # without sizes: what a channel usually carries
    ranks = members(context, groups)
    noun = "one NCCL channel" if channels == 1 else f"{channels} NCCL channels"
    return [
        Cause(
            title=(
                f"Collectives of {rank_list(ranks)} go through {noun} and reach {about}{reached:.0f} of "
                f"{worst.reference.busbw_gbs:.0f} GB/s."
            ),
            ranks=ranks,
            ceiling_ns=ceiling_ns(context, groups),
            edit=at_reference(context, groups, more_channels=True),
            edit_text="transfers at the reference bandwidth, kernels slowed by many channels",
            proof=(
                f"{noun[0].upper()}{noun[1:]} at {about}{reached / channels:.0f} GB/s each, "
                f"{'which is what a channel carries over NVLink' if worst.busbw_gbs else 'what a channel carries over NVLink; sizes were not recorded'}. For {worst.reference.busbw_gbs:.0f} GB/s, {needed} "
                "channels or more are needed. " + set_text(groups, LIMITS)
            ).strip(),
            rival="Not a late rank. These are transfer times, without waits for peers.",
            limits=(
                basis_of(groups)
                + " How much many channels slow the kernels beside them is what H200 showed."
            ),
            evidence=(evidence_of(context, groups),),
            ranges=transfer_ranges(
                context, worst.transfers.instance[worst.slow], "transfer through few channels"
            ),
            actions=(
                "Unset NCCL_MAX_NCHANNELS and NCCL_MAX_CTAS (and NCCL_MIN_*) on all ranks.",
                (
                    "Where the process group is built with `ProcessGroupNCCL.Options`, do not set "
                    "`options.config.max_ctas`; the same holds for `maxCTAs` of an NCCL config file."
                ),
                "Run with NCCL_DEBUG=INFO and read how many coll channels each communicator has.",
            ),
            confidence="high" if worst.busbw_gbs is not None else "medium",
            confidence_reason="" if worst.busbw_gbs is not None else "message sizes are estimated",
        )
    ]


RULE = Rule(
    code="COMM003",
    name="few-channels",
    kind="fault",
    status="stable",
    needs="all ranks of the run; a benchmark, an NCCL log, or GPUs with NVLink",
    find=find,
)
