"""Whether an nsys recording can be believed: lost events, hidden kernels, damaged rows.

The profiler's own diagnostics warn of lost events in most files, also in complete ones. So the
events themselves decide: launch calls must have kernels, and kernels must have launch calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trace_analyzer.readers.nsys_columns import distinct, first_rows
from trace_analyzer.readers.nsys_events import PID_MASK, PROCESS_SHIFT
from trace_analyzer.readers.nsys_schema import Export
from trace_analyzer.schema import NA_INT64, BoolArray, Int64Array, is_na
from trace_analyzer.tables import CallKind, GpuOperations, HostCalls, OperationKind

_ERROR = 3  # severity levels: 1 info, 2 warning, 3 error
_LOST = re.compile(
    r"Not all CUDA events might have been collected"
    r"|Some CUPTI events might be missing"
    r"|CUDA profiling might have not been started correctly",
    re.IGNORECASE,
)
_OLD = re.compile(r"driver version .* is not supported by this build", re.IGNORECASE)
_HOST_FUNCTION = re.compile(r"LaunchHostFunc")
_BEGIN_CAPTURE = re.compile(r"StreamBeginCapture")
_END_CAPTURE = re.compile(r"StreamEndCapture")


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics:
    """What nsys reported, by process id; texts stay inside the reader, they hold paths."""

    lost: Mapping[int, int]
    old: Mapping[int, int]
    errors: Mapping[int, int]


def read_diagnostics(export: Export) -> Diagnostics:
    """Count the reports of an export that bear on trust."""
    counts: dict[str, dict[int, int]] = {"lost": {}, "old": {}, "errors": {}}
    for severity, text, process in export.texts(
        "DIAGNOSTIC_EVENT", "severity", "text", "globalPid"
    ):
        pid = process >> PROCESS_SHIFT & PID_MASK if isinstance(process, int) else 0
        message = str(text or "")
        if _LOST.search(message):
            kind = "lost"
        elif _OLD.search(message):
            kind = "old"
        elif severity == _ERROR:
            kind = "errors"
        else:
            continue
        counts[kind][pid] = counts[kind].get(pid, 0) + 1
    return Diagnostics(**counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """How launches and kernels agree, apart from the edges of the recording."""

    calls: int
    kernels: int
    without_launch: int
    launches: int
    without_kernel: int
    graph_launches: int
    empty_graph_launches: int  # without any GPU operation

    @property
    def lost_share(self) -> float:
        """The larger of the two shares that lack their counterpart."""
        return max(
            self.without_launch / self.kernels if self.kernels else 0.0,
            self.without_kernel / self.launches if self.launches else 0.0,
        )


def balance(operations: GpuOperations, calls: HostCalls, names: Sequence[str]) -> Balance:
    """Compare the launches of a process with its GPU operations.

    Edges do not count: kernels of a stream before its first linked one (the backlog of what was
    launched before the recording), and launches before the first and after the last linked one.
    Neither do launches that are recorded into a graph, which run nothing by themselves.
    """
    linked = ~is_na(operations.launch)
    kernel = operations.kind == OperationKind.KERNEL
    lacking = kernel & ~linked & ~_backlog(operations, linked)
    has_work = np.zeros(len(calls), dtype=np.bool_)
    has_work[operations.launch[linked]] = True
    titles, title = distinct(calls.name.astype(np.int64))

    def named(pattern: re.Pattern[str]) -> BoolArray:
        hits = [pattern.search(names[position]) is not None for position in titles.tolist()]
        return np.array(hits, dtype=np.bool_)[title]

    launch = (calls.kind == CallKind.LAUNCH) & ~named(_HOST_FUNCTION)
    graph = calls.kind == CallKind.GRAPH_LAUNCH
    first, last = _span(calls.start_ns[has_work])
    launch &= (calls.start_ns >= first) & (calls.start_ns <= last)
    launch &= ~_captured(calls, named(_BEGIN_CAPTURE), named(_END_CAPTURE))
    return Balance(
        calls=len(calls),
        kernels=int(np.count_nonzero(kernel)),
        without_launch=int(np.count_nonzero(lacking)),
        launches=int(np.count_nonzero(launch)),
        without_kernel=_empty(calls, has_work, launch),
        graph_launches=int(np.count_nonzero(graph)),
        empty_graph_launches=_empty(calls, has_work, graph),
    )


def _span(times: Int64Array) -> tuple[int, int]:
    limits = np.iinfo(np.int64)
    return (int(times.min()), int(times.max())) if len(times) else (limits.min, limits.max)


def _empty(calls: HostCalls, has_work: BoolArray, kind: BoolArray) -> int:
    """Count the calls of a kind that launched nothing.

    A driver call inside a runtime call has the same correlation id; the outer one has the work.
    """
    rows = np.flatnonzero(kind & ~has_work)
    outer = first_rows(calls.correlation, calls.correlation[rows])
    known = outer != NA_INT64
    return len(rows) - int(np.count_nonzero(has_work[outer[known]]))


def _backlog(operations: GpuOperations, linked: BoolArray) -> BoolArray:
    """Return the unlinked operations that start before the first linked one of their stream."""
    if linked.all():
        return ~linked
    contexts, context = distinct(operations.context.astype(np.int64))
    streams, stream = distinct(operations.stream)
    place = context * len(streams) + stream
    first = np.full(len(contexts) * len(streams), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(first, place[linked], operations.start_ns[linked])
    return np.asarray(~linked & (operations.start_ns < first[place]), dtype=np.bool_)


def _captured(calls: HostCalls, begins: BoolArray, ends: BoolArray) -> BoolArray:
    """Return the calls between the begin and the end of a stream capture on their thread."""
    inside = np.zeros(len(calls), dtype=np.bool_)
    for thread in np.unique(calls.thread[begins]).tolist():
        mine = calls.thread == thread
        depth = np.cumsum(begins & mine) - np.cumsum(ends & mine)
        inside |= mine & (depth > 0)
    return inside
