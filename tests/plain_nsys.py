"""An independent computation of the windows of nsys exports: plain SQL and lists."""

from __future__ import annotations

import sqlite3
from pathlib import Path

_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
)


def plain_windows(path: Path) -> list[dict[str, int]]:
    """Return the parts of the window of every process, in ns and in order of process."""
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as database:
        have = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        strings = dict(database.execute("SELECT id, value FROM StringIds"))
        rows = []
        for table in _TABLES:
            if table not in have:
                continue
            columns = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
            pid = "globalPid" if "globalPid" in columns else "0"
            name = "shortName" if table.endswith("KERNEL") else "NULL"
            rows += database.execute(f"SELECT {pid}, start, end, {name} FROM {table}").fetchall()
    found = []
    for process in sorted({row[0] for row in rows}):
        own = [row for row in rows if row[0] == process]
        names = [None if row[3] is None else strings[row[3]] for row in own]
        spans = [(row[1], row[2]) for row in own]
        is_comm = [name is not None and name.startswith("nccl") for name in names]
        is_kernel = [name is not None for name in names]
        start, end = min(s for s, _ in spans), max(e for _, e in spans)
        compute = [s for s, k, c in zip(spans, is_kernel, is_comm, strict=True) if k and not c]
        found.append({
            "operations": len(own),
            "window": end - start,
            "compute": _covered(compute),
            "comm": _covered([s for s, c in zip(spans, is_comm, strict=True) if c]),
            "idle": end - start - _covered(spans),
        })  # fmt: skip
    return found


def _covered(spans: list[tuple[int, int]]) -> int:
    total, reach = 0, -1
    for start, end in sorted(spans):
        total += max(end - max(start, reach), 0)
        reach = max(reach, end)
    return total
