"""Option values with a syntax of their own."""

from __future__ import annotations

import re

import click

_MAX_RANKS = 100_000


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


class Milliseconds(click.ParamType[float]):
    """A positive time in ms."""

    name = "ms"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the time in ms."""
        try:
            number = float(str(value))
        except ValueError:
            number = 0.0
        if not 0 < number < 1e9:
            self.fail(f"{value!r} is not a time in ms", param, ctx)
        return number
