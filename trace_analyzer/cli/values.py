"""Option values with a syntax of their own."""

from __future__ import annotations

import re
from typing import ClassVar

import click

_MAX_RANKS = 100_000
SEVERITIES = ("low", "medium", "high")


class Ranks(click.ParamType[tuple[int, ...]]):
    """`0,2-5`: ranks and ranges of ranks."""

    name = "ranks"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the ranks in order, each once."""
        if isinstance(value, tuple):
            return value
        ranks: set[int] = set()
        for part in str(value).split(","):
            match = re.fullmatch(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*", part)
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
            if not first <= last < first + _MAX_RANKS:
                self.fail(f"{value!r} is not a list of ranks like 0,2-5", param, ctx)
            ranks.update(range(first, last + 1))
        return tuple(sorted(ranks))


class StepRange(click.ParamType[tuple[int, int]]):
    """`A:B`: the first and the last step to use."""

    name = "a:b"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Return the first and the last step number."""
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"(\d{1,9}):(\d{1,9})", str(value))
        if not match:
            self.fail(f"{value!r} is not a range of steps like 10:20", param, ctx)
        first, last = int(match[1]), int(match[2])
        if first > last:
            self.fail(f"{value!r} holds no step", param, ctx)
        return first, last


# No training step is shorter than one kernel launch takes.
LEAST_STEP_MS = 1e-3


class Milliseconds(click.ParamType[float]):
    """A time in ms that a step can take."""

    name = "ms"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the time in ms."""
        try:
            number = float(str(value))
        except ValueError:
            number = 0.0
        if not LEAST_STEP_MS <= number < 1e9:
            self.fail(f"{value!r} is not a time in ms", param, ctx)
        return number


class Codes(click.ParamType[str]):
    """`GPU001`, or the beginning of codes such as `GPU`."""

    name = "code"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return the code in capitals."""
        code = str(value).strip().upper()
        if not isinstance(value, str) or not re.fullmatch(r"[A-Z]{1,6}\d{0,3}", code):
            self.fail(f"{value!r} is not a code like GPU001, nor the beginning of one", param, ctx)
        return code


class Megabytes(click.ParamType[float]):
    """A positive size in decimal MB."""

    name = "mb"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the size in MB."""
        try:
            number = float(str(value))
        except ValueError:
            number = 0.0
        if not 0 < number < 1e6:
            self.fail(f"{value!r} is not a size in MB", param, ctx)
        return number


class Duration(click.ParamType[float | None]):
    """`90s`, `30m`, `2h`, or seconds: a time limit; 0 is none."""

    name = "time"
    _UNITS: ClassVar[dict[str, float]] = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | None:
        """Return seconds, None for no limit."""
        if isinstance(value, int | float):
            return float(value)
        match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)\s*([smh]?)", str(value))
        if not match:
            self.fail(f"{value!r} is not a time like 90s, 30m or 2h", param, ctx)
        return float(match[1]) * self._UNITS[match[2]] or None


class MemorySize(click.ParamType[int]):
    """`4G`, `512M`: an amount of memory, at least what a small run takes."""

    name = "size"
    _LEAST_BYTES = 256 << 20

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return bytes."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)\s*([MGT])i?B?", str(value), re.IGNORECASE)
        if not match:
            self.fail(f"{value!r} is not a size like 4G", param, ctx)
        size = int(float(match[1]) * (1 << {"M": 20, "G": 30, "T": 40}[match[2].upper()]))
        if size < self._LEAST_BYTES:
            self.fail(f"{value!r} is less than the 256M that the smallest run takes", param, ctx)
        return size
