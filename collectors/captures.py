"""What records the active steps inside a rank: torch.profiler, or a window for nsys."""

from __future__ import annotations

import inspect
import time
from pathlib import Path
from typing import Any, Protocol

import torch

from trace_analyzer.capture_marks import rank_mark
from trace_analyzer.collectors.compressing import compress
from trace_analyzer.collectors.options import Mode, Options, Schedule
from trace_analyzer.collectors.ranks import rank_of_process, world_size_of_process

DEVICE_PATIENCE_SECONDS = 10.0


class Capture(Protocol):
    """Records a row of steps; `step` is called at each boundary between two of them."""

    notes: list[str]

    def start(self, schedule: Schedule) -> None:
        """Start; `schedule.warmup` steps and then `schedule.active` follow."""

    def step(self) -> None:
        """Say that a step ended and the next one began."""

    def stop(self) -> None:
        """Stop, and put what was recorded where nothing can take it away."""

    def finish(self) -> None:
        """Do what can wait until no step is timed any more."""


class NoCapture:
    """Records nothing: step times alone."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def start(self, schedule: Schedule) -> None:
        """Do nothing."""

    def step(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""


class TorchCapture:
    """torch.profiler with Kineto's Chrome trace, exported at once and compressed later."""

    def __init__(self, options: Options, rank: int) -> None:
        self.notes: list[str] = []
        self._options = options
        self._plain = options.path / f"rank{rank}.pt.trace.json"
        self._profile: torch.profiler.profile | None = None
        self._active_begun = 0
        self._until_active = 0

    @property
    def path(self) -> Path:
        """The compressed trace."""
        return self._plain.with_name(self._plain.name + ".gz")

    def start(self, schedule: Schedule) -> None:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._until_active = schedule.warmup
        self._active_begun = 0 if schedule.warmup else 1
        self._profile = torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(
                wait=0, warmup=schedule.warmup, active=schedule.active, repeat=1
            ),
            record_shapes=self._options.record_shapes,
            with_stack=self._options.with_stack,
            profile_memory=self._options.profile_memory,
            experimental_config=experimental_config(),
            **one_cycle(),
        )
        self._profile.start()

    def step(self) -> None:
        if self._profile is None:
            return
        if self._until_active:
            self._until_active -= 1
        if not self._until_active:
            self._active_begun += 1
        self._profile.step()

    def stop(self) -> None:
        profile, self._profile = self._profile, None
        if profile is None:
            return
        if not device_reaches_now(DEVICE_PATIENCE_SECONDS):
            # Stopping waits for the device, and a device that waits for a rank that has gone
            # would keep this one from ever ending.
            self.notes.append("the device did not finish its work; the trace is not written")
            return
        profile.stop()
        if not self._active_begun:
            self.notes.append("training ended before the first profiled step")
            return
        profile.export_chrome_trace(str(self._plain))
        problem = _incomplete(self._plain)
        if problem:
            self.notes.append(problem)
            # Kineto's half-written file would keep the step times from being written, too.
            self._plain.with_name(self._plain.name + ".tmp").unlink(missing_ok=True)

    def finish(self) -> None:
        if self._plain.exists():
            try:
                compress(self._plain)
            except OSError as error:
                self.notes.append(f"{self._plain.name} stays uncompressed: {error.strerror}")


class NsysCapture:
    """A cudaProfilerStart/Stop window for the nsys that started this process."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._open = False

    def start(self, schedule: Schedule) -> None:  # noqa: ARG002
        if not torch.cuda.is_available():
            self.notes.append("no CUDA device: nothing for nsys to collect")
            return
        _check_cuda(torch.cuda.cudart().cudaProfilerStart(), "cudaProfilerStart")
        self._open = True
        # A report of a node does not tell which process is which rank.
        rank, size = rank_of_process(), world_size_of_process()
        torch.cuda.nvtx.mark(rank_mark(rank, size))

    def step(self) -> None:
        """Do nothing: the ranges of the steps mark the boundaries."""

    def stop(self) -> None:
        if self._open and device_reaches_now(DEVICE_PATIENCE_SECONDS):
            _check_cuda(torch.cuda.cudart().cudaProfilerStop(), "cudaProfilerStop")
        self._open = False

    def finish(self) -> None:
        """Do nothing: nsys writes its report when training has ended."""


def capture_of(options: Options, rank: int) -> Capture:
    """Return what records in the mode of `options`; it is not started."""
    if options.mode is Mode.TORCH:
        return TorchCapture(options, rank)
    return NsysCapture() if options.mode is Mode.NSYS else NoCapture()


def experimental_config(
    *, trace_only: bool = True
) -> torch._C._profiler._ExperimentalConfig | None:
    """Ask Kineto for synchronisation events where this torch can give them.

    `trace_only` (newer versions) leaves out torch's own event objects, which only take time when
    the profile stops; the exported trace is the same.
    """
    from torch._C._profiler import _ExperimentalConfig

    signature = _ExperimentalConfig.__init__.__doc__ or ""
    wanted = ("enable_cuda_sync_events", "trace_only")
    known: dict[str, Any] = {name: True for name in wanted if name in signature}
    if "trace_only" in known:
        known["trace_only"] = trace_only
    return _ExperimentalConfig(**known) if known else None


def one_cycle() -> dict[str, Any]:
    """Keep torch from warning that a second cycle would replace the first: there is one."""
    known = inspect.signature(torch.profiler.profile.__init__).parameters
    return {"acc_events": True} if "acc_events" in known else {}


def device_reaches_now(patience_s: float) -> bool:
    """Whether the device works off all that the current stream holds within `patience_s`."""
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return True
    event = torch.cuda.Event()
    event.record()
    deadline = time.monotonic() + patience_s
    while not event.query():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def _incomplete(path: Path) -> str:
    # Kineto does not say when a disk is full.
    if not path.exists() or path.stat().st_size == 0:
        return f"{path.name} was not written: is the disk full?"
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - 64))
        if not stream.read().rstrip().endswith(b"}"):
            return f"{path.name} is cut off: is the disk full?"
    return ""


def _check_cuda(status: object, call: str) -> None:
    code = int(getattr(status, "value", status))  # type: ignore[call-overload]
    if code:
        msg = f"{call} failed with CUDA error {code}"
        raise RuntimeError(msg)
