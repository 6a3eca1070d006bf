"""The Flight Recorder: torch's own list of the last collectives, with sequence numbers."""

from __future__ import annotations

from pathlib import Path

from torch import distributed


def dump(path: Path) -> bool:
    """Write the list as torch pickles it; return whether there was one.

    Stacks are left out: they name the user's files and are not needed for matching.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return False
    from torch._C import _distributed_c10d as c10d

    take = getattr(c10d, "_dump_nccl_trace", None)
    if take is None or "nccl" not in str(distributed.get_backend()):
        return False
    try:
        data = take(includeCollectives=True, includeStackTraces=False, onlyActive=False)
    except TypeError:  # before torch 2.5 it had no such arguments
        data = take()
    path.write_bytes(data)
    return True
