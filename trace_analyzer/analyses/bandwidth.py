"""Latency and bandwidth of groups and pairs, from the transfers of matched collectives.

A kernel trace shows the bandwidth of a group's slowest link, not of each link: single links are
told only where two ranks talk (groups of two, send and receive).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.cross_rank import CrossRank
from trace_analyzer.nccl_names import bus_factor
from trace_analyzer.schema import Float64Array, Int64Array, is_na

# A line through sizes that differ less than this is all noise (t = α + S / β).
LEAST_SIZE_RATIO = 4.0
# The median miss of the line, as a share of the transfer; above it no latency is printed.
LARGEST_FIT_ERROR = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBandwidth:
    """What a group delivers; bus bandwidth as nccl-tests defines it, decimal GB/s.

    `latency_us` is α of t = α + S/β over the most used operation; None where sizes do not differ
    enough or the line does not fit.
    """

    group: int  # position in CommEvents.groups
    operation: str
    latency_us: float | None
    busbw_gbs: float | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkBandwidth:
    """What moved between two ranks. Bandwidth is that of the largest size class's median."""

    source: int
    destination: int
    bytes: int
    count: int
    latency_us: float | None
    bandwidth_gbs: float | None
    basis: str  # "p2p" or "pair-group"


def _instances(cross: CrossRank) -> Mapping[str, Int64Array]:
    """Return group, operation, size and transfer of every matched collective."""
    first = cross.matches.event[cross.matches.first[:-1]]
    events = cross.events
    return {
        "group": events.group[first].astype(np.int64),
        "operation": events.operation[first].astype(np.int64),
        "bytes": events.message_bytes[first],
        "transfer": cross.waits.transfer_ns,
    }


def fit_line(size_bytes: Float64Array, transfer_ns: Float64Array) -> tuple[float, float] | None:
    """Return (α in ns, β in bytes per ns) of t = α + S/β, or None where the data cannot tell.

    Fitted to the median transfer of each size, weighted by relative error, so that small messages
    determine the latency and large ones the bandwidth.
    """
    sizes, inverse = np.unique(size_bytes, return_inverse=True)
    if len(sizes) < 2 or sizes[0] <= 0 or sizes[-1] / sizes[0] < LEAST_SIZE_RATIO:
        return None
    median = np.array(
        [np.median(transfer_ns[inverse == k]) for k in range(len(sizes))], dtype=np.float64
    )
    if bool(np.any(median <= 0)):
        return None
    weight = 1.0 / median
    design = np.stack([weight, sizes * weight], axis=1)
    (alpha, slope), *_ = np.linalg.lstsq(design, np.ones(len(sizes)), rcond=None)
    if slope <= 0 or alpha < 0:
        return None
    miss = np.median(np.abs(alpha + slope * sizes - median) / median)
    return (float(alpha), 1.0 / float(slope)) if miss <= LARGEST_FIT_ERROR else None


def group_bandwidths(cross: CrossRank) -> list[GroupBandwidth]:
    """Return one entry a group with matched collectives of known size."""
    columns = _instances(cross)
    result: list[GroupBandwidth] = []
    for number, group in enumerate(cross.events.groups):
        here = (columns["group"] == number) & ~is_na(columns["bytes"]) & (columns["transfer"] > 0)
        if group.pair is not None or not bool(here.any()):
            continue
        volume: dict[int, int] = {}
        for code, size in zip(
            columns["operation"][here].tolist(), columns["bytes"][here].tolist(), strict=True
        ):
            volume[code] = volume.get(code, 0) + size
        code = max(volume, key=lambda item: (volume[item], -item))
        operation = cross.events.operations[code]
        here &= columns["operation"] == code
        size = columns["bytes"][here].astype(np.float64)
        transfer = columns["transfer"][here].astype(np.float64)
        line = fit_line(size, transfer)
        factor = bus_factor(operation, group.size or len(group.ranks))
        largest = size == size.max()
        bandwidth = float(np.median(size[largest] / transfer[largest]))
        result.append(
            GroupBandwidth(
                group=number,
                operation=operation,
                latency_us=None if line is None else line[0] / 1e3,
                busbw_gbs=None if factor is None else bandwidth * factor,
                count=int(here.sum()),
            )
        )
    return result


def link_bandwidths(cross: CrossRank) -> list[LinkBandwidth]:
    """Return one entry a pair of ranks that talk alone: send and receive, or a group of two."""
    columns = _instances(cross)
    result: list[LinkBandwidth] = []
    for number, group in enumerate(cross.events.groups):
        here = (columns["group"] == number) & ~is_na(columns["bytes"]) & (columns["transfer"] > 0)
        pair = group.pair or (group.ranks if len(group.ranks) == 2 and group.known else None)
        if pair is None or not bool(here.any()):
            continue
        size = columns["bytes"][here].astype(np.float64)
        transfer = columns["transfer"][here].astype(np.float64)
        names = [cross.events.operations[code] for code in columns["operation"][here].tolist()]
        factors = np.array([bus_factor(name, 2) or np.nan for name in names], dtype=np.float64)
        largest = (size == np.max(size)) & ~np.isnan(factors)
        if not bool(largest.any()):
            continue
        line = fit_line(size, transfer)
        both = [pair] if group.pair else [pair, (pair[1], pair[0])]
        result.extend(
            LinkBandwidth(
                source=source,
                destination=destination,
                bytes=int(size.sum()),
                count=len(size),
                latency_us=None if line is None else line[0] / 1e3,
                bandwidth_gbs=float(np.median((size * factors / transfer)[largest])),
                basis="p2p" if group.pair else "pair-group",
            )
            for source, destination in both
        )
    return result
