"""Step times as the device sees them, for every rank, cheap enough to leave on.

    with StepTimer(path=Path("steps_rank0.jsonl")) as timer:
        for batch in timer.steps(loader):
            loss = model(batch)
            timer.mark("forward")
            loss.backward()
            timer.mark("backward")
            optimizer.step()
            timer.mark("optimizer")

Nothing inside a step waits for the device. A step lasts from its own begin mark to the next
step's, both on the current stream: with CUDA events that is completion to completion, what events
around a step measure. The last step before a break, a change of phase or the end lasts until its
end mark. On a host clock the same marks are read from `time.perf_counter_ns`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from trace_analyzer.collectors import step_records
from trace_analyzer.collectors.clocks import Clock, Memory, open_clock
from trace_analyzer.collectors.lines import LineFile
from trace_analyzer.collectors.part_sampling import PartSampling
from trace_analyzer.collectors.ranks import rank_of_process, world_size_of_process
from trace_analyzer.collectors.scalars import Scalars
from trace_analyzer.collectors.step_queue import StepQueue
from trace_analyzer.collectors.step_records import Step

PHASES = ("unprofiled", "warmup", "profiled")
# Reading a step's marks takes longer than taking them, so short recordings read all of theirs
# when no step is open; long ones are this many steps behind, and read one step in each.
UNREAD_STEPS = 64
MARKS_A_STEP = 5
# Asking the allocator takes longer than all marks of a step. It is asked again when this many
# times as long has passed (0.025 % of the time), and whenever no step is open.
MEMORY_REST = 4000

Batch = TypeVar("Batch")
_new_step = Step.__new__


class StepTimer:
    """Times steps and their parts on the device and on the host.

    `path` receives JSON lines (schema `steps.schema.json`): a header, then one line a step.
    `rank` and `world_size` come from torch.distributed or the launcher's variables when not
    given. `device` is "auto" (CUDA events where this process uses CUDA when its first step
    begins), "cuda" or "cpu". With `reset_peak` the allocator's peak is reset whenever it is read:
    `memory_peak_bytes` is the peak since the step before that has one; without it the peak is the
    process's own. Memory is read as often as `MEMORY_REST` allows.
    `tensorboard` is a log folder for scalars; without the tensorboard package it raises
    `ModuleNotFoundError`. `exclusive` refuses a file that exists (`FileExistsError`). Up to
    `unread_steps` steps wait to be read for a moment when no step is open.

    Every step is timed with the one mark at its boundary; parts take more. With `parts_every`
    n > 1 they are marked in the first two steps of each phase, in one step of n and in every step
    of the phase "profiled"; in the others `mark()` does nothing, and `marks_parts` is false. Raises
    `ValueError` for n < 1.
    """

    def __init__(  # noqa: PLR0913 (one parameter an option)
        self,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        path: Path | str | None = None,
        device: str = "auto",
        reset_peak: bool = True,
        tensorboard: Path | str | None = None,
        exclusive: bool = False,
        unread_steps: int = UNREAD_STEPS,
        parts_every: int = 1,
    ) -> None:
        self.rank = rank_of_process() if rank is None else rank
        self.world_size = world_size_of_process() if world_size is None else world_size
        self.index = 0  # of the next step
        self.marks_parts = True  # in the open step
        self._sampling = PartSampling(parts_every)
        self._phase = ""
        self._without_parts = 0  # steps of this phase until the next with parts
        self._device = device
        self._clock: Clock | None = None
        self._reset_peak = reset_peak
        self._memory_due_ns = 0
        self._unread_steps = unread_steps
        self._open: Step | None = None
        self._ended: Step | None = None  # waits for the next begin mark, which closes it
        self._queue = StepQueue(
            None if path is None else LineFile(Path(path), exclusive=exclusive),
            None if tensorboard is None else Scalars(Path(tensorboard), self.rank),
        )
        self._closed = self._queue.waiting

    @property
    def clock(self) -> str:
        """Name of the clock: "cuda-event", "host", or "" before the first step."""
        return "" if self._clock is None else self._clock.name

    def begin_step(self, phase: str = "unprofiled", *, ended: str | None = None) -> None:
        """Begin a step; an open one is ended first, at the same mark.

        `ended` names the part of the open step that ends there too.

        Raises `ValueError` for a phase that is not in `PHASES`.
        """
        # Between two steps the caches hold the training's code, so each call in here costs about a
        # microsecond: the usual way is written out.
        clock = self._clock
        if clock is None or phase not in PHASES:
            clock = self._started_clock(phase)
        mark, now_ns = clock.mark(), time.perf_counter_ns()
        before = self._open
        if before is not None:
            if ended is not None and self.marks_parts:
                before.parts.append((ended, mark, now_ns))
            before.end, before.end_host_ns, before.end_is_next_begin = mark, now_ns, True
            if now_ns >= self._memory_due_ns:
                before.memory = self._read_memory(clock)
            self._closed.append(before)
        elif self._ended is not None:
            self._close_ended(clock, mark, now_ns, phase)
        step = _new_step(Step)  # a call of Step() would go through its __init__: 4 us from cold
        step.index, step.phase, step.start_unix_ns = self.index, phase, time.time_ns()
        step.begin, step.begin_host_ns, step.parts = mark, now_ns, []
        step.end, step.end_host_ns, step.end_is_next_begin, step.memory = None, 0, False, None
        self._open = step
        self.index += 1
        if self._without_parts and phase == self._phase:
            self._without_parts -= 1
            self.marks_parts = False
        else:
            self._phase, self.marks_parts = phase, True
            self._without_parts = self._sampling.steps_to_skip(phase)
        if len(self._closed) > self._unread_steps:
            self._queue.read(clock)

    def _close_ended(self, clock: Clock, mark: object, now_ns: int, phase: str) -> None:
        step, self._ended = self._ended, None
        assert step is not None
        if step.phase == phase:
            step_records.close_by_next(clock, step, mark, now_ns)
        self._closed.append(step)

    def prepare(self, steps: int) -> None:
        """Make the marks of so many steps ahead, while no step is open."""
        if self._clock is not None:
            self._clock.prepare(MARKS_A_STEP * min(steps, self._unread_steps))

    def mark(self, part: str, *, on_device: bool = True) -> None:
        """End a part of the open step: it began at the mark before, or at the step's begin.

        Parts of the same name add up (several forward passes a step). Without `on_device` only
        the host's clock is read, and the device's time goes to the part after it. Does nothing
        in a step whose parts are not marked (`parts_every`). Raises `RuntimeError` outside a step.
        """
        if self._open is None or self._clock is None:
            raise RuntimeError("mark() outside a step: call begin_step() first")
        if not self.marks_parts:
            return
        mark = self._clock.mark() if on_device else None
        self._open.parts.append((part, mark, time.perf_counter_ns()))

    def end_step(self, *, ended: str | None = None) -> None:
        """End the open step, and the part `ended` with it.

        Raises `RuntimeError` where none is open.
        """
        if self._open is None or self._clock is None:
            raise RuntimeError("end_step() without begin_step()")
        mark, now_ns = self._clock.mark(), time.perf_counter_ns()
        if ended is not None and self.marks_parts:
            self._open.parts.append((ended, mark, now_ns))
        step, self._open = self._open, None
        step.end, step.end_host_ns = mark, now_ns
        if now_ns >= self._memory_due_ns:
            step.memory = self._read_memory(self._clock)
        self._ended = step

    def break_sequence(self, *, ended: str | None = None) -> None:
        """Say that what follows does not belong to the last step (a barrier, an evaluation).

        An open step is ended, and the part `ended` with it.
        """
        if self._open is not None:
            self.end_step(ended=ended)
        if self._ended is not None:
            if self._ended.memory is None and self._clock is not None:
                self._ended.memory = self._read_memory(self._clock)
            self._closed.append(self._ended)
            self._ended = None
        if self._clock is not None:
            self._queue.read(self._clock)

    def drain(self, *, final: bool = False) -> list[dict[str, Any]]:
        """Return the steps that finished since the last call, oldest first.

        Never waits for the device unless `final`, which ends the open step and waits for all.
        At most the last 10,000 are kept between calls.
        """
        if self._clock is not None:
            if final:
                self.break_sequence()
            self._queue.read(self._clock, wait=final)
        return self._queue.take()

    def flush(self) -> None:
        """Write what is finished to the file."""
        if self._clock is not None:
            self._queue.read(self._clock)
        self._queue.flush()

    def note(self, message: str) -> None:
        """Add a remark to the file."""
        self.write({"kind": "note", "message": message})
        self._queue.flush()

    def write(self, record: Mapping[str, Any]) -> None:
        """Add a line of the schema to the file."""
        self._queue.write(record)

    def close(
        self, *, patience_s: float | None = None, end: Mapping[str, Any] | None = None
    ) -> None:
        """End, wait for the device, write everything; the finished steps can still be drained.

        Steps that the device does not finish within `patience_s` are left out. `end` becomes the
        file's last line.
        """
        if self._clock is not None:
            self.break_sequence()
            self._queue.read_within(self._clock, patience_s)
        if end is not None:
            self.write({"kind": "end", **end})
        self._queue.close()

    def drop_open(self) -> None:
        """Forget the open step: it failed, or training ended in it."""
        if self._open is None:
            return
        if self._clock is not None:
            # Not the begin mark: it may close the step before.
            step_records.release_part_marks(self._clock, self._open)
        self._open = None

    def steps(self, batches: Iterable[Batch], phase: str = "unprofiled") -> Iterator[Batch]:
        """Yield batches, each inside a step of its own whose "data" part is the wait for it."""
        iterator = iter(batches)
        while True:
            self.begin_step(phase)
            try:
                batch = next(iterator)
            except StopIteration:
                self.drop_open()
                return
            self.mark("data")
            yield batch
            if self._open is not None:
                self.end_step()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.drop_open()  # a step that failed has no time
        self.close()

    def _started_clock(self, phase: str) -> Clock:
        if phase not in PHASES:
            raise ValueError(f"phase must be one of {', '.join(PHASES)}, not {phase!r}")
        if self._clock is None:
            self._clock = open_clock(self._device)
            self.prepare(UNREAD_STEPS)
            header = step_records.process_header(self.rank, self.world_size)
            header |= {"clock": self.clock, "parts_every": self._sampling.every}
            header["memory_peak"] = "interval" if self._reset_peak else "process"
            self.write(header)
            self._queue.flush()
        return self._clock

    def _read_memory(self, clock: Clock) -> Memory | None:
        begin_ns = time.perf_counter_ns()
        memory = clock.memory(reset_peak=self._reset_peak)
        end_ns = time.perf_counter_ns()
        self._memory_due_ns = end_ns + MEMORY_REST * (end_ns - begin_ns)
        return memory


__all__ = ["PHASES", "StepTimer"]
