"""Whose process a process is, read from /proc."""

from __future__ import annotations

import os
from pathlib import Path


def job_root() -> int:
    """Return the process whose descendants are the ranks of this host.

    A launcher is the parent of its ranks; a process that no launcher started stands for itself.
    """
    return os.getppid() if "LOCAL_RANK" in os.environ else os.getpid()


def descends_from(pid: int, ancestor: int) -> bool:
    """Whether `pid` is `ancestor` or was started by it, directly or not."""
    seen: set[int] = set()
    while pid > 1 and pid not in seen:
        if pid == ancestor:
            return True
        seen.add(pid)
        pid = _parent(pid)
    return False


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    # The second field is the program's name in brackets, and may hold anything.
    return int(text.rpartition(")")[2].split()[1])
