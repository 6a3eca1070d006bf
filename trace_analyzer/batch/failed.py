"""What stands in the index for a run that failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

import msgspec

from trace_analyzer import __version__
from trace_analyzer.batch.rows import FileRow, RunRow, RunRows
from trace_analyzer.batch.tasks import Failure, Limits, RunFound, RunResult, Task, run_id, shown

# What libraries say, in whatever way, when memory is not given to them.
_NO_MEMORY = re.compile(
    r"MemoryError|memory allocation|allocate memory|failed to map", re.IGNORECASE
)


def lacks_memory(said: str) -> bool:
    """Tell whether the last words of a process, or of a library, are that memory ran out."""
    return _NO_MEMORY.search(said) is not None


def no_memory(limits: Limits) -> str:
    """Return the reason of a failure for want of memory."""
    limit = (limits.memory_bytes or 0) / (1 << 30)
    return f"needs more memory than {limit:.3g} GiB; raise --memory-limit"


def too_slow(limits: Limits) -> str:
    """Return the reason of a failure for want of time."""
    return f"takes longer than {limits.time_s or 0:g} s; raise --time-limit"


def failed_rows(run: RunRow, failure: Failure, reason: str, files: Sequence[FileRow]) -> RunRows:
    """Return the rows of a run that failed."""
    changes = {"state": "failed", "failure": str(failure), "reason": reason, "report": ""}
    return RunRows(run=msgspec.structs.replace(run, **changes), files=list(files))


def failed_unit(
    task: Task, failure: Failure, reason: str, *, detail: str = "", seconds: float = 0.0
) -> RunResult:
    """Return the result of a unit, or of the one run of a task, that could not be opened."""
    name = task.unit if task.only is None else task.only
    found = RunFound(
        id=run_id(name),
        name=name,
        fingerprint="",
        digest="",
        bytes=sum(file.bytes for file in task.files),
        files=[],
        described="not opened",
    )
    run = RunRow(
        id=found.id,
        name=shown(name) or ".",
        unit=shown(task.unit),
        state="failed",
        title=shown(PurePosixPath(name).name),
        bytes=found.bytes,
        tool_version=__version__,
    )
    rows = failed_rows(run, failure, reason, [])
    return RunResult(found=found, rows=rows, detail=detail, seconds=seconds)


__all__ = ["failed_rows", "failed_unit", "lacks_memory", "no_memory", "too_slow"]
