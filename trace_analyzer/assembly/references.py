"""What a group or a link should reach: measured on this machine, else as NCCL models it."""

from __future__ import annotations

from trace_analyzer.bench_facts import BenchLink
from trace_analyzer.model import Run


def group_reference(run: Run) -> tuple[float | None, str | None]:
    """Return the bus bandwidth that groups can reach, GB/s, and its basis; None where unknown."""
    measured = [
        max(size.busbw_gbs for size in result.sizes)
        for result in run.bench
        if result.is_reference and result.sizes
    ]
    if measured:
        return max(measured), "all-reduce benchmark of this machine"
    modelled = [
        communicator.system_max_gbs
        for log in run.nccl_logs
        for communicator in log.communicators
        if communicator.system_max_gbs
    ]
    if modelled:
        return max(modelled), "NCCL's model of the machine, from its log"
    return None, None


def measured_links(run: Run) -> list[BenchLink]:
    """Return the links that the link benchmark measured on this machine's GPUs."""
    return [link for result in run.bench if result.is_reference for link in result.links]


def link_reference(run: Run, source: int, destination: int) -> float | None:
    """Return what a pair can reach, GB/s: its own benchmark, its limit, else the groups' reference."""
    for link in measured_links(run):
        if (link.source, link.destination) == (source, destination):
            return link.limit_gbs or link.bandwidth_gbs
    return group_reference(run)[0]
