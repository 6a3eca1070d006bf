"""Progress on the terminal: on stderr, only if that is a terminal, and not for quick work."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self, TextIO

_DELAY_S = 1.0
_BAR_CHARACTERS = 24


class ProgressLine:
    """One line that is drawn over; nothing at all where stderr is no terminal.

    It is the `progress` callable of `readers.discovery.open_run` and of exports; `doing` says
    what makes progress.
    """

    def __init__(
        self, *, quiet: bool = False, stream: TextIO | None = None, doing: str = "reading"
    ) -> None:
        self._doing = doing
        self._stream = stream or sys.stderr
        self._on = not quiet and self._stream.isatty()
        self._begun_s = time.monotonic()
        self._drawn = 0

    def __call__(self, label: str, done: int, total: int) -> None:
        """Draw `done` of `total` with a label (the name of a file or table)."""
        if not self._on or time.monotonic() - self._begun_s < _DELAY_S:
            return
        share = done / total if total else 1.0
        filled = round(share * _BAR_CHARACTERS)
        bar = "#" * filled + "-" * (_BAR_CHARACTERS - filled)
        self._draw(f"{self._doing} [{bar}] {100 * share:3.0f} % {label[-40:]}")

    def _draw(self, text: str) -> None:
        self._stream.write("\r" + text.ljust(self._drawn))
        self._stream.flush()
        self._drawn = len(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._drawn:
            self._draw("")
            self._stream.write("\r")
            self._stream.flush()


class RateLine(ProgressLine):
    """Progress over many pieces of work of about the same size, with rate and time left."""

    def __call__(self, label: str, done: int, total: int) -> None:
        """Draw `done` of `total` pieces; the label follows."""
        elapsed_s = time.monotonic() - self._begun_s
        if not self._on or elapsed_s < _DELAY_S:
            return
        filled = round(_BAR_CHARACTERS * done / total) if total else _BAR_CHARACTERS
        bar = "#" * filled + "-" * (_BAR_CHARACTERS - filled)
        rate = done / elapsed_s
        speed = f"{rate:.1f} a second" if rate >= 1 else f"{60 * rate:.1f} a minute"
        left = f" · {_duration((total - done) / rate)} left" if done else ""
        self._draw(f"[{bar}] {done:,} of {total:,} · {speed}{left}{label}")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
