"""Runs of element-wise kernels over equally many elements, one right behind the other.

Each of them reads its operands from memory and writes its result back; one fused kernel would read
the first operands and write the last result only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.operator_spans import launched_inside
from trace_analyzer.analyses.steps import DeviceSteps
from trace_analyzer.model import Rank
from trace_analyzer.schema import BoolArray, Int64Array
from trace_analyzer.tables import OperationKind

# Fewer are no chain worth a name: two kernels are what one addition before an activation makes.
LEAST_LENGTH = 3
# A kernel that takes less is bound by its launch, not by memory.
LEAST_NS = 5_000

_ELEMENTWISE = re.compile(
    r"(?:vectorized_|unrolled_)?elementwise_kernel<(?:\(int\))?(\d+)(?:, (?:\(int\))?(\d+))?"
)
# Casts and copies do nothing to the values; fills have no operand; these functors are an optimizer's.
_OTHERS = re.compile(r"copy_kernel|FillFunctor|addcdiv|addcmul|lerp", re.IGNORECASE)
_OPTIMIZER = re.compile(r"^(?:optimizer|Optimizer\.step)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chains:
    """Chains of one rank: `row` are GPU operations in order, `chain` numbers the chain of each."""

    row: Int64Array
    chain: Int64Array

    @property
    def count(self) -> int:
        """Number of chains."""
        return int(self.chain[-1]) + 1 if len(self.chain) else 0


def elementwise_chains(rank: Rank, steps: DeviceSteps) -> Chains:
    """Return the chains of a rank; those of the optimizer are left out."""
    operations = rank.operations
    elements = _elements(rank)
    kernel = np.flatnonzero((operations.kind == OperationKind.KERNEL) & (steps.operation_step >= 0))
    kernel = kernel[~in_optimizer(rank, kernel)]
    order = np.lexsort((operations.start_ns[kernel], operations.stream[kernel]))
    kernel = kernel[order]
    size, step = elements[kernel], steps.operation_step[kernel]
    link = (
        (size[1:] == size[:-1])
        & (size[1:] > 0)
        & (step[1:] == step[:-1])
        & (operations.stream[kernel][1:] == operations.stream[kernel][:-1])
    )
    run = np.concatenate([[0], np.cumsum(~link)]).astype(np.int64)[: len(kernel)]
    count = np.bincount(run, minlength=1)
    length = operations.end_ns[kernel] - operations.start_ns[kernel]
    longest = np.zeros(len(count), dtype=np.int64)
    np.maximum.at(longest, run, length)
    name = operations.name[kernel]
    low = np.full(len(count), np.iinfo(np.int32).max, dtype=np.int64)
    high = np.zeros(len(count), dtype=np.int64)
    np.minimum.at(low, run, name)
    np.maximum.at(high, run, name)
    # The same kernel over and over works on different tensors of one size more often than not.
    chosen = (count >= LEAST_LENGTH) & (longest >= LEAST_NS) & (low < high)
    kept = chosen[run] & (size > 0)
    return Chains(row=kernel[kept], chain=np.unique(run[kept], return_inverse=True)[1].reshape(-1))


def _elements(rank: Rank) -> Int64Array:
    """Return how many elements each operation covers, in whole blocks; 0 if not element-wise."""
    per_thread = np.zeros(len(rank.names), dtype=np.int64)
    per_block = np.zeros(len(rank.names), dtype=np.int64)
    for number, name in enumerate(rank.names):
        found = _ELEMENTWISE.search(name)
        if found is None or _OTHERS.search(name):
            continue
        if found[0].startswith("elementwise"):  # <threads a block, elements a thread>
            per_block[number] = int(found[1]) * int(found[2] or 1)
        elif found[0].startswith("vectorized"):  # <elements a thread>; 4 where it is not vectorized
            per_thread[number] = max(int(found[1]), 4)
    unrolled = np.fromiter(
        ("unrolled_elementwise_kernel" in name and not _OTHERS.search(name) for name in rank.names),
        np.bool_,
        len(rank.names),
    )
    per_thread[unrolled] = 4
    config = rank.operations.launch_config
    known = config >= 0
    blocks = np.zeros(len(config), dtype=np.int64)
    threads = np.zeros(len(config), dtype=np.int64)
    blocks[known] = rank.configs.grid_x[config[known]]
    threads[known] = rank.configs.block_x[config[known]]
    name_of = rank.operations.name
    return np.where(
        per_block[name_of] > 0, per_block[name_of], per_thread[name_of] * threads
    ) * np.maximum(blocks, 0)


def in_optimizer(rank: Rank, rows: Int64Array) -> BoolArray:
    """Return which GPU operations were launched inside a range of the optimizer's step."""
    named = np.array([_OPTIMIZER.search(name) is not None for name in rank.names], np.bool_)
    return launched_inside(rank, rows, named)
