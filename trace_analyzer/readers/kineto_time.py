"""Decimal microseconds, as text, to integer nanoseconds without passing through floats.

Time stamps of a trace are microseconds with up to three decimals, either from a base or since
1970. In the second case a 64-bit float is off by up to 125 ns, so the text of the token is
converted: digits are read as one integer and scaled by what the decimals lack.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trace_analyzer.schema import NA_INT64, BoolArray, Int64Array

US_DECIMALS = 3  # a microsecond has this many decimals of nanoseconds
_MAX_DIGITS = 18  # any integer of so many digits fits int64
_INT64_MAX = int(np.iinfo(np.int64).max)
_SPACE, _DOT, _ZERO = 32, 46, 48
_Letters = npt.NDArray[np.uint8]

_POWERS = np.array([10**power for power in range(US_DECIMALS + 1)], dtype=np.int64)
_LARGEST = _INT64_MAX // _POWERS  # that can be multiplied by a power


class Times(NamedTuple):
    """Converted tokens: NA where a token is no number; `texts` counts numbers written as text."""

    ns: Int64Array
    texts: int


def nanoseconds(tokens: bytes, count: int, decimals: int = US_DECIMALS) -> Times:
    """Convert `count` JSON number tokens, joined by single spaces, to int64 nanoseconds.

    `decimals` is the number of decimal places that make up a nanosecond: 3 for microseconds,
    0 for nanoseconds. Further places are rounded half to even. A token that is a number in
    quotes is converted and counted; anything else becomes NA.
    """
    if count == 0:
        return Times(np.empty(0, dtype=np.int64), 0)
    letters = np.frombuffer(tokens + b" ", dtype=np.uint8)
    ns = _same_layout(letters, count, decimals)
    if ns is not None:
        return Times(ns, 0)
    stops = np.flatnonzero(letters == _SPACE)
    if len(stops) != count:
        raise ValueError(f"{len(stops)} tokens, not {count}")
    places, odd = _layout(letters, stops, decimals)
    if odd.any():
        return _with_odd(tokens, odd, decimals)
    values = _integers(tokens)
    large = values > _LARGEST[decimals - places]
    if large.any():
        return _with_odd(tokens, large, decimals)
    return Times(values * _POWERS[decimals - places], 0)


def exact_ns(token: str, decimals: int = US_DECIMALS) -> int | None:
    """Convert one token through Decimal; None if it is no finite number of int64 nanoseconds."""
    try:
        value = Decimal(token)
    except InvalidOperation:
        return None
    if not value.is_finite() or value.adjusted() > _MAX_DIGITS:
        return None
    scaled = int(value.scaleb(decimals).to_integral_value(ROUND_HALF_EVEN))
    return scaled if abs(scaled) <= _INT64_MAX else None


def _same_layout(letters: _Letters, count: int, decimals: int) -> Int64Array | None:
    """Convert tokens of equal length with the point in the same place; None if they are not that.

    `letters` are the tokens with a space behind each.
    """
    width, rest = divmod(len(letters), count)
    if rest or not 1 < width <= _MAX_DIGITS + 1:
        return None
    table = letters.reshape(count, width)
    points = np.flatnonzero(table[0, :-1] == _DOT)
    point = int(points[0]) if len(points) else width - 1
    places = max(width - 2 - point, 0)
    if places > decimals or (table[:, -1] != _SPACE).any():
        return None
    if len(points) and (table[:, point] != _DOT).any():
        return None
    values = np.zeros(count, dtype=np.int64)
    for part in (table[:, :point], table[:, point + 1 : -1]):
        digits = part - np.uint8(_ZERO)  # uint8 wraps, so letters below "0" are large
        if (digits > 9).any():
            return None
        values *= 10 ** digits.shape[1]
        values += digits.astype(np.int64) @ 10 ** np.arange(digits.shape[1] - 1, -1, -1)
    if (values > _LARGEST[decimals - places]).any():
        return None
    values *= _POWERS[decimals - places]
    return values


def _layout(letters: _Letters, stops: Int64Array, decimals: int) -> tuple[Int64Array, BoolArray]:
    """Return the decimal places of every token, and which tokens need the slow way."""
    count = len(stops)
    lengths = np.diff(stops, prepend=-1) - 1
    dots = np.flatnonzero(letters == _DOT)
    places = np.zeros(count, dtype=np.int64)
    owner = np.searchsorted(stops, dots)
    places[owner] = stops[owner] - dots - 1
    digits = letters - np.uint8(_ZERO) < 10  # uint8 wraps, so letters below "0" are large
    odd = lengths == 0
    if int(np.count_nonzero(digits)) + len(dots) + count != len(letters):
        other = np.flatnonzero(~digits & (letters != _DOT) & (letters != _SPACE))
        odd[np.searchsorted(stops, other)] = True
    if len(owner) > 1 and (owner[1:] == owner[:-1]).any():
        odd[owner[1:][owner[1:] == owner[:-1]]] = True
    odd |= (places > decimals) | (lengths > _MAX_DIGITS)
    return places, odd


def _with_odd(tokens: bytes, odd: BoolArray, decimals: int) -> Times:
    parts = tokens.split(b" ")
    ns = np.full(len(parts), NA_INT64, dtype=np.int64)
    regular = np.flatnonzero(~odd)
    if len(regular):
        ns[regular] = nanoseconds(
            b" ".join([parts[row] for row in regular]), len(regular), decimals
        ).ns
    texts = 0
    for row in np.flatnonzero(odd):
        token = parts[row].decode("latin-1")
        bare = token.strip('"').strip()
        value = exact_ns(bare, decimals)
        if value is not None:
            ns[row] = value
            texts += token != bare
    return Times(ns, texts)


def _integers(tokens: bytes) -> Int64Array:
    # The layout is known to be digits, dots and spaces only: the text parser cannot stumble.
    return np.fromstring(tokens.replace(b".", b""), dtype=np.int64, sep=" ")
