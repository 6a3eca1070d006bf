"""The output of a batch: its lock, the index where it is worked on, the log, the pages."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trace_analyzer.batch.schema import metadata
from trace_analyzer.batch.scratch import Scratch
from trace_analyzer.batch.storage import Place
from trace_analyzer.batch.tasks import run_folder
from trace_analyzer.errors import TraceAnalyzerError

INDEX = "index.db"
_LOCK = ".lock"
_UPLOAD_S = 60.0
_RUN_FILES = ("rows.json.zst", "report.html", "report.json")


class Output:
    """Where the results go. The index and the log are worked on in a local folder."""

    def __init__(self, place: Place, work: Path) -> None:
        self.place = place
        self._work = work
        self._log_name = f"logs/{datetime.now(UTC).strftime('%Y-%m-%dT%H-%M-%S.%fZ')}.jsonl"
        self._log = work / self._log_name
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._uploaded_s = time.monotonic()

    @property
    def index(self) -> Path:
        """The index on this machine."""
        return self._work / INDEX

    def log(self, event: str, **facts: Any) -> None:  # noqa: ANN401 (whatever JSON can say)
        """Append one line to the log."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "event": event, **facts})
        with self._log.open("a", encoding="ascii") as stream:
            stream.write(line + "\n")

    def upload(self, *, now: bool = False) -> None:
        """Bring index and log to a remote output, at most once a minute."""
        if self.place.is_local or not (now or time.monotonic() - self._uploaded_s > _UPLOAD_S):
            return
        self.place.upload(self.index, INDEX)
        self.place.upload(self._log, self._log_name)
        self._uploaded_s = time.monotonic()

    def write_metadata(self) -> None:
        """Write what labels the index in datasette."""
        text = json.dumps(metadata(), indent=1, ensure_ascii=False)
        self.place.write("metadata.json", text.encode() + b"\n")

    def remove_run(self, name: str) -> None:
        """Remove what a run left."""
        for file in _RUN_FILES:
            self.place.remove(f"{run_folder(name)}/{file}")
        if self.place.path is not None:
            with contextlib.suppress(OSError):  # somebody put something else there
                (self.place.path / run_folder(name)).rmdir()


@contextmanager
def opened_output(place: Place) -> Iterator[Output]:
    """Make an output ready: alone in it, with the index that it has.

    Raises `TraceAnalyzerError` where another batch writes into it.
    """
    with ExitStack() as stack:
        if place.path is not None:
            place.path.mkdir(parents=True, exist_ok=True)
            stack.enter_context(_locked(place.path, place.shown))
            place.sweep()
            stack.callback(place.sweep)
            yield Output(place, place.path)
            return
        work = stack.enter_context(Scratch()).path
        output = Output(place, work)
        stored = place.read(INDEX)
        if stored is not None:
            output.index.write_bytes(stored)
        yield output


@contextmanager
def _locked(folder: Path, shown: str) -> Iterator[None]:
    lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            os.close(lock)
            raise TraceAnalyzerError(
                f"{shown}: another batch writes there; wait for it, or give another folder"
            ) from error
        # A file system without locks: the caller sees to it that only one batch writes.
    try:
        yield
    finally:
        os.close(lock)


__all__ = ["INDEX", "Output", "opened_output"]
