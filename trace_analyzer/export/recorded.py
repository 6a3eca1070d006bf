"""The events of one rank as they were recorded, as lines of a Chrome trace.

They carry the arguments that torch's profiler writes, so that our own reader gets back the tables
that they come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from trace_analyzer.export.arguments import collective_words, config_words, sync_words
from trace_analyzer.export.layout import RecordedTracks
from trace_analyzer.export.text_rows import (
    Arrows,
    Block,
    Numbers,
    Slices,
    Words,
    alike,
    heads,
)
from trace_analyzer.model import Rank
from trace_analyzer.rank_facts import OS_CATEGORY, OTHER_CATEGORY
from trace_analyzer.schema import (
    NA_INT32,
    NA_INT64,
    AnyArray,
    BoolArray,
    Int64Array,
    is_na,
    widened,
)
from trace_analyzer.tables import HostCategory, OperationKind, SyncKind, WorkClass

_OPERATION_CATEGORIES = {
    OperationKind.KERNEL: "kernel",
    OperationKind.MEMCPY: "gpu_memcpy",
    OperationKind.MEMSET: "gpu_memset",
}
_HOST_CATEGORIES = {
    HostCategory.OPERATOR: "cpu_op",
    HostCategory.ANNOTATION: "user_annotation",
    HostCategory.PYTHON: "python_function",
    HostCategory.OVERHEAD: "overhead",
    HostCategory.OS: OS_CATEGORY,
    HostCategory.OTHER: OTHER_CATEGORY,
}
_SYNC_NAMES = [""] * (max(SyncKind) + 1)  # by SyncKind, in CUPTI's words
_SYNC_NAMES[SyncKind.EVENT_SYNC] = "Event Sync"
_SYNC_NAMES[SyncKind.STREAM_WAIT_EVENT] = "Stream Wait Event"
_SYNC_NAMES[SyncKind.STREAM_SYNC] = "Stream Sync"
_SYNC_NAMES[SyncKind.CONTEXT_SYNC] = "Context Sync"
_SYNC_NAMES[SyncKind.EVENT_RECORD] = "Event Record"
_ROWS = 1 << 16  # taken from a table at a time
_ARROW = "ac2g"  # torch's name for arrows from calls to what they launched


def blocks(rank: Rank, laid: RecordedTracks, shift_ns: int, first_arrow: int) -> Iterator[Block]:
    """Yield all events of a rank, moved by `shift_ns`; arrows are numbered from `first_arrow`.

    Of slices that start together the longer one comes first, as viewers want it.
    """
    yield from _host_blocks(rank, laid, shift_ns)
    yield from _operation_blocks(rank, laid, shift_ns)
    yield from _sync_blocks(rank, laid, shift_ns)
    yield from _arrow_blocks(rank, laid, shift_ns, first_arrow)


def _host_blocks(rank: Rank, laid: RecordedTracks, shift_ns: int) -> Iterator[Block]:
    """Events and calls together, because they are nested in one another."""
    events, calls = rank.events, rank.calls
    categories = [*_HOST_CATEGORIES.values(), "cuda_runtime"]
    for rows in _outer_first((events.start_ns, calls.start_ns), (events.end_ns, calls.end_ns)):
        of_events = rows < len(events)
        event, call = rows[of_events], rows[~of_events] - len(events)

        def joined(
            one: AnyArray | None,
            two: AnyArray | None,
            missing: int = NA_INT64,
            here: BoolArray = of_events,
            at: tuple[Int64Array, Int64Array] = (event, call),
        ) -> Int64Array:
            """Return a column of both tables; None where a table does not have it."""
            column = np.full(len(here), missing, dtype=np.int64)
            if one is not None:
                column[here] = one[at[0]]
            if two is not None:
                column[~here] = two[at[1]]
            return column

        collective = joined(events.collective, None, NA_INT32).astype(np.int32)
        yield Slices(
            heads(
                "X",
                Words(categories, joined(events.category, None, len(_HOST_CATEGORIES))),
                Words(rank.names, joined(events.name, calls.name)),
                Words(laid.host_places, laid.host.track[rows]),
            ),
            joined(events.start_ns, calls.start_ns) + shift_ns,
            joined(events.end_ns, calls.end_ns) + shift_ns,
            (
                Numbers("External id", joined(events.external_id, calls.external_id)),
                Numbers("correlation", joined(None, calls.correlation)),
                Numbers("Sequence number", joined(events.sequence, None)),
                collective_words(rank, collective),
            ),
        )


def _outer_first(
    starts_ns: Sequence[Int64Array], ends_ns: Sequence[Int64Array]
) -> Iterator[Int64Array]:
    """Yield the rows of tables one after the other, by start and the longer first, some at a time."""
    order = np.lexsort((-np.concatenate(ends_ns), np.concatenate(starts_ns))).astype(np.int32)
    for low in range(0, len(order), _ROWS):
        yield order[low : low + _ROWS].astype(np.int64)


def _operation_blocks(rank: Rank, laid: RecordedTracks, shift_ns: int) -> Iterator[Block]:
    correlation = _joined_again(rank)
    for rows in _outer_first([rank.operations.start_ns], [rank.operations.end_ns]):
        operations = rank.operations.take(rows)
        yield Slices(
            heads(
                "X",
                Words(list(_OPERATION_CATEGORIES.values()), operations.kind),
                Words(rank.names, operations.name),
                Words(laid.operation_places, laid.operations.track[rows]),
            ),
            operations.start_ns + shift_ns,
            operations.end_ns + shift_ns,
            (
                Words([f'"work":"{item.name.lower()}"' for item in WorkClass], operations.work),
                Numbers("External id", operations.external_id),
                Numbers("device", widened(operations.device)),
                Numbers("context", widened(operations.context)),
                Numbers("stream", operations.stream),
                Numbers("correlation", correlation[rows]),
                Numbers("graph node id", operations.graph_node),
                Numbers("bytes", operations.bytes),
                config_words(rank, operations.launch_config),
                collective_words(rank, operations.collective),
            ),
        )


def _joined_again(rank: Rank) -> Int64Array:
    """Return correlations, without those that would join an operation to a call that is not its own."""
    operations = rank.operations
    foreign: BoolArray = is_na(operations.launch) & np.isin(
        operations.correlation, rank.calls.correlation
    )
    return np.where(foreign, NA_INT64, operations.correlation)


def _sync_blocks(rank: Rank, laid: RecordedTracks, shift_ns: int) -> Iterator[Block]:
    for rows in _outer_first([rank.syncs.start_ns], [rank.syncs.end_ns]):
        syncs = rank.syncs.take(rows)
        is_record = syncs.kind == SyncKind.EVENT_RECORD
        yield Slices(
            heads(
                "X",
                Words(["cuda_sync", "cuda_event"], is_record.astype(np.int8)),
                Words(_SYNC_NAMES, syncs.kind),
                Words(laid.sync_places, laid.syncs.track[rows]),
            ),
            syncs.start_ns + shift_ns,
            syncs.end_ns + shift_ns,
            (
                sync_words(_SYNC_NAMES, syncs.kind),
                Numbers("device", widened(syncs.device)),
                Numbers("stream", syncs.stream),
                Numbers("correlation", syncs.correlation),
                Numbers("event_id", np.where(is_record, syncs.event, NA_INT64)),
                Numbers("wait_on_cuda_event_id", np.where(is_record, NA_INT64, syncs.event)),
                Numbers("wait_on_cuda_event_record_corr_id", syncs.record_correlation),
                Numbers("wait_on_stream", syncs.source_stream),
            ),
        )


def _arrow_blocks(
    rank: Rank, laid: RecordedTracks, shift_ns: int, first_arrow: int
) -> Iterator[Block]:
    """Arrows from every call to what it launched: one beginning, as many ends as operations."""
    operations, calls = rank.operations, rank.calls
    linked = np.flatnonzero(~is_na(operations.launch))
    used = np.unique(operations.launch[linked]).astype(np.int64)
    track = laid.host.track[len(rank.events) :]
    for low in range(0, len(used), _ROWS):
        rows = used[low : low + _ROWS]
        yield Arrows(
            "s",
            _arrow_heads("s", Words(laid.host_places, track[rows])),
            rows + first_arrow,
            calls.start_ns[rows] + shift_ns,
        )
    for low in range(0, len(linked), _ROWS):
        rows = linked[low : low + _ROWS]
        yield Arrows(
            "f",
            _arrow_heads("f", Words(laid.operation_places, laid.operations.track[rows])),
            operations.launch[rows].astype(np.int64) + first_arrow,
            operations.start_ns[rows] + shift_ns,
        )


def _arrow_heads(phase: str, track: Words) -> Words:
    count = len(track.code)
    return heads(phase, alike(_ARROW, count), alike(_ARROW, count), track)
