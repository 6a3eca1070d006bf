"""Nsight Systems SQLite exports, schema 2.9 (2022) to 3.28 → one rank for each GPU process.

Tables and columns are optional: what the file does not hold is missing in the result, and said.
The file is opened read-only; nothing is written beside it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from trace_analyzer.calls import call_kind
from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.model import DataWarning, Rank
from trace_analyzer.names import NameTable
from trace_analyzer.readers.nsys_columns import Texts, by_process, distinct
from trace_analyzer.readers.nsys_database import HEADER, has_log
from trace_analyzer.readers.nsys_devices import read_devices
from trace_analyzer.readers.nsys_events import (
    PID_MASK,
    CallRows,
    GpuRows,
    name_operations,
    read_calls,
    read_operations,
)
from trace_analyzer.readers.nsys_export import export_report
from trace_analyzer.readers.nsys_facts import read_facts
from trace_analyzer.readers.nsys_marks import read_marks, without_calibration
from trace_analyzer.readers.nsys_payload import read_payloads
from trace_analyzer.readers.nsys_process import Recording, rank_of
from trace_analyzer.readers.nsys_ranges import EventRows, event_rows, read_ranges
from trace_analyzer.readers.nsys_schema import Export, is_nsys
from trace_analyzer.readers.nsys_sync import SyncRows, read_syncs
from trace_analyzer.readers.nsys_trust import read_diagnostics
from trace_analyzer.readers.nsys_world import ProcessFacts, find_world, memberships
from trace_analyzer.schema import NA_INT64, Int64Array
from trace_analyzer.tables import CallKind

__all__ = ["export_report", "read", "sniff"]

_SCHEMA_BYTES = 1 << 20  # where the texts of CREATE TABLE stand, in a file that SQLite refuses
_SCHEMA_MARKS = (b"CUPTI_ACTIVITY_KIND_", b"META_DATA_EXPORT", b"TARGET_INFO_SESSION_START_TIME")
_WATCHDOG = "pt_nccl_watchdg"  # the thread that torch starts in every process that uses NCCL
# Tables with events that this reader does not use; named in the counts where they have rows.
_UNUSED = (
    "COMPOSITE_EVENTS",
    "CUBLAS_EVENTS",
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "CUDNN_EVENTS",
    "GPU_METRICS",
    "MPI_COLLECTIVES_EVENTS",
    "MPI_P2P_EVENTS",
    "NET_NIC_METRIC",
    "SCHED_EVENTS",
)


def sniff(path: Path) -> bool:
    """Tell whether a file is an nsys SQLite export, also a damaged or locked one.

    Looks at the content only, and never raises for what the file holds.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(_SCHEMA_BYTES)
    except OSError:
        return False
    if not head.startswith(HEADER):
        return False
    if has_log(path):  # to open it, it would have to be copied first
        return any(mark in head for mark in _SCHEMA_MARKS)
    try:
        with Export(path) as export:
            return is_nsys(export.tables)
    except UnreadableInputError:
        return any(mark in head for mark in _SCHEMA_MARKS)


def read(path: Path, *, display: str | None = None) -> list[Rank]:
    """Read an export: one rank for each process that did GPU work or takes part in NCCL.

    Ranks are in order of process id. Their number comes from NCCL's initialisation calls
    ("payload") or from another fact of the file ("content"); else processes are counted ("order").
    All times are nanoseconds of the session's clock. `display` is the name used in messages.

    Raises `UnreadableInputError` for a file that is empty, damaged, locked, or no nsys export, and
    for one without any GPU activity.
    """
    shown = display or str(path)
    with Export(path, shown) as export:
        if not is_nsys(export.tables):
            raise UnreadableInputError(
                shown,
                "an SQLite database, but not an export of Nsight Systems",
                "make one with `nsys export -t sqlite REPORT.nsys-rep`",
            )
        recording = _record(export, shown)
    keys = _gpu_processes(recording)
    if not keys:
        raise UnreadableInputError(shown, *_no_gpu_work(recording))
    world = find_world([_facts_of(recording, key) for key in keys], recording.facts.settings)
    return [rank_of(recording, key, world) for key in keys]


