"""Names of copies and memsets, as torch.profiler writes them, so that both sources read alike."""

from __future__ import annotations

import numpy as np

from trace_analyzer.names import NameTable
from trace_analyzer.readers.nsys_columns import distinct, distinct_rows
from trace_analyzer.schema import NA_INT64, Int64Array

# The numbers of ENUM_CUDA_MEMCPY_OPER and ENUM_CUDA_MEM_KIND, which exports before 2023 lack.
COPY_KINDS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "HtoD unified",
    12: "DtoH unified",
    13: "DtoD unified",
}
MEMORY_KINDS = {
    0: "Pageable",
    1: "Pinned",
    2: "Device",
    3: "Array",
    4: "Managed",
    5: "Device Static",
    6: "Managed Static",
    7: "Unknown",
}
DEVICE_COPIES = (8, 10)  # between devices or inside one: what NCCL's copy engine can have issued


def copy_names(copies: dict[str, Int64Array], names: NameTable) -> Int64Array:
    """Return the name position of every copy."""
    if not len(copies["start"]):
        return np.empty(0, dtype=np.int64)
    kinds = [copies[name] for name in ("copyKind", "srcKind", "dstKind")]
    first, inverse = distinct_rows(kinds)
    positions = [
        names.intern(copy_name(*(int(column[row]) for column in kinds))) for row in first.tolist()
    ]
    return np.array(positions, dtype=np.int64)[inverse]


def copy_name(copy_kind: int, source_kind: int, target_kind: int) -> str:
    """Return the name of a copy: "Memcpy HtoD (Pinned -> Device)"; without memory kinds if NA."""
    way = COPY_KINDS.get(copy_kind, "unknown")
    if NA_INT64 in {source_kind, target_kind}:
        return f"Memcpy {way}"
    source = MEMORY_KINDS.get(source_kind, "Unknown")
    target = MEMORY_KINDS.get(target_kind, "Unknown")
    return f"Memcpy {way} ({source} -> {target})"


def set_names(sets: dict[str, Int64Array], names: NameTable) -> Int64Array:
    """Return the name position of every memset."""
    found, inverse = distinct(sets["memKind"])
    positions = [
        names.intern(f"Memset ({MEMORY_KINDS.get(kind, 'Unknown')})") for kind in found.tolist()
    ]
    return np.array(positions, dtype=np.int64)[inverse]
