"""Activations that are float32 only because the matrix kernels around them are.

Where a part of a model computes in float32, its element-wise kernels move twice the bytes, and
tensors are cast on the way in and out. Not all of that goes with the matrix kernels: sums of a
residual stream, for one, stay float32 under autocast. What runs in half precision elsewhere in the
same recording, by the same operation, can do so here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.elementwise_chains import in_optimizer
from trace_analyzer.model import Rank
from trace_analyzer.schema import BoolArray, Int64Array
from trace_analyzer.tables import OperationKind

# nsys writes numbers with their type, "(int)4", and lambdas as "(instance 1)" instead of "#1".
_ELEMENTWISE = re.compile(
    r"\b(vectorized|unrolled)_elementwise_kernel<(?:(?:\(int\))?\d+, )?(.*?), std::array<"
)
_HALF = re.compile(r"BFloat16|Half|bfloat16_copy|float16_copy")
_CAST = re.compile(r"bfloat16_copy|float16_copy|direct_copy_kernel.*LoadWithCast")
_OTHERS = re.compile(r"copy_kernel|FillFunctor|<(?:long|int|bool)\b")
# Operations that also run in half precision; those that also take half precision beside float32, of
# whose bytes more than half stay; and those that run in float32 only.
_KNOWN, _MIXED, _SINGLE = 1, 2, 3
_TYPE = re.compile(r"c10::BFloat16|c10::Half|\bfloat\b")
_NUMBER = re.compile(r"(?:#|instance )\d+")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FloatActivations:
    """GPU operations (rows) of one rank that may be float32 because its matrix kernels are.

    `halved` are element-wise kernels beside these whose operation also runs in half precision, and
    `cast` casts of their tensors. `doubtful` and `doubtful_cast` are those of operations that run in
    float32 only, and those further away, where the type of a residual stream may have spread.
    """

    halved: Int64Array
    cast: Int64Array
    doubtful: Int64Array
    doubtful_cast: Int64Array


def float_activations(rank: Rank, matrix: BoolArray, slow: BoolArray) -> FloatActivations:
    """Return what is float32 because of `slow`, which are some of the `matrix` kernels (masks)."""
    operations = rank.operations
    kernel = np.flatnonzero(
        (operations.kind == OperationKind.KERNEL) & (operations.launch_config >= 0)
    )
    kernel = kernel[np.lexsort((operations.start_ns[kernel], operations.stream[kernel]))]
    beside = _beside(operations.stream[kernel], matrix[kernel], slow[kernel])
    free = ~in_optimizer(rank, kernel)
    kernel, beside = kernel[free], beside[free]
    functor = _functors(rank)[operations.name[kernel]]
    known = functor == _KNOWN
    spread = known & _spread(rank, kernel, beside & known)
    halved = kernel[spread]
    doubtful = kernel[(known & ~spread) | (functor == _MIXED) | ((functor == _SINGLE) & beside)]
    casts = np.array([_CAST.search(text) is not None for text in rank.names], np.bool_)
    cast = casts[operations.name[kernel]]
    sizes = np.unique(np.concatenate(_sizes(rank, halved)))
    same = np.zeros(len(kernel), dtype=np.bool_)
    same[cast] = np.logical_or(*(np.isin(size, sizes) for size in _sizes(rank, kernel[cast])))
    near = beside | _next_to(spread, cast)
    return FloatActivations(
        halved=halved,
        cast=kernel[same & near],
        doubtful=doubtful,
        doubtful_cast=kernel[same & ~near],
    )


def _next_to(chosen: BoolArray, passed: BoolArray) -> BoolArray:
    """Return where the last or the next kernel that is not `passed` is a chosen one."""
    count = len(chosen)
    place = np.arange(count)
    last = np.maximum.accumulate(np.where(passed, -1, place))
    following = np.minimum.accumulate(np.where(passed, count, place)[::-1])[::-1]
    padded = np.append(chosen, False)
    found: BoolArray = padded[last] | padded[following]
    return found


def _spread(rank: Rank, kernel: Int64Array, beside: BoolArray) -> BoolArray:
    """Return which kernels belong to a row of float32 ones that begins or ends beside a slow kernel.

    A row is made of kernels of one operation with none in half precision between them: the type that
    a slow kernel gave has spread until something cast it back.
    """
    names, half = _operations(rank)
    found = beside.copy()
    name = rank.operations.name[kernel]
    for operation in np.unique(names[name[beside]]).tolist():
        rows = np.flatnonzero(names[name] == operation)
        is_half = half[name[rows]]
        row = np.cumsum(is_half)
        touched = np.zeros(int(row[-1]) + 1, dtype=np.bool_)
        touched[row[beside[rows]]] = True
        found[rows] |= touched[row] & ~is_half
    return found


def _operations(rank: Rank) -> tuple[Int64Array, BoolArray]:
    """Return for each name which operation it is whatever its type, -1 if none, and if it is half."""
    number: dict[str, int] = {}
    found = np.full(len(rank.names), -1, dtype=np.int64)
    half = np.zeros(len(rank.names), dtype=np.bool_)
    for row in np.unique(rank.operations.name).tolist():
        match = _ELEMENTWISE.search(rank.names[row])
        if match is None or _OTHERS.search(rank.names[row]) is not None:
            continue
        text = _NUMBER.sub("#", _TYPE.sub("T", match[2]))
        found[row] = number.setdefault(text, len(number))
        half[row] = _HALF.search(match[2]) is not None
    return found, half


def _beside(stream: Int64Array, matrix: BoolArray, slow: BoolArray) -> BoolArray:
    """Return which kernels have a slow one as the last or the next matrix kernel of their stream."""
    place = np.arange(len(stream), dtype=np.int64)
    at = np.flatnonzero(matrix)
    if not len(at):
        return np.zeros(len(stream), dtype=np.bool_)
    behind = np.searchsorted(at, place, side="left")
    found = np.zeros(len(stream), dtype=np.bool_)
    for near in (behind - 1, behind):
        inside = (near >= 0) & (near < len(at))
        other = at[np.clip(near, 0, len(at) - 1)]
        found |= inside & slow[other] & (stream[other] == stream)
    return found & ~matrix


def _functors(rank: Rank) -> Int64Array:
    """Return, for each name, what is known of a float32 element-wise kernel: 0 where it is none."""
    half: set[str] = set()
    full: dict[int, str] = {}
    for number in np.unique(rank.operations.name).tolist():
        name = rank.names[number]
        found = _ELEMENTWISE.search(name)
        if found is None or _OTHERS.search(name) is not None:
            continue
        functor = _NUMBER.sub("#", _TYPE.sub("T", found[2]))
        if _HALF.search(found[2]) is not None:
            half.add(functor)
        elif "float" in found[2]:
            full[number] = functor
    kinds = np.zeros(len(rank.names), dtype=np.int64)
    for number, functor in full.items():
        mixed = "LoadWithCast" in rank.names[number]
        if functor in half:
            kinds[number] = _MIXED if mixed else _KNOWN
        elif not mixed:
            kinds[number] = _SINGLE
    return kinds


def _sizes(rank: Rank, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the two numbers of elements that a launch may cover.

    A thread takes four elements; since PyTorch 2.7 it takes eight in vectorized kernels.
    """
    config = rank.operations.launch_config[rows]
    threads = rank.configs.grid_x[config].astype(np.int64) * rank.configs.block_x[config]
    vectorized = np.array(["vectorized_" in name for name in rank.names], dtype=np.bool_)
    most = np.where(vectorized[rank.operations.name[rows]], 8, 4)
    return threads * 4, threads * most
