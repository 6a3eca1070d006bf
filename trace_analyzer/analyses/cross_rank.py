"""What ranks tell about each other: matched collectives, waits, lateness, clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.clock import ClockFit, fit_clocks
from trace_analyzer.analyses.comm_events import CommEvents, comm_events
from trace_analyzer.analyses.matching import Matches, match
from trace_analyzer.analyses.partition import Busy, partition
from trace_analyzer.analyses.steps import DeviceSteps
from trace_analyzer.analyses.waits import Waits, undecided, waits
from trace_analyzer.intervals import Intervals
from trace_analyzer.model import Rank
from trace_analyzer.nccl_facts import FlightRecording
from trace_analyzer.schema import NA_INT64, BoolArray, Int64Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankWaits:
    """Communication of one rank, divided.

    The sums have one entry a step and count a collective in the step that launched it. The
    exposed parts are lengths of interval sets inside the step; they sum to its exposed comm.
    """

    transfer_ns: Int64Array
    wait_ns: Int64Array
    exposed_transfer_ns: Int64Array
    exposed_wait_ns: Int64Array
    exposed_unsplit_ns: Int64Array
    transfer_start_ns: Int64Array  # per GPU operation: end - transfer, NA where not matched
    matched: int
    unmatched: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrossRank:
    """Everything that needs more than one rank.

    `residual_ns` is that of the worst clock. `lateness_ns[rank]` maps a step number to the rank's
    arrival at the step's first matched collective after the first rank's.
    """

    events: CommEvents
    matches: Matches
    waits: Waits
    clocks: Mapping[int, ClockFit]
    residual_ns: int
    ranks: Mapping[int, RankWaits]
    late_counts: Mapping[int, int]  # collectives in which a rank was decidedly last
    undecided: BoolArray  # per instance
    lateness_ns: Mapping[int, Mapping[int, int]]


def cross_rank(
    ranks: Mapping[int, Rank],
    steps: Mapping[int, DeviceSteps],
    work: Mapping[int, Busy],
    flight: Sequence[FlightRecording] = (),
) -> CrossRank | None:
    """Return what the ranks tell about each other; None with fewer than two that communicate."""
    if len(ranks) < 2:
        return None
    events = comm_events(ranks, steps, flight)
    if len(np.unique(events.rank)) < 2:
        return None
    bases = {number: rank.clock_base_ns for number, rank in ranks.items()}
    matches = match(events, bases)
    split = waits(events, matches)
    clocks = fit_clocks(
        events,
        matches,
        {number: base for number, base in bases.items() if base is not None},
        {number: rank.clock_name or rank.path for number, rank in ranks.items()},
    )
    residual = max((fit.residual_ns for fit in clocks.values()), default=0)
    no_order = undecided(split, residual)
    late = split.late_rank[~no_order]
    return CrossRank(
        events=events,
        matches=matches,
        waits=split,
        clocks=clocks,
        residual_ns=residual,
        ranks={
            number: _rank_waits(rank, steps[number], work[number], events, matches, split)
            for number, rank in ranks.items()
        },
        late_counts={number: int(np.sum(late == number)) for number in ranks},
        undecided=no_order,
        lateness_ns=_lateness(events, matches, split),
    )


def _rank_waits(
    rank: Rank,
    steps: DeviceSteps,
    work: Busy,
    events: CommEvents,
    matches: Matches,
    split: Waits,
) -> RankWaits:
    mine = events.rank[matches.event] == rank.rank
    event = matches.event[mine]
    end = events.end_ns[event]
    wait = split.wait_ns[mine]
    start = events.start_ns[event]
    change = np.minimum(start + wait, end)
    row = events.row[event]
    step = steps.operation_step[row]
    inside = (step >= 0) & (step < len(steps))

    def summed(values: Int64Array) -> Int64Array:
        total = np.zeros(len(steps), dtype=np.int64)
        np.add.at(total, step[inside], values[inside])
        return total

    moving = intervals.union(change, end)
    waiting = intervals.union(start, end)
    exposed = partition(work, steps.start_ns, steps.end_ns).comm_exposed_ns
    exposed_transfer = _measure(intervals.subtract(moving, work.compute), steps)
    exposed_wait = _measure(
        intervals.subtract(waiting, intervals.merge(work.compute, moving)), steps
    )
    transfer_start = np.full(len(rank.operations), NA_INT64, dtype=np.int64)
    transfer_start[row] = change
    total = int(np.sum(events.rank == rank.rank))
    return RankWaits(
        transfer_ns=summed(end - change),
        wait_ns=summed(change - start),
        exposed_transfer_ns=exposed_transfer,
        exposed_wait_ns=exposed_wait,
        exposed_unsplit_ns=exposed - exposed_transfer - exposed_wait,
        transfer_start_ns=transfer_start,
        matched=len(event),
        unmatched=total - len(event),
    )


def _measure(what: Intervals, steps: DeviceSteps) -> Int64Array:
    return intervals.coverage(what, steps.start_ns, steps.end_ns)


def _lateness(events: CommEvents, matches: Matches, split: Waits) -> dict[int, dict[int, int]]:
    """Return arrivals at the first matched collective of every step, ns after the first rank.

    Taken from durations, which need no common clock: who waited less came later.
    """
    step = events.step[matches.event]
    begin = matches.first[:-1]
    of_instance = step[begin] if len(begin) else step[:0]
    # Instances are numbered by first start, so the first one of each step is the earliest; only
    # collectives of the largest group compare all ranks.
    size = np.diff(matches.first)
    chosen: dict[int, int] = {}
    for instance in np.flatnonzero(of_instance != NA_INT64).tolist():
        number = int(of_instance[instance])
        if number not in chosen or size[instance] > size[chosen[number]]:
            chosen[number] = instance
    result: dict[int, dict[int, int]] = {}
    for number, instance in sorted(chosen.items()):
        part = slice(int(matches.first[instance]), int(matches.first[instance + 1]))
        wait = split.wait_ns[part]
        for rank, lateness in zip(
            events.rank[matches.event[part]].tolist(), (wait.max() - wait).tolist(), strict=True
        ):
            result.setdefault(int(rank), {})[number] = int(lateness)
    return result
