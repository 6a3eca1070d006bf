"""What is kept of the events: one group of columns for each kind of event that is numerous.

Synchronisations, metadata and what is left out are rare and kept plain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from trace_analyzer.readers.kineto_anomalies import Anomalies, Anomaly
from trace_analyzer.readers.kineto_buffers import Clock, Codes, Column, Integers, ThreadRows, Times
from trace_analyzer.readers.kineto_collectives import CollectiveRows
from trace_analyzer.readers.kineto_details import CallDetails, all_details
from trace_analyzer.readers.kineto_events import (
    GPU_KINDS,
    HOST_KINDS,
    LEFT_OUT_PHASES,
    SYNC_CATEGORIES,
    Args,
    Complete,
    Details,
    Event,
    Instant,
    Metadata,
    Role,
    is_known,
    role_of,
)
from trace_analyzer.readers.kineto_values import stream_number, whole
from trace_analyzer.schema import NA_INT32, NA_INT64

COMMS_NAME: Final = "record_param_comms"
MEMORY_NAME: Final = "[memory]"


class Shared:
    """What all columns of one file refer to."""

    def __init__(self, anomalies: Anomalies) -> None:
        self.anomalies = anomalies
        self.clock = Clock()
        self.names: Codes = Codes({None: 0})  # position 0: events without a name
        self.threads = ThreadRows()
        self.collectives = CollectiveRows()


class GpuColumns:
    """Kernels, copies and memsets."""

    def __init__(self, shared: Shared) -> None:
        anomalies = shared.anomalies
        self._shared = shared
        self.times = Times(shared.clock, anomalies)
        self.kind = bytearray()
        self.name = Column("i")
        self.device = Integers("device", anomalies)
        self.device_is_process = bytearray()  # 1 where the process id stands for the device
        self.context = Integers("context", anomalies)
        self.stream = Integers("stream", anomalies, stream_number)
        self.stream_is_thread = bytearray()  # 1 where the thread id stands for the stream
        self.correlation = Integers("correlation", anomalies)
        self.external_id = Integers("External id", anomalies)
        self.graph_node = Integers("graph node id", anomalies)
        self.bytes = Integers("bytes", anomalies)
        self.config = Column("i")
        self.configs: Codes = Codes()
        self.collective = Column("i")

    def add(self, events: list[Complete], kinds: bytes, details: CallDetails) -> None:
        """Append a batch; `kinds` holds the OperationKind of every event."""
        names = self._shared.names
        self.times.extend(events)
        self.kind += kinds
        self.name.extend([names[event.name] for event in events])
        args = [event.args for event in events]
        self._places(events, args)
        self.correlation.extend([given.correlation for given in args])
        self.external_id.extend(_external_ids(args))
        self.graph_node.extend([given.graph_node for given in args])
        self.bytes.extend([given.bytes for given in args])
        configs = self.configs
        self.config.extend(
            [configs[g.grid, g.block, g.registers, g.shared_bytes, g.occupancy_pct] for g in args]
        )
        self.collective.extend(
            [
                NA_INT32 if event.args.collective is None else self._row(event, details)
                for event in events
            ]
        )

    def _row(self, event: Complete, details: CallDetails) -> int:
        return self._shared.collectives.row(details.of(event))

    def _places(self, events: list[Complete], args: list[Args]) -> None:
        """Append device, context and stream, from the process and thread where they lack."""
        self.context.extend([given.context for given in args])
        devices = [given.device for given in args]
        if NA_INT64 in devices:
            lacks = [device == NA_INT64 for device in devices]
            devices = [
                _or_missing(whole(event.pid)) if lack else device
                for event, device, lack in zip(events, devices, lacks, strict=True)
            ]
            self.device_is_process += bytes(lacks)
        else:
            self.device_is_process += bytes(len(events))
        self.device.extend(devices)
        streams = [given.stream for given in args]
        if NA_INT64 in streams:
            lacks = [stream == NA_INT64 for stream in streams]
            streams = [
                _or_missing(stream_number(event.tid)) if lack else stream
                for event, stream, lack in zip(events, streams, lacks, strict=True)
            ]
            self.stream_is_thread += bytes(lacks)
        else:
            self.stream_is_thread += bytes(len(events))
        self.stream.extend(streams)


class CallColumns:
    """Runtime and driver calls."""

    def __init__(self, shared: Shared) -> None:
        anomalies = shared.anomalies
        self._shared = shared
        self.times = Times(shared.clock, anomalies)
        self.name = Column("i")
        self.thread = Column("i")
        self.correlation = Integers("correlation", anomalies)
        self.external_id = Integers("External id", anomalies)

    def add(self, events: list[Complete]) -> None:
        """Append a batch."""
        names = self._shared.names
        self.times.extend(events)
        self.name.extend([names[event.name] for event in events])
        self.thread.extend(self._shared.threads.rows(events))
        args = [event.args for event in events]
        self.correlation.extend([given.correlation for given in args])
        self.external_id.extend(_external_ids(args))


class HostColumns:
    """Operators, annotations, Python frames, profiler overhead."""

    def __init__(self, shared: Shared) -> None:
        anomalies = shared.anomalies
        self._shared = shared
        self.times = Times(shared.clock, anomalies)
        self.category = bytearray()
        self.name = Column("i")
        self.thread = Column("i")
        self.external_id = Integers("External id", anomalies)
        self.sequence = Integers("Sequence number", anomalies)
        self.collective_events: list[tuple[int, int]] = []  # (row here, row in collectives)
        self._comms = shared.names[COMMS_NAME]

    def add(self, events: list[Complete], categories: bytes, details: CallDetails) -> None:
        """Append a batch; `categories` holds the HostCategory of every event."""
        names = self._shared.names
        self.times.extend(events)
        codes = [names[event.name] for event in events]
        self.name.extend(codes)
        self.thread.extend(self._shared.threads.rows(events))
        args = [event.args for event in events]
        self.external_id.extend([given.external_id for given in args])
        self.sequence.extend([given.sequence for given in args])
        if self._comms in codes:
            rows = self._shared.collectives
            base = len(self.category)
            self.collective_events += [
                (base + at, rows.row(details.of(event)))
                for at, (code, event) in enumerate(zip(codes, events, strict=True))
                if code == self._comms and event.args.collective is not None
            ]
        self.category += categories


class EventColumns:
    """All that is kept of the events of one file. `add` takes batches in any order and size."""

    def __init__(self, anomalies: Anomalies) -> None:
        self.shared = Shared(anomalies)
        self.gpu = GpuColumns(self.shared)
        self.calls = CallColumns(self.shared)
        self.host = HostColumns(self.shared)
        self.syncs: list[tuple[Complete, Details]] = []
        self.sync_times = Times(self.shared.clock, anomalies)
        self.thread_names: dict[tuple[Any, Any], str] = {}
        self.left_out: Counter[str] = Counter()
        self.memory_events = 0
        self.kept = 0  # events that a table has a row for
        self._routes = _Routes()

    def add(self, events: list[Event], text: bytes) -> None:
        """Append a batch of events; `text` is the JSON list that they were decoded from."""
        routes = self._routes
        skipped: list[Event] = []
        skip = skipped.append
        for event in events:
            if type(event) is Complete:
                routes[event.cat](event)
            else:
                skip(event)
        details = CallDetails(text)
        host, categories = routes.take(Role.HOST, HOST_KINDS)
        if host:
            self.host.add(host, categories, details)
        calls, _ = routes.take(Role.CALL, {})
        if calls:
            self.calls.add(calls)
        operations, kinds = routes.take(Role.GPU, GPU_KINDS)
        if operations:
            self.gpu.add(operations, kinds, details)
        syncs, _ = routes.take(Role.SYNC, {})
        if syncs:
            self._add_syncs(events, text)
        self.kept += len(host) + len(calls) + len(operations) + len(syncs)
        left_out, _ = routes.take(Role.LEFT_OUT, {})
        self._leave_out(left_out)
        self._skip(skipped)

    def _add_syncs(self, events: list[Event], text: bytes) -> None:
        syncs = [e for e in events if isinstance(e, Complete) and e.cat in SYNC_CATEGORIES]
        details = [given for category, given in all_details(text) if category in SYNC_CATEGORIES]
        if len(details) != len(syncs):  # only where keys are given twice
            self.shared.anomalies.note(Anomaly.UNUSABLE, "cuda_sync", len(syncs))
            details = [Details()] * len(syncs)
        self.syncs += zip(syncs, details, strict=True)
        self.sync_times.extend(syncs)

    def _leave_out(self, events: Iterable[Complete]) -> None:
        for event in events:
            self.left_out[event.cat or "no category"] += 1
            if not is_known(event.cat):
                self.shared.anomalies.note(Anomaly.UNKNOWN_CATEGORY, event.cat)

    def _skip(self, events: list[Event]) -> None:
        kinds = Counter(map(type, events))
        for kind, count in kinds.items():
            self.left_out[LEFT_OUT_PHASES[kind]] += count
        if Instant in kinds:
            self.memory_events += sum(
                event.name == MEMORY_NAME for event in events if isinstance(event, Instant)
            )
        if Metadata in kinds:
            for event in events:
                if isinstance(event, Metadata):
                    self._learn_thread(event)

    def _learn_thread(self, event: Metadata) -> None:
        if event.name == "thread_name" and event.args is not None and event.args.name:
            self.thread_names[event.pid, event.tid] = event.args.name


class _Routes(dict[Any, Callable[[Complete], None]]):
    """Category → where its events wait, found at the first event of a category."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: dict[Role, dict[Any, list[Complete]]] = {role: {} for role in Role}

    def __missing__(self, category: str | None) -> Callable[[Complete], None]:
        waiting = self._waiting[role_of(category)][category] = []
        append = self[category] = waiting.append
        return append

    def take(self, role: Role, codes: dict[str, Any]) -> tuple[list[Complete], bytes]:
        """Return the events that wait for a table, and the code of the category of each."""
        events: list[Complete] = []
        kinds = bytearray()
        for category, waiting in self._waiting[role].items():
            events += waiting
            kinds += bytes([codes.get(category, 0)]) * len(waiting)
            waiting.clear()
        return events, bytes(kinds)


def _external_ids(args: list[Args]) -> list[int]:
    found = [given.external_id for given in args]
    if NA_INT64 in found:
        return [
            given.external_id_2021 if value == NA_INT64 else value
            for value, given in zip(found, args, strict=True)
        ]
    return found


def _or_missing(value: int | None) -> int:
    return NA_INT64 if value is None else value
