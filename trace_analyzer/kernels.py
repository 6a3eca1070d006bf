"""What a GPU operation is, from its name: communication or not, and which family of kernels.

The tables are ordered: the first pattern that matches decides. Classification runs once per
distinct name, never per event.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from trace_analyzer.schema import BoolArray, Int8Array
from trace_analyzer.tables import OperationKind, WorkClass

# NCCL and RCCL name kernels ncclKernel_*, ncclDevKernel_*, ncclSymkDevKernel_*, nccl<Coll>…Kernel.
# The others move data between GPUs without NCCL.
_COMM_PATTERNS: tuple[str, ...] = (
    r"^(?:void )?nccl",
    r"ncclKernel|ncclDevKernel|ncclSymk",
    r"^(?:void )?rccl",
    r"nvshmem",
    r"\bdeep_ep::|\bdpsk::ep::",
    r"\bmscclpp?::|\bmscclKernel",
)
_COMM = re.compile("|".join(f"(?:{pattern})" for pattern in _COMM_PATTERNS))

# These reduce over peers' memory inside one computing kernel (symmetric memory, custom all-reduce
# of inference engines). The reference numbers of the field count them as compute, and so do we;
# `is_fused_communication` lets the report say so.
_FUSED_COMM = re.compile(
    r"\bcross_device_reduce_|\b(?:one|two)_shot_all_reduce|\bmultimem_(?:one_shot|all_reduce|all_gather)"
)

_CATEGORIES: tuple[tuple[str, str], ...] = (
    ("attention", r"flash|fmha|attention|_attn_|\bsdpa|mha_"),
    (
        "convolution",
        r"conv(?:olve|olution|_|\d|2d|3d)|implicit_gemm|winograd|wgrad2d|dgrad2d|cudnn.*engine",
    ),
    (
        "matmul",
        r"gemm|nvjet|cutlass|matmul|\bcijk_|ampere_.*_tn|volta_.*_nt|splitk|gemv|s\d{4,6}gemm|_mm_",
    ),
    ("optimizer", r"adam|lamb_|\bsgd|multi_tensor_apply|fused_optim|foreach"),
    ("normalization", r"layer_?norm|batch_?norm|group_?norm|rms_?norm|bn_fw|bn_bw"),
    ("softmax-loss", r"softmax|nll_loss|cross_entropy|log_softmax"),
    ("embedding-index", r"embedding|index|gather|scatter|sort|radix|unique"),
    ("layout", r"transpose|nchwtonhwc|nhwctonchw|permute|catarraybatchedcopy|cat_array"),
    ("cast-copy", r"direct_copy|bfloat16_copy|copy_kernel|float8_copy|copybuffer|_to_copy"),
    ("reduction", r"reduce|\bnorm_kernel|argmax|cumsum|cub::"),
    ("dropout-random", r"dropout|philox|distribution|random"),
    ("elementwise", r"elementwise|pointwise|fill|vectorized"),
    ("triton", r"^triton_|triton"),
)
_CATEGORY_PATTERNS = tuple((name, re.compile(pattern)) for name, pattern in _CATEGORIES)

CATEGORY_NAMES: tuple[str, ...] = (
    "communication",
    *(name for name, _ in _CATEGORIES),
    "other",
    "memcpy",
    "memset",
)


def is_communication(name: str) -> bool:
    """Return whether a kernel of this name moves data between GPUs."""
    return _COMM.search(name) is not None


def is_fused_communication(name: str) -> bool:
    """Return whether a computing kernel of this name also exchanges data with other GPUs."""
    return _FUSED_COMM.search(name) is not None


def category(name: str) -> str:
    """Return the family of a kernel: one of `CATEGORY_NAMES`."""
    if is_communication(name):
        return "communication"
    lowered = name.lower()
    for family, pattern in _CATEGORY_PATTERNS:
        if pattern.search(lowered):
            return family
    return "other"


def communication_names(names: Sequence[str]) -> BoolArray:
    """Return, for every position of a name table, whether the name is a communication kernel."""
    return np.fromiter((is_communication(name) for name in names), dtype=np.bool_, count=len(names))


def work_classes(kind: Int8Array, comm: BoolArray) -> Int8Array:
    """Return the WorkClass of every operation.

    `kind` holds OperationKind; `comm` says which operations are communication: kernels by name,
    and copies that execute a collective (NCCL's copy engine). Both have one entry an operation.
    """
    work = np.where(kind == OperationKind.KERNEL, WorkClass.COMPUTE, WorkClass.COPY)
    return np.where(comm, WorkClass.COMM, work).astype(np.int8)
