"""Whether ranks compute the same: which kernels one launches more than another, and larger ones.

Kernels of two ranks are lined up by name, step by step, in the order of their streams. What is left
over on one side is surplus; among those that line up, more blocks mean more work. Communication is
left out: its kernels depend on what arrives.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np

from trace_analyzer.analyses.study import RankStudy
from trace_analyzer.schema import Int64Array
from trace_analyzer.tables import OperationKind, WorkClass

# Stretches longer than this (kernels of one rank times those of the other, where they differ) are
# cut into shorter ones first: lining up takes the product, a quarter of a second for this much.
LARGEST_PRODUCT = 1_000_000
# Launches that differ by less in all are another choice of kernels, not another size.
LEAST_LARGER = 0.01
# So many kernels in a row tell where in a step they stand.
WINDOW = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """What a rank computes: kernels (rows of the GPU operations) of steady steps, by (step, stream, start).

    `name` numbers names alike on all ranks, `blocks` is the size of the launch.
    """

    row: Int64Array
    step: Int64Array
    name: Int64Array
    blocks: Int64Array

    def of_step(self, number: int) -> slice:
        """Return where the operations of a step stand."""
        return slice(
            int(np.searchsorted(self.step, number, side="left")),
            int(np.searchsorted(self.step, number, side="right")),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """One rank against another, over the steps that both have.

    `surplus` are rows of the rank's operations that the other has no counterpart for, `missing` how
    many it lacks, `resized` how many of those lined up differ in size. `blocks_more` is by what
    share the launches that line up are larger in all, `step_blocks` by how many blocks in a step,
    `blocks` how many the other has in a step (mean).
    """

    surplus: Int64Array
    missing: int
    lined_up: int
    resized: int
    blocks_more: float
    blocks: float
    step_blocks: dict[int, int]


def works(ranks: Mapping[int, RankStudy]) -> dict[int, Work]:
    """Return the work of each rank, with steps numbered as the run's are."""
    numbers: dict[str, int] = {}
    return {number: _work(item, numbers) for number, item in ranks.items()}


def _work(item: RankStudy, numbers: dict[str, int]) -> Work:
    rank, operations = item.rank, item.rank.operations
    place = item.steps.operation_step
    # Copies and memsets come and go with the libraries' choice of kernels, and compute nothing.
    row = np.flatnonzero(
        (place >= 0)
        & (operations.kind == OperationKind.KERNEL)
        & (operations.work == WorkClass.COMPUTE)
    )
    row = row[item.steady[place[row]]]
    order = np.lexsort((operations.start_ns[row], operations.stream[row], place[row]))
    row = row[order]
    code = np.fromiter(
        (numbers.setdefault(text, len(numbers)) for text in rank.names), np.int64, len(rank.names)
    )
    config = operations.launch_config[row]
    blocks = np.ones(len(row), dtype=np.int64)
    known = config >= 0
    shape = rank.configs
    for side in (shape.grid_x, shape.grid_y, shape.grid_z):
        blocks[known] *= np.maximum(side[config[known]], 1)
    return Work(
        row=row,
        step=item.steps.index[place[row]].astype(np.int64),
        name=code[operations.name[row]],
        blocks=blocks,
    )


def compare(own: Work, other: Work) -> Comparison:
    """Return what a rank has more than another, over their common steps."""
    surplus: list[Int64Array] = []
    missing = lined_up = resized = 0
    mine = theirs = 0
    step_blocks: dict[int, int] = {}
    known: dict[tuple[bytes, bytes], tuple[Int64Array, Int64Array]] = {}
    for number in np.intersect1d(own.step, other.step).tolist():
        a, b = own.of_step(number), other.of_step(number)
        key = (own.name[a].tobytes(), other.name[b].tobytes())
        if key not in known:
            known[key] = line_up(own.name[a], other.name[b])
        left, right = known[key]
        rest = np.ones(a.stop - a.start, dtype=np.bool_)
        rest[left] = False
        surplus.append(own.row[a][rest])
        missing += (b.stop - b.start) - len(right)
        large, small = own.blocks[a][left], other.blocks[b][right]
        lined_up += len(left)
        resized += int(np.sum(large != small))
        step_blocks[number] = int(large.sum() - small.sum())
        mine += int(large.sum())
        theirs += int(small.sum())
    return Comparison(
        surplus=np.concatenate(surplus) if surplus else np.empty(0, dtype=np.int64),
        missing=missing,
        lined_up=lined_up,
        resized=resized,
        blocks_more=mine / theirs - 1.0 if theirs else 0.0,
        blocks=theirs / max(len(step_blocks), 1),
        step_blocks=step_blocks,
    )


