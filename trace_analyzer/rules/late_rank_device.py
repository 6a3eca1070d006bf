"""RANK002 late-rank-device.

## What it finds
One rank's GPU needs longer for the same kernels than its peers' GPUs do, and the others wait for it.

## Why it costs
A collective moves data only when the last rank has arrived. The step of all ranks is that of the
slowest GPU.

## How it is measured
The kernels of ranks are compared one by one, where none has communication beside it. A rank counts
whose kernels take at least 8 % longer in all: GPUs of one model differ by about as much. The replay
gives the rank its peers' durations; what all ranks gain is the finding.

## When it is wrong
With two ranks the peer alone says what is usual. A rank with more or larger kernels has other work,
not a slower GPU; that is another rule's.

## What to do
Look at the GPU: clocks, temperature, power limit, other processes. Another finding of the same rank
says which it is, where the trace shows it.

## References
Sinha et al., Not All GPUs Are Created Equal, SC 2022.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trace_analyzer.analyses.kernel_pace import USUAL_SPREAD, Pace, against_peers
from trace_analyzer.analyses.unequal_work import works
from trace_analyzer.findings import Evidence
from trace_analyzer.rules.context import Context
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit


def find(context: Context) -> Answer:
    """Return one cause for the rank whose kernels make the others wait longest."""
    if len(context.ranks) < 2:
        return NotApplicable(reason="one rank was recorded", needs="all ranks of the run")
    if context.replay is None:
        return NotApplicable(reason=f"the replay is withheld: {context.withheld}")
    paces = against_peers(context.ranks, works(context.ranks))
    if not paces:
        return NotApplicable(
            reason="no kernels can be compared: ranks launch others, or compute more in every step",
            needs="ranks that launch the same kernels, some of them without communication beside",
        )
    slow = {number: pace for number, pace in paces.items() if pace.overall >= 1.0 + USUAL_SPREAD}
    if not slow:
        most = max(paces, key=lambda number: paces[number].overall)
        return Passed(
            reason=(
                f"rank {most}'s kernels take {100 * (paces[most].overall - 1):.1f} % longer than "
                f"its peers'; GPUs of one model differ by up to {100 * USUAL_SPREAD:.0f} %"
            )
        )
    gains = context.replay.swaps
    number = max(slow, key=lambda rank: gains[rank].device_ns if rank in gains else 0.0)
    pace = slow[number]
    late_ns = next((item.late_ns for item in context.study.late if item.rank == number), None)
    host_ns = max(gains[number].host_ns, 0.0) if number in gains else 0.0

    def edit(change: Edit) -> None:
        change.like_peers(number, device=True)

    return [
        Cause(
            title=(
                f"Rank {number}'s GPU takes {100 * (pace.overall - 1):.0f} % longer for the same "
                "kernels than its peers', and they wait for it."
            ),
            ranks=(number,),
            ceiling_ns=late_ns,
            edit=edit,
            edit_text=f"rank {number}'s kernels are as fast as its peers' median",
            proof=(
                f"{pace.kernels} kernels without communication beside them were compared one by one: "
                f"{pace.overall:.2f} times the time of its peers in all."
            ),
            rival=f"Not its host. Its peers' host times would give {host_ns / 1e6:.1f} ms.",
            limits=(
                "With two ranks the peer alone says what is usual."
                if len(context.ranks) == 2
                else ""
            ),
            evidence=(pace_table(paces),),
            actions=(
                (
                    f"Compare rank {number}'s GPU with another under load: "
                    "`nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE`."
                ),
                f"Look for other processes on it: `nvidia-smi pmon -c 5` on rank {number}'s host.",
            ),
            explains_late=False,
        )
    ]


def pace_table(paces: dict[int, Pace]) -> Evidence:
    """Return how long kernels take on each rank, as shares of the reference."""
    return Evidence(
        title="Duration of the same kernels, as a multiple of what the peers take",
        columns=["rank", "all", "matrix products", "others", "median kernel", "99th percentile"],
        rows=[
            [
                rank,
                round(pace.overall, 3),
                None if pace.matrix is None else round(pace.matrix, 3),
                None if pace.other is None else round(pace.other, 3),
                round(pace.middle, 3),
                round(pace.highest, 3),
            ]
            for rank, pace in paces.items()
        ],
    )


RULE = Rule(
    code="RANK002",
    name="late-rank-device",
    kind="fault",
    status="stable",
    needs="the traces of all ranks",
    find=find,
)
