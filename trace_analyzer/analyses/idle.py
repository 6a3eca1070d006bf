"""Why the devices of a rank were idle: launched late, start-up latency, or something else.

A gap [a, b) ends with the operation that starts at b. It is `launch` in [a, min(launch call's end,
b)): the host was late. The rest is `latency` where it is at most 15 µs, else `other` (a wait for
another stream, a peer or an event); so is a gap before an operation without a launch call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.partition import Busy
from trace_analyzer.intervals import Intervals
from trace_analyzer.model import Rank
from trace_analyzer.schema import BoolArray, Int64Array, is_na
from trace_analyzer.tables import CallKind, HostCategory, OperationKind

# Launch to start takes 2-11 µs on an idle stream; above this something was waited for.
LATENCY_LIMIT_NS = 15_000
_DATA_LOADING = re.compile(
    r"^enumerate\(DataLoader\)|DataLoader.*__next__|^data(?:_?load(?:er|ing)?)?$"
)
# Ranges that enclose a whole step, or a step's phase, say nothing about what the host did.
_ENCLOSING = re.compile(
    r"^ProfilerStep|^(?:train_?)?(?:step|iter|iteration|batch)\b|^(?:forward|backward|optimizer)$",
    re.IGNORECASE,
)


def is_enclosing(name: str) -> bool:
    """Return whether a range of this name encloses a step or a phase, and says no more than that."""
    return _ENCLOSING.search(name) is not None


def is_data_loading(name: str) -> bool:
    """Return whether a range of this name encloses the loading of a batch."""
    return _DATA_LOADING.search(name) is not None


HOST_CLASSES = (
    "data_loading",
    "blocking_sync",
    "allocator",
    "profiler_overhead",
    "operators",
    "silent",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gaps:
    """The idle gaps of a rank in its window, in order; arrays have one entry a gap."""

    start_ns: Int64Array
    end_ns: Int64Array
    launch_end_ns: Int64Array  # end of the launch part; equal to start where the host was not late
    operation: Int64Array  # row of the operation that ends the gap
    latency: Intervals
    other: Intervals
    explained: tuple[Intervals, ...]  # launch time that the first 1, 2, … of HOST_CLASSES explain

    @property
    def launch(self) -> Intervals:
        """When the device was idle because the host was late."""
        return intervals.union(self.start_ns, self.launch_end_ns)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IdleParts:
    """Idle time of windows, ns; arrays have one entry a window.

    launch + latency + other = idle, and the values of `launch_by_host` sum to launch.
    """

    launch_ns: Int64Array
    latency_ns: Int64Array
    other_ns: Int64Array
    launch_by_host: dict[str, Int64Array]


def find_gaps(rank: Rank, work: Busy, since_ns: int | None = None) -> Gaps:
    """Return the gaps between GPU operations of a rank, with their causes.

    `since_ns` is the start of a partial step that began before the first operation: the time up
    to that operation is a gap too.
    """
    start, end = work.any.end[:-1], work.any.start[1:]
    if since_ns is not None and len(work.any) and since_ns < work.any.start[0]:
        start = np.concatenate([[since_ns], start]).astype(np.int64)
        end = np.concatenate([work.any.start[:1], end])
    operations = rank.operations
    # Operations are sorted by start, so the first one at a gap's end is found by search. Those
    # without length do not end a gap; they are passed over.
    lasting = np.flatnonzero(operations.end_ns > operations.start_ns)
    row = lasting[np.searchsorted(operations.start_ns[lasting], end, side="left")]
    launch = operations.launch[row]
    linked = ~is_na(launch)
    launch_end = start.copy()
    launch_end[linked] = np.clip(rank.calls.end_ns[launch[linked]], start[linked], end[linked])
    rest = end - launch_end
    latency = linked & (rest <= LATENCY_LIMIT_NS)
    late = intervals.union(start, launch_end)
    explained: list[Intervals] = []
    for activity in host_activity(rank):
        seen = explained[-1] if explained else intervals.empty()
        explained.append(intervals.merge(seen, intervals.intersect(activity, late)))
    return Gaps(
        start_ns=start,
        end_ns=end,
        launch_end_ns=launch_end,
        operation=row.astype(np.int64),
        latency=intervals.union(launch_end[latency], end[latency]),
        other=intervals.union(launch_end[~latency], end[~latency]),
        explained=tuple(explained),
    )


def launching_threads(rank: Rank) -> Int64Array:
    """Return the rows of threads that launch GPU operations, and of those that mark steps.

    A thread that only copies, on streams that no other thread uses, runs beside the step (it
    prefetches batches, or writes a checkpoint) and is none of them.
    """
    linked = np.flatnonzero(~is_na(rank.operations.launch))
    thread = rank.calls.thread[rank.operations.launch[linked]].astype(np.int64)
    copies = rank.operations.kind[linked] != OperationKind.KERNEL
    calls = np.unique(thread)
    beside = [
        number
        for number in calls.tolist()
        if bool(np.all(copies[thread == number]))
        and not bool(
            np.isin(
                rank.operations.stream[linked][thread == number],
                rank.operations.stream[linked][thread != number],
            ).any()
        )
    ]
    steps = np.array(
        [i for i, text in enumerate(rank.names) if text.startswith("ProfilerStep")], dtype=np.int64
    )
    marks = rank.events.thread[np.isin(rank.events.name, steps)]
    if len(beside) < len(calls):
        calls = np.setdiff1d(calls, beside)
    return np.unique(np.concatenate([calls, marks])).astype(np.int64)


def host_activity(rank: Rank) -> list[Intervals]:
    """Return what the launching threads did, one set a class but `silent`, in order of HOST_CLASSES.

    Sets may overlap: where they do, the first class counts.
    """
    threads = launching_threads(rank)
    events, calls = rank.events, rank.calls
    event_here = np.isin(events.thread, threads)
    call_here = np.isin(calls.thread, threads)

    def named(pattern: re.Pattern[str]) -> BoolArray:
        matching = [i for i, text in enumerate(rank.names) if pattern.search(text)]
        return np.asarray(np.isin(events.name, matching), dtype=np.bool_)

    is_data = named(_DATA_LOADING) & (events.category != HostCategory.PYTHON)
    is_work = (events.category == HostCategory.OPERATOR) | (
        (events.category == HostCategory.ANNOTATION) & ~named(_ENCLOSING)
    )
    is_overhead = events.category == HostCategory.OVERHEAD  # on a thread of the profiler's own

    def of_events(rows: BoolArray) -> Intervals:
        return intervals.union(events.start_ns[rows], events.end_ns[rows])

    def of_calls(*kinds: CallKind) -> Intervals:
        rows = call_here & np.isin(calls.kind, kinds)
        return intervals.union(calls.start_ns[rows], calls.end_ns[rows])

    return [
        of_events(is_data & event_here),
        of_calls(CallKind.SYNC),
        of_calls(CallKind.ALLOC, CallKind.FREE),
        of_events(is_overhead),
        intervals.merge(of_events(is_work & event_here), of_calls(*CallKind)),
    ]


def idle_parts(gaps: Gaps, start_ns: Int64Array, end_ns: Int64Array) -> IdleParts:
    """Divide the idle time of the windows [start_ns, end_ns), which lie inside the gaps' range."""
    launch_ns = intervals.coverage(gaps.launch, start_ns, end_ns)
    by_host: dict[str, Int64Array] = {}
    counted = np.zeros(len(start_ns), dtype=np.int64)
    for name, explained in zip(HOST_CLASSES, gaps.explained, strict=False):
        upto = intervals.coverage(explained, start_ns, end_ns)
        by_host[name] = upto - counted
        counted = upto
    by_host["silent"] = launch_ns - counted
    return IdleParts(
        launch_ns=launch_ns,
        latency_ns=intervals.coverage(gaps.latency, start_ns, end_ns),
        other_ns=intervals.coverage(gaps.other, start_ns, end_ns),
        launch_by_host=by_host,
    )
