"""Kernels of two runs, matched by name and shape and, where a library chose others, by position.

A row is a kernel of one launch shape (or a copy). Its time and its launches are means over the ranks
that the runs have in common. Rows that only one run has are `new` or `gone`; where a new one runs in
the same places of the step as one that is gone, it replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.comparison.changes import changes
from trace_analyzer.analyses.comparison.kernel_names import canonical
from trace_analyzer.analyses.comparison.step_values import step_rows
from trace_analyzer.analyses.contention import position_in_step
from trace_analyzer.analyses.kernel_table import LaunchShape, Shape, launch_shape
from trace_analyzer.analyses.study import RankStudy, Study
from trace_analyzer.kernels import category
from trace_analyzer.schema import BoolArray, Float64Array, Int64Array, widened
from trace_analyzer.tables import OperationKind, WorkClass

Kind = Literal[
    "new", "gone", "replaced", "slower", "faster", "more-calls", "fewer-calls", "indistinguishable"
]
# Two starts of the same program differ by up to 2 % in a kernel's time, so a smaller change of its
# mean says nothing even if the steps of one start agree to a tenth of that.
RUN_TO_RUN_SHARE = 0.02
# Rows that change a step by less are not worth a line of their own.
LEAST_STEP_SHARE = 0.0005
_SAME_CALLS = 0.05  # launches a step that come from where a step is cut
_LEAST_CALLS = 0.5  # launches a step: fewer come from where a step is cut
_LEAST_VOTES = 0.5  # of the places of a kernel in a step
_FAR = 1 << 11  # launches after which a place is no longer known
_PLACE_BITS = 24

Key = tuple[str, Shape | None, Shape | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelChange:
    """One row; times in ms a step, None where a run has no such kernel.

    `instead_of` is the kernel that a replacing one stands for. `positions` says in how many of the
    launches of a step the kernel takes longer or shorter by more than runs differ, and of how many;
    None where their number differs. `base_beside` and `other_beside` are the shares of its time in
    which communication runs beside it, which slows it down.
    """

    name: str
    category: str
    grid: Shape | None
    block: Shape | None
    kind: Kind
    base_ms: float | None
    other_ms: float | None
    base_calls: float | None
    other_calls: float | None
    change_ms: float
    interval_ms: tuple[float, float] | None
    instead_of: str = ""
    positions: tuple[int, int] | None = None
    base_beside: float = 0.0
    other_beside: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Launches:
    """Kernels and copies of the compared ranks inside steady steps; arrays have one entry a launch.

    `key` is a position in the common list of keys, `step` a row of steady steps, `place` how many
    launches of the same key came before in the step. Rows are in order of rank, then of start.
    """

    key: Int64Array
    step: Int64Array
    rank: Int64Array
    duration_ns: Int64Array
    place: Int64Array
    beside_ns: Int64Array
    steps: int
    ranks: int


def compare_kernels(
    base: Study, other: Study, ranks: Sequence[int], *, spelt: bool
) -> list[KernelChange]:
    """Return the rows by how much they change a step, those not told from no change last.

    `ranks` are compared in both runs; an empty one compares all with all. `spelt` brings names of
    different recorders to one spelling.
    """
    table: dict[Key, int] = {}
    families: dict[Key, str] = {}
    ours = _launches(_chosen(base, ranks), table, families, spelt=spelt)
    theirs = _launches(_chosen(other, ranks), table, families, spelt=spelt)
    if ours is None or theirs is None:
        return []
    keys = list(table)
    instead = {
        new: gone
        for new, gone in _replacements(ours, theirs, len(keys)).items()
        if families[keys[new]] == families[keys[gone]]
    }
    ours = _renamed(ours, {gone: new for new, gone in instead.items()})
    found = changes(_by_step(ours, len(keys), ms=True), _by_step(theirs, len(keys), ms=True))
    calls = [_by_step(side, len(keys), ms=False).mean(axis=0) for side in (ours, theirs)]
    step_ms = float(np.mean([_mean_step_ms(item) for item in _chosen(base, ranks)]))
    positions = _positions(ours, theirs, len(keys))
    beside = [_beside(side, len(keys)) for side in (ours, theirs)]
    rows = []
    for at in np.flatnonzero(calls[0] + calls[1] > 0).tolist():
        counts = float(calls[0][at]), float(calls[1][at])
        times = float(found.base[at]), float(found.other[at])
        name, grid, block = keys[at]
        bounded = not np.isnan(found.low[at])
        kind = _kind(counts, times, step_ms, apart=bool(found.apart[at]), replaced=at in instead)
        rows.append(
            KernelChange(
                name=name,
                category=families[keys[at]],
                grid=grid,
                block=block,
                kind=kind,
                base_ms=times[0] if counts[0] else None,
                other_ms=times[1] if counts[1] else None,
                base_calls=counts[0] or None,
                other_calls=counts[1] or None,
                change_ms=times[1] - times[0],
                interval_ms=(float(found.low[at]), float(found.high[at])) if bounded else None,
                instead_of=keys[instead[at]][0] if at in instead else "",
                positions=positions.get(at) if kind in {"slower", "faster"} else None,
                base_beside=float(beside[0][at]),
                other_beside=float(beside[1][at]),
            )
        )
    rows.sort(key=lambda row: (row.kind == "indistinguishable", -abs(row.change_ms), row.name))
    return rows


def _chosen(study: Study, ranks: Sequence[int]) -> list[RankStudy]:
    return [
        item
        for number, item in sorted(study.ranks.items())
        if bool(item.steady.any()) and (not ranks or number in ranks)
    ]


def _mean_step_ms(item: RankStudy) -> float:
    return float(item.parts.length_ns[item.steady].mean()) / 1e6


def _launches(
    items: Sequence[RankStudy], table: dict[Key, int], families: dict[Key, str], *, spelt: bool
) -> _Launches | None:
    if not items:
        return None
    steps = min(int(item.steady.sum()) for item in items)
    columns: list[Int64Array] = []
    for position, item in enumerate(items):
        operations = item.rank.operations
        step = step_rows(item, operations.start_ns)
        rows = np.flatnonzero((operations.work != WorkClass.COMM) & (step >= 0) & (step < steps))
        key = _keys(item, rows, table, families, spelt=spelt)
        columns.append(
            np.stack(
                [
                    key,
                    step[rows],
                    np.full(len(rows), position, dtype=np.int64),
                    (operations.end_ns - operations.start_ns)[rows],
                    position_in_step(key, step[rows]),
                    intervals.coverage(
                        item.busy.comm, operations.start_ns[rows], operations.end_ns[rows]
                    ),
                ]
            )
        )
    key, step, rank, duration, place, beside = np.concatenate(columns, axis=1)
    return _Launches(key, step, rank, duration, place, beside, steps, len(items))


def _keys(
    item: RankStudy,
    rows: Int64Array,
    table: dict[Key, int],
    families: dict[Key, str],
    *,
    spelt: bool,
) -> Int64Array:
    """Return the position in `table` of each operation's key, adding what is new."""
    operations, names = item.rank.operations, item.rank.names
    if len(rows) == 0:
        return np.empty(0, dtype=np.int64)
    config = widened(operations.launch_config[rows])
    kind = operations.kind[rows].astype(np.int64)
    codes, inverse = np.unique(
        np.stack([operations.name[rows].astype(np.int64), config, kind]),
        axis=1,
        return_inverse=True,
    )
    found = []
    for name, row, what in codes.T.tolist():
        shape = LaunchShape() if row < 0 else launch_shape(item.rank, row)
        key = (canonical(names[name]) if spelt else names[name], shape.grid, shape.block)
        families.setdefault(key, _family(names[name], what))
        found.append(table.setdefault(key, len(table)))
    return np.array(found, dtype=np.int64)[inverse.reshape(-1)]


