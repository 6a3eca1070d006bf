"""Synchronisation records, and the event record that each of them waits for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trace_analyzer.readers.nsys_columns import first_rows, narrowed, row_order, take, without
from trace_analyzer.readers.nsys_events import NONE_32, OrderedCalls, process_of
from trace_analyzer.readers.nsys_schema import Export
from trace_analyzer.schema import NA_INT64, AnyArray, BoolArray, Int64Array
from trace_analyzer.tables import Synchronizations, SyncKind

SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
RECORD = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"

_WAITS_FOR_EVENT = (SyncKind.EVENT_SYNC, SyncKind.STREAM_WAIT_EVENT)
_KINDS = (1, 2, 3, 4)  # syncType of the file, the same numbers as SyncKind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SyncRows:
    """Synchronisations and event records of the whole file."""

    syncs: dict[str, Int64Array]
    records: dict[str, Int64Array]

    @property
    def present(self) -> bool:
        """Whether the file has any."""
        return bool(len(self.syncs["process"]) or len(self.records["process"]))


def read_syncs(export: Export) -> SyncRows:
    """Return all synchronisations and event records."""
    place = ["globalPid", "contextId", "streamId", "correlationId", "eventId", "eventSyncId"]
    syncs = export.integers(SYNC, ["start", "end", "syncType", *place])
    records = export.integers(RECORD, place)
    for table in (syncs, records):
        table["process"] = process_of(table.pop("globalPid"))
        for name in ("streamId", "eventId"):
            table[name] = without(table[name], NONE_32)
        table["eventSyncId"] = without(table["eventSyncId"], 0, NONE_32)
        table["correlationId"] = without(table["correlationId"], 0)
    return SyncRows(syncs=syncs, records=records)


def syncs_of(
    rows: SyncRows,
    chosen: tuple[BoolArray | slice, BoolArray | slice],
    calls: OrderedCalls,
    device_of_context: dict[int, int],
) -> tuple[Synchronizations, int]:
    """Return the table of one process, and how many rows could not be placed in time.

    `chosen` selects its synchronisations and its event records. A record has no time of its own
    (the column is 0 without event tracing): it takes the start of the call that made it. The
    device column of these tables is 0 throughout, so the device comes from the context.
    """
    syncs = take(rows.syncs, chosen[0])
    records = take(rows.records, chosen[1])
    whole = np.isin(syncs["syncType"], _KINDS) & (syncs["start"] != NA_INT64)
    whole &= syncs["end"] >= syncs["start"]
    left_out = len(whole) - int(np.count_nonzero(whole))
    syncs = take(syncs, whole)
    awaited = _awaited(syncs, records)
    hit = awaited != NA_INT64
    record_correlation = np.full(len(awaited), NA_INT64, dtype=np.int64)
    source_stream = record_correlation.copy()
    record_correlation[hit] = records["correlationId"][awaited[hit]]
    source_stream[hit] = records["streamId"][awaited[hit]]

    call = first_rows(calls.correlation, records["correlationId"])
    timed = call != NA_INT64
    left_out += len(timed) - int(np.count_nonzero(timed))
    records = take(records, timed)
    recorded_ns = calls.start[call[timed]]
    nothing = np.full(len(recorded_ns), NA_INT64, dtype=np.int64)
    has_id = bool((syncs["eventSyncId"] != NA_INT64).any())
    event = "eventSyncId" if has_id else "eventId"

    start = np.concatenate([syncs["start"], recorded_ns])
    end = np.concatenate([syncs["end"], recorded_ns])
    columns = {
        "kind": np.concatenate(
            [syncs["syncType"], np.full(len(recorded_ns), SyncKind.EVENT_RECORD, dtype=np.int64)]
        ),
        "device": _devices(
            np.concatenate([syncs["contextId"], records["contextId"]]), device_of_context
        ),
        "stream": np.concatenate([syncs["streamId"], records["streamId"]]),
        "correlation": np.concatenate([syncs["correlationId"], records["correlationId"]]),
        "event": np.concatenate([syncs[event], records[event]]),
        "record_correlation": np.concatenate([record_correlation, nothing]),
        "source_stream": np.concatenate([source_stream, nothing]),
    }
    order = row_order(start, -end)
    table = Synchronizations.from_columns(
        len(order),
        start_ns=start[order],
        end_ns=end[order],
        **{name: values[order] for name, values in columns.items()},
    )
    return table, left_out


def _awaited(syncs: dict[str, Int64Array], records: dict[str, Int64Array]) -> Int64Array:
    """Return for every synchronisation the row of the event record that it waits for, or NA."""
    waits = np.isin(syncs["syncType"], _WAITS_FOR_EVENT)
    awaited = np.full(len(waits), NA_INT64, dtype=np.int64)
    rows = np.flatnonzero(waits)
    awaited[rows] = first_rows(records["eventSyncId"], syncs["eventSyncId"][rows])
    rows = np.flatnonzero(waits & (awaited == NA_INT64) & (syncs["eventSyncId"] == NA_INT64))
    awaited[rows] = _last_before(take(syncs, rows), records)
    return awaited


def _last_before(waits: dict[str, Int64Array], records: dict[str, Int64Array]) -> Int64Array:
    """Return the last record of the same context and event that was made before each wait.

    Correlation ids grow in the order of calls. They stand for time, which records do not have.
    """
    count = len(records["eventId"])
    keys = [
        np.concatenate([records[name], waits[name]])
        for name in ("contextId", "eventId", "correlationId")
    ]
    is_record = np.arange(len(keys[0])) < count
    order = np.lexsort((~is_record, keys[2], keys[1], keys[0]))
    # The position of the latest record so far, in this order; it counts if it is the same event's.
    latest = np.maximum.accumulate(np.where(is_record[order], np.arange(len(order)), -1))
    row = np.where(latest >= 0, order[np.maximum(latest, 0)], 0)
    same = (keys[0][row] == keys[0][order]) & (keys[1][row] == keys[1][order]) & (latest >= 0)
    same &= (keys[1][order] != NA_INT64) & (keys[2][order] != NA_INT64)
    found = np.full(len(order), NA_INT64, dtype=np.int64)
    found[order] = np.where(same, row, NA_INT64)
    return found[count:]


def _devices(contexts: Int64Array, device_of_context: dict[int, int]) -> AnyArray:
    devices = np.full(len(contexts), NA_INT64, dtype=np.int64)
    for context, device in device_of_context.items():
        devices[contexts == context] = device
    return narrowed(devices, "int16")
