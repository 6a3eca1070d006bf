"""Columns → lines of a Chrome trace, a few thousand at a time.

A line is put together of pieces that most rows share, such as everything before the time stamp,
and of the numbers of the row. All of it is done list by list, without an object an event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat

import numpy as np

from trace_analyzer.schema import AnyArray, BoolArray, Int64Array, is_na

ROWS = 8192  # written at a time
_NS_PER_US = 1000
_FRACTIONS = [f".{ns:03d}" for ns in range(_NS_PER_US)]
# Perfetto refuses surrogate pairs, and in old versions bytes that are not ASCII; so what has a
# short escape gets it, and the rest is written as it is.
_TO_ESCAPE = re.compile("[\u007f-\uffff]")

Piece = str | list[str]  # the same for all rows, or one a row


@lru_cache(maxsize=1 << 16)
def quoted(text: str) -> str:
    """Return text as a JSON string; halves of surrogate pairs become replacement characters."""
    if text.isascii() and "\x7f" not in text:
        return json.dumps(text)
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return escaped(json.dumps(whole, ensure_ascii=False))


def escaped(document: str) -> str:
    """Return a JSON document with its characters beyond ASCII escaped as far as Perfetto allows."""
    return _TO_ESCAPE.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """Text of every row, as positions in a table; "" is nothing."""

    table: Sequence[str]
    code: AnyArray


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """An integer of every row under a key; missing where it is NA."""

    key: str
    values: Int64Array


Argument = Words | Numbers


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Complete events. `head` is all before the time stamp, as `heads` makes it."""

    head: Words
    start_ns: Int64Array
    end_ns: Int64Array
    arguments: Sequence[Argument] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Arrows:
    """Ends of arrows: `phase` "s" where they leave a slice, "f" where they reach one."""

    phase: str
    head: Words
    identity: Int64Array
    at_ns: Int64Array


Block = Slices | Arrows


def heads(phase: str, category: Words, name: Words, track: Words) -> Words:
    """Return the beginnings of lines, up to the time stamp.

    Categories are texts as they are; tracks are texts as `"pid":1,"tid":2`.
    """
    names, tracks = len(name.table), len(track.table)
    one = (category.code.astype(np.int64) * names + name.code) * tracks + track.code
    found, code = np.unique(one, return_inverse=True)
    rest, tracks_used = np.divmod(found, max(tracks, 1))
    categories_used, names_used = np.divmod(rest, max(names, 1))
    quotes = {position: quoted(name.table[position]) for position in set(names_used.tolist())}
    table = [
        f',\n{{"ph":"{phase}","cat":"{category.table[c]}","name":{quotes[n]},{track.table[t]},"ts":'
        for c, n, t in zip(
            categories_used.tolist(), names_used.tolist(), tracks_used.tolist(), strict=True
        )
    ]
    return Words(table, code.reshape(-1).astype(np.int32))


def alike(text: str, count: int) -> Words:
    """Return a text that all of `count` rows have."""
    return Words([text], np.zeros(count, dtype=np.int8))


def lines(block: Block) -> Iterator[bytes]:
    """Yield the lines of a block, each with the comma that stands before it."""
    count = len(block.head.code)
    for low in range(0, count, ROWS):
        part = slice(low, min(low + ROWS, count))
        pieces = (
            _slice_pieces(block, part) if isinstance(block, Slices) else _arrow_pieces(block, part)
        )
        yield _joined(pieces, part.stop - low)


def _slice_pieces(block: Slices, part: slice) -> list[Piece]:
    start = block.start_ns[part]
    return [
        _looked_up(block.head, part),
        *_microseconds(start),
        ',"dur":',
        *_microseconds(block.end_ns[part] - start),
        *_arguments(block.arguments, part, len(start)),
    ]


def _arrow_pieces(block: Arrows, part: slice) -> list[Piece]:
    return [
        _looked_up(block.head, part),
        *_microseconds(block.at_ns[part]),
        ',"id":',
        list(map(str, block.identity[part].tolist())),
        ',"bp":"e"}' if block.phase == "f" else "}",
    ]


def _joined(pieces: list[Piece], count: int) -> bytes:
    columns = [repeat(piece, count) if isinstance(piece, str) else piece for piece in pieces]
    return "".join(chain.from_iterable(zip(*columns, strict=True))).encode()


def _looked_up(words: Words, part: slice) -> list[str]:
    return list(map(words.table.__getitem__, words.code[part].tolist()))


def _microseconds(times_ns: Int64Array) -> list[Piece]:
    """Return decimal µs: whole ones, and the three decimals behind them. Times are not negative."""
    whole, fraction = np.divmod(times_ns, _NS_PER_US)
    return [
        list(map(str, whole.tolist())),
        list(map(_FRACTIONS.__getitem__, fraction.tolist())),
    ]


def _arguments(arguments: Sequence[Argument], part: slice, count: int) -> Iterator[Piece]:
    """Yield the arguments and the end of the event."""
    begun: BoolArray = np.zeros(count, dtype=np.bool_)
    for argument in arguments:
        if isinstance(argument, Words):
            texts = _looked_up(argument, part)
            present = np.fromiter(map(bool, texts), dtype=np.bool_, count=count)
            key = ""
        else:
            values = argument.values[part]
            present = ~is_na(values)
            texts = list(map(str, values.tolist()))
            key = f"{json.dumps(argument.key)}:"
        if not present.any():
            continue
        openings = ["", f',"args":{{{key}', f",{key}"]
        # 0: nothing, 1: the first argument of its event, 2: a later one
        code = np.where(present, np.where(begun, 2, 1), 0)
        if present.all() and code.min() == code.max():
            yield openings[int(code[0])]
        else:
            yield list(map(openings.__getitem__, code.tolist()))
            for row in np.flatnonzero(~present).tolist():
                texts[row] = ""
        yield texts
        begun |= present
    if begun.all():
        yield "}}"
    else:
        yield list(map(["}", "}}"].__getitem__, begun.astype(np.int8).tolist()))
