"""Make an SQLite export of nsys small, and free of what is nobody's business.

Kept: GPU operations, calls, synchronisation, NVTX with payloads, devices, streams, versions,
diagnostics. Left out: operating-system calls, samples, schedules, output of the program, other
processes, strings that no row refers to, and the environment but for allow-listed settings.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from pathlib import Path

from trace_analyzer.allowlist import is_allowed, shown_value

_DROPPED = re.compile(
    r"OSRT|SCHED_EVENTS|COMPOSITE|SAMPLING|ProcessStreams|ANALYSIS_FILE|ENUM_NSYS_|ENUM_SAMPLING"
    r"|ENUM_SCHEDULING|ENUM_STACK|FILES|MODULES|NET_|NIC_"
)
_STRING_COLUMNS = frozenset(
    {"nameId", "textId", "jsonTextId", "shortName", "demangledName", "mangledName"}
)
_PID_OF_THREAD = "(({column} >> 24) & 16777215)"
_SETTINGS = (
    ("META_DATA_CAPTURE", "value"),
    ("META_DATA_EXPORT", "value"),
    ("TARGET_INFO_SYSTEM_ENV", "value"),
    ("DIAGNOSTIC_EVENT", "text"),
)
_PRIVATE_ENVIRONMENT = re.compile(r"user|host|home|folder|dir|path|ip|mac", re.IGNORECASE)


def prune(source: Path, target: Path) -> dict[str, int]:
    """Write the pruned export; return the rows of GPU work and of calls that it holds.

    Raises `sqlite3.Error` where the source is no export.
    """
    shutil.copyfile(source, target)
    connection = sqlite3.connect(target)
    try:
        tables = _tables(connection)
        for name in [name for name in tables if _DROPPED.search(name)]:
            connection.execute(f'DROP TABLE "{name}"')
            tables.remove(name)
        _keep_traced_processes(connection, tables)
        _keep_used_strings(connection, tables)
        _blank_settings(connection, tables)
        connection.commit()
        connection.execute("VACUUM")
        counted = [name for name in tables if name.startswith("CUPTI_ACTIVITY_KIND_")]
        return {name: _count(connection, name) for name in counted}
    finally:
        connection.close()


def traced_processes(export: Path) -> int:
    """Return how many processes have GPU kernels in an export (pruned or not).

    Raises `sqlite3.Error` where it is none.
    """
    connection = sqlite3.connect(f"file:{export}?mode=ro", uri=True)
    try:
        if "CUPTI_ACTIVITY_KIND_KERNEL" not in _tables(connection):
            return 0
        rows = connection.execute(
            "SELECT count(DISTINCT globalPid) FROM CUPTI_ACTIVITY_KIND_KERNEL"
        )
        return int(rows.fetchone()[0])
    finally:
        connection.close()


def _tables(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return [str(name) for (name,) in rows]


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [str(row[1]) for row in connection.execute(f'PRAGMA table_info("{table}")')]


def _count(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])  # noqa: S608


def _keep_traced_processes(connection: sqlite3.Connection, tables: list[str]) -> None:
    if "CUPTI_ACTIVITY_KIND_RUNTIME" not in tables:
        return
    thread = _PID_OF_THREAD.format(column="globalTid")
    traced = f"SELECT DISTINCT {thread} FROM CUPTI_ACTIVITY_KIND_RUNTIME"  # noqa: S608
    for table, column in (("PROCESSES", "globalPid"), ("ThreadNames", "globalTid")):
        if table in tables:
            pid = _PID_OF_THREAD.format(column=column)
            connection.execute(f"DELETE FROM {table} WHERE {pid} NOT IN ({traced})")  # noqa: S608


def _keep_used_strings(connection: sqlite3.Connection, tables: list[str]) -> None:
    if "StringIds" not in tables:
        return
    connection.execute("CREATE TEMP TABLE used (id INTEGER PRIMARY KEY)")
    for table in tables:
        if table == "StringIds":
            continue
        for column in set(_columns(connection, table)) & _STRING_COLUMNS:
            connection.execute(
                f'INSERT OR IGNORE INTO used SELECT DISTINCT "{column}" FROM "{table}" '  # noqa: S608
                f"WHERE typeof(\"{column}\") = 'integer'"
            )
    connection.execute("DELETE FROM StringIds WHERE id NOT IN (SELECT id FROM used)")
    connection.execute("DROP TABLE used")


def _blank_settings(connection: sqlite3.Connection, tables: list[str]) -> None:
    """Cut paths to their last part, and empty what is not for others, in tables of settings."""
    for table, column in _SETTINGS:
        if table not in tables:
            continue
        named = "name" in _columns(connection, table)
        name = "name" if named else "''"
        rows = connection.execute(f'SELECT rowid, {name}, "{column}" FROM {table}').fetchall()  # noqa: S608
        for row, label, value in rows:
            if isinstance(value, str):
                connection.execute(
                    f'UPDATE {table} SET "{column}" = ? WHERE rowid = ?',  # noqa: S608
                    (_shown_setting(table, str(label), value), row),
                )


def _shown_setting(table: str, name: str, value: str) -> str:
    if name.endswith("ENVIRONMENT_VARIABLE"):
        variable, _, content = value.partition("=")
        return f"{variable}={shown_value(content)}" if is_allowed(variable) else ""
    if name.endswith(("USER_NAME", "WORKING_DIR", "DEVICE_DISPLAY_NAME")):
        return ""
    if table == "TARGET_INFO_SYSTEM_ENV" and _PRIVATE_ENVIRONMENT.search(name):
        return ""
    return shown_value(value)
