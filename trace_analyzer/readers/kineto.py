"""Reader of torch.profiler (Kineto) Chrome traces, of every writer since 2021.

The file is streamed: text in blocks, events in small batches, columns that grow. Nothing is ever
held as one document. Damaged input gives what it still holds, with warnings.
"""

from __future__ import annotations

import gc
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.model import Rank, SourceKind
from trace_analyzer.rank_facts import RankFacts
from trace_analyzer.readers import kineto_header, kineto_host, kineto_operations
from trace_analyzer.readers.kineto_anomalies import Anomaly
from trace_analyzer.readers.kineto_columns import EventColumns
from trace_analyzer.readers.kineto_document import Document, NoTraceError, read_document
from trace_analyzer.readers.kineto_order import renumber, renumbered
from trace_analyzer.readers.kineto_ranks import RankEvents
from trace_analyzer.readers.kineto_spans import RecordedNames, Timeline
from trace_analyzer.readers.kineto_stream import BLOCK_BYTES, TextStream
from trace_analyzer.tables import (
    GpuOperations,
    HostCalls,
    HostCategory,
    HostEvents,
    OperationKind,
    Threads,
)

_BOM = b"\xef\xbb\xbf"
_OBJECT_KEY = re.compile(
    rb'"(?:traceEvents|deviceProperties|distributedInfo|baseTimeNanoseconds|displayTimeUnit)"\s*:'
)
_EVENT_KEY = re.compile(rb'"ph"\s*:\s*"')
_STEP_PREFIX = "ProfilerStep#"
_NO_TRACE_HINT = "give the trace that torch.profiler exported (export_chrome_trace)"


def sniff(head: bytes) -> bool:
    """Tell whether the first bytes of a file, decompressed, look like a Chrome trace."""
    text = head.removeprefix(_BOM).lstrip()
    if text.startswith(b"{"):
        return _OBJECT_KEY.search(text) is not None
    return text.startswith(b"[") and _EVENT_KEY.search(text) is not None


def read(path: Path, *, display: str | None = None, block_bytes: int = BLOCK_BYTES) -> Rank:
    """Read a trace of one rank; parameters and result as for `read_ranks`.

    Raises `UnreadableInputError` also where the file holds several ranks.
    """
    ranks = read_ranks(path, display=display, block_bytes=block_bytes)
    if len(ranks) > 1:
        shown = display if display is not None else str(path)
        raise UnreadableInputError(shown, f"holds {len(ranks)} ranks, where one was expected")
    return ranks[0]


def read_ranks(
    path: Path, *, display: str | None = None, block_bytes: int = BLOCK_BYTES
) -> tuple[Rank, ...]:
    """Read one trace: plain, gzip or zstd, told by its bytes.

    torch writes one rank a file; a file that `export` wrote may hold several, each with its own
    warnings. `display` stands for the path in what users see. `block_bytes` is how much text is
    decoded at a time; it changes speed and memory, never the result.

    Times are exact: `start_ns` is the written microseconds as decimal text, times 1000. They are
    relative to `clock_base_ns` (`baseTimeNanoseconds` in ns since 1970, 0 where time stamps count
    from 1970 themselves, None where neither is known), which differs between files.
    `rank` comes from `distributedInfo`; without it, it is 0 and `rank_basis` is "unknown".
    `counts` holds events by kind (`kernel`, `memcpy`, `memset`, `call`, `sync`, `operator`,
    `annotation`, `python`, `overhead`) and, as `left_out.…`, those by category or phase that the
    model does not use.

    Raises `UnreadableInputError` where no event can be read.
    """
    shown = display if display is not None else str(path)
    document = Document()
    events = RankEvents(document.header, shown)
    stream = TextStream(path, shown, block_bytes)
    with _without_collector():
        try:
            read_document(iter(stream), events.add, events.anomalies, document)
        except NoTraceError as error:
            problem = f"{error} ({stream.damage})" if stream.damage else str(error)
            raise UnreadableInputError(shown, problem, _NO_TRACE_HINT) from None
        events.finish()
        last = len(events.columns) - 1  # what is cut or damaged lacks its end
        return tuple(
            _rank(shown, document, stream if at == last else None, columns, facts)
            for at, (columns, facts) in enumerate(zip(events.columns, events.facts, strict=True))
        )


