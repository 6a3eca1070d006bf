"""The communication of one process: which calls it made, and which GPU work executed them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trace_analyzer.kernels import communication_names
from trace_analyzer.model import ProcessGroup
from trace_analyzer.names import NameTable
from trace_analyzer.nccl_names import operation_of
from trace_analyzer.readers.nsys_collective_table import CollectiveWriter, Communicators
from trace_analyzer.readers.nsys_columns import distinct
from trace_analyzer.readers.nsys_copies import DEVICE_COPIES
from trace_analyzer.readers.nsys_events import OrderedCalls
from trace_analyzer.readers.nsys_nccl import NONE, Calls, kernel_type, match
from trace_analyzer.readers.nsys_payload import NO_PAYLOAD, Payload
from trace_analyzer.readers.nsys_ranges import OrderedEvents
from trace_analyzer.readers.nsys_world import World
from trace_analyzer.schema import NA_INT32, NA_INT64, AnyArray, BoolArray, Int32Array, Int64Array
from trace_analyzer.tables import Collectives, OperationKind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """GPU operations of one process that may be communication, in order of launch.

    `row` is the row in the operations table; launch columns are NA for work without a launch call.
    """

    row: Int64Array
    name: Int32Array
    is_copy: BoolArray
    launch_thread: Int64Array
    launch_start: Int64Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Communication:
    """The result: the table, and who refers to it.

    `of_operation` has an entry for each candidate, `of_event` for each host event. `copies` are
    the candidate copies that NCCL made.
    """

    table: Collectives
    groups: tuple[ProcessGroup, ...]
    of_operation: Int32Array
    of_event: Int32Array
    copies: BoolArray
    ranges: int  # NCCL ranges that move data
    unsized: int  # ranges of these without a payload
    matched: int  # NCCL kernels that were matched to ranges
    ambiguous: int
    unmapped_peers: int


def communicate(
    candidates: Candidates,
    events: OrderedEvents,
    payloads: Mapping[int, Payload],
    world: World,
    names: NameTable,
) -> Communication:
    """Match ranges and work of one process, and describe the calls."""
    rows = np.flatnonzero(events.nccl)
    found, label = np.unique(events.name[rows], return_inverse=True)
    labels = [names.texts[position] for position in found.tolist()]
    payload = [payloads.get(row, NO_PAYLOAD) for row in events.row_id[rows].tolist()]
    communicators = Communicators(payload)
    kernel_names, kernel_label = np.unique(candidates.name, return_inverse=True)
    titles = [names.texts[position] for position in kernel_names.tolist()]
    operations = [operation_of(title) or "" for title in titles]
    family = [
        "copy" if copy else operations[kernel]
        for copy, kernel in zip(
            candidates.is_copy.tolist(), kernel_label.reshape(-1).tolist(), strict=True
        )
    ]
    calls = Calls(
        labels=labels,
        label=label.reshape(-1).astype(np.int64),
        thread=events.thread[rows],
        start=events.start[rows],
        end=events.end[rows],
        communicator=communicators.of_call,
        launch_thread=candidates.launch_thread,
        launch_start=candidates.launch_start,
        family=family,
    )
    units = match(calls)
    lone = np.flatnonzero(
        (units.of_operation == NONE) & np.array([name not in {"", "copy"} for name in family], bool)
    )
    of_operation = units.of_operation.copy()
    of_operation[lone] = units.count + np.arange(len(lone))
    writer = CollectiveWriter(units, len(lone), world, communicators, names)
    writer.describe_calls(calls, payload)
    writer.name_lone([family[row] for row in lone.tolist()])
    writer.describe_types(of_operation, [kernel_type(title) for title in titles], kernel_label)
    of_event = np.full(len(events.start), NA_INT32, dtype=np.int32)
    of_event[rows] = np.where(units.of_range == NONE, NA_INT32, units.of_range)
    return Communication(
        table=writer.table(),
        groups=communicators.groups(world),
        of_operation=np.where(of_operation == NONE, NA_INT32, of_operation).astype(np.int32),
        of_event=of_event,
        copies=candidates.is_copy & units.in_call,
        ranges=int(np.count_nonzero(units.of_range != NONE)),
        unsized=sum(
            payload[row] is NO_PAYLOAD for row in np.flatnonzero(units.of_range != NONE).tolist()
        ),
        matched=int(np.count_nonzero((units.of_operation != NONE) & ~candidates.is_copy)),
        ambiguous=units.ambiguous,
        unmapped_peers=writer.unmapped_peers,
    )


def communication_kernels(names: NameTable, rows: Mapping[str, AnyArray]) -> BoolArray:
    """Return which operations are kernels that move data between GPUs."""
    found, inverse = distinct(rows["name"].astype(np.int64))
    hits = communication_names([names.texts[position] for position in found.tolist()])
    return np.asarray(hits[inverse] & (rows["kind"] == OperationKind.KERNEL), dtype=np.bool_)


def find_candidates(
    names: NameTable,
    rows: Mapping[str, AnyArray],
    launch: Int32Array,
    calls: OrderedCalls,
    events: OrderedEvents,
) -> Candidates:
    """Return NCCL's kernels, and the copies between devices launched during an NCCL range."""
    found, inverse = distinct(rows["name"].astype(np.int64))
    hits = [_is_nccl(names.texts[position]) for position in found.tolist()]
    nccl = np.array(hits, dtype=np.bool_)[inverse] & (rows["kind"] == OperationKind.KERNEL)
    linked = launch != NA_INT32
    launched = np.full(len(launch), NA_INT64, dtype=np.int64)
    launched[linked] = calls.start[launch[linked]]
    thread = np.full(len(launch), NA_INT64, dtype=np.int64)
    thread[linked] = calls.thread[launch[linked]]
    copies = np.flatnonzero(
        linked & np.isin(rows["copy_kind"], DEVICE_COPIES) & (rows["kind"] == OperationKind.MEMCPY)
    )
    ranges = np.flatnonzero(events.nccl)
    if len(ranges) and len(copies):
        open_until = np.maximum.accumulate(events.end[ranges])
        at = np.searchsorted(events.start[ranges], launched[copies], side="right") - 1
        copies = copies[(at >= 0) & (launched[copies] < open_until[np.maximum(at, 0)])]
    else:
        copies = copies[:0]
    chosen = np.concatenate([np.flatnonzero(nccl), copies])
    chosen = chosen[np.lexsort((rows["start"][chosen], launched[chosen]))]
    return Candidates(
        row=chosen,
        name=rows["name"][chosen],
        is_copy=np.asarray(rows["kind"][chosen] == OperationKind.MEMCPY, dtype=np.bool_),
        launch_thread=thread[chosen],
        launch_start=launched[chosen],
    )


def _is_nccl(name: str) -> bool:
    return "nccl" in name and bool(communication_names([name])[0])
