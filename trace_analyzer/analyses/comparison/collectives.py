"""Collectives of two runs, matched by operation, type and, where both runs know it, size.

Times are means over the compared ranks, a step: what moves data, what waits for peers, and what no
compute hides. Where ranks could not be matched, a collective's whole duration counts as moving.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.comparison.changes import Changes, changes
from trace_analyzer.analyses.comparison.step_values import step_rows
from trace_analyzer.analyses.nccl_table import CollectiveKey
from trace_analyzer.analyses.study import RankStudy, Study
from trace_analyzer.nccl_names import type_label
from trace_analyzer.schema import Float64Array, Int64Array, is_na

# A change of less than this share of the step is no reason to look at a collective.
LEAST_STEP_SHARE = 0.002
# Two starts of the same program differ by this much in the time of a transfer.
RUN_TO_RUN_SHARE = 0.03
_NS_PER_MS = 1e6
VALUES = ("transfer", "wait", "exposed")

Key = tuple[str, str | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueChange:
    """One time of a row, ms a step; `apart` where it is told from no change and worth a look."""

    base_ms: float
    other_ms: float
    change_ms: float
    interval_ms: tuple[float, float] | None
    apart: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveChange:
    """One row; calls are a step and rank, None where the run has no such collective.

    Channels are those of the most frequent launch shape.
    """

    operation: str
    dtype: str | None
    bytes: int | None
    base_calls: float | None
    other_calls: float | None
    base_channels: int | None
    other_channels: int | None
    transfer: ValueChange
    wait: ValueChange
    exposed: ValueChange


@dataclass(slots=True)
class _Row:
    values: Float64Array  # (steps, three values), ms
    calls: float = 0.0
    channels: int | None = None
    most: int = 0


def compare_collectives(
    base: Study, other: Study, ranks: Sequence[int], step_ms: float
) -> list[CollectiveChange]:
    """Return the rows, by the largest change of any of their times."""
    unsized = _unsized(base) | _unsized(other)
    ours, theirs = _rows(base, ranks, unsized), _rows(other, ranks, unsized)
    if not ours and not theirs:
        return []
    keys = list(dict.fromkeys([*ours, *theirs]))
    steps = [_steps(study, ranks) for study in (base, other)]
    if not all(steps):
        return []
    found = changes(
        *(_matrix(rows, keys, count) for rows, count in zip((ours, theirs), steps, strict=True))
    )
    result = []
    for at, key in enumerate(keys):
        mine, others = ours.get(key), theirs.get(key)
        values = [_value(found, 3 * at + place, step_ms) for place in range(len(VALUES))]
        result.append(
            CollectiveChange(
                operation=key[0],
                dtype=key[1],
                bytes=key[2],
                base_calls=None if mine is None else mine.calls,
                other_calls=None if others is None else others.calls,
                base_channels=None if mine is None else mine.channels,
                other_channels=None if others is None else others.channels,
                transfer=values[0],
                wait=values[1],
                exposed=values[2],
            )
        )
    return sorted(result, key=_weight)


def _weight(row: CollectiveChange) -> tuple[bool, float, str, int]:
    values = (row.transfer, row.wait, row.exposed)
    most = max(abs(value.change_ms) for value in values)
    return (not any(value.apart for value in values), -most, row.operation, row.bytes or 0)


def _matrix(rows: dict[Key, _Row], keys: Sequence[Key], steps: int) -> Float64Array:
    nothing = np.zeros((steps, len(VALUES)))
    return np.concatenate([rows[key].values if key in rows else nothing for key in keys], axis=1)


def _value(found: Changes, at: int, step_ms: float) -> ValueChange:
    base, change = float(found.base[at]), float(found.change[at])
    bounded = not bool(np.isnan(found.low[at]))
    least = max(RUN_TO_RUN_SHARE * base, LEAST_STEP_SHARE * step_ms)
    return ValueChange(
        base_ms=base,
        other_ms=float(found.other[at]),
        change_ms=change,
        interval_ms=(float(found.low[at]), float(found.high[at])) if bounded else None,
        apart=bool(found.apart[at]) and abs(change) >= least,
    )


def _items(study: Study, ranks: Sequence[int]) -> list[RankStudy]:
    return [
        item
        for number, item in sorted(study.ranks.items())
        if bool(item.steady.any()) and (not ranks or number in ranks)
    ]


def _steps(study: Study, ranks: Sequence[int]) -> int:
    return min((int(item.steady.sum()) for item in _items(study, ranks)), default=0)


def _unsized(study: Study) -> set[tuple[str, str | None]]:
    """Return operations and types of which a run does not know the size: they are joined in both."""
    return {
        (row.key.operation, type_label(row.key.dtype))
        for row in study.collectives
        if row.key.message_bytes is None and any(row.steady_count.values())
    }


def _rows(
    study: Study, ranks: Sequence[int], unsized: set[tuple[str, str | None]]
) -> dict[Key, _Row]:
    items, steps = _items(study, ranks), _steps(study, ranks)
    found: dict[Key, _Row] = {}
    for collective in study.collectives:
        for item in items:
            rows = collective.rows.get(item.rank.rank)
            if rows is None:
                continue
            step = step_rows(item, item.rank.operations.start_ns[rows])
            inside = (step >= 0) & (step < steps)
            if not bool(inside.any()):
                continue
            row = found.setdefault(
                _key(collective.key, unsized), _Row(np.zeros((steps, len(VALUES))))
            )
            values = _values(study, item, rows[inside])
            np.add.at(row.values, step[inside], values / len(items) / _NS_PER_MS)
            count = int(inside.sum())
            row.calls += count / len(items) / steps
            grid = collective.key.shape.grid
            if grid is not None and count > row.most:
                row.channels, row.most = grid[0], count
    return found


def _key(key: CollectiveKey, unsized: set[tuple[str, str | None]]) -> Key:
    dtype = type_label(key.dtype)
    return (key.operation, dtype, None if (key.operation, dtype) in unsized else key.message_bytes)


def _values(study: Study, item: RankStudy, rows: Int64Array) -> Int64Array:
    """Return ns of moving, waiting and exposed time of operations, shape (operations, 3)."""
    operations = item.rank.operations
    start, end = operations.start_ns[rows], operations.end_ns[rows]
    change = start
    if study.cross is not None:
        known = study.cross.ranks[item.rank.rank].transfer_start_ns[rows]
        change = np.where(is_na(known), start, known)
    exposed = (end - start) - intervals.coverage(item.busy.compute, start, end)
    return np.stack([end - change, change - start, exposed], axis=1)
