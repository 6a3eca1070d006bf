"""Joins the columns of all ranks to one program, and their collectives to each other."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trace_analyzer.analyses.cross_rank import CrossRank
from trace_analyzer.analyses.partition import Busy
from trace_analyzer.analyses.replay.built import Built, RankProgram
from trace_analyzer.analyses.replay.program import COMM, NONE, Program
from trace_analyzer.analyses.steps import DeviceSteps
from trace_analyzer.model import Rank
from trace_analyzer.schema import NA_INT64, Float64Array, Int64Array


def joined(
    ranks: Mapping[int, tuple[Rank, DeviceSteps, Busy]],
    parts: Mapping[int, RankProgram],
    hosts: list[dict[str, Int64Array]],
    columns: list[dict[str, Int64Array]],
    cross: CrossRank | None,
    alpha: Float64Array,
    numbers: tuple[int, ...],
) -> Built:
    def host(name: str) -> Int64Array:
        return np.concatenate([part[name] for part in hosts])

    def op(name: str) -> Int64Array:
        return np.concatenate([part[name] for part in columns])

    streams = np.concatenate([[0], np.cumsum(op("streams"))])
    stream = np.concatenate(
        [
            np.where(part["stream"] < 0, part["stream"], part["stream"] + first)
            for part, first in zip(columns, streams, strict=False)
        ]
    )
    start, end = op("start"), op("end")
    collective, transfer, offset, size, kept = _collectives(op("collective"), start, end, cross)
    lost = int(np.sum((op("class") == COMM) & (collective == NONE) & (op("node") != NONE)))
    program = Program(
        ranks=tuple(ranks),
        node_first=np.concatenate([[0], np.cumsum([len(p.host) for p in parts.values()])]).astype(
            np.int64
        ),
        node_gap_ns=host("gap"),
        node_cost_ns=host("cost"),
        node_step=host("step").astype(np.int32),
        node_queue=host("queue").astype(np.int32),
        wait_first=_first(host("wait_count")),
        wait_operation=host("wait_op").astype(np.int32),
        op_rank=op("rank").astype(np.int32),
        op_node=op("node").astype(np.int32),
        op_fixed_ns=op("fixed"),
        op_stream=stream.astype(np.int32),
        op_class=op("class").astype(np.int8),
        op_base_ns=op("base"),
        op_latency_ns=op("latency"),
        op_gap_ns=op("gap"),
        op_collective=collective.astype(np.int32),
        op_end_offset_ns=offset,
        dep_first=_first(op("dep_count")),
        dep_operation=op("dep_op").astype(np.int32),
        collective_size=size.astype(np.int32),
        collective_transfer_ns=transfer,
        alpha=alpha,
        steps=numbers,
    )
    return Built(
        program=program,
        parts=parts,
        op_start_ns=start,
        op_end_ns=end,
        instance=kept,
        edges=sum(len(p.edges.device_from) for p in parts.values()),
        violated=sum(p.edges.violated for p in parts.values()),
        unmatched=lost,
    )


def _first(count: Int64Array) -> Int64Array:
    return np.concatenate([[0], np.cumsum(count)]).astype(np.int64)


def _collectives(
    instance: Int64Array, start: Int64Array, end: Int64Array, cross: CrossRank | None
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array, Int64Array]:
    """Return (collective of each operation, transfer, end offset of each operation, size, instance).

    Only collectives of which all members are in the program are joined; others keep their own
    duration. The offset is what a member ended after last arrival plus transfer.
    """
    nothing = np.empty(0, dtype=np.int64)
    offset = np.zeros(len(instance), dtype=np.int64)
    if cross is None or not bool(np.any(instance != NONE)):
        return np.full(len(instance), NONE, dtype=np.int64), nothing, offset, nothing, nothing
    full = np.diff(cross.matches.first)
    have = np.bincount(instance[instance != NONE], minlength=len(full))
    kept = np.flatnonzero(have == full)
    number = np.full(len(full), NONE, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    collective = np.where(instance == NONE, NONE, number[instance])
    transfer = cross.waits.transfer_ns[kept]
    member = np.flatnonzero(collective != NONE)
    arrival = np.full(len(kept), NA_INT64, dtype=np.int64)
    np.maximum.at(arrival, collective[member], start[member])
    offset[member] = end[member] - (arrival + transfer)[collective[member]]
    return collective, transfer, offset, full[kept], kept.astype(np.int64)
