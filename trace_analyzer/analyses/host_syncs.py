"""Runtime calls that block the host until the device is done, and what each of them is for.

A call counts where it is made by a thread that launches work: there it keeps the next launches
back. What a synchronisation is for shows in the copy that was launched right before it: reading a
value (`.item()`), bringing a batch, or nothing at all (an explicit synchronise).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from trace_analyzer.analyses.idle import launching_threads
from trace_analyzer.model import Rank
from trace_analyzer.schema import NA_INT64, BoolArray, Int8Array, Int64Array, is_na
from trace_analyzer.tables import CallKind, OperationKind, WorkClass

# Values and short lists that a host reads, against tensors that it moves: the driver stages up to
# 64 KiB through the command buffer, and no tensor of a model is that small.
SMALL_COPY_BYTES = 64 * 1024
# A copy call that returns only when its copy is done returns at most this long before that.
RETURN_TOLERANCE_NS = 3_000


class SyncFor(IntEnum):
    """What a blocking call is for."""

    EXPLICIT = 0  # no copy before it: synchronise() and the like
    READ_VALUE = 1  # device to host, small
    READ_TENSOR = 2  # device to host, large
    BRING_BATCH = 3  # host to device
    FREE_MEMORY = 4  # cudaFree and its like
    COLLECTIVE = 5  # waits on the host for communication that was launched right before


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostSyncs:
    """Blocking calls of one rank in order; arrays have one entry a call.

    `call` is the row in the calls; `purpose` a `SyncFor`; `copy` the row of the copy (GPU operation) it waits for,
    NA where there is none; `pageable` whether that copy goes from or to pageable memory.
    """

    call: Int64Array
    purpose: Int8Array
    copy: Int64Array
    pageable: Int8Array

    def of(self, *purposes: SyncFor) -> Int64Array:
        """Return the call rows that are for one of the purposes."""
        return self.call[np.isin(self.purpose, [int(item) for item in purposes])]


def host_syncs(rank: Rank) -> HostSyncs:
    """Return the blocking calls of a rank's launching threads."""
    calls, operations = rank.calls, rank.operations
    if not len(operations):
        nothing = np.empty(0, dtype=np.int64)
        none = nothing.astype(np.int8)
        return HostSyncs(call=nothing, purpose=none, copy=nothing, pageable=none)
    mine = np.isin(calls.thread, launching_threads(rank))
    first_op = np.full(len(calls), NA_INT64, dtype=np.int64)
    linked = np.flatnonzero(~is_na(operations.launch))[::-1]
    first_op[operations.launch[linked]] = linked
    is_copy = (calls.kind == CallKind.MEMCPY) & (first_op != NA_INT64)
    done = operations.end_ns[np.maximum(first_op, 0)]
    began = calls.start_ns
    # A copy call that outlasts its own copy waited for it.
    blocking_copy = is_copy & (calls.end_ns + RETURN_TOLERANCE_NS >= done) & (done > began)
    chosen = np.flatnonzero(
        mine & ((calls.kind == CallKind.SYNC) | (calls.kind == CallKind.FREE) | blocking_copy)
    )
    before = _work_before(rank, chosen, mine, first_op)
    copy = np.where(blocking_copy[chosen], first_op[chosen], before)
    known, row = copy != NA_INT64, np.maximum(copy, 0)
    after_copy = known & (operations.kind[row] == OperationKind.MEMCPY)
    after_comm = known & (operations.work[row] == WorkClass.COMM)
    name, size = operations.name[row], operations.bytes[row]
    to_host, to_device, paged = (_named(rank, part)[name] for part in ("DtoH", "HtoD", "Pageable"))
    purpose = np.full(len(chosen), SyncFor.EXPLICIT, dtype=np.int8)
    purpose[after_comm] = SyncFor.COLLECTIVE
    purpose[after_copy & to_host & (size <= SMALL_COPY_BYTES)] = SyncFor.READ_VALUE
    purpose[after_copy & to_host & (size > SMALL_COPY_BYTES)] = SyncFor.READ_TENSOR
    purpose[after_copy & to_device] = SyncFor.BRING_BATCH
    purpose[calls.kind[chosen] == CallKind.FREE] = SyncFor.FREE_MEMORY
    has_copy = after_copy & (calls.kind[chosen] != CallKind.FREE)
    return HostSyncs(
        call=chosen.astype(np.int64),
        purpose=purpose,
        copy=np.where(has_copy, copy, NA_INT64),
        pageable=(has_copy & paged).astype(np.int8),
    )


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
