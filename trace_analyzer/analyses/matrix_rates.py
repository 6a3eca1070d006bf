"""How fast matrix kernels compute: their number format by name, and what the hardware gives for it.

Traces do not hold how many operations a kernel does. What can be said is how much faster the same
product runs in another format: the ratio of the units that compute it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from trace_analyzer.model import Device
from trace_analyzer.schema import Int8Array


class Format(IntEnum):
    """How a matrix kernel multiplies; everything that is not known to be slow is OTHER."""

    OTHER = 0
    FLOAT32 = 1  # on the ordinary units, without tensor cores
    TF32_THREEFOLD = 2  # float32 out of three TF32 products on tensor cores
    TF32 = 3


# cuBLAS, CUTLASS and cuDNN name the format: "s1688gemm" is half precision where a half type
# stands beside it, and TF32 otherwise. `sgemm` inside "simt_sgemm", "ampere_sgemm" is float32.
_FORMATS: tuple[tuple[Format, re.Pattern[str]], ...] = (
    (Format.TF32_THREEFOLD, re.compile(r"fmha_cutlass[FB]_f32|fast_?f32|tf32x3|3xtf32")),
    (
        Format.FLOAT32,
        re.compile(r"(?:^|_)sgemm|_ffma_|_scudnn_|simt_s|gemmSN_\w+_kernel<float\b"),
    ),
    (
        Format.TF32,
        re.compile(
            r"tf32|nvjet_(?:sm\d+_)?sss|cutlass_80_tensorop_s1688(?:gemm|fprop|dgrad|wgrad)"
        ),
    ),
)

# Dense multiply-adds a clock and multiprocessor: (float32 without tensor cores, TF32, half
# precision), from NVIDIA's architecture papers; where products of one number differ, the least.
_RATES: dict[tuple[int, int], tuple[int, int, int]] = {
    (7, 0): (64, 0, 512),
    (7, 5): (64, 0, 512),
    (8, 0): (64, 512, 1024),
    (8, 6): (128, 128, 256),
    (8, 9): (128, 128, 256),
    (9, 0): (128, 1024, 2048),
    (10, 0): (128, 2048, 4096),
    (10, 3): (128, 2048, 4096),
    (12, 0): (128, 128, 256),
}
_UNKNOWN = (128, 128, 256)  # the least gain of any of them
# Share of the peak that products reach on tensor cores (790 of 989 TFLOP/s, measured on H200). The
# ordinary units are taken to reach their peak, so that the ratio is a low estimate.
REACHED = 0.8

# CUTLASS writes "align4" (elements), cuBLAS "aligna4".
_ALIGNED = re.compile(r"_align(\d+)\b|_aligna(\d+)_")
_HALF = re.compile(r"bf16|[^t]f16|fp16|h\d{4,5}gemm|s16816|s884")
# Products of 2-byte loads run with Turing's instructions also on Hopper: 94 to 148 of the 790
# TFLOP/s that aligned ones reach (three shapes, measured on H200); this is the least of the ratios.
# Elsewhere, and for wider loads, the ratio was not measured: the least that is plausible.
_ALIGNED_ON_HOPPER = 5.3
_ALIGNED_ELSEWHERE = 2.0


def formats(names: Sequence[str]) -> Int8Array:
    """Return the Format of each name of a table."""
    return np.fromiter((_format(name) for name in names), dtype=np.int8, count=len(names))


def _format(name: str) -> Format:
    return next((kind for kind, pattern in _FORMATS if pattern.search(name)), Format.OTHER)


def speedup(kind: Format, devices: Sequence[Device]) -> float:
    """Return by how much half precision on tensor cores outruns a format, at least 1."""
    known = [_RATES[capability] for capability in _capabilities(devices)]
    float32, tf32, half = known[0] if known else _UNKNOWN
    rate = {
        Format.FLOAT32: float(float32),
        Format.TF32: float(tf32 or float32),
        Format.TF32_THREEFOLD: (tf32 or float32) / 3,
    }.get(kind)
    return 1.0 if rate is None else max(REACHED * half / rate, 1.0)


def alignments(names: Sequence[str]) -> Int8Array:
    """Return how many bytes a matrix kernel on tensor cores may load at once; 0 where unknown.

    16 is what the hardware loads best; a library takes a kernel for fewer only where the size of a
    matrix leaves no other. Kernels without tensor cores load 4 bytes at once by design: 0.
    """
    return np.fromiter((_alignment(name) for name in names), dtype=np.int8, count=len(names))


def _alignment(name: str) -> int:
    found = _ALIGNED.search(name)
    if found is None or _format(name) == Format.FLOAT32:
        return 0
    if _HALF.search(name):
        size = 2
    elif _format(name) == Format.TF32:
        size = 4
    else:
        return 0
    return min(int(found[1] or found[2]) * size, 16)


def alignment_speedup(bytes_at_once: int, devices: Sequence[Device]) -> float:
    """Return by how much a product outruns its badly aligned form once its sizes fit, at least 1."""
    if not 0 < bytes_at_once < 16:
        return 1.0
    measured = alignment_measured(bytes_at_once, devices)
    return _ALIGNED_ON_HOPPER if measured else _ALIGNED_ELSEWHERE


def alignment_measured(bytes_at_once: int, devices: Sequence[Device]) -> bool:
    """Return whether that ratio was measured for such loads on such a GPU."""
    hopper = any(capability >= (9, 0) for capability in _capabilities(devices))
    return hopper and 0 < bytes_at_once <= 2


def _capabilities(devices: Sequence[Device]) -> list[tuple[int, int]]:
    found = [item.compute_capability for item in devices if item.compute_capability is not None]
    return [item for item in found if item in _RATES]
