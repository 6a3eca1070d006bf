"""Named ranges in the trace for the step and its parts."""

from __future__ import annotations

from typing import Protocol

import torch

from trace_analyzer.collectors.options import Mode


class Ranges(Protocol):
    """Opens and closes ranges; a step is ended by `end_step` or by the next `begin_step`."""

    def begin_step(self, index: int) -> None:
        """Open the range of a step."""

    def end_step(self) -> None:
        """Close the range of the open step, if any."""

    def begin(self, part: str) -> None:
        """Open the range of a part."""

    def end(self, part: str) -> None:
        """Close it."""


class NoRanges:
    """Nothing records."""

    def begin_step(self, index: int) -> None:
        """Do nothing."""

    def end_step(self) -> None:
        """Do nothing."""

    def begin(self, part: str) -> None:
        """Do nothing."""

    def end(self, part: str) -> None:
        """Do nothing."""


class NvtxRanges:
    """NVTX start/end ranges: `step N` around `data`, `forward`, `backward`, `optimizer`.

    Not push/pop: a step begins and ends inside the optimizer's call, where the script may have
    ranges of its own open, and popping would close those.
    """

    def __init__(self) -> None:
        self._step: int | None = None
        self._parts: dict[str, int] = {}

    def begin_step(self, index: int) -> None:
        self.end_step()
        self._step = torch.cuda.nvtx.range_start(f"step {index}")

    def end_step(self) -> None:
        for part in list(self._parts):
            self.end(part)
        if self._step is not None:
            torch.cuda.nvtx.range_end(self._step)
            self._step = None

    def begin(self, part: str) -> None:
        if self._step is not None:
            self.end(part)
            self._parts[part] = torch.cuda.nvtx.range_start(part)

    def end(self, part: str) -> None:
        handle = self._parts.pop(part, None)
        if handle is not None:
            torch.cuda.nvtx.range_end(handle)


class ProfilerRanges:
    """A `backward` annotation for torch.profiler.

    The profiler itself marks steps (`ProfilerStep#N`), data loaders, optimizers and
    DistributedDataParallel's forward. A forward range from the data to the backward call would
    not nest with what the script annotates itself.
    """

    def __init__(self) -> None:
        self._open: torch.profiler.record_function | None = None

    def begin_step(self, index: int) -> None:
        """Do nothing: the profiler marks steps."""

    def end_step(self) -> None:
        """Do nothing: the profiler marks steps."""

    def begin(self, part: str) -> None:
        if part == "backward" and self._open is None:
            self._open = torch.profiler.record_function(part)
            self._open.__enter__()

    def end(self, part: str) -> None:
        if part == "backward" and self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None


def ranges_of(mode: Mode) -> Ranges:
    """Return the ranges for a trace of this mode."""
    if mode is Mode.TORCH:
        return ProfilerRanges()
    return NvtxRanges() if torch.cuda.is_available() else NoRanges()