def _family(name: str, kind: int) -> str:
    if kind == OperationKind.KERNEL:
        return category(name)
    return "memcpy" if kind == OperationKind.MEMCPY else "memset"


def _by_step(side: _Launches, keys: int, *, ms: bool) -> Float64Array:
    """Return ms or launches by step and key, mean over ranks; shape (steps, keys)."""
    weight = side.duration_ns / 1e6 if ms else np.ones(len(side.key))
    total = np.bincount(side.step * keys + side.key, weights=weight, minlength=side.steps * keys)
    return total.reshape(side.steps, keys) / side.ranks


def _beside(side: _Launches, keys: int) -> Float64Array:
    """Return the share of each key's time in which communication runs beside it."""
    total = np.bincount(side.key, weights=side.duration_ns, minlength=keys)
    beside = np.bincount(side.key, weights=side.beside_ns, minlength=keys)
    return beside / np.maximum(total, 1.0)


def _kind(
    calls: tuple[float, float],
    times_ms: tuple[float, float],
    step_ms: float,
    *,
    apart: bool,
    replaced: bool,
) -> Kind:
    change = times_ms[1] - times_ms[0]
    if replaced:
        return "replaced"
    if min(calls) == 0.0 and max(calls) >= _LEAST_CALLS:
        return "gone" if calls[0] else "new"
    if min(calls) == 0.0 or not apart or abs(change) < LEAST_STEP_SHARE * step_ms:
        return "indistinguishable"
    of_calls = (calls[1] - calls[0]) * times_ms[0] / calls[0]
    more = abs(calls[1] - calls[0]) > _SAME_CALLS * max(calls)
    if more and abs(of_calls) >= abs(change - of_calls):
        return "more-calls" if calls[1] > calls[0] else "fewer-calls"
    if abs(change) < RUN_TO_RUN_SHARE * times_ms[0]:
        return "indistinguishable"
    return "slower" if change > 0 else "faster"


