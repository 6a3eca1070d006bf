"""NCCL's own log of a run: how it is asked for, and how it stays small.

With the TUNING subsystem NCCL writes a line for every collective, so a long run's log grows with
its steps. What is worth keeping is each different choice once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

SUBSYSTEMS = "INIT,GRAPH,ENV,TUNING"
FLIGHT_ENTRIES = 2000
RENAMED_IN = (2, 9)  # torch
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


def flight_recorder_variables(given: Mapping[str, str]) -> dict[str, str]:
    """Return what makes torch keep a list of the last collectives; what the user set stays.

    A dump holds the profiled steps only if the list is longer than their collectives. The
    variable's name changed, and newer versions warn about the older one.
    """
    names = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
    if any(name in given for name in names):
        return {}
    try:
        version = tuple(int(part) for part in metadata.version("torch").split(".")[:2])
    except (metadata.PackageNotFoundError, ValueError):
        version = (0, 0)  # another Python's torch: the name that all of them know
    return {names[0] if version >= RENAMED_IN else names[1]: str(FLIGHT_ENTRIES)}


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
