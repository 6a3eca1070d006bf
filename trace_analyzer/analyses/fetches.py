"""Where the training process gets its batches: the host's time between two steps' data and copies.

A fetch is a range of the step's own thread in which the loader is asked for a batch. torch marks
its loader's `__next__`; a user's range called "data" or the like counts too. What follows a
`__next__` up to the copy of the batch (collating, converting) belongs to it as well, because nothing
else runs there. CUDA calls inside are not part of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.idle import is_data_loading, launching_threads
from trace_analyzer.intervals import Intervals
from trace_analyzer.model import Rank
from trace_analyzer.schema import BoolArray, Int64Array, is_na
from trace_analyzer.tables import CallKind, HostCategory, OperationKind

_NEXT = re.compile(r"DataLoader.*__next__")
_WORKERS = re.compile(r"_MultiProcessingDataLoaderIter")
_IN_PROCESS = re.compile(r"_SingleProcessDataLoaderIter")
# Taking a batch that lies ready costs this much: 0.05 to 0.3 ms were seen with workers that were
# ahead, pinned batches, torch 2.11. Fixing a loader cannot give back more than what is above it.
READY_NS = 300_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fetches:
    """The fetches of one rank in order; arrays have one entry a fetch.

    `end_ns` is where its batch is copied to the device, if that is what comes next; `next_end_ns`
    where the range itself ends. `workers` and `in_process` say where the batch was loaded; both are
    False where the trace does not tell. `guessed` says that no range marks any fetch, so that the
    silence before the first copy of a step stands for it.
    """

    start_ns: Int64Array
    next_end_ns: Int64Array
    end_ns: Int64Array
    workers: BoolArray
    in_process: BoolArray
    guessed: bool

    def __len__(self) -> int:
        return len(self.start_ns)


def fetches(rank: Rank, marks_ns: Int64Array | None = None) -> Fetches:
    """Return the fetches of a rank.

    `marks_ns` are the starts of its host steps; with them, a trace without any such range gets the
    silent time before the first host-to-device copy of each step.
    """
    found = _marked(rank)
    if len(found) or marks_ns is None:
        return found
    return _before_copies(rank, marks_ns)


def fetch_time(rank: Rank, found: Fetches, ready_ns: int = READY_NS) -> Intervals:
    """Return the host time of fetches beyond `ready_ns` each, without the CUDA calls inside."""
    calls = rank.calls
    mine = np.isin(calls.thread, launching_threads(rank))
    inside = intervals.union(calls.start_ns[mine], calls.end_ns[mine])
    spans = intervals.union(found.start_ns + ready_ns, found.end_ns)
    return intervals.subtract(spans, inside)


def _marked(rank: Rank) -> Fetches:
    events = rank.events
    is_next = _named(rank, _NEXT)
    is_range = np.array([is_data_loading(text) for text in rank.names], dtype=np.bool_)
    here = np.isin(events.thread, launching_threads(rank))
    usable = here & (events.category != HostCategory.PYTHON) & (events.category != HostCategory.OS)
    rows = np.flatnonzero(usable & is_next[events.name])
    # A loader's own mark is sharper than a range around it; other ranges count where it is absent.
    others = np.flatnonzero(usable & is_range[events.name] & ~is_next[events.name])
    if len(rows) and len(others):
        begin = np.searchsorted(events.start_ns[rows], events.start_ns[others])
        holds = begin < np.searchsorted(events.start_ns[rows], events.end_ns[others])
        others = others[~holds]
    rows = np.sort(np.concatenate([rows, others]))
    rows = rows[intervals.outermost(events.start_ns[rows], events.end_ns[rows])]
    start, end = events.start_ns[rows], events.end_ns[rows]
    name = events.name[rows]
    return Fetches(
        start_ns=start,
        next_end_ns=end,
        end_ns=_up_to_copy(rank, start, end),
        workers=_named(rank, _WORKERS)[name],
        in_process=_named(rank, _IN_PROCESS)[name],
        guessed=False,
    )


def _up_to_copy(rank: Rank, start: Int64Array, end: Int64Array) -> Int64Array:
    """Return where each fetch's batch begins to be copied; `end` where something else comes first."""
    launch_ns, is_copy = _launches(rank)
    if not len(launch_ns):
        return end
    first = np.searchsorted(launch_ns, start)
    row = np.minimum(first, len(launch_ns) - 1)
    follows = (first < len(launch_ns)) & is_copy[row]
    # What the next fetch or step waits for is not this one's.
    limit = np.concatenate([start[1:], [np.iinfo(np.int64).max]])
    follows &= (launch_ns[row] < limit) & (launch_ns[row] > end)
    reached: Int64Array = np.where(follows, launch_ns[row], end)
    return reached


def _launches(rank: Rank) -> tuple[Int64Array, BoolArray]:
    """Return when launching calls begin, in order, and which of them copy to the device."""
    launch = rank.operations.launch
    linked = np.flatnonzero(~is_na(launch))
    at = rank.calls.start_ns[launch[linked]]
    order = np.argsort(at, kind="stable")
    return at[order], _to_device(rank)[linked][order]


def _to_device(rank: Rank) -> BoolArray:
    names = np.array(["HtoD" in text for text in rank.names], dtype=np.bool_)
    found: BoolArray = names[rank.operations.name] & (rank.operations.kind == OperationKind.MEMCPY)
    return found


def _before_copies(rank: Rank, marks_ns: Int64Array) -> Fetches:
    """Take the time without any event or call before the first copy of each step for its fetch."""
    launch_ns, is_copy = _launches(rank)
    copies = launch_ns[is_copy]
    first = np.searchsorted(copies, marks_ns)
    until = np.append(marks_ns[1:], np.iinfo(np.int64).max)
    row = np.minimum(first, max(len(copies) - 1, 0))
    have = (first < len(copies)) & (copies[row] < until if len(copies) else False)
    at = copies[row][have] if len(copies) else copies
    calls, events = rank.calls, rank.events
    threads = launching_threads(rank)
    mine = np.isin(calls.thread, threads) & (calls.kind != CallKind.EVENT)
    works = np.isin(events.thread, threads) & (events.category == HostCategory.OPERATOR)
    ends = np.sort(np.concatenate([calls.end_ns[mine], events.end_ns[works]]))
    before = np.searchsorted(ends, at) - 1
    known = before >= 0
    at, since = at[known], ends[before[known]]
    nothing = np.zeros(len(at), dtype=np.bool_)
    return Fetches(
        start_ns=since,
        next_end_ns=at,
        end_ns=at,
        workers=nothing,
        in_process=nothing,
        guessed=True,
    )


def _named(rank: Rank, pattern: re.Pattern[str]) -> BoolArray:
    return np.array([pattern.search(text) is not None for text in rank.names], dtype=np.bool_)


__all__ = ["READY_NS", "Fetches", "fetch_time", "fetches"]
