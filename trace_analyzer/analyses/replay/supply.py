"""The pace of loader workers, which the host waits for: an outside source in the replay.

A worker makes one batch after the other, whatever the training process does. Where the host blocks
in the loader, the batch arrives when the wait ends; between two such arrivals the workers were
never idle, so their time a batch is the interval over the number of batches. This pace does not
change when the step gets faster, for instance without the profiler: then the host waits longer.

In the program a batch is an operation on a stream of its own that no device has, and the mark that
begins a step waits for it. What the host was blocked is taken out of its own time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.fetches import READY_NS, fetches
from trace_analyzer.analyses.replay.program import COPY, NONE
from trace_analyzer.intervals import Intervals
from trace_analyzer.model import Rank
from trace_analyzer.schema import Float64Array, Int64Array

# A fetch that took this much longer than one of a ready batch was blocked: unpickling and moving a
# batch of images took up to 1.3 ms of a 125 ms step.
BLOCKED_NS = 500_000
BLOCKED_SHARE_OF_STEP = 0.015
# All waiting together below this share of the window does not tell a pace from chance.
LEAST_SHARE = 0.02
LEAST_BLOCKED = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Supply:
    """Batches of the n steps of a program, on one rank.

    `arrival_ns` is when the first step's batch is there, on the rank's trace clock; `duration_ns`,
    n entries, what workers need for the batches of the steps that follow: the last is that of the
    step after the window. `blocked` is the host's waiting.
    """

    arrival_ns: int
    duration_ns: Int64Array
    blocked: Intervals


def find_supply(rank: Rank, marks_ns: Int64Array, until_ns: int) -> Supply | None:
    """Return the pace of workers where the host waits for them in the window, else None.

    `marks_ns` are the starts of the window's host steps, which end at `until_ns`.
    """
    found = fetches(rank)
    inside = (found.start_ns >= marks_ns[0]) & (found.start_ns < until_ns) & found.workers
    start, end = found.start_ns[inside], found.next_end_ns[inside]
    steps = len(marks_ns)
    if len(start) < steps:
        return None
    step = np.searchsorted(marks_ns, start, side="right") - 1
    ready = min(int((end - start).min()), READY_NS)
    wait = np.maximum(end - start - ready, 0)
    mean_step = (until_ns - int(marks_ns[0])) / steps
    wait[wait < max(BLOCKED_NS, BLOCKED_SHARE_OF_STEP * mean_step)] = 0
    waited = np.bincount(step, weights=wait, minlength=steps).astype(np.float64)
    if np.sum(waited > 0) < LEAST_BLOCKED or waited.sum() < LEAST_SHARE * mean_step * steps:
        return None
    arrivals = _arrivals(marks_ns.astype(np.float64), waited)
    pace = np.diff(arrivals)
    blocked = wait > 0
    return Supply(
        arrival_ns=round(float(arrivals[0])),
        duration_ns=np.rint(np.append(pace, pace.mean())).astype(np.int64),
        blocked=intervals.union((end - wait)[blocked], end[blocked]),
    )


def _arrivals(marks: Float64Array, waited: Float64Array) -> Float64Array:
    """Return when each step's batch is there: known where the host waited, between them in line.

    Elsewhere it was there before the step asked for it, and so it is set no later than that.
    """
    known = np.flatnonzero(waited > 0)
    at = marks + waited
    first, last = int(known[0]), int(known[-1])
    pace = (at[last] - at[first]) / (last - first)
    steps = np.arange(len(marks))
    line = np.interp(steps, known, at[known])
    line = np.where(steps < first, at[first] - (first - steps) * pace, line)
    line = np.where(steps > last, at[last] + (steps - last) * pace, line)
    line = np.where(waited > 0, line, np.minimum(line, marks))
    line[0] = max(line[0], marks[0])
    result: Float64Array = np.maximum.accumulate(line)
    return result


def batch_columns(
    supply: Supply, shift_ns: int, position: int, first_node: int
) -> dict[str, Int64Array]:
    """Return the columns of a rank's batches: the first is there at a time, the rest at a pace.

    Workers run ahead of the step, so that the first mark releases all of them.
    """
    count = len(supply.duration_ns) + 1
    arrival = supply.arrival_ns + shift_ns
    ends = arrival + np.concatenate([[0], np.cumsum(supply.duration_ns)])
    node = np.full(count, first_node, dtype=np.int64)
    node[0] = NONE
    zero = np.zeros(count, dtype=np.int64)
    base = np.concatenate([[0], supply.duration_ns])
    return {
        "rank": np.full(count, position, dtype=np.int64),
        "node": node,
        "fixed": np.where(node == NONE, arrival, 0),
        "stream": np.full(count, -1 - position, dtype=np.int64),
        "class": np.full(count, COPY, dtype=np.int64),
        "base": base,
        "latency": zero,
        "gap": zero,
        "collective": np.full(count, NONE, dtype=np.int64),
        "offset": zero,
        "dep_count": zero,
        "start": ends - base,
        "end": ends,
    }
