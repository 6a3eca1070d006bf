"""Takes out of an nsys export what does not belong into a bundle.

nsys stores the whole environment of the launched process, every process of the machine, and what
training printed. A bundle is attached to tickets, so only allow-listed variables stay. (The
`.nsys-rep` keeps everything; it is not part of the bundle's manifest.)
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from trace_analyzer.allowlist import is_allowed, shown_value
from trace_analyzer.collectors.commands import shown_command

_SECRET_NAMES = ("DeviceEnvironment", "EnvironmentVariables")
_PATHS = ("_FILE", "_PATH", ":COMMAND")
_PERSONAL = ("USER_NAME", "WORKING_DIR", "EXPORT_USER", "_PATH_ABS")


def scrub(path: Path) -> int:
    """Remove private rows from an export, in place; return how many.

    Raises `sqlite3.Error` for a file that is no SQLite.
    """
    removed = 0
    with closing(sqlite3.connect(path)) as database:
        tables = {
            str(name)
            for (name,) in database.execute("select name from sqlite_master where type = 'table'")
        }
        removed += _meta(database, tables)
        removed += _system(database, tables)
        removed += _processes(database, tables)
        removed += _output(database, tables)
        database.commit()
        if removed:
            database.execute("vacuum")  # deleted rows stay in the file until then
    return removed


def _meta(database: sqlite3.Connection, tables: Iterable[str]) -> int:
    """Environment variables by allow-list (one row each, `NAME=VALUE`), arguments, user."""
    removed = 0
    for table in ("META_DATA_CAPTURE", "META_DATA_EXPORT"):
        if table not in tables:
            continue
        rows = database.execute(f"select rowid, name, value from {table}").fetchall()  # noqa: S608
        private = [
            (rowid,)
            for rowid, name, value in rows
            if str(name).endswith(_PERSONAL)
            or (
                "ENVIRONMENT" in str(name).upper()
                and not is_allowed(str(value).partition("=")[0].strip())
            )
        ]
        arguments = [(rowid, str(value)) for rowid, name, value in rows if ":ARGUMENT_" in name]
        shown = shown_command([value for _, value in arguments])
        changed = [
            (new, rowid) for (rowid, old), new in zip(arguments, shown, strict=True) if new != old
        ]
        changed += [
            (shown_value(str(value)), rowid)
            for rowid, name, value in rows
            if "ENVIRONMENT" in str(name).upper() or str(name).endswith(_PATHS)
        ]
        database.executemany(f"update {table} set value = ? where rowid = ?", changed)  # noqa: S608
        database.executemany(f"delete from {table} where rowid = ?", private)  # noqa: S608
        removed += len(private)
    return removed


def _system(database: sqlite3.Connection, tables: Iterable[str]) -> int:
    if "TARGET_INFO_SYSTEM_ENV" not in tables:
        return 0
    marks = ", ".join("?" for _ in _SECRET_NAMES)
    return database.execute(
        f"delete from TARGET_INFO_SYSTEM_ENV where name in ({marks}) or nameEnum in ({marks})",  # noqa: S608
        _SECRET_NAMES * 2,
    ).rowcount


def _processes(database: sqlite3.Connection, tables: Iterable[str]) -> int:
    """Keep the processes that used the GPU or left ranges; the rest is the machine's business."""
    if "PROCESSES" not in tables:
        return 0
    pid = "(({column} >> 24) & 16777215)"
    used = [
        f"select {pid.format(column=column)} from {table}"  # noqa: S608
        for table, column in (
            ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid"),
            ("NVTX_EVENTS", "globalTid"),
        )
        if table in tables
    ]
    if not used:
        return 0
    return database.execute(
        f"delete from PROCESSES where {pid.format(column='globalPid')} "  # noqa: S608
        f"not in ({' union '.join(used)})"
    ).rowcount


def _output(database: sqlite3.Connection, tables: Iterable[str]) -> int:
    """What training printed lies among the strings."""
    if "ProcessStreams" not in tables or "StringIds" not in tables:
        return 0
    database.execute(
        "update StringIds set value = '' where id in (select contentId from ProcessStreams)"
    )
    return database.execute("delete from ProcessStreams").rowcount