def _replacements(ours: _Launches, theirs: _Launches, keys: int) -> dict[int, int]:
    """Return key of a new kernel → key of the gone one in whose places of the step it runs."""
    have = [np.bincount(side.key, minlength=keys) > 0 for side in (ours, theirs)]
    common = have[0] & have[1]
    mine, others = (_contexts(side, common) for side in (ours, theirs))
    _, left, right = np.intersect1d(mine[0], others[0], assume_unique=True, return_indices=True)
    if len(left) == 0:
        return {}
    pairs, votes = np.unique(
        np.stack([others[1][right], mine[1][left]]), axis=1, return_counts=True
    )
    counts = np.bincount(mine[1], minlength=keys), np.bincount(others[1], minlength=keys)
    found: dict[int, int] = {}
    for at in np.argsort(-votes, kind="stable").tolist():
        new, gone = int(pairs[0][at]), int(pairs[1][at])
        enough = votes[at] >= _LEAST_VOTES * max(counts[0][gone], counts[1][new])
        if enough and new not in found and gone not in found.values():
            found[new] = gone
    return found


def _contexts(side: _Launches, common: BoolArray) -> tuple[Int64Array, Int64Array]:
    """Return (place in the step, key) of the launches of one step whose kernel the other run lacks.

    A place is the last launch of a kernel that both runs have, by key and by how many of that key
    came before, and how many launches ago it was.
    """
    one = np.flatnonzero((side.step == 0) & (side.rank == 0))
    key, place = side.key[one], side.place[one]
    shared = common[key]
    last = np.maximum.accumulate(np.where(shared, np.arange(len(one)), -1))
    ago = np.minimum(np.arange(len(one)) - last, _FAR)
    anchor = np.where(last >= 0, key[last] + 1, 0)
    count = np.where(last >= 0, place[last], 0)
    context = (anchor << 40) + (count << 12) + ago
    kept = np.flatnonzero(~shared & (ago < _FAR))
    return context[kept], key[kept]


def _renamed(side: _Launches, names: Mapping[int, int]) -> _Launches:
    if not names:
        return side
    key = side.key.copy()
    for before, after in names.items():
        key[side.key == before] = after
    return replace(side, key=key)


def _positions(ours: _Launches, theirs: _Launches, keys: int) -> dict[int, tuple[int, int]]:
    """Return key → (places of a step in which its mean time differs, places of a step)."""
    means = [_by_place(side) for side in (ours, theirs)]
    both, left, right = np.intersect1d(
        means[0][0], means[1][0], assume_unique=True, return_indices=True
    )
    before, after = means[0][1][left], means[1][1][right]
    differs = np.abs(after - before) > RUN_TO_RUN_SHARE * before
    key = both >> _PLACE_BITS
    total = np.bincount(key, minlength=keys)
    changed = np.bincount(key[differs], minlength=keys)
    counts = [np.bincount(side[0] >> _PLACE_BITS, minlength=keys) for side in means]
    return {
        at: (int(changed[at]), int(total[at]))
        for at in np.flatnonzero((counts[0] == total) & (counts[1] == total) & (total > 0)).tolist()
    }


def _by_place(side: _Launches) -> tuple[Int64Array, Float64Array]:
    """Return key and place as one code, and the mean time in each, ns."""
    code, inverse = np.unique((side.key << _PLACE_BITS) + side.place, return_inverse=True)
    total = np.bincount(inverse, weights=side.duration_ns, minlength=len(code))
    return code, total / np.bincount(inverse, minlength=len(code))
