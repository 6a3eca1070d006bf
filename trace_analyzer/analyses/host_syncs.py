"""Runtime calls that block the host until the device is done, and what each of them is for.

A call counts where it is made by a thread that launches work: there it keeps the next launches
back. What a synchronisation is for shows in the copy that was launched right before it: reading a
value (`.item()`), bringing a batch, or nothing at all (an explicit synchronise). A value that a
small collective has just made, as metrics are reduced over ranks, is told from a local one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from trace_analyzer.analyses.idle import launching_threads
from trace_analyzer.model import Rank
from trace_analyzer.schema import NA_INT64, BoolArray, Int8Array, Int64Array, is_na, widened
from trace_analyzer.tables import CallKind, OperationKind, WorkClass

# Values and short lists that a host reads, against tensors that it moves: the driver stages up to
# 64 KiB through the command buffer, and no tensor of a model is that small.
SMALL_COPY_BYTES = 64 * 1024
# Operations between a small collective and the copy that reads its result: a mean is divided, cast
# and reshaped.
MOST_BETWEEN = 4
# Without its size, a message is small where its kernel has one channel of the fewest threads.
SMALL_BLOCK = 256
# A copy call that returns only when its copy is done returns at most this long before that.
RETURN_TOLERANCE_NS = 3_000


class SyncFor(IntEnum):
    """What a blocking call is for."""

    EXPLICIT = 0  # no copy before it: synchronise() and the like
    READ_VALUE = 1  # device to host, small
    READ_TENSOR = 2  # device to host, large
    BRING_BATCH = 3  # host to device
    FREE_MEMORY = 4  # cudaFree and its like
    COLLECTIVE = 5  # waits for a small collective that was launched right before: a barrier
    READ_REDUCED = 6  # reads a value that a small collective has just made


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostSyncs:
    """Blocking calls of one rank in order; arrays have one entry a call.

    `call` is the row in the calls; `purpose` a `SyncFor`; `copy` the row of the copy (GPU operation) it waits for,
    NA where there is none; `pageable` whether that copy goes from or to pageable memory;
    `collective` the row of the small collective (GPU operation) it waits for, NA where there is none.
    """

    call: Int64Array
    purpose: Int8Array
    copy: Int64Array
    pageable: Int8Array
    collective: Int64Array

    def of(self, *purposes: SyncFor) -> Int64Array:
        """Return the call rows that are for one of the purposes."""
        return self.call[np.isin(self.purpose, [int(item) for item in purposes])]


def host_syncs(rank: Rank) -> HostSyncs:
    """Return the blocking calls of a rank's launching threads."""
    calls, operations = rank.calls, rank.operations
    if not len(operations):
        nothing = np.empty(0, dtype=np.int64)
        none = nothing.astype(np.int8)
        return HostSyncs(
            call=nothing, purpose=none, copy=nothing, pageable=none, collective=nothing
        )
    mine = np.isin(calls.thread, launching_threads(rank))
    first_op = np.full(len(calls), NA_INT64, dtype=np.int64)
    linked = np.flatnonzero(~is_na(operations.launch))[::-1]
    first_op[operations.launch[linked]] = linked
    is_copy = (calls.kind == CallKind.MEMCPY) & (first_op != NA_INT64)
    done = operations.end_ns[np.maximum(first_op, 0)]
    began = calls.start_ns
    # A copy call that outlasts its own copy waited for it, unless both ends are on the device.
    on_device = _named(rank, "DtoD") | _named(rank, "PtoP")
    is_copy &= ~on_device[operations.name[np.maximum(first_op, 0)]]
    # An asynchronous call from or to pinned memory never waits: where it outlasts its copy, the
    # copy was short.
    waits = _named(rank, "Pageable")[operations.name[np.maximum(first_op, 0)]]
    waits |= ~_named(rank, "Async")[calls.name]
    is_copy &= waits
    blocking_copy = is_copy & (calls.end_ns + RETURN_TOLERANCE_NS >= done) & (done > began)
    chosen = np.flatnonzero(
        mine & ((calls.kind == CallKind.SYNC) | (calls.kind == CallKind.FREE) | blocking_copy)
    )
    before = _work_before(rank, chosen, mine, first_op)
    copy = np.where(blocking_copy[chosen], first_op[chosen], before)
    known, row = copy != NA_INT64, np.maximum(copy, 0)
    after_copy = known & (operations.kind[row] == OperationKind.MEMCPY)
    small = small_collectives(rank)
    after_comm = known & small[row]
    name, size = operations.name[row], operations.bytes[row]
    to_host, to_device, paged = (_named(rank, part)[name] for part in ("DtoH", "HtoD", "Pageable"))
    purpose = np.full(len(chosen), SyncFor.EXPLICIT, dtype=np.int8)
    purpose[after_comm] = SyncFor.COLLECTIVE
    purpose[after_copy & to_host & (size <= SMALL_COPY_BYTES)] = SyncFor.READ_VALUE
    purpose[after_copy & to_host & (size > SMALL_COPY_BYTES)] = SyncFor.READ_TENSOR
    purpose[after_copy & to_device] = SyncFor.BRING_BATCH
    reduced = _reduced_before(rank, copy, mine, first_op, small)
    purpose[(purpose == SyncFor.READ_VALUE) & (reduced != NA_INT64)] = SyncFor.READ_REDUCED
    purpose[calls.kind[chosen] == CallKind.FREE] = SyncFor.FREE_MEMORY
    collective = np.where(purpose == SyncFor.READ_REDUCED, reduced, NA_INT64)
    collective = np.where(purpose == SyncFor.COLLECTIVE, copy, collective)
    has_copy = after_copy & (calls.kind[chosen] != CallKind.FREE)
    return HostSyncs(
        call=chosen.astype(np.int64),
        purpose=purpose,
        copy=np.where(has_copy, copy, NA_INT64),
        pageable=(has_copy & paged).astype(np.int8),
        collective=collective,
    )


