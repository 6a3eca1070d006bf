"""Pickles that hold plain data, read without the pickle machine.

A pickle is a program: it can name any function and call it. This reader knows only the
instructions that build None, numbers, text, lists, tuples and dictionaries; any other one refuses
the file, so nothing a pickle says is ever looked up, imported or called. It is also bounded where
`pickle` is not: keys are text or integers, so that nothing deep is hashed, and what is built
stays in proportion to the file. Instructions and their layout are those of Python's
`pickletools`, protocols 2 to 5.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

Plain = None | bool | int | float | str | list["Plain"] | tuple["Plain", ...] | dict[Any, "Plain"]

_MAX_CONTAINERS: Final = 4_000_000
_MAX_INTEGER_BYTES: Final = 16


class NotPlainError(ValueError):
    """A pickle with something else than plain data in it, or a damaged one."""


class _Reader:
    """What has been built so far, and where in the data the next instruction stands."""

    __slots__ = ("containers", "data", "marks", "memo", "position", "stack")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.containers = 0

    def byte(self) -> int:
        start = self.position
        self.position = start + 1
        if start >= len(self.data):
            raise NotPlainError(_CUT)
        return self.data[start]

    def unsigned(self, width: int) -> int:
        start = self.position
        self.position = end = start + width
        if end > len(self.data):
            raise NotPlainError(_CUT)
        return int.from_bytes(self.data[start:end], "little")

    def integer(self, width: int) -> None:
        start = self.position
        self.position = end = start + width
        if end > len(self.data):
            raise NotPlainError(_CUT)
        if width > _MAX_INTEGER_BYTES:
            raise NotPlainError("an integer is too large")
        self.stack.append(int.from_bytes(self.data[start:end], "little", signed=True))

    def double(self) -> None:
        start = self.position
        self.position = start + 8
        if self.position > len(self.data):
            raise NotPlainError(_CUT)
        self.stack.append(_DOUBLE.unpack_from(self.data, start)[0])

    def text(self, width: int) -> None:
        length = self.unsigned(width)
        start = self.position
        self.position = end = start + length
        if end > len(self.data):
            raise NotPlainError(_CUT)
        self.stack.append(self.data[start:end].decode("utf-8", "replace"))

    def skip(self, count: int) -> None:
        self.position += count

    def since_mark(self) -> list[Any]:
        if not self.marks or self.marks[-1] > len(self.stack):
            raise NotPlainError(_BROKEN)
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def last(self, count: int) -> list[Any]:
        start = len(self.stack) - count
        if start < (self.marks[-1] if self.marks else 0):
            raise NotPlainError(_BROKEN)
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def container(self, value: list[Any] | tuple[Any, ...] | dict[Any, Any]) -> None:
        self.containers += 1
        if self.containers > _MAX_CONTAINERS:
            raise NotPlainError(f"more than {_MAX_CONTAINERS} lists and dictionaries in it")
        self.stack.append(value)

    def top(self) -> Any:  # noqa: ANN401 - whatever the pickle built
        if not self.stack:
            raise NotPlainError(_BROKEN)
        return self.stack[-1]

    def extend(self, items: list[Any]) -> None:
        target = self.top()
        if type(target) is not list:
            raise NotPlainError(_BROKEN)
        target.extend(items)

    def set_items(self, items: list[Any]) -> None:
        target = self.top()
        if type(target) is not dict or len(items) % 2:
            raise NotPlainError(_BROKEN)
        keys = items[::2]
        if not {type(key) for key in keys} <= _KEY_TYPES:
            raise NotPlainError("a key is neither text nor a number")
        target.update(zip(keys, items[1::2], strict=True))

    def recall(self, key: int) -> None:
        if key not in self.memo:
            raise NotPlainError(_BROKEN)
        self.stack.append(self.memo[key])

    def remember(self, key: int) -> None:
        self.memo[key] = self.top()


_DOUBLE: Final = struct.Struct(">d")
_KEY_TYPES: Final = {str, int}
_CUT: Final = "it ends in the middle"
_BROKEN: Final = "its structure is broken"

_INSTRUCTIONS: Final[Mapping[int, Callable[[_Reader], None]]] = {
    ord("N"): lambda r: r.stack.append(None),
    0x88: lambda r: r.stack.append(True),
    0x89: lambda r: r.stack.append(False),
    ord("K"): lambda r: r.stack.append(r.byte()),
    ord("M"): lambda r: r.stack.append(r.unsigned(2)),
    ord("J"): lambda r: r.integer(4),
    0x8A: lambda r: r.integer(r.byte()),
    ord("G"): lambda r: r.double(),
    ord("X"): lambda r: r.text(4),
    0x8C: lambda r: r.text(1),
    0x8D: lambda r: r.text(8),
    ord("}"): lambda r: r.container({}),
    ord("]"): lambda r: r.container([]),
    ord(")"): lambda r: r.stack.append(()),
    ord("t"): lambda r: r.container(tuple(r.since_mark())),
    0x85: lambda r: r.container(tuple(r.last(1))),
    0x86: lambda r: r.container(tuple(r.last(2))),
    0x87: lambda r: r.container(tuple(r.last(3))),
    ord("l"): lambda r: r.container(r.since_mark()),
    ord("a"): lambda r: r.extend(r.last(1)),
    ord("e"): lambda r: r.extend(r.since_mark()),
    ord("s"): lambda r: r.set_items(r.last(2)),
    ord("u"): lambda r: r.set_items(r.since_mark()),
    ord("q"): lambda r: r.remember(r.byte()),
    ord("r"): lambda r: r.remember(r.unsigned(4)),
    0x94: lambda r: r.remember(len(r.memo)),
    ord("h"): lambda r: r.recall(r.byte()),
    ord("j"): lambda r: r.recall(r.unsigned(4)),
    0x80: lambda r: r.skip(1),  # protocol
    0x95: lambda r: r.skip(8),  # frame: a length that is not needed
}
_RECALL: Final = ord("h")
_MARK: Final = ord("(")
_STOP: Final = ord(".")


def read_plain_pickle(data: bytes) -> Plain:
    """Return what a pickle of plain data holds.

    Raises `NotPlainError`, with the reason, for anything else. Lists and dictionaries of the
    result may be shared, and may contain themselves, as the pickle says.
    """
    reader = _Reader(data)
    instructions, stack, memo, marks = _INSTRUCTIONS, reader.stack, reader.memo, reader.marks
    position, last = 0, len(data) - 1
    while position <= last:
        code = data[position]
        # More than half of a dump; here they need no call.
        if code == _RECALL and position < last and data[position + 1] in memo:
            stack.append(memo[data[position + 1]])
            position += 2
            continue
        if code == _MARK:
            marks.append(len(stack))
            position += 1
            continue
        if code == _STOP:
            if len(stack) != 1 or marks:
                raise NotPlainError(_BROKEN)
            result: Plain = stack[0]
            return result
        instruction = instructions.get(code)
        if instruction is None:
            raise NotPlainError(
                f"it does more than hold data (instruction {code:#04x} at byte {position})"
            )
        reader.position = position + 1
        instruction(reader)
        position = reader.position
    raise NotPlainError(_CUT)


__all__ = ["NotPlainError", "Plain", "read_plain_pickle"]
