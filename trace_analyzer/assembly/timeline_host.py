"""Host lanes of the timeline: named ranges, and what every launching thread did."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.idle import launching_threads
from trace_analyzer.analyses.study import RankStudy
from trace_analyzer.model import Rank
from trace_analyzer.schema import BoolArray, Int8Array, Int32Array, Int64Array, is_na
from trace_analyzer.tables import CallKind, HostCategory
from trace_analyzer.timeline import LaneKind, SliceKind

# Operators and calls inside the outermost ones: so many levels of them are kept.
MOST_LEVELS = 3
# Marks of whole steps are drawn as steps; "nccl:" ranges repeat the collective.
_HIDDEN_RANGES = re.compile(
    r"^ProfilerStep|^(?:train_?)?(?:step|iter|iteration|batch)\b|^nccl", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnLane:
    """Disjoint slices in order of start, on the rank's own clock and names."""

    kind: LaneKind
    label: str
    start: Int64Array
    end: Int64Array
    name: Int64Array
    slice_kind: Int8Array
    level: int = 0
    bytes: Int64Array | None = None
    transfer_start: Int64Array | None = None
    detail: Int32Array | None = None
    launch_delay: Int64Array | None = None


def range_lanes(item: RankStudy) -> list[DrawnLane]:
    """Named stretches of the program, outermost but for those that enclose whole steps."""
    rank, events = item.rank, item.rank.events
    hidden = [i for i, text in enumerate(rank.names) if _HIDDEN_RANGES.search(text)]
    rows = np.flatnonzero(
        (events.category == HostCategory.ANNOTATION)
        & np.isin(events.thread, launching_threads(rank))
        & ~np.isin(events.name, hidden)
    )
    start, end = events.start_ns[rows], events.end_ns[rows]
    if len(item.steps):
        # Whatever holds a whole step from its start to its end says nothing about the step.
        first = np.searchsorted(item.steps.host_start_ns, start)
        held = np.append(item.steps.host_end_ns, np.iinfo(np.int64).max)[first]
        rows = rows[held > end]
    rows = rows[intervals.outermost(events.start_ns[rows], events.end_ns[rows])]
    if len(rows) == 0:
        return []
    return [
        DrawnLane(
            kind=LaneKind.RANGES,
            label="host · ranges",
            start=events.start_ns[rows],
            end=events.end_ns[rows],
            name=events.name[rows].astype(np.int64),
            slice_kind=np.full(len(rows), SliceKind.RANGE, dtype=np.int8),
        )
    ]


def host_lanes(rank: Rank) -> list[DrawnLane]:
    """Operators and CUDA calls of every launching thread, the outermost and those inside them.

    Level 0 is the union of a thread's work with blocking calls cut out of it.
    """
    lanes: list[DrawnLane] = []
    events, calls = rank.events, rank.calls
    for number, thread in enumerate(_by_work(rank, launching_threads(rank))):
        label = f"host · {_thread_label(rank, thread, number)}"
        operators = (events.thread == thread) & (events.category == HostCategory.OPERATOR)
        mine = calls.thread == thread
        start = np.concatenate([events.start_ns[operators], calls.start_ns[mine]])
        end = np.concatenate([events.end_ns[operators], calls.end_ns[mine]])
        name = np.concatenate([events.name[operators], calls.name[mine]]).astype(np.int64)
        waits = np.concatenate(
            [np.zeros(int(operators.sum()), dtype=np.bool_), calls.kind[mine] == CallKind.SYNC]
        )
        order = np.lexsort((-end, start))
        start, end, name, waits = start[order], end[order], name[order], waits[order]
        free = intervals.outermost(start, end)
        blocked = intervals.outermost(start[waits], end[waits])
        lanes.append(
            _cut(
                (start[free], end[free], name[free]),
                (start[waits][blocked], end[waits][blocked], name[waits][blocked]),
                label,
            )
        )
        for level in range(1, MOST_LEVELS + 1):
            start, end, name, waits = start[~free], end[~free], name[~free], waits[~free]
            if len(start) == 0:
                break
            free = intervals.outermost(start, end)
            kinds = np.where(waits[free], SliceKind.BLOCKED, SliceKind.HOST).astype(np.int8)
            lanes.append(
                DrawnLane(
                    kind=LaneKind.HOST,
                    label=label,
                    start=start[free],
                    end=end[free],
                    name=name[free],
                    slice_kind=kinds,
                    level=level,
                )
            )
    return lanes


def _by_work(rank: Rank, threads: Int64Array) -> list[int]:
    """Return threads by number of calls, the busiest first."""
    counts = {int(t): int((rank.calls.thread == t).sum()) for t in threads}
    return sorted(counts, key=lambda thread: (-counts[thread], thread))


def _thread_label(rank: Rank, thread: int, number: int) -> str:
    name = rank.threads.name[thread]
    if not bool(is_na(rank.threads.name[thread : thread + 1])[0]) and rank.names[int(name)]:
        return rank.names[int(name)]
    return f"thread {number + 1}"


def _cut(
    events: tuple[Int64Array, Int64Array, Int64Array],
    blocked: tuple[Int64Array, Int64Array, Int64Array],
    label: str,
) -> DrawnLane:
    """Return disjoint slices of `events`, with those of `blocked` in their place where both are."""
    start, end, name = events
    b_start, b_end, b_name = blocked
    cuts = np.unique(np.concatenate([start, end, b_start, b_end]))
    left, right = cuts[:-1], cuts[1:]

    def inside(low: Int64Array, high: Int64Array) -> tuple[BoolArray, Int64Array]:
        row = np.searchsorted(low, left, side="right") - 1
        safe = np.maximum(row, 0)
        hit = (row >= 0) & (right <= high[safe]) if len(low) else np.zeros(len(left), np.bool_)
        return np.asarray(hit, dtype=np.bool_), safe

    in_event, event = inside(start, end)
    in_block, block = inside(b_start, b_end)
    kept = in_event | in_block
    names = np.zeros(len(left), dtype=np.int64)
    names[in_event] = name[event[in_event]]
    names[in_block] = b_name[block[in_block]]
    kinds = np.where(in_block, SliceKind.BLOCKED, SliceKind.HOST).astype(np.int8)
    return DrawnLane(
        kind=LaneKind.HOST,
        label=label,
        start=left[kept],
        end=right[kept],
        name=names[kept],
        slice_kind=kinds[kept],
    )
