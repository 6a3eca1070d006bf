"""Forward kernels that run again in the backward pass: activation checkpointing.

Autograd's thread launches the backward pass, the program's own thread the forward pass. Where
autograd's thread launches the same kernels in the same order as the forward pass did, it computes
activations again that were not kept.
"""

from __future__ import annotations

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.operator_spans import last_boundary
from trace_analyzer.analyses.steps import DeviceSteps
from trace_analyzer.intervals import Intervals
from trace_analyzer.model import Rank
from trace_analyzer.schema import BoolArray, Int64Array
from trace_analyzer.tables import HostCategory, OperationKind, WorkClass

# So many kernels in a row, in the same order with the same launch shapes, of which at least
# LEAST_DIFFERENT are different ones: a part of a layer, and no coincidence.
WINDOW = 5
LEAST_DIFFERENT = 4
# What the forward pass shows where it enters a checkpointed part, without and with reentrance.
_ENTRANCES = ("_NoopSaveInputs", "CheckpointFunction")
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def recomputed(rank: Rank, steps: DeviceSteps, codes: Int64Array) -> Int64Array:
    """Return the GPU operations (rows) that repeat a part of the forward pass, in launch order.

    `codes` number kernels and launch shapes of all operations.
    """
    operations = rank.operations
    row = np.flatnonzero(
        (operations.kind == OperationKind.KERNEL)
        & (operations.work == WorkClass.COMPUTE)
        & (operations.launch >= 0)
        & (steps.operation_step >= 0)
    )
    if not len(row):
        return row
    call = operations.launch[row]
    order = np.argsort(rank.calls.start_ns[call], kind="stable")
    row, call = row[order], call[order]
    thread, step = rank.calls.thread[call].astype(np.int64), steps.operation_step[row]
    forward = thread == _first_thread(thread, step.astype(np.int64))
    ahead = _grams(codes[row[forward]], step[forward])
    back = row[~forward]
    keys = np.stack([step[~forward], thread[~forward]])
    order = np.lexsort((np.arange(len(back)), keys[1], keys[0]))
    back, keys = back[order], keys[:, order]
    group = np.concatenate([[0], np.cumsum(np.any(np.diff(keys, axis=1) != 0, axis=0))])
    behind = _grams(codes[back], group[: len(back)])
    hit = np.isin(behind, ahead[ahead != 0]) & (behind != 0)
    covered = np.zeros(len(back), dtype=np.bool_)
    for shift in range(WINDOW):
        covered[shift : len(hit) + shift] |= hit[: len(covered) - shift]
    found: Int64Array = back[covered]
    return found


def entering(rank: Rank) -> Intervals:
    """Return the host time in which the forward pass enters checkpointed parts.

    It lies between what came before such a part and the first operator of it that launches
    anything: random states are saved there, and hooks are set.
    """
    names = np.fromiter((name in _ENTRANCES for name in rank.names), np.bool_, len(rank.names))
    events, calls = rank.events, rank.calls
    launch = rank.operations.launch
    launches = np.unique(launch[launch >= 0])
    found: list[Intervals] = []
    for thread in np.unique(events.thread[names[events.name]]).tolist():
        here = np.flatnonzero(
            (events.thread == thread) & (events.category == HostCategory.OPERATOR)
        )
        entrance = here[names[events.name[here]]]
        own = np.sort(calls.start_ns[launches[calls.thread[launches] == thread]])
        at = np.searchsorted(own, events.start_ns[entrance])
        entrance, at = entrance[at < len(own)], at[at < len(own)]
        begin = last_boundary(rank, thread, events.start_ns[entrance])
        # Of the operators that begin behind the entrance, the first that holds the launch.
        until = own[at].copy()
        for number, (event, launched) in enumerate(
            zip(entrance.tolist(), own[at].tolist(), strict=True)
        ):
            low = int(np.searchsorted(here, event, side="right"))
            high = int(np.searchsorted(events.start_ns[here], launched, side="right"))
            inner = here[low:high]
            holding = inner[events.end_ns[inner] > launched]
            if len(holding):
                until[number] = int(events.start_ns[holding].min())
        found.append(intervals.union(begin, until))
    return intervals.merge(*found)


def _first_thread(thread: Int64Array, step: Int64Array) -> Int64Array:
    """Return, for each launch, the thread that launches first in its step: the forward pass's."""
    numbers, first = np.unique(step, return_index=True)
    found: Int64Array = thread[first][np.searchsorted(numbers, step)]
    return found


def _grams(codes: Int64Array, group: Int64Array) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return a hash of each window of kernels, by its first; 0 where it is none.

    Windows that cross a group, or that repeat few kernels, are none.
    """
    count = len(codes) - WINDOW + 1
    if count <= 0:
        return np.zeros(0, dtype=np.uint64)
    windows = np.lib.stride_tricks.sliding_window_view(codes, WINDOW)
    whole: BoolArray = group[:count] == group[WINDOW - 1 :]
    ordered = np.sort(windows, axis=1)
    different = 1 + np.sum(ordered[:, 1:] != ordered[:, :-1], axis=1)
    value = np.zeros(count, dtype=np.uint64)
    for column in range(WINDOW):
        value = (value ^ (windows[:, column].astype(np.uint64) + np.uint64(1))) * _FACTOR
        value ^= value >> np.uint64(29)
    value[value == 0] = 1
    return np.where(whole & (different >= LEAST_DIFFERENT), value, np.uint64(0))
