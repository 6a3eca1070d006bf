"""NCCL's own log of a run: how it is asked for, and how it stays small.

With the TUNING subsystem NCCL writes a line for every collective, so a long run's log grows with
its steps. What is worth keeping is each different choice once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

SUBSYSTEMS = "INIT,GRAPH,ENV,TUNING"
SHORTEN_FROM_BYTES = 1 << 20
_CHOICE = re.compile(r"NCCL INFO (?P<choice>\w+(?: \[[\w ]+\])?: \d+ Bytes -> .*)")


def variables(folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return what makes NCCL log into the bundle, one file a process; what the user set stays."""
    if "NCCL_DEBUG_FILE" in given or given.get("NCCL_DEBUG", "").upper() in {"TRACE", "WARN"}:
        return {}
    wanted = {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": SUBSYSTEMS,
        "NCCL_DEBUG_FILE": os.fspath(folder / "nccl_%p.log"),
    }
    return {name: value for name, value in wanted.items() if name not in given}


def shorten(path: Path) -> int:
    """Keep the first line of every choice of algorithm in a large log; return the lines dropped."""
    if path.stat().st_size < SHORTEN_FROM_BYTES:
        return 0
    seen: set[str] = set()
    dropped = 0
    partial = path.with_name(path.name + ".partial")
    with (
        path.open(encoding="utf-8", errors="surrogateescape") as source,
        partial.open("w", encoding="utf-8", errors="surrogateescape") as target,
    ):
        for line in source:
            match = _CHOICE.search(line)
            choice = "" if match is None else match["choice"]
            if choice and choice in seen:
                dropped += 1
                continue
            seen.add(choice)
            target.write(line)
    partial.replace(path)
    return dropped
