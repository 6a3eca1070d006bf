"""Takes one rank through the schedule of a recording.

Steps are timed, then profiled, then timed again, by the counts of `Schedule`; inside a timed step
nothing waits. What goes wrong in here is said and noted, and training goes on.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

from trace_analyzer.before_after import unlike
from trace_analyzer.bundle import Role, default_name
from trace_analyzer.collectors import flight
from trace_analyzer.collectors.calibrating import calibrate
from trace_analyzer.collectors.captures import DEVICE_PATIENCE_SECONDS, capture_of
from trace_analyzer.collectors.options import (
    LEAST_TIMED,
    Entry,
    Mode,
    Options,
    Segment,
)
from trace_analyzer.collectors.ranges import NoRanges, Ranges, ranges_of
from trace_analyzer.collectors.ranks import rank_of_process
from trace_analyzer.collectors.rendezvous import Rendezvous
from trace_analyzer.collectors.timer import StepTimer
from trace_analyzer.errors import TraceAnalyzerError

# Nothing is read inside a step of a recording: this many steps may wait for the next meeting.
UNREAD_STEPS = 4096


class RecordingExistsError(TraceAnalyzerError):
    """The bundle already holds a recording of this rank."""


class Recorder:
    """Takes one rank through the schedule.

    `begin()` opens the first step, `step()` ends one and begins the next, `close()` ends the
    recording wherever it is. `done` turns true when the schedule is through. `parts_every` is
    the step timer's; `marks_parts` says whether the open step's parts are marked, by the timer or
    by ranges in the trace. Raises `RecordingExistsError` where the folder holds this rank already.
    """

    def __init__(self, options: Options, *, parts_every: int = 1) -> None:
        self.options = options
        self.rank = rank_of_process()
        self.done = False
        self.complete = False
        self.marks_parts = False
        self.ranges: Ranges = NoRanges()
        self._segments = options.schedule.segments(options.mode)
        self._segment: Segment | None = None
        self._left = 0
        self._phase = ""
        self._capturing = False
        self._before_ms: list[float] = []
        self._has_met = False
        self._group = ""  # what all ranks of this recording call it, until it is written
        self._begun = False
        self._ended_part: str | None = None
        self._pid = os.getpid()
        self._rendezvous = Rendezvous()
        self._capture = capture_of(options, self.rank)
        path = options.path / options.timer_name(self.rank)
        try:
            self._timer = StepTimer(
                path=path,
                reset_peak=options.reset_peak,
                exclusive=True,
                unread_steps=UNREAD_STEPS,
                parts_every=parts_every,
            )
        except FileExistsError as error:
            msg = f"{path}: this rank is recorded already; choose another folder, or --force"
            raise RecordingExistsError(msg) from error

    def begin(self) -> None:
        """Begin the first step."""
        self._guarded(self._next_segment)
        self._begun = True

    def step(self, *, ended: str | None = None) -> None:
        """End a step, and the part `ended` with it, and begin the next one."""
        if self.done:
            return
        self._left -= 1
        self._ended_part = ended
        try:
            if self._left and not self._capturing:
                timer = self._timer  # the usual way, with few calls
                timer.begin_step(self._phase, ended=ended)
                self.marks_parts = timer.marks_parts
            else:
                self._step()
        except Exception as error:  # noqa: BLE001  # as in _guarded
            self._give_up(error)

    def mark(self, part: str, *, on_device: bool = True) -> None:
        """End a part ("data", "forward", "backward", "optimizer", "other") of the open step, if the timer marks it."""
        if not self.done:
            self._timer.mark(part, on_device=on_device)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time a part of the step, and give it a range in the trace."""
        self.mark("other", on_device=False)
        self.ranges.begin(name)
        yield
        self.ranges.end(name)
        self.mark(name)

    def close(self) -> None:
        """End the recording; what there is is kept. May be called twice."""
        if self.done or os.getpid() != self._pid:
            return
        self._guarded(self._close_early)

    def abandon(self, reason: str) -> None:
        """End at once, waiting for nothing, because the process is about to be killed."""
        if self.done or os.getpid() != self._pid:
            return
        self.done = True
        self._note_all([reason])
        self._timer.drop_open()
        self._timer.close(patience_s=0.0, end={"complete": False})

    def _step(self) -> None:
        if not self._left:
            self._next_segment()
            return
        assert self._segment is not None
        self._begin_step(self._segment)
        self._capture.step()

    def _enter(self, segment: Segment) -> None:
        self._segment, self._left, self._phase = segment, segment.steps, segment.phase
        self._capturing = segment.active or segment.entry is Entry.START

    def _next_segment(self) -> None:
        if not self._segments:
            self._finish()
            return
        was_capturing = self._capturing
        segment = self._segments.pop(0)
        if segment.entry is Entry.FOLLOW:
            self._enter(segment)
            self._begin_step(segment)
            if was_capturing:
                self._capture.step()
            return
        self.ranges.end_step()
        if self._begun:
            self._timer.break_sequence(ended=self._ended_part)
        if segment.entry is Entry.STOP:
            self._capture.step()
            if self.options.mode is Mode.NSYS:
                self._meet()  # the first rank that stops, stops nsys for all of its report
                self._calibrate()  # while nsys still collects
            self._stop_capture()
        self._meet()
        if segment.entry is Entry.START:
            segment = self._start_capture(segment)
        self._enter(segment)
        following = itertools.takewhile(lambda item: item.entry is Entry.FOLLOW, self._segments)
        self._timer.prepare(segment.steps + sum(item.steps for item in following))
        self._begin_step(segment)
        if self._group:  # once, behind the header
            self._timer.write({"kind": "group", "id": self._group})
            self._group = ""

    def _begin_step(self, segment: Segment) -> None:
        self._timer.begin_step(segment.phase, ended=self._ended_part)
        self.marks_parts = self._capturing or self._timer.marks_parts
        if segment.active:
            self.ranges.begin_step(self._timer.index - 1)

    def _start_capture(self, segment: Segment) -> Segment:
        schedule = self.options.schedule
        before = self._timer.drain(final=True)
        self._before_ms = _unprofiled_ms(before)
        if schedule.sample_seconds is not None:
            # Under nsys no step is unprofiled; the first ones settle, and the last are as long as
            # those of the window will be.
            step_ms = median(self._before_ms or [item["step_ms"] for item in before[-LEAST_TIMED:]])
            active = max(2, round(schedule.sample_seconds * 1000.0 / step_ms))
            active = self._rendezvous.share(active)
            schedule = dataclasses.replace(schedule, active=active)
            self._segments = [
                dataclasses.replace(later, steps=active) if later.active else later
                for later in self._segments
            ]
            if segment.active:
                segment = dataclasses.replace(segment, steps=active)
        self._capture.start(schedule)
        self.ranges = ranges_of(self.options.mode)
        return segment

    def _stop_capture(self) -> None:
        self.ranges.end_step()
        self.ranges = NoRanges()
        self._timer.flush()  # before the trace takes the disk's last space
        self._capture.stop()
        self._note_all(self._capture.notes)
        try:
            flight.dump(self.options.path / default_name(Role.FLIGHT_RECORDER, self.rank))
        except OSError as error:
            self._note_all([f"the Flight Recorder's list is not kept: {error.strerror}"])

    def _meet(self) -> None:
        known = self._rendezvous.problem
        if not self._has_met:
            self._rendezvous.offer("group", uuid.uuid4().hex)
        if self._rendezvous.meet() and not self._has_met:
            self._has_met = True
            self._group = self._rendezvous.take("group")
        if self._rendezvous.problem and not known:
            self._note_all([self._rendezvous.problem])

    def _finish(self) -> None:
        self.done = True
        self._timer.break_sequence(ended=self._ended_part)
        self._meet()
        self._capture.finish()
        self._note_all(self._capture.notes)
        differ = unlike(self._before_ms, _unprofiled_ms(self._timer.drain(final=True)))
        if differ is not None:
            self._timer.note(f"{differ.text()}: only those before count")
        self.complete = True
        if self.options.mode is not Mode.NSYS:
            self._calibrate()
        self._end()
        self._meet()

    def _calibrate(self) -> None:
        if self.options.calibrate:
            together = not self._rendezvous.problem
            self._note_all(calibrate(self.options, self.rank, together=together))

    def _close_early(self) -> None:
        self.done = True
        self.ranges.end_step()
        if self._capturing:
            self._stop_capture()
        self._capture.finish()
        left = sum(segment.steps for segment in self._segments) + self._left
        self._note_all([f"training ended {left} steps before the recording was complete"])
        self._end()

    def _end(self) -> None:
        if self.complete:
            self._timer.close(end={"complete": True})
        else:
            # The open step is cut off, and the device may wait for a rank that has gone.
            self._timer.drop_open()
            self._timer.close(patience_s=DEVICE_PATIENCE_SECONDS, end={"complete": False})

    def _note_all(self, notes: list[str]) -> None:
        for note in notes:
            self._timer.note(note)
            print(f"trace-analyzer: rank {self.rank}: {note}", file=sys.stderr, flush=True)  # noqa: T201
        notes.clear()

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001  # a defect in here must not end a training run
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self.done = True
        where = traceback.extract_tb(error.__traceback__)[-1]
        note = (
            f"recording stopped, training goes on: {type(error).__name__}: {error} "
            f"({Path(where.filename).name}:{where.lineno})"
        )
        self._note_all([note])
        with suppress(Exception):
            self._end()


def _unprofiled_ms(records: list[dict[str, Any]]) -> list[float]:
    return [record["step_ms"] for record in records if record["phase"] == "unprofiled"]
