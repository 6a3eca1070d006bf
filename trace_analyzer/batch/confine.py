"""How a process limits itself: memory, processor time, and its life to that of its parent."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
from pathlib import Path
from typing import BinaryIO

import msgspec

from trace_analyzer.batch.tasks import Limits

_FAIR_PART = 0.8  # of the machine's memory, for all processes together
_CGROUP = Path("/sys/fs/cgroup/memory.max")
_FIRST_TO_GO = "500"  # where memory runs out, the kernel ends this process and not its parent
# The parent watches memory and time. These are for the moments between two looks, and for the case
# that it is gone: libraries in C crash where memory is refused to them.
_MEMORY_FACTOR, _MEMORY_BYTES = 1.25, 256 << 20
_TIME_FACTOR, _TIME_S = 2, 60


def confine(limits: Limits, parent: BinaryIO) -> None:
    """Set the limits of this process; `parent` is a pipe that ends when the parent does."""
    if limits.memory_bytes is not None:
        # What is mapped from files does not count: the system can take it back.
        _lower(resource.RLIMIT_DATA, int(_MEMORY_FACTOR * limits.memory_bytes) + _MEMORY_BYTES)
    if limits.time_s is not None:
        _lower(resource.RLIMIT_CPU, int(_TIME_FACTOR * limits.time_s) + _TIME_S)
    _lower(resource.RLIMIT_CORE, 0)
    with contextlib.suppress(OSError):  # not Linux
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO, encoding="ascii")
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def with_memory(limits: Limits) -> Limits:
    """Return limits that say how much memory: a fair share of this machine's unless they do."""
    if limits.memory_bytes is not None:
        return limits
    memory = int(_FAIR_PART * machine_memory() / max(limits.share, 1))
    return msgspec.structs.replace(limits, memory_bytes=memory)


def memory_of(pid: int) -> int:
    """Return the bytes that a process holds and that no file backs; 0 where that is not known."""
    return _from_status(pid, "RssAnon:")


def machine_memory() -> int:
    """Return the bytes of memory that this machine, or the container, has."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # no control group, or "max"
        total = min(total, int(_CGROUP.read_text(encoding="ascii")))
    return total


def peak_bytes() -> int:
    """Return the largest memory that this process has used, shared libraries included."""
    # What getrusage says counts what the parent had when it started this process.
    return _from_status(os.getpid(), "VmHWM:")


def _from_status(pid: int, field: str) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0  # not Linux, or it has ended
    found = next((line for line in text.splitlines() if line.startswith(field)), None)
    return 0 if found is None else int(found.split()[1]) * 1024


def _lower(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, hard))


def _end_with(parent: BinaryIO) -> None:
    parent.read()
    os.killpg(0, signal.SIGKILL)  # this process and what it started


__all__ = ["confine", "machine_memory", "memory_of", "peak_bytes", "with_memory"]
