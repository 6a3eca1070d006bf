"""Casts of weights that autocast makes, and those that repeat what the same step did before.

A forward cast of a weight is one whose backward node is followed by the accumulation of a gradient:
behind an activation's cast there is always another node of the graph.
"""

from __future__ import annotations

import numpy as np

from trace_analyzer.analyses.steps import DeviceSteps
from trace_analyzer.model import Rank
from trace_analyzer.schema import BoolArray, Int64Array, is_na

_NODE = "autograd::engine::evaluate_function: "
_CASTS = ("aten::_to_copy", "aten::to")


def _named(rank: Rank, texts: set[str]) -> BoolArray:
    return np.fromiter((name in texts for name in rank.names), np.bool_, len(rank.names))


def weight_casts(rank: Rank) -> Int64Array:
    """Return the GPU operations (rows) that cast a weight in the forward pass, in order."""
    events = rank.events
    nodes = np.fromiter((name.startswith(_NODE) for name in rank.names), np.bool_, len(rank.names))
    back = np.flatnonzero(nodes[events.name])
    back = back[np.lexsort((events.start_ns[back], events.thread[back]))]
    if len(back) < 2:
        return np.empty(0, dtype=np.int64)
    cast = _named(rank, {_NODE + "ToCopyBackward0"})[events.name[back]]
    last = _named(rank, {_NODE + "torch::autograd::AccumulateGrad"})[events.name[back]]
    leaf = cast[:-1] & last[1:] & (events.thread[back][:-1] == events.thread[back][1:])
    sequence = events.sequence[back[:-1][leaf]]
    forward = np.flatnonzero(
        _named(rank, set(_CASTS))[events.name]
        & ~is_na(events.sequence)
        & np.isin(events.sequence, sequence[~is_na(sequence)])
        & ~np.isin(events.thread, events.thread[back])
    )
    if not len(forward):
        return np.empty(0, dtype=np.int64)
    launch = rank.operations.launch
    operation = np.flatnonzero(launch >= 0)
    begun = rank.calls.start_ns[launch[operation]]
    at = np.searchsorted(events.start_ns[forward], begun, side="right") - 1
    event = forward[np.maximum(at, 0)]
    inside = (
        (at >= 0)
        & (begun < events.end_ns[event])
        & (rank.calls.thread[launch[operation]] == events.thread[event])
    )
    found: Int64Array = operation[inside]
    return found


def repeated_casts(rank: Rank, steps: DeviceSteps, codes: Int64Array) -> Int64Array:
    """Return the casts of weights that repeat those of an earlier forward pass of the same step.

    `codes` number kernels and launch shapes of all operations. A pass ends where the backward pass
    begins; it repeats the step's first one if it makes the same casts in the same order.
    """
    rows = weight_casts(rank)
    step = steps.operation_step[rows]
    rows, step = rows[step >= 0], step[step >= 0]
    if not len(rows):
        return rows
    begun = rank.calls.start_ns[rank.operations.launch[rows]]
    order = np.argsort(begun, kind="stable")
    rows, step, begun = rows[order], step[order], begun[order]
    nodes = np.fromiter((name.startswith(_NODE) for name in rank.names), np.bool_, len(rank.names))
    back = np.sort(rank.events.start_ns[nodes[rank.events.name]])
    before = np.searchsorted(back, begun)
    change = np.flatnonzero((np.diff(before) > 0) | (np.diff(step) != 0)) + 1
    repeated: list[Int64Array] = []
    first: Int64Array = np.empty(0, dtype=np.int64)
    number = -1
    for part in np.split(np.arange(len(rows)), change):
        here = codes[rows[part]]
        if int(step[part[0]]) != number:
            number, first = int(step[part[0]]), here
        elif np.array_equal(here, first):
            repeated.append(rows[part])
    return np.concatenate(repeated) if repeated else np.empty(0, dtype=np.int64)
