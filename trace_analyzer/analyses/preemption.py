"""Signs that a rank's threads are taken off their cores: microseconds of work that take far longer.

Other processes or threads on the same core interrupt a thread anywhere, also inside calls that only
enqueue work. A pause of the program's own (a sleep, a collection) never falls into those. On hosts
with free cores such calls exceed 0.3 ms with an idle GPU less than once in a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.idle import launching_threads
from trace_analyzer.analyses.partition import Busy
from trace_analyzer.analyses.pauses import find_pauses
from trace_analyzer.intervals import Intervals
from trace_analyzer.model import Rank
from trace_analyzer.schema import BoolArray, Int64Array
from trace_analyzer.tables import CallKind

# 99 % of enqueuing calls take less than 0.03 ms on every host seen.
LONG_NS = 300_000
# Once calls are known to be interrupted, what exceeds this is taken for an interruption too.
USUAL_NS = 100_000
_ENQUEUES = (CallKind.LAUNCH, CallKind.EVENT, CallKind.MEMSET, CallKind.OTHER)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Preemption:
    """Interruptions of one rank's launching threads.

    `inside` counts calls of microseconds that took over 0.3 ms while the GPU was idle;
    `spans` is the host time of all interruptions, pauses between calls included. `waits` counts
    gaps between calls that are much longer than at the same place of other steps, where there are
    so many that cores are shared; 0 where that is not known.
    """

    inside: int
    longest_ns: int
    spans: Intervals
    waits: int = 0


def find_preemption(rank: Rank, work: Busy, window: Intervals) -> Preemption:
    """Return the interruptions of a rank that begin in `window`."""
    calls = rank.calls
    threads = launching_threads(rank)
    call = np.isin(calls.thread, threads) & np.isin(calls.kind, _ENQUEUES)
    start, end = calls.start_ns[call], calls.end_ns[call]
    chosen = (end - start > USUAL_NS) & _in(start, window)
    start, end = start[chosen], end[chosen]
    # A call at a full queue waits for the GPU, which is busy then.
    waited = intervals.coverage(work.any, start, end)
    interrupted = end - start - waited > USUAL_NS
    start, end = start[interrupted], end[interrupted]
    idle = end - start - waited[interrupted]
    # Of nested calls the outer one counts.
    free = intervals.outermost(start, end)
    long = idle[free] > LONG_NS
    pauses = intervals.intersect(find_pauses(rank, None, LONG_NS), window)
    return Preemption(
        inside=int(np.sum(long)),
        longest_ns=int(idle.max(initial=0)),
        spans=intervals.merge(intervals.union(start, end), pauses),
    )


def _in(start: Int64Array, window: Intervals) -> BoolArray:
    at = np.searchsorted(window.start, start, side="right") - 1
    inside: BoolArray = (at >= 0) & (
        start < window.end[np.maximum(at, 0)] if len(window) else False
    )
    return inside
