"""Which ranks of many are drawn with all their lanes, and which share one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trace_analyzer.reports import units
from trace_analyzer.reports.names import cut_middle
from trace_analyzer.timeline import Lane, LaneKind, RankTimeline

ONE_BY_ONE = 8  # ranks that get a lane of their own though they are not opened
_ALL_OPEN = 4
_GROUP = 8  # ranks of a group where hosts are not known
_MOST_GROUPS = 32
_HOST_NAME = 10  # characters
# Lanes of a rank that are drawn: static/timeline_rows.js opens the same ones first.
_MOST_LANES = {LaneKind.RANGES: 1, LaneKind.HOST: 4, LaneKind.STREAM: 6, LaneKind.COMM: 4}


@dataclass(frozen=True, slots=True)
class Plan:
    """Which ranks are drawn with all their lanes, which share a lane, and which are not drawn."""

    opened: tuple[int, ...]
    folded: tuple[tuple[str, tuple[int, ...]], ...]
    left_out: int


def plan_ranks(ranks: Sequence[RankTimeline], chosen: Sequence[int]) -> Plan:
    """Choose the ranks to open: all up to four, else `chosen` (blamed, median, fastest).

    Up to eight others get a lane each; more share one with the other ranks of their host.
    """
    numbers = [rank.rank for rank in ranks]
    if len(numbers) <= _ALL_OPEN:
        return Plan(tuple(numbers), (), 0)
    opened = tuple(rank for rank in numbers if rank in set(chosen[:_ALL_OPEN])) or tuple(
        numbers[:1]
    )
    others = [rank for rank in ranks if rank.rank not in opened]
    if len(others) <= ONE_BY_ONE:
        folded = [(f"Rank {rank.rank}", (rank.rank,)) for rank in others]
        return Plan(opened, tuple(folded), 0)
    groups: dict[str, list[int]] = {}
    hosts = {rank.host for rank in others}
    by_host = "" not in hosts and len(hosts) > 1
    for position, rank in enumerate(others):
        key = rank.host if by_host else str(position // _GROUP)
        groups.setdefault(key, []).append(rank.rank)
    named = [
        (group_name(group, key if by_host else ""), tuple(group)) for key, group in groups.items()
    ]
    members = [group for _, group in named]
    drawn = named[:_MOST_GROUPS]
    left_out = sum(len(group) for group in members[_MOST_GROUPS:])
    return Plan(opened, tuple(drawn), left_out)


def group_name(ranks: Sequence[int], host: str = "") -> str:
    """Return what a group is called: "Ranks 8–15", with their host "node1 · 8–15"."""
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    numbers = units.ranges(ranks)
    return f"{cut_middle(host, _HOST_NAME)} · {numbers}" if host else f"Ranks {numbers}"


def busiest_lanes(rank: RankTimeline) -> tuple[Lane, ...]:
    """Return the lanes to draw, in their order: of many threads or streams those that do most."""

    def work(lane: Lane) -> int:
        return int((lane.slices.end_ns - lane.slices.start_ns).sum())

    kept: set[int] = set()
    for kind, most in _MOST_LANES.items():
        of_kind = [at for at, lane in enumerate(rank.outer_lanes) if lane.kind == kind]
        kept.update(sorted(of_kind, key=lambda at: -work(rank.outer_lanes[at]))[:most])
    return tuple(lane for at, lane in enumerate(rank.outer_lanes) if at in kept)
