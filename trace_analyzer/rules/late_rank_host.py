"""RANK001 late-rank-host.

## What it finds
One rank's host is slower than its peers': it launches the same work later, and the others wait for
it in their collectives.

## Why it costs
A collective moves data only when the last rank has arrived. The step of all ranks is that of the
latest.

## How it is measured
The replay gives the rank the host times that its peers have (their median, launch by launch), on
the step without the profiler's own cost. What all ranks gain is the finding. Waits are never added
up: under a profiler a healthy run shows one rank late in every collective.

## When it is wrong
With two ranks the peer alone says what is usual. A rank that does different work by design (rank 0
that logs, a pipeline stage) is late for a reason.

## What to do
See what the rank's host does in the gaps: another finding of the same rank says it, where there is
one. Otherwise look at the machine: other processes on its cores, its CPU affinity and frequency.

## References
NCCL user guide: collectives complete when every rank has called them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer.analyses.replay.peers import peer_pace
from trace_analyzer.findings import Evidence, Range
from trace_analyzer.rules.context import Context
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit


# After the profiler's costs are taken out, hosts of healthy ranks of one machine still differ by up
# to 18 % (40 recordings of two ranks); with peers' times, that much can be gained by chance.
HOST_NOISE = 0.20


def find(context: Context) -> Answer:
    """Return one cause for each rank whose host makes the others wait."""
    if len(context.ranks) < 2:
        return NotApplicable(reason="one rank was recorded", needs="all ranks of the run")
    if context.replay is None:
        return NotApplicable(reason=f"the replay is withheld: {context.withheld}")
    gains = context.replay.swaps
    late = [(number, item.host_ns) for number, item in gains.items() if item.host_ns > 0]
    if not late:
        return Passed(reason="no rank gains the others anything by its peers' host times")
    number, gain = max(late, key=lambda pair: pair[1])
    hosts = context.replay.host_ns
    usual = float(np.median([time for rank, time in hosts.items() if rank != number]))
    doubt = HOST_NOISE * usual
    if gain < doubt:
        return Passed(
            reason=(
                f"Rank {number}'s host is the slowest, by {gain / 1e6:.1f} ms a step: healthy ranks "
                f"under a profiler differ by up to {doubt / 1e6:.1f} ms here."
            )
        )
    base = context.replay.base
    loader = peer_pace(base, base.ranks.index(number))
    # Ranks that are late in turn are not slower: each waits for the other's bad moments.
    if hosts[number] - usual < doubt and loader > 1.0 - HOST_NOISE:
        return Passed(
            reason=(
                f"Rank {number}'s host takes {hosts[number] / 1e6:.1f} ms a step, its peers' "
                f"{usual / 1e6:.1f} ms: ranks are late in turn, none of them always."
            )
        )
    late_ns = next((item.late_ns for item in context.study.late if item.rank == number), None)

    def edit(change: Edit) -> None:
        change.like_peers(number, host=True)

    return [
        Cause(
            title=f"Rank {number}'s host is slower than its peers', and they wait for it.",
            ranks=(number,),
            ceiling_ns=late_ns or gain,
            edit=edit,
            edit_text=f"rank {number}'s host is as fast as its peers' median",
            proof=(
                f"With its peers' host times on rank {number} alone, all ranks gain "
                f"{gain / 1e6:.1f} ms a step."
            ),
            rival=(
                f"Not its kernels. Its peers' kernel times would give "
                f"{max(gains[number].device_ns, 0.0) / 1e6:.1f} ms."
            ),
            limits=(
                "With two ranks the peer alone says what is usual."
                if len(context.ranks) == 2
                else ""
            ),
            evidence=(
                Evidence(
                    title="What all ranks would gain by one rank's times being its peers'",
                    columns=["rank", "host ms a step", "device ms a step"],
                    rows=[
                        [rank, round(item.host_ns / 1e6, 3), round(item.device_ns / 1e6, 3)]
                        for rank, item in gains.items()
                    ],
                ),
            ),
            ranges=_longest_gaps(context, number),
            actions=(
                (
                    f"See what rank {number}'s host does in the marked gaps (a finding of the same "
                    "rank says so, where there is one)."
                ),
                (
                    f"On its machine, look for other processes on rank {number}'s cores, and "
                    "compare CPU affinity and frequency with a faster rank's."
                ),
            ),
            explains_late=False,
        )
    ]


def _longest_gaps(context: Context, number: int) -> tuple[Range, ...]:
    gaps = context.study.ranks[number].gaps
    steady = context.steady_windows(number)
    inside = context.starts_in(gaps.start_ns, steady)
    rows = np.flatnonzero(inside & (gaps.launch_end_ns > gaps.start_ns))
    return context.ranges(number, gaps.start_ns[rows], gaps.end_ns[rows], "nothing launched")[:6]


RULE = Rule(
    code="RANK001",
    name="late-rank-host",
    kind="fault",
    status="stable",
    needs="the traces of all ranks",
    find=find,
)
