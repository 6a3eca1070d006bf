"""Whether to colour, how wide to write, and with which signs."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TextIO

_WIDTH_WITHOUT_TERMINAL = 80
_MIN_WIDTH = 40
_MAX_WIDTH = 120
_SIGNS = "█▓▒▪·×–…‹›"


def use_color(stream: TextIO | None = None) -> bool:
    """Tell whether to colour: NO_COLOR wins, then FORCE_COLOR, then whether it is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    force = os.environ.get("FORCE_COLOR")
    if force:
        return force != "0"
    stream = stream or sys.stdout
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def text_width(stream: TextIO | None = None) -> int:
    """Return the columns to write: the terminal's, within reason; 80 where there is none."""
    stream = stream or sys.stdout
    if not stream.isatty() and "COLUMNS" not in os.environ:
        return _WIDTH_WITHOUT_TERMINAL
    columns = shutil.get_terminal_size((_WIDTH_WITHOUT_TERMINAL, 24)).columns
    return max(_MIN_WIDTH, min(columns, _MAX_WIDTH))


def needs_plain(stream: TextIO | None = None) -> bool:
    """Tell whether the stream's encoding lacks the signs that bars are drawn with."""
    stream = stream or sys.stdout
    try:
        _SIGNS.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return True
    return False
