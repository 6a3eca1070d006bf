"""The clocks of the step timer: CUDA events on the current stream, or the host's clock.

A mark is taken without waiting for anything; what lies between two marks is asked for later, when
the device has passed them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch


class Memory(NamedTuple):
    """Bytes that the caching allocator has handed out: now, and at most since the last reset."""

    allocated_bytes: int
    peak_bytes: int


class Clock(Protocol):
    """Takes marks of type `object` and measures between them."""

    name: str

    def prepare(self, marks: int) -> None:
        """Make marks ahead, so that none has to be made inside a step."""

    def mark(self) -> object:
        """Take a mark without waiting."""

    def passed(self, mark: object) -> bool:
        """Whether the device has reached the mark."""

    def wait(self, mark: object) -> None:
        """Wait until the device has reached the mark."""

    def elapsed_ms(self, begin: object, end: object) -> float:
        """Milliseconds between two passed marks."""

    def release(self, mark: object) -> None:
        """Give a mark back for reuse."""

    def memory(self, *, reset_peak: bool) -> Memory | None:
        """What the allocator holds, or None where there is none."""


class HostClock:
    """`time.perf_counter_ns`: what a CPU run can be measured with."""

    name = "host"

    def prepare(self, marks: int) -> None:
        """Do nothing: host marks are plain numbers."""

    def mark(self) -> object:
        return time.perf_counter_ns()

    def passed(self, mark: object) -> bool:
        return mark is not None

    def wait(self, mark: object) -> None:
        """Return at once: a host mark is passed when it is taken."""

    def elapsed_ms(self, begin: object, end: object) -> float:
        assert isinstance(begin, int)
        assert isinstance(end, int)
        return (end - begin) / 1e6

    def release(self, mark: object) -> None:
        """Do nothing: host marks are plain numbers."""

    def memory(self, *, reset_peak: bool) -> Memory | None:  # noqa: ARG002
        return None


class CudaClock:
    """CUDA events with timing on the current stream, pooled.

    Resolution is about half a microsecond (cudaEventElapsedTime). A mark costs what recording an
    event costs, where `prepare` made it: the driver makes an event when it is first recorded.
    """

    name = "cuda-event"

    def __init__(self) -> None:
        self._device = torch.cuda.current_device()
        self._free: list[torch.cuda.Event] = []
        self._streams: dict[int, torch.cuda.Stream] = {}
        # The public question makes a new Stream object each time, which takes longer than the mark.
        self._current: Callable[[int], tuple[int, int, int]] | None = getattr(
            torch._C,  # noqa: SLF001
            "_cuda_getCurrentStream",
            None,
        )

    def prepare(self, marks: int) -> None:
        stream = self._stream()
        for _ in range(marks - len(self._free)):
            event = torch.cuda.Event(enable_timing=True)
            event.record(stream)
            self._free.append(event)

    def mark(self) -> object:
        event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)
        event.record(self._stream())
        return event

    def _stream(self) -> torch.cuda.Stream:
        if self._current is None:
            return torch.cuda.current_stream(self._device)
        key = self._current(self._device)[0]
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = torch.cuda.current_stream(self._device)
        return stream

    def passed(self, mark: object) -> bool:
        assert isinstance(mark, torch.cuda.Event)
        return bool(mark.query())

    def wait(self, mark: object) -> None:
        assert isinstance(mark, torch.cuda.Event)
        mark.synchronize()

    def elapsed_ms(self, begin: object, end: object) -> float:
        assert isinstance(begin, torch.cuda.Event)
        assert isinstance(end, torch.cuda.Event)
        return float(begin.elapsed_time(end))

    def release(self, mark: object) -> None:
        assert isinstance(mark, torch.cuda.Event)
        self._free.append(mark)

    def memory(self, *, reset_peak: bool) -> Memory | None:
        # The nested form is one call into the allocator, which makes an object of each of some
        # hundred counters; torch.cuda.memory_allocated() flattens and sorts them besides. Neither
        # is cheap, so the timer does not ask in every step.
        counters = torch.cuda.memory_stats_as_nested_dict(self._device)
        if not counters:
            return None
        total = counters["allocated_bytes"]["all"]
        if reset_peak:
            torch.cuda.reset_peak_memory_stats(self._device)
        return Memory(int(total["current"]), int(total["peak"]))


def open_clock(device: str) -> Clock:
    """Return the clock for "cuda", "cpu" or "auto" (cuda where this process already uses it).

    Raises `ValueError` for another name, and `RuntimeError` where cuda is asked for and absent.
    """
    if device not in {"auto", "cpu", "cuda"}:
        msg = f"device must be auto, cuda or cpu, not {device!r}"
        raise ValueError(msg)
    if device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("the step timer was asked for CUDA, but torch finds no CUDA device")
    # A process that has not touched CUDA when its first step begins does not train on it, and
    # asking for a context would cost it hundreds of megabytes.
    if device == "cuda" or (device == "auto" and torch.cuda.is_initialized()):
        return CudaClock()
    return HostClock()
