"""What the rules about slow transfers have in common: the fix in the replay, evidence, ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer.analyses.references import ring_reference
from trace_analyzer.analyses.slow_transfers import Reason, SlowGroup, slow_groups
from trace_analyzer.findings import Evidence, Range
from trace_analyzer.rules.context import Context
from trace_analyzer.rules.rule import NotApplicable
from trace_analyzer.schema import BoolArray, Int64Array

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit

# How much longer kernels take beside NCCL, as a share, by its channels; measured on H200 with one
# channel and 24 over NVLink, and with four through host memory.
CHANNELS = (1, 4, 24)
MATRIX_CONTENTION = (0.03, 0.21, 0.60)
OTHER_CONTENTION = (0.02, 0.12, 0.10)


def slow_by(context: Context, reason: Reason) -> list[SlowGroup] | NotApplicable:
    """Return the groups that are slow for one reason, or why that cannot be told."""
    cross, found = context.study.cross, context.transfers
    if cross is None or found is None:
        return NotApplicable(
            reason="no collective was recorded on two ranks or more", needs="all ranks of the run"
        )
    run, groups = context.study.run, cross.events.groups
    used = np.unique(found.group).tolist()
    if all(ring_reference(run, groups[number]) is None for number in used):
        return NotApplicable(
            reason="what the links of this machine can carry is not known",
            needs="a benchmark (`trace-analyzer bench allreduce`), an NCCL log, or GPUs with NVLink",
        )
    return [item for item in slow_groups(run, cross.events, found) if item.reason == reason]


def at_reference(
    context: Context, groups: Sequence[SlowGroup], *, more_channels: bool
) -> Callable[[Edit], None]:
    """Return the edit: transfers take what the reference gives, and kernels make room for them.

    With `more_channels`, kernels beside the transfers are slowed as by many channels instead of
    by those that the slow transfers have.
    """
    few = int(np.median([item.channels or 1 for item in groups]))
    known = context.study.contention.alpha
    held = (
        0.0 if known["matrix"] is not None else contention(few)[0],
        0.0 if known["other"] is not None else contention(few)[1],
    )

    def edit(change: Edit) -> None:
        for item in groups:
            change.transfer(item.transfers.instance, item.wanted_ns)
        if more_channels:
            change.crowd(held, contention(CHANNELS[-1]))

    return edit


def contention(channels: int) -> tuple[float, float]:
    """Return by how much NCCL slows matrix kernels and others beside it, as shares.

    Beyond what was measured, with the multiprocessors that the channels hold.
    """
    more = max(channels / CHANNELS[-1], 1.0)
    return (
        more * float(np.interp(channels, CHANNELS, MATRIX_CONTENTION)),
        more * float(np.interp(channels, CHANNELS, OTHER_CONTENTION)),
    )


def ceiling_ns(context: Context, groups: Sequence[SlowGroup]) -> float:
    """Return how much of the transfers is both exposed and beyond the reference, ns a step."""
    total = 0.0
    for item in groups:
        steady = item.transfers.steady
        beyond = item.transfers.transfer_ns - item.wanted_ns
        total += float(np.minimum(beyond, item.transfers.exposed_ns)[steady].sum())
    return total / max(len(context.study.steady.used), 1)


def evidence_of(context: Context, groups: Sequence[SlowGroup]) -> Evidence:
    """Return the table of slow transfers: one row a group."""
    cross = context.study.cross
    assert cross is not None
    steps = max(len(context.study.steady.used), 1)
    rows: list[list[str | float | int | None]] = []
    for item in groups:
        slow = item.transfers.take(item.slow)
        rows.append(
            [
                cross.events.groups[item.group].name,
                round(len(slow) / steps, 1),
                round(float(slow.transfer_ns.sum()) / steps / 1e6, 3),
                round(float(item.wanted_ns[item.slow].sum()) / steps / 1e6, 3),
                None if item.busbw_gbs is None else round(item.busbw_gbs, 1),
                round(item.reference.busbw_gbs, 1),
                item.channels,
                item.block,
            ]
        )
    return Evidence(
        title="Large transfers against what the links allow",
        columns=[
            "group",
            "transfers a step",
            "ms a step",
            "ms a step at the reference",
            "bus GB/s",
            "reference GB/s",
            "channels",
            "threads a channel",
        ],
        rows=rows,
    )


def members(context: Context, groups: Sequence[SlowGroup]) -> tuple[int, ...]:
    """Return the ranks of some groups."""
    cross = context.study.cross
    assert cross is not None
    return tuple(
        sorted({rank for item in groups for rank in cross.events.groups[item.group].ranks})
    )


def instances_of(context: Context, number: int) -> Int64Array:
    """Return the matched instance of each GPU operation of a rank, -1 where there is none."""
    cross = context.study.cross
    assert cross is not None
    result = np.full(len(context.study.ranks[number].rank.operations), -1, dtype=np.int64)
    mine = cross.events.rank[cross.matches.event] == number
    result[cross.events.row[cross.matches.event[mine]]] = cross.matches.instance[mine]
    return result


def transfer_ranges(
    context: Context, instances: Int64Array, label: str, most: int = 6
) -> tuple[Range, ...]:
    """Return when some matched collectives moved data, on the first of their ranks."""
    cross = context.study.cross
    if cross is None or not len(instances):
        return ()
    first = cross.matches.first[instances]
    event = cross.matches.event[first]
    rank = int(cross.events.rank[event[0]])
    mine: BoolArray = cross.events.rank[event] == rank
    end = cross.events.end_ns[event][mine]
    return context.ranges(rank, end - cross.waits.transfer_ns[instances][mine], end, label)[:most]


def basis_of(groups: Sequence[SlowGroup]) -> str:
    """Return the sentence that says where the reference comes from."""
    reference = groups[0].reference
    text = f"The reference is {reference.busbw_gbs:.0f} GB/s: {reference.basis}."
    if any(item.busbw_gbs is None for item in groups):
        text += " Message sizes were not recorded; they are estimated from time and channels."
    return text


def set_text(groups: Sequence[SlowGroup], names: Sequence[str]) -> str:
    """Return "NCCL_PROTO=LL is set." for the variables that are, "" for none."""
    return said(
        {name: item.settings[name] for item in groups for name in names if name in item.settings}
    )


def said(settings: Mapping[str, str]) -> str:
    """Return "NAME=value is set." for some variables, "" for none."""
    if not settings:
        return ""
    listed = ", ".join(f"{name}={value}" for name, value in sorted(settings.items()))
    return f"{listed} {'is' if len(settings) == 1 else 'are'} set."
