"""Transfers far slower than the machine's links allow, and which of three reasons that has.

A collective may have too few channels, may use a protocol that wastes bandwidth, or its data may
take a slow way. The three are told apart by what a single channel delivers and by the launch
shape: a channel over NVLink moves about 20 GB/s whatever their number; over host memory or sockets
it moves much less; NCCL's low-latency protocol launches 256 or 512 threads a channel. No protocol
is read from a kernel's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from trace_analyzer.analyses.channels import SIMPLE_BLOCKS
from trace_analyzer.analyses.comm_events import CommEvents
from trace_analyzer.analyses.nccl_settings import nccl_settings
from trace_analyzer.analyses.references import START_NS, Reference, ring_reference
from trace_analyzer.analyses.transfers import Transfers
from trace_analyzer.model import Run
from trace_analyzer.schema import BoolArray, Float64Array, is_na

# What one channel of a ring carries over NVLink, GB/s: 20.9 measured on H200 with one channel;
# NCCL's own tables have 20 for Volta and Ampere.
CHANNEL_GBS = 20.9
# Beside computation a transfer took up to 1.35 times what it takes alone (H200); a protocol that
# wastes bandwidth takes at least twice as long.
SLOW = 1.6
# A channel that delivers less than this share of a channel over NVLink does not use NVLink.
CHANNEL_SHARE = 0.5
# Where the machine was measured, smaller messages tell too.
MEASURED_BYTES = 1 << 20
# Threads a channel of NCCL's low-latency protocol, without those of LL128 (320, 640).
LL_BLOCKS = (256, 512)
# Without its size, a message is taken to be large by its time: this many times a start-up.
LARGE_STARTS = 8.0

LIMITS = ("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MAX_NRINGS")
PROTOCOLS = ("NCCL_PROTO", "NCCL_ALGO")
TRANSPORTS = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_NET")


class Reason(StrEnum):
    """Why transfers are slow."""

    CHANNELS = "channels"
    PROTOCOL = "protocol"
    TRANSPORT = "transport"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SlowGroup:
    """A group whose large transfers are slow. Arrays have one entry a collective of `transfers`.

    `wanted_ns` is what each transfer should take, never more than it took; `slow` marks those that
    decide. `busbw_gbs` and `channels` are medians over these; bandwidth is None, and `wanted_ns`
    rests on what channels usually carry, where sizes are unknown.
    """

    group: int
    reason: Reason
    reference: Reference
    transfers: Transfers
    wanted_ns: Float64Array
    slow: BoolArray
    busbw_gbs: float | None
    channels: int | None
    block: int | None
    settings: Mapping[str, str]


def slow_groups(run: Run, events: CommEvents, found: Transfers) -> list[SlowGroup]:
    """Return the groups whose transfers are slow, each with one reason."""
    result = []
    for number, group in enumerate(events.groups):
        mine = found.take(found.group == number)
        # Where ranks are missing, the one that came last may be: then no duration is free of waits.
        complete = len(group.recorded) == (group.size or len(group.ranks))
        if group.pair is not None or not complete or not len(mine):
            continue
        reference = ring_reference(run, group)
        if reference is None:
            continue
        slow = _judged(run, number, mine, reference)
        if slow is not None:
            result.append(slow)
    return result


def _judged(run: Run, number: int, mine: Transfers, reference: Reference) -> SlowGroup | None:
    settings = nccl_settings(run, (*LIMITS, *PROTOCOLS, *TRANSPORTS))
    size, sized = _bus_bytes(mine, settings)
    took = mine.transfer_ns.astype(np.float64)
    wanted = reference.transfer_ns(np.where(np.isnan(size), 0.0, size))
    wanted = np.where(np.isnan(size), took, np.minimum(wanted, took))
    slow = mine.steady & (took >= SLOW * wanted)
    # Latency decides about small messages, and one slow message among many is chance.
    least = MEASURED_BYTES if reference.measured else START_NS * reference.busbw_gbs
    # A transfer without length is damage, and says nothing about bandwidth.
    large = mine.steady & (size >= least) & (took > 0)
    if not bool((slow & large).any()) or took[large].sum() < SLOW * wanted[large].sum():
        return None
    slow &= large
    bandwidth = float(np.median((size / took)[slow]))
    channels = _median(mine.channels[slow & ~is_na(mine.channels)])
    block = _median(mine.block[slow & ~is_na(mine.block)])
    return SlowGroup(
        group=number,
        reason=_reason(bandwidth, channels, block, reference, settings),
        reference=reference,
        transfers=mine,
        wanted_ns=wanted,
        slow=slow,
        busbw_gbs=bandwidth if sized else None,
        channels=channels,
        block=block,
        settings=settings,
    )


def _bus_bytes(mine: Transfers, settings: Mapping[str, str]) -> tuple[Float64Array, bool]:
    """Return bus bytes and whether they are recorded.

    Where no size is, a long transfer with one channel, or with few where a setting limits them,
    has the bytes that its channels carry in that time.
    """
    if not bool(np.all(np.isnan(mine.bus_bytes))):
        return mine.bus_bytes, True
    limited = any(name in settings for name in LIMITS) and not any(
        name in settings for name in TRANSPORTS
    )
    long = mine.transfer_ns >= LARGE_STARTS * START_NS
    known = long & np.isin(mine.block, list(SIMPLE_BLOCKS)) & ~is_na(mine.channels)
    known &= (mine.channels == 1) | limited
    carried = np.where(known, mine.channels, 0) * CHANNEL_GBS * mine.transfer_ns
    return np.where(known, carried, np.nan), False


def _reason(
    bandwidth: float,
    channels: int | None,
    block: int | None,
    reference: Reference,
    settings: Mapping[str, str],
) -> Reason:
    if block in LL_BLOCKS:
        return Reason.PROTOCOL
    if channels is not None:
        few = channels * CHANNEL_GBS * SLOW < reference.busbw_gbs
        if few and bandwidth / channels >= CHANNEL_SHARE * CHANNEL_GBS:
            return Reason.CHANNELS
    # Other protocols cannot be told by the launch, only by what is set.
    if any(name in settings for name in PROTOCOLS) and not any(
        name in settings for name in TRANSPORTS
    ):
        return Reason.PROTOCOL
    return Reason.TRANSPORT


def _median(values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int | None:
    return int(np.median(values)) if len(values) else None
