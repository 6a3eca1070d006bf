"""What it costs that a model keeps its channels first although its convolutions want them last.

Convolutions on tensor cores read tensors with their channels last. A model that keeps them first has
every convolution's operands transposed, normalises with kernels that give each channel one block,
and multiplies 1x1 convolutions in rows as long as an image has pixels, which are often odd.

With channels last none of that is left, but no trace shows the kernels that would run instead. What
can be said is between two limits: at worst, the other kernels go over a tensor no faster than the
one of the present ones that spreads it over the whole GPU, the transform; at best, as fast as the
element-wise kernel right behind, which has the same tensor.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.contention import matrix_names
from trace_analyzer.analyses.matrix_rates import alignment_speedup, alignments
from trace_analyzer.analyses.operator_spans import launched_inside
from trace_analyzer.model import Rank
from trace_analyzer.schema import BoolArray, Float64Array, Int64Array
from trace_analyzer.tables import OperationKind

# cuDNN's kernels that transpose the operands of a convolution.
CONVERSIONS = re.compile(r"nchwToNhwc|nhwcToNchw|tensorTransformGeneric", re.IGNORECASE)
# PyTorch's batch norm with channels first, and how often each kernel goes over the whole tensor:
# statistics read it; the transform reads and writes; backward reads the input and its gradient for
# two sums, both again for the result, and writes that.
_STATISTICS, _TRANSFORM, _BACKWARD = 1, 2, 3
_NORMS = (
    (_STATISTICS, re.compile(r"\bbatch_norm_collect_statistics_kernel<")),
    (_TRANSFORM, re.compile(r"\bbatch_norm_transform_input_kernel<")),
    (_BACKWARD, re.compile(r"\bbatch_norm_backward_kernel<")),
)
_PASSES = np.array([0.0, 1.0, 2.0, 5.0])
# Contiguous element-wise kernels, with the number of tensors that they go over.
# nsys writes "std::array<char *, (unsigned long)2>".
_ELEMENTWISE = re.compile(
    r"vectorized_elementwise_kernel<.*?std::array<char ?\*, (?:\(unsigned long\))?(\d+)"
)
_NO_ACTIVATION = re.compile(r"copy_kernel|FillFunctor|<(?:long|int|bool)\b", re.IGNORECASE)
_CONVOLVING = re.compile(r"^aten::(?:cudnn_)?convolution|ConvolutionBackward")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChannelsFirst:
    """Kernels of one rank that are slow because channels come first, transpositions left out.

    `row` are GPU operations; `longest_ns` and `shortest_ns` are the limits of what each would take
    with channels last. `norm` tells batch norms from products of 1x1 convolutions. `bounded` says
    that an element-wise kernel showed the lower limit; else it is the upper one.
    """

    row: Int64Array
    longest_ns: Float64Array
    shortest_ns: Float64Array
    norm: BoolArray
    bounded: bool

    @property
    def middle_ns(self) -> Float64Array:
        """Middle of both limits: nothing tells more."""
        return (self.longest_ns + self.shortest_ns) / 2


def channels_first(rank: Rank) -> ChannelsFirst:
    """Return the kernels of a rank that channels in front make slow; none without transpositions."""
    operations = rank.operations
    kernel = operations.kind == OperationKind.KERNEL
    converted = np.array([CONVERSIONS.search(name) is not None for name in rank.names], np.bool_)
    nothing = np.zeros(0, dtype=np.int64)
    norms, products, bounded = nothing, nothing, False
    length = (operations.end_ns - operations.start_ns).astype(np.float64)
    longest, shortest = length.copy(), length.copy()
    if bool((kernel & converted[operations.name]).any()):
        norms, bounded = _norms(rank, kernel, longest, shortest)
        products = _products(rank, kernel, length, shortest)
    rows = np.concatenate([norms, products])
    return ChannelsFirst(
        row=rows,
        longest_ns=longest[rows],
        shortest_ns=shortest[rows],
        norm=np.arange(len(rows)) < len(norms),
        bounded=bounded,
    )


def _norms(
    rank: Rank, kernel: BoolArray, longest: Float64Array, shortest: Float64Array
) -> tuple[Int64Array, bool]:
    """Return batch norms, and whether a lower limit was seen; both limits are put in their places."""
    operations = rank.operations
    kinds = np.zeros(len(rank.names), dtype=np.int64)
    for kind, pattern in _NORMS:
        kinds[[pattern.search(name) is not None for name in rank.names]] = kind
    kind_of = kinds[operations.name]
    rows = np.flatnonzero(kernel & (kind_of > 0) & (operations.launch_config >= 0))
    rows = rows[np.argsort(operations.start_ns[rows], kind="stable")]
    # The first side of all three launches is the number of channels.
    channels = rank.configs.grid_x[operations.launch_config[rows]].astype(np.int64)
    layer = _transform_of(kind_of[rows], channels)
    rows, layer = rows[layer >= 0], rows[layer[layer >= 0]]
    if not len(rows):
        return rows, False
    length = longest[rows]
    once = longest[layer] / _PASSES[_TRANSFORM]
    quick = _quickest(rank, kernel, layer)
    bounded = not bool(np.isnan(quick).all())
    # Layers without such a neighbour are taken to be like the others.
    usual = float(np.nanmedian(quick / np.maximum(once, 1.0))) if bounded else 1.0
    quick = np.minimum(np.where(np.isnan(quick), usual * once, quick), once)
    passes = _PASSES[kind_of[rows]]
    longest[rows] = np.minimum(passes * once, length)
    shortest[rows] = np.minimum(passes * quick, longest[rows])
    return rows, bounded


def _transform_of(kind: Int64Array, channels: Int64Array) -> Int64Array:
    """Return the place of the transform of each batch norm's layer, -1 where it is not found.

    In order of time. Statistics come before their transform. Backward passes take layers in reverse
    order, so that each belongs to the last transform with its channels that none has taken yet.
    """
    place = np.arange(len(kind), dtype=np.int64)
    found = np.where(kind == _TRANSFORM, place, -1)
    order = np.lexsort((place, channels))
    order = order[kind[order] != _BACKWARD]
    here, behind = order[:-1], order[1:]
    pair = (kind[here] == _STATISTICS) & (kind[behind] == _TRANSFORM)
    pair &= channels[here] == channels[behind]
    found[here[pair]] = behind[pair]
    order = np.lexsort((place, channels))
    order = order[kind[order] != _STATISTICS]
    opens = kind[order] == _TRANSFORM
    # How many layers are open when each begins, or ends: both are on one level.
    depth = np.cumsum(np.where(opens, 1, -1)) + ~opens
    inner = np.lexsort((place[order], depth, channels[order]))
    order, opens, depth = order[inner], opens[inner], depth[inner]
    here, behind = order[:-1], order[1:]
    pair = opens[:-1] & ~opens[1:] & (depth[:-1] == depth[1:])
    pair &= channels[here] == channels[behind]
    found[behind[pair]] = here[pair]
    return found


def _quickest(rank: Rank, kernel: BoolArray, rows: Int64Array) -> Float64Array:
    """Return how long the element-wise kernel right behind each row takes a tensor; NaN if none."""
    operations = rank.operations
    tensors = np.zeros(len(rank.names), dtype=np.float64)
    for number, name in enumerate(rank.names):
        found = _ELEMENTWISE.search(name)
        if found is not None and _NO_ACTIVATION.search(name) is None:
            tensors[number] = int(found[1])
    order = np.flatnonzero(kernel)
    order = order[np.lexsort((operations.start_ns[order], operations.stream[order]))]
    place = np.empty(len(operations), dtype=np.int64)
    place[order] = np.arange(len(order))
    behind = order[np.minimum(place[rows] + 1, len(order) - 1)]
    count = tensors[operations.name[behind]]
    near = (count > 0) & (operations.stream[behind] == operations.stream[rows])
    length = (operations.end_ns - operations.start_ns)[behind]
    found_ns: Float64Array = np.where(near, length / np.maximum(count, 1.0), np.nan)
    return found_ns


def _products(
    rank: Rank, kernel: BoolArray, length: Float64Array, shortest: Float64Array
) -> Int64Array:
    """Return products of convolutions with unaligned rows; their lower limit is put in its place.

    With channels last a row is as long as there are channels, which seldom is an odd number.
    """
    bytes_at_once = alignments(rank.names)[rank.operations.name]
    unaligned = (bytes_at_once > 0) & (bytes_at_once < 16)
    rows = np.flatnonzero(kernel & unaligned & matrix_names(rank)[rank.operations.name])
    convolving = np.array([_CONVOLVING.search(name) is not None for name in rank.names], np.bool_)
    rows = rows[launched_inside(rank, rows, convolving)]
    factor = np.array(
        [alignment_speedup(int(value), rank.devices) for value in bytes_at_once[rows]],
        dtype=np.float64,
    )
    shortest[rows] = length[rows] / factor
    return rows