def small_collectives(rank: Rank) -> BoolArray:
    """Return which GPU operations are collectives of at most `SMALL_COPY_BYTES`."""
    operations, configs = rank.operations, rank.configs
    found: BoolArray = operations.work == WorkClass.COMM
    rows = np.flatnonzero(found)
    size = np.full(len(rows), NA_INT64, dtype=np.int64)
    known = ~is_na(operations.collective[rows])
    size[known] = rank.collectives.message_bytes[operations.collective[rows][known]]
    shaped = ~is_na(operations.launch_config[rows])
    tiny = np.zeros(len(rows), dtype=np.bool_)
    config = operations.launch_config[rows][shaped]
    tiny[shaped] = (configs.grid_x[config] == 1) & (configs.block_x[config] <= SMALL_BLOCK)
    found[rows] = np.where(size == NA_INT64, tiny, size <= SMALL_COPY_BYTES)
    return found


def small_runs(rank: Rank) -> Int64Array:
    """Return, for each GPU operation, the run of small collectives it belongs to, NA for others.

    Collectives of a run follow each other closely on one thread, as several metrics do.
    """
    operations, small = rank.operations, small_collectives(rank)
    run = np.full(len(operations), NA_INT64, dtype=np.int64)
    linked = np.flatnonzero(~is_na(operations.launch))
    launch = operations.launch[linked]
    thread = rank.calls.thread[launch]
    linked = linked[np.lexsort((launch, thread))]
    thread = np.sort(thread)
    place = np.flatnonzero(small[linked])
    if len(place):
        apart = (np.diff(place) > MOST_BETWEEN + 1) | (np.diff(thread[place]) != 0)
        run[linked[place]] = np.concatenate([[0], np.cumsum(apart)])
    return run


def _reduced_before(
    rank: Rank, copy: Int64Array, mine: BoolArray, first_op: Int64Array, small: BoolArray
) -> Int64Array:
    """Return the small collective launched shortly before each copy on its thread, NA without one."""
    calls, operations = rank.calls, rank.operations
    result = np.full(len(copy), NA_INT64, dtype=np.int64)
    launch = np.where(copy == NA_INT64, NA_INT64, widened(operations.launch)[np.maximum(copy, 0)])
    for thread in np.unique(calls.thread[launch[launch != NA_INT64]]).tolist():
        own = np.flatnonzero(mine & (calls.thread == thread) & (first_op != NA_INT64))
        reduces = np.flatnonzero(small[first_op[own]])
        here = np.flatnonzero(
            (launch != NA_INT64) & (calls.thread[np.maximum(launch, 0)] == thread)
        )
        place = np.searchsorted(own, launch[here])
        last = np.searchsorted(reduces, place) - 1
        near = last >= 0
        near[near] = place[near] - reduces[last[near]] <= MOST_BETWEEN + 1
        result[here[near]] = first_op[own[reduces[last[near]]]]
    return result


def _work_before(
    rank: Rank, chosen: Int64Array, mine: BoolArray, first_op: Int64Array
) -> Int64Array:
    """Return the GPU operation launched last before each call on its thread, NA without one."""
    calls = rank.calls
    result = np.full(len(chosen), NA_INT64, dtype=np.int64)
    for thread in np.unique(calls.thread[chosen]).tolist():
        own = np.flatnonzero(mine & (calls.thread == thread) & (first_op != NA_INT64))
        here = np.flatnonzero(calls.thread[chosen] == thread)
        at = np.searchsorted(own, chosen[here]) - 1
        found = at >= 0
        result[here[found]] = first_op[own[at[found]]]
    return result


def _named(rank: Rank, part: str) -> BoolArray:
    return np.array([part in text for text in rank.names], dtype=np.bool_)
