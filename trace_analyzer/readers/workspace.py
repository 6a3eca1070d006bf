"""Temporary folders for what has to be unpacked, downloaded or exported before it is read."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self


class Workspace:
    """A temporary folder, made at first use and removed at the end.

    The files of a run are needed for as long as its sidecars may be read, so the folder lives
    until `close`, the end of the `with` block, or the end of the process.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._count = 0

    def folder(self) -> Path:
        """Return a new empty folder."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="trace-analyzer-"))
            atexit.register(self.close)
        self._count += 1
        made = self._folder / str(self._count)
        made.mkdir()
        return made

    def holds(self, path: Path) -> bool:
        """Tell whether `path` lies in this workspace."""
        return self._folder is not None and path.is_relative_to(self._folder)

    def close(self) -> None:
        """Remove everything."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
            atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
