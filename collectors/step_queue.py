"""Timed steps that wait for the device, and what they become: records, lines of a file, scalars."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from trace_analyzer.collectors.clocks import Clock
from trace_analyzer.collectors.lines import LineFile
from trace_analyzer.collectors.scalars import Scalars
from trace_analyzer.collectors.step_records import Step, release_marks, step_record

KEPT_RECORDS = 10_000  # finished steps that wait for take(); older ones are only in the file


class StepQueue:
    """Reads steps once the device has passed their last mark, in their order.

    Ended steps are appended to `waiting`. `lines` and `scalars`, where given, receive each step's
    record; both are closed with the queue.
    """

    def __init__(self, lines: LineFile | None, scalars: Scalars | None) -> None:
        self.waiting: deque[Step] = deque()
        self._finished: deque[dict[str, Any]] = deque(maxlen=KEPT_RECORDS)
        self._lines = lines
        self._scalars = scalars

    def read(self, clock: Clock, *, wait: bool = False) -> None:
        """Read the steps that the device has passed; with `wait`, all of them."""
        while self.waiting:
            step = self.waiting[0]
            if wait:
                clock.wait(step.end)
            elif not clock.passed(step.end):
                return
            self.waiting.popleft()
            self._finish(clock, step)

    def read_within(self, clock: Clock, patience_s: float | None) -> None:
        """Read all steps that the device passes within this time; None waits for all."""
        if patience_s is None:
            self.read(clock, wait=True)
            return
        deadline = time.monotonic() + patience_s
        while self.waiting and time.monotonic() < deadline:
            self.read(clock)
            time.sleep(0.001)

    def take(self) -> list[dict[str, Any]]:
        """Return the records that were finished since the last call, oldest first."""
        records = list(self._finished)
        self._finished.clear()
        return records

    def write(self, record: Mapping[str, Any]) -> None:
        """Add a line to the file, if there is one."""
        if self._lines is not None:
            self._lines.write(record)

    def flush(self) -> None:
        """Put the file's lines on the disk."""
        if self._lines is not None:
            self._lines.flush()

    def close(self) -> None:
        """Close the file and the scalars; steps that still wait are left out."""
        if self._lines is not None:
            self._lines.close()
        if self._scalars is not None:
            self._scalars.close()
            self._scalars = None

    def _finish(self, clock: Clock, step: Step) -> None:
        record = step_record(clock, step)
        release_marks(clock, step)
        self._finished.append(record)
        self.write(record)
        if self._scalars is not None:
            self._scalars.write(record)
