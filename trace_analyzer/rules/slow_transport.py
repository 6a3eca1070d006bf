"""COMM004 slow-transport.

## What it finds
Collectives move data a slow way: through host memory or sockets although the GPUs have NVLink, or
between hosts over TCP.

## Why it costs
NVLink carries hundreds of GB/s, host memory tens, TCP sockets a few. What computation does not hide
of the longer transfers lengthens the step.

## How it is measured
The bus bandwidth of large transfers, free of waits for late ranks, against what the links allow.
It counts where they take 1.6 times as long or more, and where neither few channels nor a slow
protocol explains it: one channel then delivers much less than a channel over NVLink does. In the
replay these transfers take what the reference gives, and kernels beside them run slower, as they do
beside NCCL over NVLink. Between hosts no file tells what the network could do: sockets named in
NCCL's log are then reported with the exposed time of their transfers as an upper bound.

## When it is wrong
A trace shows the speed of a group, not which link is slow. Heavy traffic between host and GPU, or
kernels that fill the memory bandwidth, slow transfers too. Copies between GPUs over PCIe can be
slower than through host memory: switching them on does not always help.

## What to do
Remove NCCL_P2P_DISABLE, NCCL_P2P_LEVEL, NCCL_SHM_DISABLE and NCCL_NET from the environment. Let
NCCL say the way it takes (NCCL_DEBUG=INFO, lines with "via"). On bare metal, switch PCIe access
control (ACS) off; in containers, give enough shared memory and all devices.

## References
NCCL user guide: troubleshooting, GPU-to-GPU communication, PCI access control services.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from trace_analyzer.analyses.nccl_settings import nccl_settings
from trace_analyzer.analyses.references import on_one_host
from trace_analyzer.analyses.slow_transfers import TRANSPORTS, Reason, SlowGroup
from trace_analyzer.nccl_facts import NcclTransport
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule
from trace_analyzer.rules.transfer_causes import (
    at_reference,
    basis_of,
    ceiling_ns,
    evidence_of,
    members,
    said,
    set_text,
    slow_by,
    transfer_ranges,
)

_WAYS = {"SHM": "host memory", "NET": "the network", "P2P": "peer-to-peer copies"}


def find(context: Context) -> Answer:
    """Return a cause for groups that are slow inside a host, and one for sockets between hosts."""
    groups = slow_by(context, Reason.TRANSPORT)
    between = _between_hosts(context)
    causes = [] if between is None else [between]
    if not isinstance(groups, NotApplicable) and groups:
        causes.insert(0, _inside(context, groups))
    if causes:
        return causes
    if isinstance(groups, NotApplicable):
        return groups
    return Passed(reason="no group is slower than its links for want of a faster way")


def _inside(context: Context, groups: list[SlowGroup]) -> Cause:
    worst = max(groups, key=lambda item: float(item.transfers.transfer_ns[item.slow].sum()))
    ranks = members(context, groups)
    reached, channels = worst.busbw_gbs or 0.0, worst.channels
    way = _way(item for log in context.study.run.nccl_logs for item in log.transports)
    each = "" if not channels else f"{reached / channels:.1f} GB/s a channel, which is not NVLink. "
    return Cause(
        title=(
            f"Collectives of {rank_list(ranks)} reach {reached:.0f} of "
            f"{worst.reference.busbw_gbs:.0f} GB/s{way}."
        ),
        ranks=ranks,
        ceiling_ns=ceiling_ns(context, groups),
        edit=at_reference(context, groups, more_channels=True),
        edit_text="transfers at the reference bandwidth, kernels slowed by NCCL over NVLink",
        proof=(each + set_text(groups, TRANSPORTS)).strip(),
        rival="Not a late rank. These are transfer times, without waits for peers.",
        limits=(
            basis_of(groups) + " The trace tells the speed of the group, not which link is slow."
        ),
        evidence=(evidence_of(context, groups),),
        ranges=transfer_ranges(
            context, worst.transfers.instance[worst.slow], "transfer over a slow way"
        ),
        actions=(
            "Unset NCCL_P2P_DISABLE, NCCL_P2P_LEVEL, NCCL_SHM_DISABLE and NCCL_NET on all ranks.",
            "Run with NCCL_DEBUG=INFO: lines with `via P2P`, `via SHM` or `via NET` name the way.",
            "See `nvidia-smi topo -m` and `nvidia-smi nvlink --status`: NVLink must be there and up.",
            "Measure the links with `trace-analyzer bench links`.",
        ),
        confidence="high" if way or set_text(groups, TRANSPORTS) else "medium",
        confidence_reason=(
            "" if way or set_text(groups, TRANSPORTS) else "no file names the way the data takes"
        ),
    )


def _way(transports: Iterable[NcclTransport]) -> str:
    """Return " over host memory (SHM)" where NCCL's log names one way other than peer to peer."""
    slow = sorted({item.kind for item in transports} - {"P2P", "DIRECT"})
    return (
        " over " + " and ".join(f"{_WAYS.get(kind, kind)} ({kind})" for kind in slow)
        if slow
        else ""
    )


def _between_hosts(context: Context) -> Cause | None:
    """Return a cause where NCCL's log names sockets for a group over several hosts."""
    cross, found, run = context.study.cross, context.transfers, context.study.run
    if cross is None or found is None:
        return None
    sockets = any(
        item.kind == "NET" and item.plugin == "Socket"
        for log in run.nccl_logs
        for item in log.transports
    )
    if not sockets:
        return None
    apart = [
        number
        for number, group in enumerate(cross.events.groups)
        if on_one_host(run, group) is False and len(group.recorded) == (group.size or 0)
    ]
    mine = found.take(np.isin(found.group, apart) & found.steady)
    if not len(mine):
        return None
    ranks = tuple(sorted({rank for number in apart for rank in cross.events.groups[number].ranks}))
    steps = max(len(context.study.steady.used), 1)
    bandwidth = mine.busbw_gbs[~np.isnan(mine.busbw_gbs)]
    reached = f" at {float(np.max(bandwidth)):.1f} GB/s" if len(bandwidth) else ""
    return Cause(
        title=f"Hosts of {rank_list(ranks)} exchange data over TCP sockets{reached}.",
        ranks=ranks,
        ceiling_ns=float(mine.exposed_ns.sum()) / steps,
        proof=(
            "NCCL's log names NET/Socket for the ways between hosts. "
            + said(nccl_settings(run, ("NCCL_IB_DISABLE", "NCCL_NET")))
        ).strip(),
        rival="Not a late rank. These are transfer times, without waits for peers.",
        limits=(
            "What the network could carry is in no file; the time shown is all of the exposed "
            "transfer, an upper bound."
        ),
        ranges=transfer_ranges(context, mine.instance, "transfer over sockets"),
        actions=(
            (
                "Where the hosts have InfiniBand or RoCE, see why NCCL does not use it: `ibstat`, "
                "NCCL_IB_DISABLE, NCCL_NET, and the lines `NET/IB` of NCCL_DEBUG=INFO."
            ),
            "Where they have not, reduce less often (gradient accumulation with `no_sync()`).",
        ),
        confidence="medium",
        confidence_reason="the network's own limit is not known",
    )


RULE = Rule(
    code="COMM004",
    name="slow-transport",
    kind="fault",
    status="stable",
    needs="all ranks of the run with message sizes; a benchmark, an NCCL log, or GPUs with NVLink",
    find=find,
)
