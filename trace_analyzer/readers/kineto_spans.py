"""Starts and ends in ns: units, corrupt values, and what all events of a file share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from trace_analyzer.names import NameTable
from trace_analyzer.readers.kineto_anomalies import Anomalies, Anomaly
from trace_analyzer.readers.kineto_columns import EventColumns
from trace_analyzer.readers.kineto_order import order_rows
from trace_analyzer.schema import (
    NA_INT64,
    AnyArray,
    BoolArray,
    Float64Array,
    Int32Array,
    Int64Array,
)

UNKNOWN_NAME: Final = "unknown"

_DAY_NS = 86_400 * 10**9
_YEAR_NS = 365 * _DAY_NS
_EPOCH_FROM_NS = 10**18  # 2001-09-09 as Unix time
_NS_PER_US = 1000


@dataclass(frozen=True, slots=True)
class Spans:
    """Starts and ends in ns, and which events have a usable time."""

    start: Int64Array
    end: Int64Array
    usable: BoolArray

    def nested(self) -> Int64Array:
        """Return the usable rows by start, and of equal starts the longer before the shorter."""
        return order_rows(self.start, -self.end, self.usable)

    def ordered(self) -> Int64Array:
        """Return the usable rows by start, then by end."""
        return order_rows(self.start, self.end, self.usable)


class Timeline:
    """The times of all events of one file, judged by what is common to them."""

    def __init__(self, columns: EventColumns, clock_base_ns: int | None) -> None:
        self._anomalies = columns.shared.anomalies
        self._written = {
            "gpu": columns.gpu.times.take(),
            "calls": columns.calls.times.take(),
            "host": columns.host.times.take(),
            "syncs": columns.sync_times.take(),
        }
        self._in_nanoseconds = columns.shared.clock.decimals == 0
        starts = [start[start != NA_INT64] for start, _ in self._written.values()]
        present = np.concatenate(starts)
        self._middle = int(np.median(present)) if len(present) else 0
        self._divisor = self._excess(clock_base_ns)
        if self._in_nanoseconds or self._divisor > 1:
            self._anomalies.note(Anomaly.UNIT)

    @property
    def is_epoch(self) -> bool:
        """Whether time stamps count from 1970 rather than from a base."""
        return self._middle // self._divisor >= _EPOCH_FROM_NS

    def _excess(self, clock_base_ns: int | None) -> int:
        """Return 1000 where stamps relative to a base can only be nanoseconds, else 1.

        A base lies less than half a year before the recording. What seems to be more than a
        century after it, and is not the time since 1970, is written in nanoseconds.
        """
        if clock_base_ns is None or self._in_nanoseconds:
            return 1
        far = self._middle > 100 * _YEAR_NS
        since_1970 = abs(self._middle - clock_base_ns) < 10 * _YEAR_NS
        return _NS_PER_US if far and not since_1970 else 1

    def spans(self, group: str) -> Spans:
        """Return the spans of one group of events and forget them; oddities are counted."""
        start, written = self._written.pop(group)
        missing = start == NA_INT64
        middle = self._middle // self._divisor
        start = np.where(missing, middle, start // self._divisor if self._divisor > 1 else start)
        duration = self._durations(written)
        zero = (start == 0) & (duration == 0) & ~missing
        if group != "gpu":
            zero[:] = False
        far = ((start > middle + _DAY_NS) | (start < middle - _DAY_NS)) & ~zero
        usable = ~(missing | zero | far)
        bad = (duration < 0) & usable
        self._anomalies.note(Anomaly.NO_TIME, count=int(np.count_nonzero(missing)))
        self._anomalies.note(Anomaly.ZERO_TIME, count=int(np.count_nonzero(zero)))
        self._anomalies.note(Anomaly.FAR_TIME, count=int(np.count_nonzero(far)))
        if bad.any():
            sample = f"dur {float(written[bad][0])}"
            self._anomalies.note(Anomaly.BAD_DURATION, sample, int(np.count_nonzero(bad)))
        duration[duration < 0] = 0
        return Spans(start, start + duration, usable)

    def _durations(self, written: Float64Array) -> Int64Array:
        """Return durations in ns; -1 where one is negative, missing or longer than a day.

        A product of up to 2^53 that was rounded once, of a number with three decimals, is off by
        less than half a nanosecond: the result is exact.
        """
        unit = 1 if self._in_nanoseconds or self._divisor > 1 else _NS_PER_US
        with np.errstate(invalid="ignore", over="ignore"):
            ns = np.rint(written * unit)
            sound = (ns >= 0) & (ns <= _DAY_NS)
        return np.where(sound, ns, -1.0).astype(np.int64)


class RecordedNames:
    """The names of one file as a table, and the way there from the codes of its events."""

    def __init__(self, recorded: list[str | None], anomalies: Anomalies) -> None:
        self.recorded = recorded
        self.table = NameTable()
        self._anomalies = anomalies
        texts = [UNKNOWN_NAME if name is None else name for name in recorded]
        self.positions_of(sorted(texts))  # an order that does not depend on how the file was cut
        self._positions = self.positions_of(texts)

    def positions_of(self, texts: list[str]) -> Int32Array:
        """Return the positions of texts, adding new ones."""
        return np.array([self.table.intern(text) for text in texts], dtype=np.int32)

    def positions(self, codes: AnyArray, of: Int32Array | None = None) -> Int32Array:
        """Return the positions of events' names; events without one are counted.

        `of` holds the position for every code where it is not that of the name itself.
        """
        self._anomalies.note(Anomaly.NO_NAME, count=int(np.count_nonzero(codes == 0)))
        found: Int32Array = (self._positions if of is None else of)[codes]
        return found
