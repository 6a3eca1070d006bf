"""GPU004 slow-device.

## What it finds
A GPU that runs the same kernels slower than its peers do, or slower than itself at other times: a
low clock, another process on the GPU, or kernels of another stream that take multiprocessors.

## Why it costs
Every kernel on the GPU takes longer, and in a run of several ranks all wait for it.

## How it is measured
Kernels are compared one by one with those of the peers, where none has communication beside it, and
with the same kernels of other steps. Steps in which one rank has larger launches are left out: what
it computes more does not show in every launch. All of them slower by mathematics and not by memory:
a clock. Few of them many times slower: somebody else's work in between. Computing kernels on other
streams beside them: the process itself. A rank counts from 8 % on against its peers (as much as
GPUs of one model differ), from 15 % on against itself. The replay gives the kernels the durations
of the peers, or those that they have undisturbed.

## When it is wrong
Without a peer, a GPU that is always slow looks healthy. What the clock was, and whose the other work
is, the trace does not say; samples of clocks and processes beside the run do, where they were taken.

## What to do
Look at clocks, power, temperature and throttle reasons under load, and at processes on the GPU.

## References
NVIDIA: nvidia-smi, clocks event reasons. Sinha et al., Not All GPUs Are Created Equal, SC 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer.analyses.gpu_state import GpuState, gpu_states
from trace_analyzer.analyses.kernel_pace import (
    USUAL_SPREAD,
    Pace,
    against_itself,
    against_peers,
    beside_own,
)
from trace_analyzer.analyses.unequal_work import works
from trace_analyzer.findings import Evidence, Range
from trace_analyzer.rules.context import Context
from trace_analyzer.rules.late_rank_device import pace_table
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.analyses.unequal_work import Work
    from trace_analyzer.schema import Float64Array

# Against itself a healthy GPU's kernels took up to 6 % longer than undisturbed, under its power
# limit (measured); twice that is no chance.
LEAST_AGAINST_ITSELF = 0.15
# From this share of kernels with another stream's beside them, and twice the peers' share, on.
LEAST_BESIDE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A slow rank: its pace, what `undisturbed` durations its kernels have (None: the peers')."""

    number: int
    pace: Pace
    beside: float
    undisturbed: Float64Array | None


def find(context: Context) -> Answer:
    """Return one cause for each rank whose GPU is slow."""
    work = works(context.ranks)
    beside = {
        number: len(beside_own(item, work[number])) / max(len(work[number].row), 1)
        for number, item in context.ranks.items()
    }
    slow: list[_Seen] = []
    paces: dict[int, Pace] = {}
    most = 0.0
    compared = against_peers(context.ranks, work)
    for number, item in context.ranks.items():
        peers = compared.get(number)
        own, undisturbed = against_itself(item, work[number])
        if peers is not None:
            paces[number] = peers
        elif own is not None:
            paces[number] = own
        most = max([most, *(pace.overall - 1.0 for pace in (peers, own) if pace is not None)])
        if peers is not None and peers.overall >= 1.0 + USUAL_SPREAD:
            slow.append(_Seen(number=number, pace=peers, beside=beside[number], undisturbed=None))
        elif own is not None and own.overall >= 1.0 + LEAST_AGAINST_ITSELF:
            paces[number] = own
            slow.append(
                _Seen(number=number, pace=own, beside=beside[number], undisturbed=undisturbed)
            )
    if not paces:
        return NotApplicable(
            reason="too few kernels can be compared with those of other ranks or steps",
            needs="several ranks or at least three alike steps",
        )
    if not slow:
        return Passed(
            reason=(
                f"kernels take at most {100 * most:.1f} % longer than those of other ranks and steps"
            )
        )
    return [_cause(context, item, work[item.number], paces, beside) for item in slow]


