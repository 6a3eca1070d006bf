"""What the step files of a bundle say, read again once training has ended.

Standard library only, as all of `finish`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trace_analyzer.before_after import NOTE_BEGINS


@dataclass(slots=True)
class TimedSteps:
    """One step file: unprofiled steps before and after the profiled ones (ms), remarks, its end.

    `group` names the process group that the rank belonged to; "" where there was none.
    """

    before_ms: list[float] = field(default_factory=list)
    after_ms: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    complete: bool = False
    clock: str = ""
    world_size: int | None = None
    group: str = ""


def read(path: Path) -> TimedSteps:
    """Read a step file. Raises `OSError`."""
    found = TimedSteps()
    times = found.before_ms
    for record in _records(path):
        match record.get("kind"):
            case "header":
                found.clock = str(record.get("clock", ""))
                size = record.get("world_size")
                found.world_size = size if isinstance(size, int) else None
            case "step" if record.get("phase") == "profiled":
                times = found.after_ms
            case "step" if record.get("phase") == "unprofiled":
                times.append(float(record["step_ms"]))
            case "note" if not record["message"].startswith(NOTE_BEGINS):  # said for all together
                found.notes.append(record["message"])
            case "group":
                found.group = str(record["id"])
            case "end":
                found.complete = bool(record.get("complete"))
    return found


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # the last line of a killed process
        if isinstance(record, dict):
            yield record
