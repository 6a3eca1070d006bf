"""Copies between host and device that a step's threads ask for, and how fast pinned ones are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.host_syncs import SMALL_COPY_BYTES, host_syncs
from trace_analyzer.analyses.idle import launching_threads
from trace_analyzer.model import Rank
from trace_analyzer.schema import NA_INT64, BoolArray, Int64Array, is_na
from trace_analyzer.tables import CallKind, OperationKind

# Below this a copy's start-up cost hides the bandwidth.
TELLING_BYTES = 1 << 20
# What pinned memory reaches over PCIe by generation, bytes a second: 80 % of 16 lanes. Devices up
# to compute capability 7 have PCIe 3, 8 has PCIe 4, from 9 on PCIe 5.
_PCIE_BYTES_PER_S = {7: 12e9, 8: 24e9, 9: 50e9}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostCopies:
    """Large copies of one rank's launching threads in order; arrays have one entry a copy.

    `operation` and `call` are rows of the rank's GPU operations and calls; `wait` is the row of the
    call that waits for the copy: its own, or a synchronisation after it; NA where nobody waits.
    """

    operation: Int64Array
    call: Int64Array
    wait: Int64Array
    bytes: Int64Array
    to_device: BoolArray
    pageable: BoolArray

    def __len__(self) -> int:
        return len(self.operation)

    def take(self, chosen: BoolArray) -> HostCopies:
        """Return some of the copies."""
        return HostCopies(
            operation=self.operation[chosen],
            call=self.call[chosen],
            wait=self.wait[chosen],
            bytes=self.bytes[chosen],
            to_device=self.to_device[chosen],
            pageable=self.pageable[chosen],
        )


def host_copies(rank: Rank) -> HostCopies:
    """Return the copies of more than 64 KiB between host and device."""
    operations, calls = rank.operations, rank.calls

    def named(part: str) -> BoolArray:
        found = np.array([part in text for text in rank.names], dtype=np.bool_)
        return np.asarray(found[operations.name], dtype=np.bool_)

    to_device, to_host = named("HtoD"), named("DtoH")
    rows = np.flatnonzero(
        (operations.kind == OperationKind.MEMCPY)
        & (to_device | to_host)
        & (operations.bytes > SMALL_COPY_BYTES)
        & ~is_na(operations.launch)
    )
    call = operations.launch[rows].astype(np.int64)
    mine = np.isin(calls.thread[call], launching_threads(rank))
    rows, call = rows[mine], call[mine]
    syncs = host_syncs(rank)
    # An event that is waited for may be any; a stream or its copy is the one right before.
    is_event = np.array(["EventSync" in text for text in rank.names], dtype=np.bool_)
    waits = syncs.copy != NA_INT64
    waits &= ~is_event[calls.name[syncs.call]] | (calls.kind[syncs.call] != CallKind.SYNC)
    of_copy = np.full(len(operations), NA_INT64, dtype=np.int64)
    of_copy[syncs.copy[waits]] = syncs.call[waits]
    return HostCopies(
        operation=rows.astype(np.int64),
        call=call,
        wait=of_copy[rows],
        bytes=operations.bytes[rows],
        to_device=to_device[rows],
        pageable=named("Pageable")[rows],
    )


def round_trips(copies: HostCopies) -> BoolArray:
    """Return which copies to the device bring back what one from the device took away before.

    They are told by their size: as many of it come back as have left, or nearly.
    """
    result = np.zeros(len(copies), dtype=np.bool_)
    for size in np.unique(copies.bytes[~copies.to_device]).tolist():
        same = copies.bytes == size
        out = int(np.sum(same & ~copies.to_device))
        back = same & copies.to_device
        if abs(int(back.sum()) - out) <= 1:
            result |= back
    return result


def pinned_bytes_per_ns(ranks: Iterable[Rank]) -> tuple[float, str]:
    """Return the bandwidth of pinned copies in bytes a ns (GB/s), and where it comes from.

    Of the run itself where it has copies large enough, else what the GPUs' PCIe reaches.
    """
    ranks = list(ranks)
    seen: list[float] = []
    for rank in ranks:
        copies = host_copies(rank)
        large = ~copies.pageable & (copies.bytes >= TELLING_BYTES)
        row = copies.operation[large]
        length = rank.operations.end_ns[row] - rank.operations.start_ns[row]
        seen += (copies.bytes[large] / np.maximum(length, 1)).tolist()
    if seen:
        return float(np.median(seen)), "pinned copies of this run"
    capability = [
        device.compute_capability[0]
        for rank in ranks
        for device in rank.devices
        if device.compute_capability is not None
    ]
    generation = min(max(min(capability, default=7), 7), 9)
    return _PCIE_BYTES_PER_S[generation] / 1e9, "what PCIe of such GPUs reaches"
