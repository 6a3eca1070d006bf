"""A kernel that does nothing but keep streaming multiprocessors busy."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

THREADS_PER_PROGRAM = 1024


@triton.jit  # type: ignore[untyped-decorator]
def _spin(values, rounds, block: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    number = tl.load(values + offsets)
    for _ in range(rounds):
        number = number * 1.0001 + 0.0001
    tl.store(values + offsets, number)


def spin(values: torch.Tensor, programs: int, rounds: int) -> None:
    """Run `programs` blocks of 1,024 threads for `rounds` dependent multiply-adds each.

    `values` holds at least 4,096 float32 a program.
    """
    _spin[(programs,)](values, rounds, 4096, num_warps=THREADS_PER_PROGRAM // 32)
