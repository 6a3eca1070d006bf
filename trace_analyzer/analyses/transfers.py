"""Matched collectives with what their launch and their transfer tell.

The transfer of a matched collective is free of waiting for peers (see `waits`), so that slow
transfers and late ranks are never mixed up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.cross_rank import CrossRank
from trace_analyzer.analyses.partition import Busy
from trace_analyzer.model import Rank
from trace_analyzer.nccl_names import bus_factor
from trace_analyzer.schema import (
    NA_INT64,
    BoolArray,
    Float64Array,
    Int64Array,
    is_na,
    widened,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Transfers:
    """One entry a matched collective, in order of first start.

    `group` and `operation` are positions in the events' groups and operations. `bus_bytes` is the
    message times nccl-tests' factor, NaN where size or factor are unknown. `channels` and `block`
    are the launch shape, NA where it is missing or differs over ranks. `exposed_ns` is the longest
    part of the transfer, over ranks, that no computation hides. `steady` says whether all members
    were launched in steady steps.
    """

    instance: Int64Array
    group: Int64Array
    operation: Int64Array
    step: Int64Array
    message_bytes: Int64Array
    bus_bytes: Float64Array
    transfer_ns: Int64Array
    exposed_ns: Int64Array
    channels: Int64Array
    block: Int64Array
    steady: BoolArray

    def __len__(self) -> int:
        return len(self.instance)

    def take(self, chosen: BoolArray | Int64Array) -> Transfers:
        """Return some of the collectives."""
        return Transfers(**{name: getattr(self, name)[chosen] for name in self.__slots__})

    @property
    def busbw_gbs(self) -> Float64Array:
        """Bus bandwidth of each collective, decimal GB/s; NaN where unknown."""
        found: Float64Array = self.bus_bytes / np.maximum(self.transfer_ns, 1)
        return found


def transfers(
    cross: CrossRank,
    ranks: Mapping[int, Rank],
    work: Mapping[int, Busy],
    steady: Mapping[int, BoolArray],
) -> Transfers:
    """Return all matched collectives.

    `steady[rank]` tells of each of the rank's GPU operations whether a steady step launched it.
    """
    events, matches = cross.events, cross.matches
    event = matches.event
    inside = np.ones(len(matches.first) - 1, dtype=np.bool_)
    low = np.full(len(inside), np.iinfo(np.int64).max, dtype=np.int64)
    high = np.full(len(inside), np.iinfo(np.int64).min, dtype=np.int64)
    shape = {name: (low.copy(), high.copy()) for name in ("grid_x", "block_x")}
    exposed = np.zeros(len(inside), dtype=np.int64)
    start = events.start_ns[event]
    change = np.minimum(start + cross.waits.wait_ns, events.end_ns[event])
    for number, rank in ranks.items():
        mine = np.flatnonzero(events.rank[event] == number)
        row, at = events.row[event[mine]], matches.instance[mine]
        np.logical_and.at(inside, at, steady[number][row])
        end = events.end_ns[event[mine]]
        hidden = intervals.coverage(work[number].compute, change[mine], end)
        np.maximum.at(exposed, at, end - change[mine] - hidden)
        config = rank.operations.launch_config[row]
        for name, (smallest, largest) in shape.items():
            values = np.where(
                is_na(config),
                NA_INT64,
                widened(getattr(rank.configs, name))[np.maximum(config, 0)]
                if len(rank.configs)
                else NA_INT64,
            )
            np.minimum.at(smallest, at, values)
            np.maximum.at(largest, at, values)
    first = event[matches.first[:-1]]
    size = np.array([item.size or len(item.ranks) for item in events.groups], dtype=np.int64)
    group, operation = events.group[first].astype(np.int64), events.operation[first]
    factor = _factors(events.operations, size)[operation, group]
    message = events.message_bytes[first]
    return Transfers(
        instance=np.arange(len(inside), dtype=np.int64),
        group=group,
        operation=operation.astype(np.int64),
        step=events.step[first],
        message_bytes=message,
        bus_bytes=np.where(is_na(message), np.nan, message * factor),
        transfer_ns=cross.waits.transfer_ns,
        exposed_ns=exposed,
        channels=_agreed(*shape["grid_x"]),
        block=_agreed(*shape["block_x"]),
        steady=inside,
    )


def _factors(operations: tuple[str, ...], size: Int64Array) -> Float64Array:
    """Return bus bytes over message bytes, shape (operations, groups); NaN where undefined."""
    table = [[bus_factor(name, int(n)) for n in size] for name in operations]
    return np.array(
        [[np.nan if value is None else value for value in row] for row in table], dtype=np.float64
    ).reshape(len(operations), len(size))


def _agreed(low: Int64Array, high: Int64Array) -> Int64Array:
    return np.where(low == high, low, NA_INT64)
