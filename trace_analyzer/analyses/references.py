"""What a group or a link should reach: measured on this machine, else as NCCL or its kind of GPU does.

A measurement by our own benchmark comes first, then NCCL's model of the machine from its log, then
the NVLink of the GPU by its name. The last two are limits of hardware, of which NCCL's ring
delivers a known share. GPUs without NVLink have no reference but the benchmark: what PCIe gives
depends on the board.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.comm_events import CommGroup
from trace_analyzer.analyses.nccl_settings import nccl_settings
from trace_analyzer.bench_facts import BenchLink
from trace_analyzer.model import Rank, Run
from trace_analyzer.nccl_names import bus_factor
from trace_analyzer.schema import Float64Array, is_na

# GPUs with NVLink to all their peers: (name, links, GB/s of one link as NCCL models it).
_NVLINK = (
    (re.compile(r"\bV100-SXM"), 6, 20.0),
    (re.compile(r"\bA100-SXM"), 12, 20.0),
    (re.compile(r"\bA800-SXM"), 8, 20.0),
    (re.compile(r"\bH800(?!.*PCIe)"), 8, 20.6),
    (re.compile(r"\b(H20|H100|H200|GH200)(?!.*(PCIe|NVL))"), 18, 20.6),
    (re.compile(r"\b(B200|B300|GB200|GB300)\b"), 18, 40.1),
)
# Share of that model which a large all-reduce reached, and what it needs beside its bytes:
# measured on two H200, 33–669 MB alone (324 of 370.8 GB/s).
RING_SHARE = 0.87
START_NS = 36_000.0
# More GPUs than this are never in one host.
LARGEST_HOST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What collectives of a group reach: `busbw_gbs` for large messages, and its basis.

    `table` holds measured (bus bytes, ns), by size; where there is none a line gives the time.
    """

    busbw_gbs: float
    basis: str
    measured: bool
    table: tuple[tuple[float, float], ...] = ()

    def transfer_ns(self, bus_bytes: Float64Array) -> Float64Array:
        """Return how long messages should take, ns; between measured sizes by interpolation."""
        if not self.table:
            return np.asarray(START_NS + bus_bytes / self.busbw_gbs, dtype=np.float64)
        size, time = (
            np.array(values, dtype=np.float64) for values in zip(*self.table, strict=True)
        )
        inside = np.exp(np.interp(np.log(np.maximum(bus_bytes, 1.0)), np.log(size), np.log(time)))
        beyond = time[-1] + (bus_bytes - size[-1]) / self.busbw_gbs
        found: Float64Array = np.where(bus_bytes > size[-1], beyond, inside)
        return found


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
        return max(modelled), "NCCL's model of the paths in use, from its log"
    return None, None


def ring_reference(run: Run, group: CommGroup) -> Reference | None:
    """Return what ring collectives of a group reach inside one host; None where nothing tells.

    None too for groups over several hosts, whose network no file describes.
    """
    if on_one_host(run, group) is False:
        return None
    measured = _benchmarked(run)
    if measured is not None:
        return measured
    if not on_one_host(run, group):
        return None
    links = nvlink_gbs(run)
    if links is None:
        return None
    limit, basis = links
    return Reference(
        busbw_gbs=RING_SHARE * limit,
        basis=f"{100 * RING_SHARE:.0f} % of {limit:.0f} GB/s, {basis}",
        measured=False,
    )


def _benchmarked(run: Run) -> Reference | None:
    found = [result for result in run.bench if result.is_reference and result.sizes]
    if not found:
        return None
    result = max(found, key=lambda item: max(size.busbw_gbs for size in item.sizes))
    factor = bus_factor("allreduce", result.ranks) or 1.0
    table = sorted((size.bytes * factor, size.time_us * 1e3) for size in result.sizes)
    return Reference(
        busbw_gbs=max(size.busbw_gbs for size in result.sizes),
        basis="the all-reduce benchmark of this machine",
        measured=True,
        table=tuple(table),
    )


def nvlink_gbs(run: Run) -> tuple[float, str] | None:
    """Return what all NVLinks of a GPU carry in one direction, and its basis; None without NVLink."""
    named = _by_name(run)
    communicators = [item for log in run.nccl_logs for item in log.communicators]
    # The log of a machine says which of its links are up; the name only what it was built with.
    # With peer-to-peer copies off, the log's paths are no longer NVLinks, but their sum still is.
    logged = [
        item.system_total_gbs or 0.0
        for item in communicators
        if named or any(graph.intra_type == "NVL" for graph in item.graphs)
    ]
    if any(logged):
        return max(logged), "what NCCL's log says of the GPU's NVLinks"
    return named


def _by_name(run: Run) -> tuple[float, str] | None:
    names = {_device_name(rank) for rank in run.ranks} - {""}
    found: dict[str, float] = {}
    for name in names:
        for pattern, count, each in _NVLINK:
            if pattern.search(name):
                found[name] = count * each
                break
        else:
            return None
    if not found:
        return None
    name = min(found, key=lambda item: (found[item], item))
    return found[name], f"the NVLinks of {name}"


def _device_name(rank: Rank) -> str:
    used = _ordinal(rank)
    names = [device.name for device in rank.devices if device.ordinal == used]
    return names[0] if names else rank.devices[0].name if rank.devices else ""


def _ordinal(rank: Rank) -> int | None:
    device = rank.operations.device[~is_na(rank.operations.device)]
    return int(device[0]) if len(device) else None


def on_one_host(run: Run, group: CommGroup) -> bool | None:
    """Tell whether all members of a group are in one host; None where nothing says so.

    Ranks that say their host, the launcher, NCCL's log, or GPUs that are numbered differently (two
    hosts would use the same numbers). The launcher comes before NCCL, which counts processes of one
    host that may share neither peer-to-peer copies nor memory as two nodes.
    """
    members = set(group.ranks)
    recorded = [rank for rank in run.ranks if rank.rank in members]
    hosts = {rank.host for rank in recorded if rank.host}
    if len(hosts) > 1:
        return False
    if not hosts and _launched_on_one_host(run):
        return True
    nodes = _nodes(run, len(members))
    if nodes:
        return max(nodes) == 1
    if len(members) > LARGEST_HOST:
        return False
    return _one_host_by_gpus(recorded) if len(recorded) == len(members) else None


def _one_host_by_gpus(recorded: Sequence[Rank]) -> bool | None:
    """Return whether ranks have one host by its name, or by GPUs with different numbers."""
    if all(rank.host for rank in recorded):
        return True
    ordinals = [_ordinal(rank) for rank in recorded]
    return True if None not in ordinals and len(set(ordinals)) == len(ordinals) else None


def _launched_on_one_host(run: Run) -> bool:
    """Return whether the launcher started all processes of the job on one host (torchrun says so)."""
    started = nccl_settings(run, ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    sizes = [started.get(name, "") for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")]
    return bool(sizes[0]) and sizes[0] == sizes[1]


def _nodes(run: Run, size: int) -> set[int]:
    return {
        communicator.nodes
        for log in run.nccl_logs
        for communicator in log.communicators
        if communicator.size == size and communicator.nodes
    }


def measured_links(run: Run) -> list[BenchLink]:
    """Return the links that the link benchmark measured on this machine's GPUs."""
    return [link for result in run.bench if result.is_reference for link in result.links]


def link_reference(run: Run, source: int, destination: int) -> float | None:
    """Return what a pair can reach, GB/s: its own benchmark, its limit, else the groups' reference."""
    for link in measured_links(run):
        if (link.source, link.destination) == (source, destination):
            return link.limit_gbs or link.bandwidth_gbs
    return group_reference(run)[0]
