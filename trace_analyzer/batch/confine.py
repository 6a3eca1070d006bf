"""How a process limits itself: memory, processor time, and its life to that of its parent."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
from pathlib import Path
from typing import BinaryIO

from trace_analyzer.batch.tasks import Limits

_FAIR_PART = 0.8  # of the machine's memory, for all processes together
_CGROUP = Path("/sys/fs/cgroup/memory.max")
_FIRST_TO_GO = "500"  # where memory runs out, the kernel ends this process and not its parent
_BACKSTOP_FACTOR, _BACKSTOP_S = 2, 60


def confine(limits: Limits, parent: BinaryIO) -> int:
    """Set the limits; `parent` is a pipe that ends when the parent does. Return the memory, bytes."""
    memory = limits.memory_bytes or int(_FAIR_PART * machine_memory() / max(limits.share, 1))
    # What is mapped from files does not count: the system can take it back.
    _lower(resource.RLIMIT_DATA, memory)
    if limits.time_s is not None:
        # The parent keeps the time. This is for the case that it is gone and we do not notice.
        _lower(resource.RLIMIT_CPU, int(_BACKSTOP_FACTOR * limits.time_s) + _BACKSTOP_S)
    _lower(resource.RLIMIT_CORE, 0)
    with contextlib.suppress(OSError):  # not Linux
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO, encoding="ascii")
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    return memory


def machine_memory() -> int:
    """Return the bytes of memory that this machine, or the container, has."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # no control group, or "max"
        total = min(total, int(_CGROUP.read_text(encoding="ascii")))
    return total


def peak_bytes() -> int:
    """Return the largest memory that this process has used, shared libraries included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _lower(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, hard))


def _end_with(parent: BinaryIO) -> None:
    parent.read()
    os.killpg(0, signal.SIGKILL)  # this process and what it started


__all__ = ["confine", "machine_memory", "peak_bytes"]
