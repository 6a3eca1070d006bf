"""COMM004 slow-transport.

## What it finds
Collectives move data a slow way: through host memory or sockets although the GPUs have NVLink,
between GPUs that have only PCIe, or between hosts over TCP.

## Why it costs
NVLink carries hundreds of GB/s, PCIe and host memory tens at most, TCP sockets a few. What computation
does not hide of the longer transfers lengthens the step.

## How it is measured
The bus bandwidth of large transfers, free of waits for late ranks, against what the links allow.
It counts where they take 1.6 times as long or more, and where neither few channels nor a slow
protocol explains it: one channel then delivers much less than a channel over NVLink does. In the
replay these transfers take what the reference gives, and kernels beside them run slower, as they do
beside NCCL over NVLink. What a network or a board's PCIe could do is in no file: sockets between
hosts, and PCIe between GPUs without NVLink, are reported where NCCL's log names them, with the exposed
time of their transfers as an upper bound.

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
from trace_analyzer.analyses.references import nvlink_gbs
from trace_analyzer.analyses.references import on_one_host as is_on_one_host
from trace_analyzer.analyses.slow_transfers import TRANSPORTS, Reason, SlowGroup, slow_groups
from trace_analyzer.analyses.transfers import Transfers
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

# What NCCL calls paths between GPUs that are no NVLink, from near to far.
_PCIE = {
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "PCIe and the CPU",
    "NODE": "PCIe and the CPU",
    "SYS": "PCIe and the links between CPUs",
}
_WAYS = {
    "SHM": "host memory (SHM)",
    "NET": "the network (NET)",
    "NET/Socket": "TCP sockets (NET/Socket)",
    "P2P": "peer-to-peer copies (P2P)",
}


def find(context: Context) -> Answer:
    """Return causes for groups that are slow inside a host, for sockets between hosts, and for PCIe."""
    groups = slow_by(context, Reason.TRANSPORT)
    causes = [cause for cause in (_between_hosts(context), _over_pcie(context)) if cause]
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
    kinds = {item.kind if item.plugin != "Socket" else "NET/Socket" for item in transports}
    slow = sorted(kinds - {"P2P", "DIRECT"})
    return " over " + " and ".join(_WAYS.get(kind, kind) for kind in slow) if slow else ""


def _between_hosts(context: Context) -> Cause | None:
    """Return a cause where NCCL's log names sockets for a group over several hosts."""
    run = context.study.run
    sockets = any(
        item.kind == "NET" and item.plugin == "Socket"
        for log in run.nccl_logs
        for item in log.transports
    )
    mine = _transfers(context, on_one_host=False) if sockets else None
    if mine is None:
        return None
    return _limited(
        context,
        mine,
        title="Hosts of {ranks} exchange data over TCP sockets{reached}.",
        proof="NCCL's log names NET/Socket for the ways between hosts. "
        + said(nccl_settings(run, ("NCCL_IB_DISABLE", "NCCL_NET"))),
        what="the network",
        label="transfer over sockets",
        actions=(
            (
                "Where the hosts have InfiniBand or RoCE, see why NCCL does not use it: `ibstat`, "
                "NCCL_IB_DISABLE, NCCL_NET, and the lines `NET/IB` of NCCL_DEBUG=INFO."
            ),
            "Where they have not, reduce less often (gradient accumulation with `no_sync()`).",
        ),
    )


def _over_pcie(context: Context) -> Cause | None:
    """Return a cause where NCCL's log names PCIe as the best way between GPUs of one host."""
    run = context.study.run
    ways = {
        graph.intra_type
        for log in run.nccl_logs
        for item in log.communicators
        for graph in item.graphs
        if item.nodes == 1
    }
    # Where GPUs are known to have NVLink, its bandwidth is the reference.
    if not ways or not ways <= _PCIE.keys() or nvlink_gbs(run) is not None:
        return None
    mine = _transfers(context, on_one_host=True)
    if mine is None:
        return None
    worst = max(ways, key=list(_PCIE).index)
    return _limited(
        context,
        mine,
        title="GPUs of {ranks} exchange data over PCIe{reached}, not over NVLink.",
        proof=f"NCCL's log names {_PCIE[worst]} ({worst}) as the best way between the GPUs. "
        + said(nccl_settings(run, TRANSPORTS)),
        what="PCIe on this board",
        label="transfer over PCIe",
        actions=(
            (
                "Move fewer bytes: accumulate gradients with `no_sync()`; where the model fits into "
                "one GPU, DDP or `reshard_after_forward=False` instead of full sharding."
            ),
            (
                "Measure with and without NCCL_P2P_DISABLE=1: over PCIe, copies between GPUs can be "
                "slower than through host memory. On bare metal, switch ACS off first."
            ),
            "Use GPUs under one PCIe switch (PIX, PXB in `nvidia-smi topo -m`), or with NVLink.",
        ),
    )


def _transfers(context: Context, *, on_one_host: bool) -> Transfers | None:
    """Return the steady transfers of whole groups inside a host, or over several; None if none."""
    cross, found, run = context.study.cross, context.transfers, context.study.run
    if cross is None or found is None:
        return None
    slow = slow_groups(run, cross.events, found)  # these have a cause with a reference
    chosen = [
        number
        for number, group in enumerate(cross.events.groups)
        if is_on_one_host(run, group) is on_one_host
        and len(group.recorded) == (group.size or 0)
        and number not in [item.group for item in slow]
    ]
    mine = found.take(np.isin(found.group, chosen) & found.steady)
    return mine if len(mine) else None


def _limited(
    context: Context,
    mine: Transfers,
    *,
    title: str,
    proof: str,
    what: str,
    label: str,
    actions: tuple[str, ...],
) -> Cause:
    """Return the cause of links whose own limit no file tells: its ceiling is all exposed transfer."""
    cross = context.study.cross
    assert cross is not None
    groups = np.unique(mine.group).tolist()
    ranks = tuple(sorted({rank for number in groups for rank in cross.events.groups[number].ranks}))
    bandwidth = mine.busbw_gbs[~np.isnan(mine.busbw_gbs)]
    reached = f" at {float(np.max(bandwidth)):.1f} GB/s" if len(bandwidth) else ""
    return Cause(
        title=title.format(ranks=rank_list(ranks), reached=reached),
        ranks=ranks,
        ceiling_ns=float(mine.exposed_ns.sum()) / max(len(context.study.steady.used), 1),
        proof=proof.strip(),
        rival="Not a late rank. These are transfer times, without waits for peers.",
        limits=(
            f"What {what} could carry is in no file; the time shown is all of the exposed "
            "transfer, an upper bound."
        ),
        ranges=transfer_ranges(context, mine.instance, label),
        actions=actions,
        confidence="low",
        confidence_reason=f"the limit of {what} is not known, and no such run was recorded for tests",
    )


RULE = Rule(
    code="COMM004",
    name="slow-transport",
    kind="fault",
    status="stable",
    needs="all ranks of the run with message sizes; a benchmark, an NCCL log, or GPUs with NVLink",
    find=find,
)
