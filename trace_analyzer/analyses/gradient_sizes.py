"""How large single gradients are, and into which buckets DDP would put them.

A trace holds no parameters. It holds kernels that touch every gradient once: DDP divides each by the
number of ranks, programs that reduce by hand divide or copy each. Such a family of kernels is known
by its sum, which is the bytes that are reduced.
"""

from __future__ import annotations

import numpy as np

from trace_analyzer.model import Rank
from trace_analyzer.schema import Int64Array, is_na, widened
from trace_analyzer.tables import OperationKind

# DDP's default: a bucket is closed when it holds this much.
BUCKET_BYTES = 25 * 1024 * 1024
# Elements that a block of torch's elementwise kernels handles, by version and type.
_BLOCK_ELEMENTS = (512, 1024, 2048)
_ELEMENT_BYTES = (4, 2)
# Blocks are rounded up; families that come this near by chance do so seldom.
SUM_TOLERANCE = 0.002
LEAST_GRADIENTS = 4


def gradient_sizes(rank: Rank, operations: Int64Array, total_bytes: int) -> Int64Array | None:
    """Return the bytes of single gradients, in order of launch; None where no kernels show them.

    `operations` are those of one step, in order of launch; `total_bytes` is what it reduces.
    """
    table = rank.operations
    copies = operations[table.kind[operations] == OperationKind.MEMCPY]
    inside = np.array(["DtoD" in text for text in rank.names], dtype=np.bool_)
    size = table.bytes[copies[inside[table.name[copies]]]]
    copied: Int64Array = size[~is_na(size)].astype(np.int64)
    if _fits(copied, total_bytes):
        return copied
    kernels = operations[table.kind[operations] == OperationKind.KERNEL]
    config = table.launch_config[kernels]
    kernels, config = kernels[~is_na(config)], config[~is_na(config)]
    grid = widened(rank.configs.grid_x)[config]
    for name in np.unique(table.name[kernels]).tolist():
        blocks = grid[table.name[kernels] == name]
        if len(blocks) < LEAST_GRADIENTS:
            continue
        for elements in _BLOCK_ELEMENTS:
            for each in _ELEMENT_BYTES:
                found: Int64Array = blocks * elements * each
                if _fits(found, total_bytes):
                    return found
    return None


def _fits(size: Int64Array, total_bytes: int) -> bool:
    return len(size) >= LEAST_GRADIENTS and bool(
        abs(float(size.sum()) - total_bytes) <= SUM_TOLERANCE * total_bytes
    )


def buckets(size: Int64Array, limit_bytes: int = BUCKET_BYTES) -> list[int]:
    """Return the bytes of DDP's buckets for gradients in the order in which they are ready."""
    result: list[int] = []
    filled = 0
    for value in size.tolist():
        filled += value
        if filled >= limit_bytes:
            result.append(filled)
            filled = 0
    return [*result, filled] if filled else result
