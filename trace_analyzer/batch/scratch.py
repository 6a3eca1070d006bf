"""Temporary folders that do not outlive their users, even where those are killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

_PREFIX = "trace-analyzer-batch-"
_LOCK = "lock"


class Scratch:
    """A temporary folder, locked while it is in use and removed at the end."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def sweep() -> int:
    """Remove the folders of users that are gone; return how many there were."""
    removed = 0
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            lock = os.open(path / _LOCK, os.O_RDWR)
        except OSError:
            continue  # of another user, or being made right now
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
            removed += 1
        except OSError:
            continue  # in use
        finally:
            os.close(lock)
    return removed


__all__ = ["Scratch", "sweep"]
