"""A file of JSON lines that training may write to without ever waiting, failing or duplicating."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FLUSH_LINES = 64
FLUSH_SECONDS = 5.0
MOST_UNWRITTEN_BYTES = 1 << 20
_encode = json.JSONEncoder(separators=(",", ":")).encode  # dumps() would make an encoder a line


class LineFile:
    """Append-only JSON lines.

    Lines are kept until there are 64 of them or five seconds have passed, so that a killed process
    loses little. Where the disk is full it says so once, keeps up to a megabyte until there is
    space, and never disturbs the training. A forked child that inherits the object writes nothing.

    Raises `FileExistsError` where the file is there already and `exclusive` is set: two processes
    that take themselves for the same rank must not mix their lines.
    """

    def __init__(self, path: Path, *, exclusive: bool = False) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_EXCL if exclusive else os.O_TRUNC)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.problem = ""
        self._descriptor: int | None = os.open(path, flags, 0o644)
        self._pid = os.getpid()
        self._kept: list[str] = []
        self._unwritten = b""  # what the system did not take; may begin inside a line
        self._flushed = time.monotonic()

    def write(self, record: Mapping[str, Any]) -> None:
        """Add one line."""
        if self._descriptor is None:
            return
        self._kept.append(_encode(record) + "\n")
        if len(self._kept) >= FLUSH_LINES or time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Hand the kept lines to the system."""
        if self._descriptor is None or os.getpid() != self._pid:
            return
        data = self._unwritten + "".join(self._kept).encode()
        self._kept.clear()
        self._flushed = time.monotonic()
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            if not self.problem:
                self.problem = f"{self.path}: {error.strerror}"
                self._say("lines are kept until there is space")
        self._unwritten = data
        if len(data) > MOST_UNWRITTEN_BYTES:
            self._close()

    def close(self) -> None:
        """Flush and close; may be called twice."""
        self.flush()
        self._close()

    def _close(self) -> None:
        if self._descriptor is None:
            return
        lost = self._unwritten.count(b"\n")
        if lost and os.getpid() == self._pid:
            self._say(f"{lost} lines are lost")
        os.close(self._descriptor)
        self._descriptor = None

    def _say(self, effect: str) -> None:
        print(f"trace-analyzer: {self.problem}; {effect}", file=sys.stderr, flush=True)  # noqa: T201
