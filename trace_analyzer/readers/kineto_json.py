"""Where JSON text begins and ends, without decoding it."""

from __future__ import annotations

import re
from typing import Final

import msgspec

# RecursionError: nesting deeper than the interpreter allows.
DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

TEXT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_STRUCTURE: Final = re.compile(TEXT.pattern + rb'|[{}\[\]"]', re.DOTALL)
_OPENING, _CLOSING = b"{[", b"}]"


def balanced_end(text: bytes, start: int, stop: int) -> int:
    """Return where the object or list that begins at `start` ends, -1 if not before `stop`."""
    depth = 0
    for match in _STRUCTURE.finditer(text, start, stop):
        letter = text[match.start()]
        if letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            depth -= 1
            if depth <= 0:
                return match.end()
        elif match.end() - match.start() == 1:
            return -1  # a text that does not end
    return -1
