"""The tables of the host: calls, events, threads, and recorded synchronisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from trace_analyzer.calls import call_kinds, strip_version
from trace_analyzer.rank_facts import ThreadFacts
from trace_analyzer.readers.kineto_anomalies import Anomalies, Anomaly
from trace_analyzer.readers.kineto_columns import CallColumns, HostColumns
from trace_analyzer.readers.kineto_events import Complete, Details
from trace_analyzer.readers.kineto_order import narrow, not_negative, positive
from trace_analyzer.readers.kineto_spans import UNKNOWN_NAME, RecordedNames, Spans
from trace_analyzer.readers.kineto_values import stream_number
from trace_analyzer.schema import NA_INT32, NA_INT64, AnyArray, Int8Array, Int32Array, Int64Array
from trace_analyzer.tables import (
    HostCalls,
    HostCategory,
    HostEvents,
    Synchronizations,
    SyncKind,
    Threads,
)

# In files of 2021 "Operator" holds record_function ranges too; these are torch's own.
_ANNOTATION_PREFIXES: Final = (
    "ProfilerStep#",
    "Optimizer.step#",
    "Optimizer.zero_grad#",
    "enumerate(DataLoader)#",
    "enumerate(DataPipe)#",
    "DistributedDataParallel.forward",
    "nccl:",
    "gloo:",
)

_SYNC_KINDS: Final[dict[str, SyncKind]] = {
    "event sync": SyncKind.EVENT_SYNC,
    "event synchronize": SyncKind.EVENT_SYNC,
    "stream wait event": SyncKind.STREAM_WAIT_EVENT,
    "stream sync": SyncKind.STREAM_SYNC,
    "stream synchronize": SyncKind.STREAM_SYNC,
    "context sync": SyncKind.CONTEXT_SYNC,
    "context synchronize": SyncKind.CONTEXT_SYNC,
    "device sync": SyncKind.CONTEXT_SYNC,
}


def host_calls(
    columns: CallColumns, spans: Spans, names: RecordedNames, threads: HostThreads
) -> HostCalls:
    """Return runtime and driver calls, outer before inner; the columns are given up."""
    order = spans.nested()
    bare = names.positions_of(
        [UNKNOWN_NAME if name is None else strip_version(name) for name in names.recorded]
    )
    name = names.positions(columns.name.take()[order], bare)
    return HostCalls.from_columns(
        len(order),
        start_ns=spans.start[order],
        end_ns=spans.end[order],
        kind=call_kinds(names.table.texts)[name],
        name=name,
        thread=threads.rows(columns.thread.take()[order]),
        correlation=positive(columns.correlation.take()[order]),
        external_id=positive(columns.external_id.take()[order]),
    )


def host_events(
    columns: HostColumns, spans: Spans, names: RecordedNames, threads: HostThreads
) -> HostEvents:
    """Return operators, annotations, Python frames and overhead, outer before inner."""
    order = spans.nested()
    collective = np.full(len(spans.start), NA_INT32, dtype=np.int32)
    for row, position in columns.collective_events:
        collective[row] = position
    name = names.positions(columns.name.take()[order])
    recorded = np.frombuffer(columns.category, dtype=np.int8)[order]
    return HostEvents.from_columns(
        len(order),
        start_ns=spans.start[order],
        end_ns=spans.end[order],
        category=_categories(recorded, name, names.table.texts),
        name=name,
        thread=threads.rows(columns.thread.take()[order]),
        external_id=positive(columns.external_id.take()[order]),
        sequence=not_negative(columns.sequence.take()[order]),
        collective=collective[order],
    )


def _categories(recorded: Int8Array, name: Int32Array, texts: Sequence[str]) -> Int8Array:
    """Tell annotations from operators in files of 2021, which have one category for both."""
    annotation = np.fromiter(
        (text.startswith(_ANNOTATION_PREFIXES) for text in texts),
        dtype=np.bool_,
        count=len(texts),
    )
    is_annotation = (recorded == HostCategory.OPERATOR) & annotation[name]
    return np.where(is_annotation, HostCategory.ANNOTATION, recorded).astype(np.int8)


def recorded_threads(
    keys: Sequence[tuple[Any, Any]], facts: Sequence[ThreadFacts]
) -> tuple[list[tuple[Any, Any]], dict[tuple[Any, Any], str]]:
    """Return the threads behind the tracks of an exported file, and their names.

    A track that the facts do not mention stands for itself.
    """
    thread_of = {(item.pid, item.tid): (item.process, item.thread) for item in facts}
    names = {(item.process, item.thread): item.name for item in facts if item.name is not None}
    return [thread_of.get(key, key) for key in keys], names


class HostThreads:
    """The threads of a file, by process and thread id, and the way there from recorded rows.

    `keys` are (process, thread) as written, numbers or texts; `labels` their names if known.
    """

    def __init__(
        self, keys: Sequence[tuple[Any, Any]], labels: Mapping[tuple[Any, Any], str]
    ) -> None:
        pairs = [(_number(pid), _number(tid)) for pid, tid in keys]
        self._pairs = sorted(set(pairs))
        row_of = {pair: row for row, pair in enumerate(self._pairs)}
        self._rows = np.array([row_of[pair] for pair in pairs], dtype=np.int32)
        self._labels = {(_number(pid), _number(tid)): name for (pid, tid), name in labels.items()}

    def rows(self, recorded: AnyArray) -> Int32Array:
        """Return the rows of events."""
        found: Int32Array = self._rows[recorded]
        return found

    def table(self, names: RecordedNames) -> Threads:
        """Return the table."""
        labels = [self._labels.get(pair) for pair in self._pairs]
        return Threads.from_columns(
            len(self._pairs),
            process=np.array([pid for pid, _ in self._pairs], dtype=np.int64),
            thread=np.array([tid for _, tid in self._pairs], dtype=np.int64),
            name=np.array(
                [NA_INT32 if label is None else names.table.intern(label) for label in labels],
                dtype=np.int32,
            ),
        )


def synchronizations(
    rows: Sequence[tuple[Complete, Details]], spans: Spans, anomalies: Anomalies
) -> Synchronizations:
    """Return recorded synchronisation in order of start. Unknown kinds are counted and left out."""
    order = spans.ordered()
    kinds = [_sync_kind(*rows[row]) for row in order]
    known = np.array([kind is not None for kind in kinds], dtype=np.bool_)
    anomalies.note(Anomaly.UNKNOWN_CATEGORY, count=int(np.count_nonzero(~known)))
    args = [rows[row][1] for row in order]
    is_record = np.array([kind == SyncKind.EVENT_RECORD for kind in kinds], dtype=np.bool_)
    table = Synchronizations.from_columns(
        len(order),
        start_ns=spans.start[order],
        end_ns=np.where(is_record, spans.start[order], spans.end[order]),
        kind=np.array([kind or 0 for kind in kinds], dtype=np.int8),
        device=narrow(_int64([given.device for given in args]), np.int16),
        stream=_int64([stream_number(given.stream) for given in args]),
        correlation=positive(_int64([given.correlation for given in args])),
        event=_int64(
            [
                given.wait_on_event if given.event_id == NA_INT64 else given.event_id
                for given in args
            ]
        ),
        record_correlation=positive(_int64([given.wait_on_record for given in args])),
        source_stream=_int64([given.wait_on_stream for given in args]),
    )
    return table if known.all() else table.take(known)


def _sync_kind(event: Complete, given: Details) -> SyncKind | None:
    if event.cat == "cuda_event":
        return SyncKind.EVENT_RECORD
    return _SYNC_KINDS.get((given.sync_kind or event.name or "").lower())


def _int64(values: Sequence[int | None]) -> Int64Array:
    """Return ids as a column; negative ones, which stand for "none", are missing."""
    return np.array(
        [
            value if value is not None and 0 <= value <= np.iinfo(np.int64).max else NA_INT64
            for value in values
        ],
        dtype=np.int64,
    )


def _number(value: object) -> int:
    number = stream_number(value)
    return NA_INT64 if number is None else number
