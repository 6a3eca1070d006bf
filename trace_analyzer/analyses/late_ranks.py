"""What a late rank was doing while its peers waited for it.

An observation of the recorded run: the profiler makes ranks late too. Whether a rank is to blame
is decided by replay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.cross_rank import CrossRank
from trace_analyzer.analyses.idle import Gaps, idle_parts
from trace_analyzer.analyses.partition import Busy, partition
from trace_analyzer.analyses.steps import DeviceSteps
from trace_analyzer.schema import BoolArray

# One rank last in four of five decided collectives is persistent; otherwise lateness rotates.
PERSISTENT_SHARE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRank:
    """One rank's lateness over the steady steps.

    `last_in` of `decided` collectives it came last in. `late_ns` is the union of the times in
    which others waited for it, a step; `before_ns` divides that: compute, comm, copy, latency,
    other and, of late launches, what the host did. Its values sum to `late_ns`.
    """

    rank: int
    last_in: int
    decided: int
    late_ns: float
    before_ns: Mapping[str, float]

    @property
    def persistent(self) -> bool:
        """Whether this rank is nearly always the late one."""
        return self.last_in >= PERSISTENT_SHARE * max(self.decided, 1)


def late_ranks(
    cross: CrossRank,
    ranks: Mapping[int, tuple[DeviceSteps, BoolArray, Busy, Gaps]],
) -> list[LateRank]:
    """Return the ranks that were decidedly last anywhere, the latest first.

    `ranks` gives the steps of each, the mask of steady ones, busy sets and gaps.
    """
    events, matches = cross.events, cross.matches
    decided = int(np.sum(~cross.undecided))
    result: list[LateRank] = []
    for number, (steps, steady, work, gaps) in ranks.items():
        mine = (events.rank[matches.event] == number) & (
            cross.waits.late_rank[matches.instance] == number
        )
        mine &= ~cross.undecided[matches.instance]
        if not bool(mine.any()):
            continue
        event = matches.event[mine]
        arrival = events.start_ns[event]
        awaited = intervals.union(
            arrival - cross.waits.lateness_ns[matches.instance[mine]], arrival
        )
        count = max(int(steady.sum()), 1)
        inside = intervals.intersect(
            awaited, intervals.union(steps.start_ns[steady], steps.end_ns[steady])
        )
        parts = partition(work, inside.start, inside.end)
        idle = idle_parts(gaps, inside.start, inside.end)
        before = {
            "compute": parts.compute_ns,
            "comm": parts.comm_exposed_ns,
            "copy": parts.copy_exposed_ns,
            "latency": idle.latency_ns,
            "other": idle.other_ns,
            **{f"launch_{name}": values for name, values in idle.launch_by_host.items()},
        }
        result.append(
            LateRank(
                rank=number,
                last_in=len(event),
                decided=decided,
                late_ns=inside.total / count,
                before_ns={name: int(values.sum()) / count for name, values in before.items()},
            )
        )
    return sorted(result, key=lambda item: (-item.late_ns, item.rank))
