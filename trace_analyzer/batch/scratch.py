"""Temporary folders that do not outlive their users, even where those are killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

_PREFIX = "trace-analyzer-batch-"
_NEW = "trace-analyzer-new-"  # not locked yet
_NEW_S = 3600.0
_LOCK = "lock"


class Scratch:
    """A temporary folder, locked while it is in use and removed at the end."""

    def __init__(self) -> None:
        new = Path(tempfile.mkdtemp(prefix=_NEW))
        self._lock = os.open(new / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Only now it gets a name that is looked for: a lock that is not taken means a user is gone.
        self.path = new.with_name(_PREFIX + new.name.removeprefix(_NEW))
        new.rename(self.path)

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
    for path in Path(tempfile.gettempdir()).glob(f"{_NEW}*"):
        with contextlib.suppress(OSError):  # of another user, or renamed meanwhile
            if time.time() - path.stat().st_mtime > _NEW_S:
                shutil.rmtree(path, ignore_errors=True)
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            lock = os.open(path / _LOCK, os.O_RDWR)
        except OSError:
            continue  # of another user, or removed meanwhile
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
