"""One process of an nsys export → one rank of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from trace_analyzer.kernels import work_classes
from trace_analyzer.model import Capture, DataWarning, Rank, SourceKind
from trace_analyzer.names import NameTable
from trace_analyzer.readers.nsys_collectives import (
    Candidates,
    Communication,
    communicate,
    communication_kernels,
    find_candidates,
)
from trace_analyzer.readers.nsys_columns import (
    Texts,
    by_process,
    distinct,
    first_rows,
    narrowed,
    row_order,
    take,
)
from trace_analyzer.readers.nsys_devices import DeviceMap
from trace_analyzer.readers.nsys_events import (
    PID_MASK,
    PROCESS_SHIFT,
    TID_MASK,
    CallRows,
    GpuRows,
    OrderedCalls,
    calls_of,
    launch_rows,
)
from trace_analyzer.readers.nsys_facts import Facts
from trace_analyzer.readers.nsys_marks import Marks
from trace_analyzer.readers.nsys_payload import Payload
from trace_analyzer.readers.nsys_ranges import EventRows, OrderedEvents, events_of
from trace_analyzer.readers.nsys_sync import SyncRows, syncs_of
from trace_analyzer.readers.nsys_trust import Diagnostics, balance
from trace_analyzer.readers.nsys_warnings import (
    event_warnings,
    graph_warnings,
    missing_warnings,
    row_warnings,
)
from trace_analyzer.readers.nsys_world import World
from trace_analyzer.schema import (
    NA_INT32,
    NA_INT64,
    AnyArray,
    BoolArray,
    Int8Array,
    Int32Array,
    Int64Array,
    is_na,
)
from trace_analyzer.tables import GpuOperations, OperationKind, Threads


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recording:
    """A whole export, read: its rows, and what they are to be interpreted with.

    `pids` maps process keys to process ids; None where the file does not tell. `calibration_rows`
    counts what of each process was our recorder's own benchmark and is left out.
    """

    shown: str
    operations: GpuRows
    operation_names: Int32Array
    calls: CallRows
    events: EventRows
    syncs: SyncRows
    texts: Texts
    payloads: Mapping[int, Payload]
    undecoded: int
    devices: DeviceMap
    facts: Facts
    diagnostics: Diagnostics
    pids: Mapping[int, int | None]
    marks: Marks
    calibration_rows: Mapping[int, int]
    odd_values: int
    unread: Mapping[str, int]
    warnings: tuple[DataWarning, ...]

    @property
    def names(self) -> NameTable:
        """The names that all ranks of the file share."""
        return self.texts.names


def rank_of(recording: Recording, key: int, world: World) -> Rank:
    """Return the rank of one process."""
    pid = recording.pids[key]
    calls = calls_of(recording.calls, by_process(recording.calls.process, key), recording.texts)
    rows, duplicates = _ordered_rows(recording, key)
    launch = launch_rows(calls, rows["correlation"])
    last_ns = max(int(rows["end"].max(initial=NA_INT64)), int(calls.end.max(initial=NA_INT64)))
    events = events_of(recording.events, by_process(recording.events.process, key), last_ns)
    comm = communication_kernels(recording.names, rows)
    candidates = find_candidates(recording.names, rows, launch, calls, events)
    found = communicate(candidates, events, recording.payloads, world, recording.names)
    comm[candidates.row[found.copies]] = True
    operations = _operations_table(rows, launch, comm, candidates, found)
    threads, of_call, of_event = _threads(recording, key, calls, events)
    host_calls = calls.table(recording.names, of_call)
    syncs, unplaced = syncs_of(
        recording.syncs,
        (
            by_process(recording.syncs.syncs["process"], key),
            by_process(recording.syncs.records["process"], key),
        ),
        calls,
        _device_of_context(rows),
    )
    ordinals = np.unique(operations.device[~is_na(operations.device)]).tolist()
    agreement = balance(operations, host_calls, recording.names.texts)
    whole_graphs = int(np.count_nonzero(rows["whole_graph"]))
    rank = world.ranks[key]
    warnings = [
        *recording.warnings,
        *event_warnings(agreement, pid, recording.diagnostics),
        *graph_warnings(agreement, whole_graphs),
        *row_warnings(
            recording.operations.damaged + recording.calls.damaged + recording.events.damaged,
            recording.odd_values,
            duplicates,
        ),
        *missing_warnings(
            device_certain=recording.devices.is_certain(pid, ordinals),
            opened=events.opened,
            undecoded=recording.undecoded,
            unsized=0 if recording.undecoded else found.unsized,
            ambiguous=found.ambiguous,
            unmapped_peers=found.unmapped_peers,
        ),
    ]
    first_ns = int(operations.start_ns[0]) if len(operations) else 0
    return Rank(
        rank=rank,
        rank_basis=world.basis,
        source=SourceKind.NSYS,
        path=recording.shown,
        names=recording.names.texts,
        operations=operations,
        configs=recording.operations.shapes,
        calls=host_calls,
        events=events.table(of_event, found.of_event),
        syncs=syncs,
        collectives=found.table,
        threads=threads,
        groups=found.groups,
        devices=recording.devices.devices(pid, ordinals),
        world_size=world.size,
        host=recording.facts.host,
        pid=pid,
        clock_base_ns=recording.facts.clock_base_ns(first_ns),
        capture=Capture(
            graph_mode=recording.facts.graph_mode, sync_events=recording.syncs.present or None
        ),
        versions=recording.facts.versions,
        settings=recording.facts.settings,
        counts={
            "kernels": int(np.count_nonzero(rows["kind"] == OperationKind.KERNEL)) - whole_graphs,
            "memcpys": int(np.count_nonzero(rows["kind"] == OperationKind.MEMCPY)),
            "memsets": int(np.count_nonzero(rows["kind"] == OperationKind.MEMSET)),
            "graph_runs": whole_graphs,
            "host_calls": len(host_calls),
            "host_events": len(events.start),
            "synchronizations": len(syncs),
            "nccl_ranges": found.ranges,
            "nccl_kernels": int(np.count_nonzero(~candidates.is_copy)),
            "nccl_kernels_in_ranges": found.matched,
            "left_out_duplicates": duplicates,
            "left_out_synchronizations": unplaced,
            "left_out_nvtx_rows": recording.events.other_nvtx,
            "left_out_calibration_rows": recording.calibration_rows.get(key, 0),
            **{f"unread_{table}": count for table, count in recording.unread.items()},
        },
        warnings=tuple(replace(warning, ranks=(rank,)) for warning in warnings),
    )


def _ordered_rows(recording: Recording, key: int) -> tuple[dict[str, AnyArray], int]:
    """Return the operations of a process in table order, and how many duplicates were left out."""
    source = recording.operations
    columns: dict[str, AnyArray] = {
        name: getattr(source, name)
        for name in (
            "start",
            "end",
            "kind",
            "device",
            "context",
            "stream",
            "correlation",
            "graph_node",
            "bytes",
            "shape",
            "copy_kind",
            "whole_graph",
        )
    }
    columns["name"] = recording.operation_names
    columns = take(columns, by_process(source.process, key))
    columns = take(columns, row_order(columns["start"], columns["end"]))
    same = np.zeros(len(columns["start"]), dtype=np.bool_)
    if len(same):
        same[1:] = columns["start"][1:] == columns["start"][:-1]
    if same.any():
        for name in ("end", "name", "device", "context", "stream", "correlation", "graph_node"):
            same[1:] &= columns[name][1:] == columns[name][:-1]
    duplicates = int(np.count_nonzero(same))
    return (take(columns, ~same) if duplicates else columns), duplicates


def _operations_table(
    rows: Mapping[str, AnyArray],
    launch: Int32Array,
    comm: BoolArray,
    candidates: Candidates,
    found: Communication,
) -> GpuOperations:
    count = len(launch)
    collective = np.full(count, NA_INT32, dtype=np.int32)
    collective[candidates.row] = found.of_operation
    kind: Int8Array = rows["kind"].astype(np.int8)
    return GpuOperations.from_columns(
        count,
        start_ns=rows["start"],
        end_ns=rows["end"],
        kind=kind,
        work=work_classes(kind, comm),
        name=rows["name"],
        device=narrowed(rows["device"], "int16"),
        context=narrowed(rows["context"]),
        stream=rows["stream"],
        correlation=rows["correlation"],
        launch=launch,
        graph_node=rows["graph_node"],
        bytes=rows["bytes"],
        launch_config=narrowed(rows["shape"]),
        collective=collective,
    )


def _threads(
    recording: Recording, key: int, calls: OrderedCalls, events: OrderedEvents
) -> tuple[Threads, Int32Array, Int32Array]:
    """Return the threads that own events, and their rows for every call and event."""
    base = key << PROCESS_SHIFT  # without it, thread ids are small numbers
    of_calls, at_call = distinct(np.where(calls.thread == NA_INT64, NA_INT64, calls.thread - base))
    of_events, at_event = distinct(
        np.where(events.thread == NA_INT64, NA_INT64, events.thread - base)
    )
    every = np.union1d(of_calls, of_events)
    known = every != NA_INT64
    global_ids = np.where(known, every + base, 0)
    titles = recording.events.thread_titles
    names = [
        recording.names.intern(titles[thread]) if real and thread in titles else NA_INT32
        for thread, real in zip(global_ids.tolist(), known.tolist(), strict=True)
    ]
    table = Threads.from_columns(
        len(every),
        process=np.where(known, global_ids >> PROCESS_SHIFT & PID_MASK, NA_INT64),
        thread=np.where(known, global_ids & TID_MASK, NA_INT64),
        name=np.array(names, dtype=np.int32),
    )
    return table, _rows_in(every, of_calls)[at_call], _rows_in(every, of_events)[at_event]


def _rows_in(every: Int64Array, some: Int64Array) -> Int32Array:
    return np.searchsorted(every, some).astype(np.int32)


def _device_of_context(rows: Mapping[str, AnyArray]) -> dict[int, int]:
    contexts, _ = distinct(rows["context"])
    first = first_rows(rows["context"], contexts)
    return {
        int(context): int(rows["device"][row])
        for context, row in zip(contexts.tolist(), first.tolist(), strict=True)
        if NA_INT64 not in {context, row}
    }
