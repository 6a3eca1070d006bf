"""Pauses of a rank's host: stretches in which its launching threads do nothing that a trace shows.

Between two boundaries of events or calls (starts and ends alike) a healthy host takes microseconds.
A stretch of a millisecond is a pause, unless a call, an operator, the profiler's own work or the
loader fills it. Ranges around it do not matter: a pause inside "forward" is one.
"""

from __future__ import annotations

import re

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.fetches import Fetches
from trace_analyzer.analyses.idle import launching_threads
from trace_analyzer.intervals import Intervals
from trace_analyzer.model import Rank
from trace_analyzer.schema import AnyArray, Int64Array
from trace_analyzer.tables import HostCategory

# Host work between two boundaries of an eager loop takes 0.01 to 0.3 ms, recorded or not; a full
# garbage collection, a write to disk or a sleep takes milliseconds.
PAUSE_NS = 1_000_000
_WRAPPER = re.compile(r"^autograd::|Backward\d*$|^Torch-Compiled|^CompiledFunction")
# A stretch is the profiler's where its own work covers this share of it.
PROFILER_SHARE = 0.5


def find_pauses(rank: Rank, found: Fetches | None = None, least_ns: int = PAUSE_NS) -> Intervals:
    """Return the pauses of a rank, without the fetches `found` of its loader."""
    events, calls = rank.events, rank.calls
    threads = launching_threads(rank)
    mine = np.isin(events.thread, threads) & (events.category != HostCategory.OVERHEAD)
    here = np.isin(calls.thread, threads)
    times = np.unique(
        np.concatenate(
            [
                events.start_ns[mine],
                events.end_ns[mine],
                calls.start_ns[here],
                calls.end_ns[here],
            ]
        )
    )
    if len(times) < 2:
        return intervals.empty()
    start, end = times[:-1], times[1:]
    long = end - start >= least_ns
    start, end = start[long], end[long]
    filled = _inside_operators(rank, mine, start, end)
    in_calls = intervals.union(calls.start_ns[here], calls.end_ns[here])
    own = events.category == HostCategory.OVERHEAD
    profiler = intervals.union(events.start_ns[own], events.end_ns[own])
    filled |= intervals.coverage(in_calls, start, end) > 0
    filled |= intervals.coverage(profiler, start, end) > PROFILER_SHARE * (end - start)
    pauses = intervals.union(start[~filled], end[~filled])
    if found is None:
        return pauses
    return intervals.subtract(pauses, intervals.union(found.start_ns, found.end_ns))


def _inside_operators(rank: Rank, mine: AnyArray, start: Int64Array, end: Int64Array) -> AnyArray:
    """Return which stretches are an operator's own work.

    Nodes of backward are none: they enclose Python code that hooks and users' functions run.
    """
    events = rank.events
    wrapper = np.array([_WRAPPER.search(text) is not None for text in rank.names], dtype=np.bool_)
    rows = mine & (events.category == HostCategory.OPERATOR) & ~wrapper[events.name]
    busy = intervals.union(events.start_ns[rows], events.end_ns[rows])
    found: AnyArray = intervals.coverage(busy, start, end) > 0
    return found