@contextmanager
def _without_collector() -> Iterator[None]:
    """Keep the cycle collector from scanning structs that cannot form cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _rank(
    shown: str,
    document: Document,
    stream: TextStream | None,
    columns: EventColumns,
    facts: RankFacts | None,
) -> Rank:
    """Return a rank; `stream` is where the file ends with it, `facts` where it was exported."""
    anomalies = columns.shared.anomalies
    header = kineto_header.parse(document.header, anomalies)
    keys, labels = columns.shared.threads.keys, columns.thread_names
    if facts is not None:
        header = kineto_header.exported(header, facts)
        keys, labels = kineto_host.recorded_threads(keys, facts.threads)
    truncated = document.truncated and stream is not None
    timeline = Timeline(columns, header.clock_base_ns)
    names = RecordedNames(list(columns.shared.names), anomalies)
    threads = kineto_host.HostThreads(keys, labels)
    calls = kineto_host.host_calls(columns.calls, timeline.spans("calls"), names, threads)
    events = kineto_host.host_events(columns.host, timeline.spans("host"), names, threads)
    operations, configs = kineto_operations.operations(
        columns.gpu,
        timeline.spans("gpu"),
        calls,
        names,
        frozenset(device.ordinal for device in header.devices),
        anomalies,
    )
    syncs = kineto_host.synchronizations(columns.syncs, timeline.spans("syncs"), anomalies)
    rows = columns.shared.collectives
    used, number = renumber([operations.collective, events.collective], len(rows.rows))
    operations = replace(operations, collective=renumbered(operations.collective, number))
    events = replace(events, collective=renumbered(events.collective, number))
    collectives, groups = rows.table(used, names.table, header.groups, header.group_names)
    thread_table = threads.table(names)
    counts = _counts(operations, calls, events, columns.left_out)
    counts["sync"] = len(syncs)
    kept = len(operations) + len(calls) + len(events) + len(syncs)
    if not kept:
        raise UnreadableInputError(shown, _why_empty(document, columns), _NO_TRACE_HINT)
    if truncated:
        anomalies.note(Anomaly.TRUNCATED)
    if stream is not None and stream.damage:
        anomalies.note(Anomaly.DAMAGED_COMPRESSION, stream.damage)
    if not len(operations):
        anomalies.note(Anomaly.NO_GPU_YET if truncated else Anomaly.NO_GPU)
    rank = Rank(
        rank=header.rank or 0,
        rank_basis="unknown" if header.rank is None else "content",
        source=SourceKind.KINETO,
        path=shown,
        names=names.table.texts,
        operations=operations,
        configs=configs,
        calls=calls,
        events=events,
        syncs=syncs,
        collectives=collectives,
        threads=thread_table,
        groups=groups,
        devices=header.devices,
        world_size=header.world_size,
        host=header.host,
        pid=_owner(names.table.texts, events, calls, thread_table),
        clock_base_ns=0 if timeline.is_epoch else header.clock_base_ns,
        capture=kineto_header.capture(
            header,
            python_events=counts.get("python", 0),
            memory_events=columns.memory_events,
            sync_events=len(syncs),
        ),
        versions=header.versions,
        counts=counts,
        truncated=truncated,
        warnings=anomalies.warnings(kept),
    )
    return rank if facts is None else _as_recorded(rank, facts)


def _as_recorded(rank: Rank, facts: RankFacts) -> Rank:
    """Return an exported rank with what only its facts tell."""
    return replace(
        rank,
        source=facts.source,
        clock_name=f"{rank.path}, clock {facts.clock}",
        pid=facts.process,
        capture=facts.capture,
        settings=facts.settings,
        truncated=rank.truncated or facts.truncated,
        warnings=tuple(dict.fromkeys((*facts.warnings, *rank.warnings))),
    )


def _why_empty(document: Document, columns: EventColumns) -> str:
    if not document.has_events:
        return "JSON without a list of traceEvents: not a trace"
    if document.truncated:
        return "the file ends before its first complete event"
    left_out = sum(columns.left_out.values())
    if left_out:
        return f"none of its {left_out} events is an operation, a call or a host range"
    if columns.shared.anomalies.counts:
        return "none of its events can be used: their times or their text are damaged"
    return "the list of traceEvents is empty: nothing was recorded"


def _owner(names: list[str], events: HostEvents, calls: HostCalls, threads: Threads) -> int | None:
    """Return the process that ran the steps; without steps, the one with most host events."""
    is_step = np.fromiter(
        (name.startswith(_STEP_PREFIX) for name in names), dtype=np.bool_, count=len(names)
    )
    steps = is_step[events.name]
    rows = events.thread[steps] if steps.any() else np.concatenate([events.thread, calls.thread])
    processes = threads.process[rows]
    processes = processes[processes >= 0]
    if not len(processes):
        return None
    found, count = np.unique(processes, return_counts=True)
    return int(found[np.argmax(count)])


def _counts(
    operations: GpuOperations, calls: HostCalls, events: HostEvents, left_out: Counter[str]
) -> dict[str, int]:
    counts: dict[str, int] = {}
    for kind in OperationKind:
        counts[kind.name.lower()] = int(np.count_nonzero(operations.kind == kind))
    counts["call"] = len(calls)
    for category in HostCategory:
        count = int(np.count_nonzero(events.category == category))
        if count:
            counts[category.name.lower()] = count
    for name in sorted(left_out):
        counts[f"left_out.{name}"] = left_out[name]
    return counts


__all__ = ["read", "read_ranks", "sniff"]
