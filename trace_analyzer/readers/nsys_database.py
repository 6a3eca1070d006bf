"""Opening an SQLite file that belongs to somebody else: read-only, with nothing left beside it."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

from trace_analyzer.errors import UnreadableInputError

HEADER = b"SQLite format 3\0"

_WAL_VERSION = 2  # byte 18 of a database in write-ahead mode
_LOCK_PATIENCE_S = 1.0
_MESSAGE_CHARACTERS = 120


def open_database(path: Path, shown: str, stack: ExitStack) -> sqlite3.Connection:
    """Open a database for reading; `stack` closes it.

    Raises `UnreadableInputError` for what is no database, `sqlite3.Error` for what SQLite refuses.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(20)
    except OSError as error:
        raise UnreadableInputError(shown, (error.strerror or str(error)).lower()) from error
    if not head:
        raise UnreadableInputError(shown, "the file is empty", "export the report again")
    if not head.startswith(HEADER):
        raise UnreadableInputError(shown, "not an SQLite database")
    if has_log(path):
        # Reading it in place would create or change a -shm file beside the user's data.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nsys-")))
        copy = folder / "export.sqlite"
        shutil.copyfile(path, copy)
        shutil.copyfile(_beside(path, "-wal"), folder / "export.sqlite-wal")
        return _connect(copy, stack, immutable=False)
    if head[18:19] == bytes([_WAL_VERSION]):
        return _connect(path, stack, immutable=True)
    try:
        return _connect(path, stack, immutable=False)
    except sqlite3.OperationalError as error:
        # File systems without locks refuse, and can be read all the same; a lock that somebody
        # holds, and a half-finished write, are not to be ignored.
        if "locked" in str(error) or _has_bytes(_beside(path, "-journal")):
            raise
        return _connect(path, stack, immutable=True)


def _connect(path: Path, stack: ExitStack, *, immutable: bool) -> sqlite3.Connection:
    # A path may hold ?, # or %, which mean something else in an address.
    address = f"file:{quote(str(path.resolve()))}?mode=ro" + ("&immutable=1" if immutable else "")
    connection = sqlite3.connect(address, uri=True, timeout=_LOCK_PATIENCE_S, isolation_level=None)
    try:
        connection.execute("pragma query_only=1")
        connection.execute("pragma trusted_schema=0")
        connection.execute("pragma temp_store=2")
        connection.execute("begin")  # one view of the file, should somebody write to it
        connection.execute("select count(*) from sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    stack.callback(connection.close)
    return connection


def has_log(path: Path) -> bool:
    """Tell whether a write-ahead log with rows lies beside a database."""
    return _has_bytes(_beside(path, "-wal"))


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _has_bytes(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def explain(message: str) -> tuple[str, str]:
    """Return what a message of SQLite means for the user, and what to do."""
    message = "".join(c if c.isprintable() else "?" for c in message)[:_MESSAGE_CHARACTERS]
    lowered = message.lower()
    if "locked" in lowered or "busy" in lowered:
        return "another program is writing to this database", "wait until the export has finished"
    if "not a database" in lowered or "malformed" in lowered or "decode" in lowered:
        return f"the database is damaged ({message})", "export the report again"
    if "readonly" in lowered or "read-only" in lowered:
        return "a write to this database was never finished", "export the report again"
    return f"SQLite cannot read it ({message})", "export the report again"