def _cause(
    context: Context,
    seen: _Seen,
    own: Work,
    paces: dict[int, Pace],
    beside: dict[int, float],
) -> Cause:
    number, pace = seen.number, seen.pace
    more = f"{100 * (pace.overall - 1):.0f} %"
    others = [share for rank, share in beside.items() if rank != number]
    crowded = seen.beside >= LEAST_BESIDE and seen.beside >= 2 * max(others, default=0.0)
    whom = "on its peers' GPUs" if seen.undisturbed is None else "in other steps"
    actions: tuple[str, ...]
    if crowded:
        title = (
            f"Rank {number}'s kernels take {more} longer than {whom}, because kernels of another "
            "stream of the same process run beside them."
        )
        rival = "Not another process. The trace shows what runs beside these kernels."
        actions = (
            "Move the work of the other stream out of the step, or give it fewer blocks.",
            "Launch it where the GPU is idle, or on all ranks alike.",
        )
    elif pace.irregular:
        title = (
            f"Some kernels on rank {number}'s GPU take up to {pace.highest:.1f} times as long as "
            f"{whom}: something else uses the GPU."
        )
        rival = f"Not a low clock. The median kernel takes {pace.middle:.2f} times as long."
        actions = _look_for_others(number)
    else:
        title = f"Rank {number}'s GPU takes {more} longer for the same kernels than {whom}."
        if pace.clock:
            title = title[:-1] + ", in mathematics and hardly in memory traffic: its clock is low."
        rival = "Not other work in between. Nearly all kernels are slower alike."
        actions = (*_look_at_clocks(number), *_look_for_others(number))
    states = gpu_states(context.study.run)
    steps = context.steady_count(number)
    length = _lengths(context, number, own)
    lost = float(length.sum()) * (1.0 - 1.0 / pace.overall) / steps
    return Cause(
        title=title,
        ranks=(number,),
        ceiling_ns=lost,
        edit=_edit(seen, own, length),
        edit_text=(
            f"rank {number}'s kernels are as fast as its peers' median"
            if seen.undisturbed is None
            else f"rank {number}'s kernels take as long as undisturbed ones"
        ),
        proof=(
            f"{pace.kernels} kernels were compared one by one: {pace.overall:.2f} times the time in "
            f"all, the median {pace.middle:.2f} times, one in a hundred {pace.highest:.1f} times."
            + (f" The GPU ran {states[number].in_words}." if number in states else "")
        ),
        rival=rival,
        limits=(
            ""
            if number in states
            else "The trace shows no clocks and no other processes; "
            "`trace-analyzer collect` samples both beside the run."
        ),
        evidence=(pace_table(paces), *([_states_table(states)] if states else [])),
        ranges=_slowest(context, seen, own, length),
        actions=actions,
        explains_late=True,
    )


def _states_table(states: dict[int, GpuState]) -> Evidence:
    def shown(value: float | None) -> float | None:
        return None if value is None else round(value, 1)

    return Evidence(
        title="The GPUs during the recording, by samples beside it",
        columns=["rank", "GPU", "clock MHz", "power W", "temperature °C", "held down by", "others"],
        rows=[
            [
                rank,
                item.gpu,
                shown(item.clock_mhz),
                shown(item.power_w),
                shown(item.temperature_c),
                ", ".join(name for name, _ in item.limits) or None,
                item.foreign_processes,
            ]
            for rank, item in states.items()
        ],
    )


def _look_at_clocks(number: int) -> tuple[str, ...]:
    return (
        (
            f"On rank {number}'s host, under load: "
            "`nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE`; compare clocks and throttle "
            "reasons with another GPU's."
        ),
    )


def _look_for_others(number: int) -> tuple[str, ...]:
    return (f"Look for other processes on rank {number}'s GPU: `nvidia-smi pmon -c 5`.",)


def _edit(seen: _Seen, own: Work, length: Float64Array) -> Callable[[Edit], None]:
    def edit(change: Edit) -> None:
        if seen.undisturbed is None:
            change.like_peers(seen.number, device=True)
        else:
            change.scale_duration(seen.number, own.row, seen.undisturbed / length)

    return edit


def _lengths(context: Context, number: int, own: Work) -> Float64Array:
    operations = context.study.ranks[number].rank.operations
    length: Float64Array = np.maximum((operations.end_ns - operations.start_ns)[own.row], 1).astype(
        np.float64
    )
    return length


def _slowest(context: Context, seen: _Seen, own: Work, length: Float64Array) -> tuple[Range, ...]:
    """Return the kernels that lost most, where it is known which; else none."""
    if seen.undisturbed is None:
        return ()
    operations = context.study.ranks[seen.number].rank.operations
    rows = own.row[np.argsort(-(length - seen.undisturbed))[:6]]
    return context.ranges(
        seen.number, operations.start_ns[rows], operations.end_ns[rows], "slow kernel"
    )


RULE = Rule(
    code="GPU004",
    name="slow-device",
    kind="fault",
    status="stable",
    needs="several ranks, or at least three alike steps",
    find=find,
)
