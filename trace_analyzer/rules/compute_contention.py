"""COMM008 compute-contention.

## What it finds
Kernels that run beside NCCL are slowed, and NCCL holds more of the GPU than the links need.

## Why it costs
Every channel of NCCL occupies a multiprocessor for as long as it is resident, also while it only
waits for a peer. Matrix products that were cut for the whole GPU then need a further round. With more
channels than the links can feed, nothing travels faster.

## How it is measured
The same kernel (name, launch shape, place in the step) is compared beside communication and alone;
the ratio of the sums is the slow-down of its class. The channels that the links need are their
bandwidth over what one channel carries. In the replay the slow-down shrinks as it does with that many
channels, and transfers stay as they are.

## When it is wrong
Kernels are slowed by NCCL's traffic in memory as well, which no number of channels changes. How the
slow-down depends on channels was measured on H200. A late rank's peers hold their channels while they
wait; then the late rank is the cause.

## What to do
Try NCCL_MAX_CTAS (NCCL_MAX_NCHANNELS before 2.17) at the number that the links need, and drop
NCCL_MIN_CTAS; measure, because too few channels cost more than they save. Copy-engine and NVLink SHARP
collectives need few multiprocessors.

## References
NCCL user guide, environment variables: NCCL_MIN_CTAS, NCCL_MAX_CTAS, NCCL_CTA_POLICY.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.channels import SIMPLE_BLOCKS
from trace_analyzer.analyses.contention import matrix_names
from trace_analyzer.analyses.nccl_settings import nccl_settings
from trace_analyzer.analyses.references import START_NS, ring_reference
from trace_analyzer.analyses.slow_transfers import CHANNEL_GBS, SLOW
from trace_analyzer.findings import Evidence
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule
from trace_analyzer.rules.transfer_causes import contention, said, transfer_ranges
from trace_analyzer.tables import WorkClass

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.schema import Int64Array

MINIMUMS = ("NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Group:
    """A group's large transfers: the channels that they have and those that its links need."""

    group: int
    channels: int
    needed: int
    busbw_gbs: float
    instance: Int64Array


def find(context: Context) -> Answer:
    """Return one cause for groups that hold more channels than their links need."""
    known = context.study.contention
    alpha = {name: value for name, value in known.alpha.items() if value is not None}
    if not alpha:
        return NotApplicable(
            reason="no kernels were seen both beside communication and alone",
            needs="steps in which the same kernels run with and without communication",
        )
    slower = ", ".join(
        f"{'matrix products' if name == 'matrix' else 'others'} {1 + value:.2f} times as long"
        for name, value in alpha.items()
    )
    groups = _crowded(context)
    if not groups:
        return Passed(reason=f"beside communication {slower}; no group has channels to spare")
    worst = max(groups, key=lambda item: item.channels / item.needed)
    factor = max(
        contention(item.needed)[0] / max(contention(item.channels)[0], 1e-9) for item in groups
    )
    cross = context.study.cross
    assert cross is not None
    ranks = sorted({rank for item in groups for rank in cross.events.groups[item.group].ranks})
    settings = said(nccl_settings(context.study.run, MINIMUMS))

    def edit(change: Edit) -> None:
        change.contention(factor)

    return [
        Cause(
            title=(
                f"NCCL holds {worst.channels} channels on {rank_list(ranks)} where {worst.needed} "
                "would feed the links, and slows the kernels beside it."
            ),
            ranks=tuple(ranks),
            ceiling_ns=_slowed_ns(context, alpha),
            edit=edit,
            edit_text=f"kernels are slowed as by {worst.needed} channels",
            proof=f"Beside communication {slower}. {settings}".strip(),
            rival="Not slow kernels. Alone, the same kernels are faster.",
            limits=(
                "That the slow-down shrinks with the channels was measured on H200; traffic in "
                "memory slows kernels too."
            ),
            evidence=(
                Evidence(
                    title="Kernels beside communication against the same alone",
                    columns=["kind", "times as long", "pairs"],
                    rows=[
                        [name, round(1.0 + value, 3), known.pairs[name]]
                        for name, value in alpha.items()
                    ],
                ),
                Evidence(
                    title="Channels of large transfers",
                    columns=["group", "channels", "needed", "bus GB/s"],
                    rows=[
                        [
                            cross.events.groups[item.group].name,
                            item.channels,
                            item.needed,
                            round(item.busbw_gbs, 1),
                        ]
                        for item in groups
                    ],
                ),
            ),
            ranges=transfer_ranges(context, worst.instance, "NCCL beside computation"),
            actions=(
                f"Try NCCL_MAX_CTAS={worst.needed} on all ranks, and measure the step.",
                "Unset NCCL_MIN_CTAS and NCCL_MIN_NCHANNELS.",
            ),
            confidence="medium",
            confidence_reason="what fewer channels give is estimated",
            explains_late=False,
        )
    ]


def _crowded(context: Context) -> list[_Group]:
    """Return groups whose large ring transfers have more channels than their links need."""
    cross, found = context.study.cross, context.transfers
    if cross is None or found is None:
        return []
    result = []
    for number, group in enumerate(cross.events.groups):
        reference = ring_reference(context.study.run, group)
        if reference is None or group.pair is not None:
            continue
        large = found.bus_bytes >= START_NS * reference.busbw_gbs
        ring = np.isin(found.block, list(SIMPLE_BLOCKS))
        mine = found.take((found.group == number) & found.steady & large & ring)
        if not len(mine):
            continue
        wanted = reference.transfer_ns(mine.bus_bytes)
        # Slow transfers have causes of their own, and their channels wait for data.
        if float(mine.transfer_ns.sum()) >= SLOW * float(wanted.sum()):
            continue
        channels = int(np.median(mine.channels))
        needed = int(np.ceil(reference.busbw_gbs / CHANNEL_GBS))
        if channels > needed:
            result.append(
                _Group(
                    group=number,
                    channels=channels,
                    needed=needed,
                    busbw_gbs=float(np.median(mine.busbw_gbs)),
                    instance=mine.instance,
                )
            )
    return result


def _slowed_ns(context: Context, alpha: dict[str, float]) -> float:
    """Return what kernels take longer beside communication, ns a step of the worst rank."""
    worst = 0.0
    for number, item in context.ranks.items():
        operations = item.rank.operations
        rows = np.flatnonzero((operations.work == WorkClass.COMPUTE) & context.in_steady(number))
        beside = intervals.coverage(
            item.busy.comm, operations.start_ns[rows], operations.end_ns[rows]
        ).astype(np.float64)
        matrix = matrix_names(item.rank)[operations.name[rows]]
        share = np.where(matrix, alpha.get("matrix", 0.0), alpha.get("other", 0.0))
        worst = max(worst, context.per_step_ns(number, float((beside * share / (1 + share)).sum())))
    return worst


RULE = Rule(
    code="COMM008",
    name="compute-contention",
    kind="opportunity",
    status="experimental",
    needs="all ranks of the run with message sizes; a benchmark, an NCCL log, or GPUs with NVLink",
    find=find,
)
