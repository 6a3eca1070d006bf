"""A Triton kernel that does next to nothing, to time its launch."""

# No postponed annotations here: Triton reads those of its kernels as they stand.
from collections.abc import Callable

import torch
import triton  # type: ignore[import-untyped,import-not-found,unused-ignore]
from triton import language as tl


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _add_one(pointer, size: tl.constexpr):  # type: ignore[no-untyped-def,unused-ignore]  # noqa: ANN001, ANN202
    offsets = tl.arange(0, size)
    tl.store(pointer + offsets, tl.load(pointer + offsets) + 1.0)


def launch(vector: torch.Tensor) -> Callable[[], None]:
    """Return a call that launches the kernel on a vector whose length is a power of two."""
    size = vector.numel()

    def call() -> None:
        _add_one[(1,)](vector, size)

    return call