def _record(export: Export, shown: str) -> Recording:
    names = NameTable()
    operations = read_operations(export, names)
    calls = read_calls(export)
    ranges = read_ranges(export)
    syncs = read_syncs(export)
    ids = np.concatenate([operations.kernel_name_ids(), calls.name, *ranges.text_ids()])
    texts = Texts(export.strings(ids), names)
    events = event_rows(ranges, texts)
    payloads, undecoded = read_payloads(export, events.nccl_domains)
    marks = read_marks(events, names)
    operations, calls, events, syncs, calibration = without_calibration(
        operations, calls, events, syncs, marks
    )
    operations, calls, events, syncs, pids, warnings = _pooled(operations, calls, events, syncs)
    return Recording(
        shown=shown,
        operations=operations,
        operation_names=name_operations(operations, texts),
        calls=calls,
        events=events,
        syncs=syncs,
        texts=texts,
        payloads=payloads,
        undecoded=undecoded,
        devices=read_devices(export),
        facts=read_facts(export),
        diagnostics=read_diagnostics(export),
        pids=pids,
        marks=marks,
        calibration_rows=calibration,
        odd_values=export.odd_values,
        unread={table: count for table in _UNUSED if (count := export.count(table))},
        warnings=warnings,
    )


def _keys(*processes: Int64Array) -> list[int]:
    found: set[int] = set()
    for process in processes:
        if len(process):
            # Neighbours are mostly of one process: compare them before sorting.
            changes = np.flatnonzero(np.diff(process, prepend=process[0] ^ 1))
            found.update(np.unique(process[changes]).tolist())
    return sorted(found)


def _pooled(
    operations: GpuRows, calls: CallRows, events: EventRows, syncs: SyncRows
) -> tuple[GpuRows, CallRows, EventRows, SyncRows, dict[int, int | None], tuple[DataWarning, ...]]:
    """Take everything for one process where GPU operations or calls do not tell theirs."""
    keys = _keys(operations.process, calls.process)
    if NA_INT64 not in keys:
        keys = _keys(operations.process, calls.process, events.process)
        pids: dict[int, int | None] = {key: key & PID_MASK for key in keys if key != NA_INT64}
        return operations, calls, events, syncs, pids, ()
    told = [key for key in keys if key != NA_INT64]
    key = told[0] if len(told) == 1 else 0

    def of_one(process: Int64Array) -> Int64Array:
        return np.full(len(process), key, dtype=np.int64)

    warning = DataWarning(
        code="TRC011",
        message="the export does not say which process its GPU operations belong to",
        effect="all of it is taken for one process"
        + ("" if len(told) <= 1 else f", though {len(told)} made CUDA calls"),
    )
    return (
        replace(operations, process=of_one(operations.process)),
        replace(calls, process=of_one(calls.process)),
        replace(events, process=of_one(events.process)),
        SyncRows(
            syncs=syncs.syncs | {"process": of_one(syncs.syncs["process"])},
            records=syncs.records | {"process": of_one(syncs.records["process"])},
        ),
        {key: key & PID_MASK if len(told) == 1 else None},
        (warning,),
    )


def _gpu_processes(recording: Recording) -> list[int]:
    """Return the keys of processes that did GPU work, meant to, or are ranks of NCCL."""
    calls = recording.calls
    found, inverse = distinct(calls.name)
    launches = [_is_launch(recording.texts.strings.get(key, "")) for key in found.tolist()]
    launched = np.array(launches, dtype=np.bool_)[inverse]
    watched = {
        thread >> 24
        for thread, title in recording.events.thread_titles.items()
        if title == _WATCHDOG
    }
    keys = set(_keys(recording.operations.process))
    keys.update(_keys(calls.process[launched]))
    keys.update(_keys(recording.events.process[recording.events.nccl == 1]))
    keys.update(watched & set(recording.pids))
    return sorted(keys - {NA_INT64}, key=lambda key: (key & PID_MASK, key))


def _is_launch(name: str) -> bool:
    return call_kind(name) in {CallKind.LAUNCH, CallKind.GRAPH_LAUNCH}


def _facts_of(recording: Recording, key: int) -> ProcessFacts:
    events = recording.events
    mine = by_process(events.process, key)
    rows = events.row_id[mine][events.nccl[mine] == 1]
    payloads = [recording.payloads[row] for row in rows.tolist() if row in recording.payloads]
    return ProcessFacts(
        key=key,
        told=recording.marks.ranks.get(key),
        memberships=memberships(payloads),
        used=tuple(dict.fromkeys(p.communicator for p in payloads if p.communicator is not None)),
        thread_titles=tuple(
            title for thread, title in events.thread_titles.items() if thread >> 24 == key
        ),
    )


def _no_gpu_work(recording: Recording) -> tuple[str, str]:
    if len(recording.calls.start):
        return (
            "the recording holds CUDA calls, but no GPU work and no kernel launch",
            "record with `nsys profile -t cuda,nvtx`, with training steps inside the capture range",
        )
    hint = (
        "record with `nsys profile -t cuda,nvtx`, and check that the program reached its GPU work "
        "while nsys was collecting"
    )
    return "the export holds no CUDA events", hint
