"""Values as the writers of many years spell them, in the types that columns hold."""

from __future__ import annotations

import re
from typing import Final

_INTEGERS = re.compile(r"-?\d+")
_DIMENSIONS: Final = 3
_INT64_LIMIT: Final = 1 << 63


def whole(value: object) -> int | None:
    """Return a value as an int64: numbers, numbers as text, addresses; None where it is none."""
    if isinstance(value, str):
        try:
            value = int(value.strip(), 0)
        except ValueError:
            try:
                value = float(value)
            except ValueError:
                return None
    if isinstance(value, float):
        if not value.is_integer():
            return None
        value = int(value)
    if isinstance(value, int) and -_INT64_LIMIT < value < _INT64_LIMIT:
        return int(value)
    return None


def decimal(value: object) -> float | None:
    """Return a value as a float: numbers and numbers as text; None where it is none."""
    try:
        return float(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        return None


def triple(value: object) -> tuple[int, int, int] | None:
    """Return a launch shape from a list or from its text; None where it is none."""
    found = _INTEGERS.findall(value) if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or len(found) != _DIMENSIONS:
        return None
    sizes = [whole(size) for size in found]
    x, y, z = sizes
    return None if x is None or y is None or z is None else (x, y, z)


def stream_number(value: object) -> int | None:
    """Return a stream's id from a number or from texts such as `0x0`, `7` and `stream 7`."""
    if isinstance(value, str):
        value = value.removeprefix("stream").strip()
    return whole(value)
