"""The unread text of a file: a window that blocks are appended to and values are taken from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from trace_analyzer.readers.kineto_json import TEXT, balanced_end

MAX_VALUE_BYTES: Final = 64 << 20  # no event and no header value is as large as this

OPEN_BRACE, OPEN_BRACKET, CLOSE_BRACE, CLOSE_BRACKET, QUOTE = b'{[}]"'
BLANK: Final = re.compile(rb"[\s\0]*+")
GAP: Final = re.compile(rb"[\s,\0]*+")  # what may stand between the parts of a list
SCALAR: Final = re.compile(rb'[^\s,{}\[\]"]++')

_BOM = b"\xef\xbb\xbf"


class Text:
    """`text[at:]` is what has been loaded and not been read; `ended` where no more follows."""

    __slots__ = ("_blocks", "at", "ended", "text")

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self.text = b""
        self.at = 0
        self.ended = False

    @property
    def unread(self) -> int:
        """Bytes that are loaded and not read."""
        return len(self.text) - self.at

    def more(self, at_least: int = 0) -> bool:
        """Load a block, or as many as make `at_least` bytes unread; False if none is left."""
        parts = [self.text[self.at :]]
        size = len(parts[0])
        for block in self._blocks:
            parts.append(block)
            size += len(block)
            if size >= at_least:
                break
        else:
            self.ended = True
        self.text = b"".join(parts)
        self.at = 0
        return len(parts) > 1

    def rest(self) -> Iterator[bytes]:
        """Yield what is unread, to the end of the file."""
        yield self.text[self.at :]
        self.at = len(self.text)
        yield from self._blocks

    def skip(self, pattern: re.Pattern[bytes]) -> int:
        """Skip what the pattern matches and return the next byte, -1 at the end of the file."""
        while True:
            match = pattern.match(self.text, self.at)
            if match is not None:
                self.at = match.end()
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return -1

    def skip_mark(self) -> None:
        """Skip a byte-order mark."""
        self.skip(BLANK)
        while self.unread < len(_BOM) and self.more(len(_BOM)):
            pass
        if self.text.startswith(_BOM, self.at):
            self.at += len(_BOM)

    def string(self) -> str | None:
        """Return the text in quotes that begins here, escapes and all; None if it does not end."""
        while True:
            match = TEXT.match(self.text, self.at)
            if match is not None:
                self.at = match.end()
                return match[0][1:-1].decode("utf-8", "replace")
            if self.unread > MAX_VALUE_BYTES or not self.more(2 * self.unread):
                return None

    def value(self) -> bytes | None:
        """Return the JSON text of the value that begins here; None where none does or ends."""
        letter = self.text[self.at]
        if letter == QUOTE:
            text = self.string()
            return None if text is None else b'"%b"' % text.encode()
        if letter in (OPEN_BRACE, OPEN_BRACKET):
            return self._structure()
        while True:
            match = SCALAR.match(self.text, self.at)
            if match is None:
                return None
            if match.end() < len(self.text) or not self.more():
                self.at = match.end()
                return match[0]

    def _structure(self) -> bytes | None:
        while True:
            end = balanced_end(self.text, self.at, len(self.text))
            if end >= 0:
                value = self.text[self.at : end]
                self.at = end
                return value
            if self.unread > MAX_VALUE_BYTES or not self.more(2 * self.unread):
                return None
