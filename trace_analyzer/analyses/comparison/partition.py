"""Where the step of one run is longer than that of the other: its parts, rank by rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.comparison.changes import changes
from trace_analyzer.analyses.comparison.step_values import part_names, part_values
from trace_analyzer.analyses.study import RankStudy, Study

# What two starts of the same program differ by in any part of a step.
RUN_TO_RUN_STEP_SHARE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class PartChange:
    """One part of a step, ms, mean over steady steps; `apart` where it is told from no change."""

    part: str
    base_ms: float
    other_ms: float
    change_ms: float
    interval_ms: tuple[float, float] | None
    apart: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RankChange:
    """The parts of one rank, which sum to its mean step, and the step itself."""

    base_rank: int
    other_rank: int
    step: PartChange
    parts: tuple[PartChange, ...]


def compare_partitions(base: Study, other: Study, pairs: list[tuple[int, int]]) -> list[RankChange]:
    """Return the changes of pairs of ranks (rank of the base, rank of the other)."""
    names = list(dict.fromkeys([*part_names(base), *part_names(other)]))
    return [
        _compare(base, base.ranks[one], other, other.ranks[two], names)
        for one, two in pairs
        if bool(base.ranks[one].steady.any()) and bool(other.ranks[two].steady.any())
    ]


def _compare(
    base: Study, ours: RankStudy, other: Study, theirs: RankStudy, names: list[str]
) -> RankChange:
    values = [part_values(base, ours, names), part_values(other, theirs, names)]
    whole = [np.concatenate([side.sum(axis=1, keepdims=True), side], axis=1) for side in values]
    found = changes(whole[0], whole[1])
    least = RUN_TO_RUN_STEP_SHARE * float(found.base[0])
    rows = []
    for at, name in enumerate(["step", *names]):
        change = float(found.change[at])
        bounded = not bool(np.isnan(found.low[at]))
        rows.append(
            PartChange(
                part=name,
                base_ms=float(found.base[at]),
                other_ms=float(found.other[at]),
                change_ms=change,
                interval_ms=(float(found.low[at]), float(found.high[at])) if bounded else None,
                apart=bool(found.apart[at]) and abs(change) >= least,
            )
        )
    return RankChange(
        base_rank=ours.rank.rank,
        other_rank=theirs.rank.rank,
        step=rows[0],
        parts=tuple(row for row in rows[1:] if row.base_ms or row.other_ms),
    )
