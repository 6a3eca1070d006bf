"""Blocks of training steps with the hooks of `collect` and without, for `timer_cost`."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from trace_analyzer.collectors.clocks import open_clock
from trace_analyzer.collectors.faultlab.gpt import Gpt
from trace_analyzer.collectors.faultlab.workload import GptShape
from trace_analyzer.collectors.hook import Observer
from trace_analyzer.collectors.options import Mode, Options, Schedule
from trace_analyzer.collectors.part_sampling import HOOKED_PARTS_EVERY
from trace_analyzer.collectors.recorder import Recorder

SKIP_STEPS, SETTLE_STEPS = 2, 3
LEARNT_STEPS = SKIP_STEPS + 1  # the third step ends where the recording begins


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model to train, and how many of its steps make a block."""

    shape: GptShape
    batch: int
    block_steps: int


class Training:
    """A model that can be stepped."""

    def __init__(self, size: Size, device: torch.device) -> None:
        torch.manual_seed(0)
        self.device = device
        self.model = Gpt(size.shape).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        shape = (size.batch, size.shape.sequence)
        pairs = [
            tuple(torch.randint(0, size.shape.vocabulary, shape, device=device) for _ in range(2))
            for _ in range(size.block_steps + LEARNT_STEPS + SETTLE_STEPS + 1)
        ]
        self._loader: DataLoader[Any] = DataLoader(pairs, batch_size=None)  # type: ignore[arg-type]

    def block(self) -> Iterator[Callable[[], None]]:
        """Yield one step after another; each is a call."""
        batches = iter(self._loader)
        for _ in range(len(self._loader)):
            yield lambda: self._step(batches)

    def _step(self, batches: Iterator[Any]) -> None:
        inputs, targets = next(batches)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            loss = self.model(inputs, targets)
        loss.backward()
        self.optimizer.step()


@dataclass(frozen=True, slots=True)
class WatchedStep:
    """Time spent in watched calls of one step, by label, and their number."""

    has_parts: bool  # whether parts were marked in it
    spent_ns: dict[str, int]
    calls: dict[str, int]

    def spent_us(self, label: str, own_us: float) -> float:
        """Return the time of a label in microseconds, less what watching takes (a call each).

        Everything watched lies inside the calls named "inside"; of a call by itself, half of what
        watching takes lies within its time.
        """
        if label == "inside":
            return self.spent_ns[label] / 1e3 - own_us * sum(self.calls.values())
        return self.spent_ns[label] / 1e3 - own_us / 2 * self.calls[label]


@dataclass(slots=True)
class Watch:
    """Adds up the time spent in calls, by label; calls inside watched calls are counted in both."""

    steps: list[WatchedStep] = field(default_factory=list)
    marks_parts: Callable[[], bool] = lambda: False  # whether the open step's parts are marked
    spent_ns: dict[str, int] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    counting: bool = False

    def wrap(self, owner: object, name: str, label: str) -> None:
        """Watch `owner.name` from now on."""
        original = getattr(owner, name)
        self.spent_ns.setdefault(label, 0)
        self.calls.setdefault(label, 0)

        def watched(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            begin = time.perf_counter_ns()
            try:
                return original(*arguments, **named)
            finally:
                if self.counting:
                    self.spent_ns[label] += time.perf_counter_ns() - begin
                    self.calls[label] += 1

        setattr(owner, name, watched)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Count what is called inside the block as a step of its own."""
        has_parts = self.marks_parts()
        self.spent_ns = dict.fromkeys(self.spent_ns, 0)
        self.calls = dict.fromkeys(self.calls, 0)
        self.counting = True
        yield
        self.counting = False
        self.steps.append(WatchedStep(has_parts, self.spent_ns, self.calls))


class Hooks:
    """The hooks of `collect`, put in for one block and taken out after it."""

    def __init__(self, block_steps: int, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        # One step more than is measured: the recorder closes its files when the last one ends.
        self._schedule = Schedule(
            skip=SKIP_STEPS, settle=SETTLE_STEPS, unprofiled=block_steps + 1, after=0
        )

    @contextmanager
    def installed(self, watch: Watch | None = None) -> Iterator[None]:
        """Put fresh hooks in; `watch` adds up the time spent in them."""
        self._count += 1
        options = Options(
            folder=str(self._folder / str(self._count)),
            mode=Mode.TIMER,
            schedule=self._schedule,
            calibrate=False,
            reset_peak=False,
        )
        observer = Observer(options, lambda given: _opened(given, watch))
        if watch is not None:
            parts = observer._parts  # noqa: SLF001  # what is measured here is how it works inside
            watch.wrap(observer, "_after_optimizer", "inside")
            for name in ("before_optimizer", "_enter", "_leave"):
                watch.wrap(parts, name, "inside")
            for name in ("put_in", "take_out"):
                watch.wrap(parts, name, "switches")
        observer.install()
        try:
            yield
        finally:
            observer.remove()


def _opened(options: Options, watch: Watch | None) -> Recorder:
    recorder = Recorder(options, parts_every=HOOKED_PARTS_EVERY)
    if watch is not None:
        watch.marks_parts = lambda: recorder.marks_parts
        timer = recorder._timer  # noqa: SLF001
        timer._clock = clock = open_clock("auto")  # noqa: SLF001
        watch.wrap(clock, "mark", "marks")
        watch.wrap(clock, "memory", "memory")
    return recorder


def train_block(
    training: Training, size: Size, device: torch.device, watch: Watch | None = None
) -> float:
    """Train one block; return the median step in milliseconds. `watch` gets the measured steps."""
    clock = open_clock(device.type)
    first, last = LEARNT_STEPS + SETTLE_STEPS, LEARNT_STEPS + SETTLE_STEPS + size.block_steps
    marks = []
    for number, step in enumerate(training.block()):
        if first <= number <= last:
            marks.append(clock.mark())
        with watch.step() if watch is not None and first <= number < last else nullcontext():
            step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return statistics.median(clock.elapsed_ms(a, b) for a, b in itertools.pairwise(marks))


def cost_of_watching_us(calls: int = 2000) -> float:
    """Return what watching adds to a call, in microseconds."""

    class Idle:
        def idle(self) -> None:
            """Do nothing."""

    watch, target = Watch(counting=True), Idle()
    plain = target.idle
    watch.wrap(target, "idle", "idle")
    begin = time.perf_counter_ns()
    for _ in range(calls):
        target.idle()
    watched_ns = time.perf_counter_ns() - begin
    begin = time.perf_counter_ns()
    for _ in range(calls):
        plain()
    return (watched_ns - (time.perf_counter_ns() - begin)) / 1e3 / calls
