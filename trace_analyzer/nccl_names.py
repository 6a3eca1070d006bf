"""What the name of a communication kernel really tells.

From 2.8 on, NCCL's names end in `_LL` whatever the protocol, and from 2.19 on the algorithm in the
name is RING unless it is TREE; so neither is read here. The collective is sure (except for
`Generic` and for launches that fuse several), and of the type its width is.
"""

from __future__ import annotations

import re

_OPERATION = re.compile(
    r"nccl(?:Dev)?Kernel_(?P<new>[A-Za-z]+)|ncclSymk?DevKernel_(?P<sym>[A-Za-z]+)"
    r"|nccl(?P<old>AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|SendRecv)\w*Kernel"
)
_TYPE = re.compile(
    r"_(?:Sum|Prod|Max|Min|MinMax|PreMulSum|SumPostDiv|sum|copy)_"
    r"(?P<type>[a-z]+\d+(?:_t|_fp8|e\dm\d)?|float|double|half|__nv_bfloat16|rccl_bfloat16)(?:[_(<]|$)"
)
_CANONICAL = {
    "allreduce": "allreduce",
    "allgather": "allgather",
    "reducescatter": "reducescatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "sendrecv",
    "alltoall": "alltoall",
    "alltoallpivot": "alltoall",
    "gather": "gather",
    "scatter": "scatter",
}


def operation_of(kernel: str) -> str | None:
    """Return the collective a communication kernel executes, or None where the name does not tell."""
    match = _OPERATION.search(kernel)
    if match is None:
        return None
    text = match.group("new") or match.group("sym") or match.group("old")
    return _CANONICAL.get(str(text).lower())


def type_of(kernel: str) -> str | None:
    """Return the element type in a kernel's name, such as `f32` or `bf16`; only its width is sure."""
    match = _TYPE.search(kernel)
    return None if match is None else match.group("type")


# The same type under the names of torch, of C and of NCCL.
_TYPE_LABELS = {
    "float": "f32",
    "double": "f64",
    "half": "f16",
    "bfloat16": "bf16",
    "__nv_bfloat16": "bf16",
    "rccl_bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
    "char": "i8",
    "byte": "u8",
    "short": "i16",
    "int": "i32",
    "long": "i64",
    "long int": "i64",
    "int8_t": "i8",
    "uint8_t": "u8",
    "int32_t": "i32",
    "uint32_t": "u32",
    "int64_t": "i64",
    "uint64_t": "u64",
}


def type_label(name: str | None) -> str | None:
    """Return NCCL's short spelling of an element type, or the name itself where it has none."""
    return None if name is None else _TYPE_LABELS.get(name.lower(), name)


# Bus bandwidth is algorithm bandwidth (S / t) times this factor of the group size n (nccl-tests,
# PERFORMANCE.md): a + b (n - 1) / n.
_BUS_FACTORS: dict[str, tuple[float, float]] = {
    "allreduce": (0.0, 2.0),
    "allgather": (0.0, 1.0),
    "reducescatter": (0.0, 1.0),
    "alltoall": (0.0, 1.0),
    "gather": (0.0, 1.0),
    "scatter": (0.0, 1.0),
    "broadcast": (1.0, 0.0),
    "reduce": (1.0, 0.0),
    "send": (1.0, 0.0),
    "recv": (1.0, 0.0),
    "sendrecv": (1.0, 0.0),
}


def bus_factor(operation: str, size: int) -> float | None:
    """Return bus bandwidth over algorithm bandwidth for a group of `size` ranks; None if undefined."""
    factor = _BUS_FACTORS.get(operation)
    if factor is None or size < 1:
        return None
    constant, slope = factor
    return constant + slope * (size - 1) / size
