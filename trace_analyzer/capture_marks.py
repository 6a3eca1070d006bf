"""What a recorder writes into an nsys recording for the reader: NVTX marks with a fixed text."""

from __future__ import annotations

import re

_RANK = re.compile(r"trace-analyzer: rank (\d{1,9}) of (\d{1,9})")

# What follows in this process is the micro-benchmark that measures the recorder, not training.
CALIBRATION_MARK = "trace-analyzer: calibration begins"


def rank_mark(rank: int, world_size: int) -> str:
    """Return the mark that says which rank a process is."""
    return f"trace-analyzer: rank {rank} of {world_size}"


def read_rank_mark(text: str) -> tuple[int, int] | None:
    """Return rank and world size of such a mark; None for any other text."""
    match = _RANK.fullmatch(text)
    if match is None:
        return None
    rank, world_size = int(match[1]), int(match[2])
    return (rank, world_size) if rank < world_size else None
