"""Interned strings: event names repeat, so tables hold positions and the text is kept once."""

from __future__ import annotations

from collections.abc import Iterable


class NameTable:
    """Maps text to positions, in order of first use."""

    __slots__ = ("_index", "texts")

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.texts: list[str] = []
        self._index: dict[str, int] = {}
        for text in texts:
            self.intern(text)

    def intern(self, text: str) -> int:
        """Return the position of `text`, adding it if it is new."""
        position = self._index.get(text)
        if position is None:
            position = len(self.texts)
            self._index[text] = position
            self.texts.append(text)
        return position

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def index(self) -> dict[str, int]:
        """The mapping itself, for loops that intern many names."""
        return self._index