def line_up(own: Int64Array, other: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return positions in both sequences that belong together; blocks replaced alike count too."""
    shorter = min(len(own), len(other))
    if len(own) == len(other):
        both = np.arange(shorter)
        return both, both  # a library may choose other kernels for other sizes
    same = own[:shorter] == other[:shorter]
    head = shorter if bool(same.all()) else int(np.argmin(same))
    turned = own[::-1][: shorter - head] == other[::-1][: shorter - head]
    tail = len(turned) if bool(turned.all()) else int(np.argmin(turned))
    left = [np.arange(head)]
    right = [np.arange(head)]
    a, b = own[head : len(own) - tail], other[head : len(other) - tail]
    if len(a) and len(b):
        for here, there in _blocks(a, b):
            left.append(here + head)
            right.append(there + head)
    left.append(np.arange(len(own) - tail, len(own)))
    right.append(np.arange(len(other) - tail, len(other)))
    here, there = np.concatenate(left), np.concatenate(right)
    order = np.argsort(here, kind="stable")
    return here[order], there[order]


def _blocks(own: Int64Array, other: Int64Array) -> list[tuple[Int64Array, Int64Array]]:
    """Return the positions that belong together, as stretches; long ones are cut at anchors."""
    if len(own) * len(other) <= LARGEST_PRODUCT:
        return _matched(own, other)
    left, right = _anchors(own, other)
    if not len(left):
        count = min(len(own), len(other))
        return [(np.arange(count), np.arange(count))]
    found = [(left, right)]
    ends = [(len(own), len(other))]
    begin = (0, 0)
    for here, there in [*zip(left.tolist(), right.tolist(), strict=True), *ends]:
        a, b = own[begin[0] : here], other[begin[1] : there]
        if len(a) and len(b):
            if len(a) * len(b) <= LARGEST_PRODUCT:
                parts = _matched(a, b)
            else:
                count = min(len(a), len(b))
                parts = [(np.arange(count), np.arange(count))]
            found += [(one + begin[0], two + begin[1]) for one, two in parts]
        begin = (here + 1, there + 1)
    return found


def _matched(own: Int64Array, other: Int64Array) -> list[tuple[Int64Array, Int64Array]]:
    matcher = SequenceMatcher(None, own.tolist(), other.tolist(), autojunk=False)
    found: list[tuple[Int64Array, Int64Array]] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag in ("equal", "replace"):
            count = min(b - a, d - c)
            found.append((np.arange(a, a + count), np.arange(c, c + count)))
    return found


def _anchors(own: Int64Array, other: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return positions, rising in both, where windows of kernels surely correspond.

    Layers repeat, so that a window is seldom unique: one that both sequences hold equally often is
    paired in order. Of the pairs the longest rising chain is kept.
    """
    nothing = np.empty(0, dtype=np.int64)
    if min(len(own), len(other)) < WINDOW:
        return nothing, nothing
    windows = [np.lib.stride_tricks.sliding_window_view(side, WINDOW) for side in (own, other)]
    code = np.unique(np.concatenate(windows), axis=0, return_inverse=True)[1].reshape(-1)
    a, b = code[: len(windows[0])], code[len(windows[0]) :]
    size = int(code.max()) + 1
    equal = np.bincount(a, minlength=size) == np.bincount(b, minlength=size)
    left, right = np.flatnonzero(equal[a]), np.flatnonzero(equal[b])
    left = left[np.argsort(a[left], kind="stable")]
    right = right[np.argsort(b[right], kind="stable")]
    order = np.argsort(left, kind="stable")
    left, right = left[order], right[order]
    # Patience: `last[k]` is the pair with the smallest end of a rising chain of k + 1 pairs.
    ends: list[int] = []
    last: list[int] = []
    before = np.full(len(right), -1, dtype=np.int64)
    for pair, value in enumerate(right.tolist()):
        at = bisect_left(ends, value)
        if at:
            before[pair] = last[at - 1]
        ends[at : at + 1] = [value]
        last[at : at + 1] = [pair]
    chain: list[int] = []
    pair = last[-1] if last else -1
    while pair >= 0:
        chain.append(pair)
        pair = int(before[pair])
    chosen = np.array(chain[::-1], dtype=np.int64)
    return left[chosen].astype(np.int64), right[chosen].astype(np.int64)
