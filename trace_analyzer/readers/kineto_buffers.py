"""Columns that grow as batches of decoded events arrive.

Values are packed from lists, which is the cheapest way from Python integers to memory, into
byte buffers that grow without objects.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trace_analyzer.readers import kineto_time
from trace_analyzer.readers.kineto_anomalies import Anomalies, Anomaly
from trace_analyzer.readers.kineto_events import Complete
from trace_analyzer.readers.kineto_values import whole
from trace_analyzer.schema import NA_INT64, AnyArray, Float64Array, Int64Array

_TOKEN_BATCH_BYTES = 1 << 20
_NANOSECONDS_FROM = 1e16  # as microseconds since 1970 this would be the year 2286
_SAMPLED_TOKENS = 64


class Codes(dict[Any, int]):
    """Values → positions in order of first use."""

    def __missing__(self, key: object) -> int:
        position = self[key] = len(self)
        return position


class ThreadRows:
    """(process, thread) as written → rows in order of first use."""

    def __init__(self) -> None:
        self.keys: list[tuple[Any, Any]] = []
        self._processes: dict[Any, _ProcessThreads] = {}

    def rows(self, events: list[Complete]) -> list[int]:
        """Return the thread row of every event."""
        processes = {event.pid for event in events}
        if len(processes) == 1:
            threads = self._threads(processes.pop())
            return [threads[event.tid] for event in events]
        return [self._threads(event.pid)[event.tid] for event in events]

    def _threads(self, process: object) -> _ProcessThreads:
        threads = self._processes.get(process)
        if threads is None:
            threads = self._processes[process] = _ProcessThreads(process, self.keys)
        return threads


class _ProcessThreads(dict[Any, int]):
    def __init__(self, process: object, keys: list[tuple[Any, Any]]) -> None:
        super().__init__()
        self._process = process
        self._keys = keys

    def __missing__(self, thread: object) -> int:
        row = self[thread] = len(self._keys)
        self._keys.append((self._process, thread))
        return row


class Column:
    """A growing column of one struct type: `q` int64, `i` int32, `d` float64."""

    __slots__ = ("_code", "_data")

    def __init__(self, code: str) -> None:
        self._code = code
        self._data = bytearray()

    def extend(self, values: Sequence[float]) -> None:
        """Append values. Raises `struct.error` where one does not fit, and appends nothing."""
        self._data += struct.pack(f"{len(values)}{self._code}", *values)

    def take(self) -> AnyArray:
        """Return the column as an array and forget it."""
        values: AnyArray = np.frombuffer(self._data, dtype=np.dtype(self._code))
        self._data = bytearray()
        return values


class Integers(Column):
    """Growing int64: what does not fit becomes missing and is counted."""

    __slots__ = ("_anomalies", "_convert", "_field")

    def __init__(
        self,
        field: str,
        anomalies: Anomalies,
        convert: Callable[[object], int | None] = whole,
    ) -> None:
        super().__init__("q")
        self._field = field
        self._anomalies = anomalies
        self._convert = convert

    def extend(self, values: Sequence[Any]) -> None:
        """Append values of any type."""
        try:
            super().extend(values)
        except struct.error:
            super().extend([self._usable(value) for value in values])

    def _usable(self, value: object) -> int:
        if value == NA_INT64:
            return NA_INT64
        converted = self._convert(value)
        if converted is None:
            self._anomalies.note(Anomaly.UNUSABLE, f"{self._field} = {value!r}")
            return NA_INT64
        return converted


class Clock:
    """What all time stamps of a file share: their unit, found from the first ones."""

    __slots__ = ("decimals",)

    def __init__(self) -> None:
        self.decimals: int | None = None

    def places(self, tokens: bytes) -> int:
        """Return the decimals that make up a nanosecond: 3, or 0 where stamps are nanoseconds."""
        if self.decimals is None:
            first = [
                _number(token) for token in tokens.split(b" ", _SAMPLED_TOKENS)[:_SAMPLED_TOKENS]
            ]
            first = [value for value in first if value > 0]
            if not first:
                return kineto_time.US_DECIMALS
            middle = float(np.median(first))
            self.decimals = 0 if middle > _NANOSECONDS_FROM else kineto_time.US_DECIMALS
        return self.decimals


def _number(token: bytes) -> float:
    try:
        return float(token.strip(b'"'))
    except ValueError:
        return 0.0


class Times:
    """Growing start and duration columns."""

    __slots__ = ("_anomalies", "_clock", "_count", "_durations", "_size", "_starts", "_tokens")

    def __init__(self, clock: Clock, anomalies: Anomalies) -> None:
        self._clock = clock
        self._anomalies = anomalies
        self._tokens: list[bytes] = []
        self._count = 0
        self._size = 0
        self._starts = bytearray()
        self._durations = Column("d")

    def extend(self, events: Sequence[Complete]) -> None:
        """Append the times of events."""
        tokens = b" ".join([event.ts for event in events])
        if tokens.count(b" ") != len(events) - 1:  # not numbers: lists, or texts with spaces
            tokens = b" ".join([b"".join(bytes(event.ts).split()) for event in events])
        self._tokens.append(tokens)
        self._count += len(events)
        self._size += len(tokens)
        self._durations.extend([event.dur for event in events])
        if self._size > _TOKEN_BATCH_BYTES:
            self._convert()

    def _convert(self) -> None:
        tokens = b" ".join(self._tokens)
        times = kineto_time.nanoseconds(tokens, self._count, self._clock.places(tokens))
        self._anomalies.note(Anomaly.TEXT_NUMBER, count=times.texts)
        self._starts += times.ns.tobytes()
        self._tokens = []
        self._count = self._size = 0

    def take(self) -> tuple[Int64Array, Float64Array]:
        """Return starts in ns and durations as written, and forget them."""
        if self._count:
            self._convert()
        starts = np.frombuffer(self._starts, dtype=np.int64)
        self._starts = bytearray()
        return starts, self._durations.take()
