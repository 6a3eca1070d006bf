"""The Flight Recorder: torch's own list of the last collectives, with sequence numbers."""

from __future__ import annotations

from pathlib import Path

from torch import distributed

# Both names mean the number of entries kept; the second is the later one. A dump holds the
# profiled steps only if the list is longer than their collectives.
BUFFER_VARIABLES = ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE")
BUFFER_ENTRIES = 2000


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
