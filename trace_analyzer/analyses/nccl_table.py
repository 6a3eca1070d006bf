"""Communication kernels by operation, group, type, size and launch shape, over all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.kernel_table import LaunchShape, in_steady_steps, launch_shape
from trace_analyzer.analyses.partition import Busy
from trace_analyzer.analyses.steps import DeviceSteps
from trace_analyzer.model import ProcessGroup, Rank, Run
from trace_analyzer.nccl_names import operation_of, type_of
from trace_analyzer.schema import NA_INT64, AnyArray, BoolArray, Int64Array, is_na, widened
from trace_analyzer.tables import WorkClass


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveKey:
    """What makes two communication kernels the same kind of work; None where unknown."""

    operation: str
    group: ProcessGroup | None
    dtype: str | None
    message_bytes: int | None
    shape: LaunchShape
    kernel: str
    calls: int


@dataclass(slots=True, kw_only=True)
class CollectiveRow:
    """All launches of one key.

    `duration_ns` maps a rank to the durations of its launches, in order of start; `exposed_ns`
    and `steady_count` count the steady steps only. `rows` are the positions in the rank's
    operations, so that other analyses can refer back.
    """

    key: CollectiveKey
    duration_ns: dict[int, Int64Array] = field(default_factory=dict)
    rows: dict[int, Int64Array] = field(default_factory=dict)
    exposed_ns: dict[int, int] = field(default_factory=dict)
    steady_count: dict[int, int] = field(default_factory=dict)

    @property
    def all_durations_ns(self) -> Int64Array:
        """Durations of all ranks."""
        return np.concatenate(list(self.duration_ns.values()))


def nccl_table(
    run: Run,
    work: Mapping[int, Busy],
    steps: Mapping[int, DeviceSteps],
    mask: Mapping[int, BoolArray],
) -> list[CollectiveRow]:
    """Return the rows of all ranks, by total duration, then name."""
    rows: dict[CollectiveKey, CollectiveRow] = {}
    for rank in run.ranks:
        if rank.rank in steps:
            _add_rank(rows, rank, work[rank.rank], steps[rank.rank], mask[rank.rank])
    return sorted(
        rows.values(),
        key=lambda row: (
            -int(row.all_durations_ns.sum()),
            row.key.operation,
            row.key.kernel,
            row.key.message_bytes or 0,
        ),
    )


def _codes(rank: Rank, chosen: Int64Array) -> Int64Array:
    """Return one column of codes a property, shape (properties, operations)."""
    operations, table = rank.operations, rank.collectives
    collective = operations.collective[chosen]
    known = ~is_na(collective)
    safe = np.where(known, collective, 0)

    def of(values: AnyArray) -> Int64Array:
        if len(table) == 0:
            return np.full(len(chosen), NA_INT64, dtype=np.int64)
        return np.where(known, widened(values)[safe], NA_INT64)

    return np.stack(
        [
            operations.name[chosen].astype(np.int64),
            widened(operations.launch_config[chosen]),
            of(table.operation),
            of(table.group),
            of(table.dtype),
            of(table.message_bytes),
            of(table.calls),
        ]
    )


def _add_rank(
    rows: dict[CollectiveKey, CollectiveRow],
    rank: Rank,
    work: Busy,
    steps: DeviceSteps,
    mask: BoolArray,
) -> None:
    operations = rank.operations
    chosen = np.flatnonzero(operations.work == WorkClass.COMM)
    if len(chosen) == 0:
        return
    codes = _codes(rank, chosen)
    distinct, inverse = np.unique(codes, axis=1, return_inverse=True)
    inverse = inverse.reshape(-1)
    start, end = operations.start_ns[chosen], operations.end_ns[chosen]
    exposed = (end - start) - intervals.coverage(work.compute, start, end)
    steady = in_steady_steps(start, steps, mask)
    for item in range(distinct.shape[1]):
        key = _key(rank, distinct[:, item])
        row = rows.setdefault(key, CollectiveRow(key=key))
        here = np.flatnonzero(inverse == item)
        # Two codes can name one key: equal text at two positions, or NA spelt twice.
        row.rows[rank.rank] = _append(row.rows.get(rank.rank), chosen[here])
        row.duration_ns[rank.rank] = _append(row.duration_ns.get(rank.rank), (end - start)[here])
        counted = here[steady[here]]
        row.exposed_ns[rank.rank] = row.exposed_ns.get(rank.rank, 0) + int(exposed[counted].sum())
        row.steady_count[rank.rank] = row.steady_count.get(rank.rank, 0) + len(counted)


def _append(have: Int64Array | None, more: Int64Array) -> Int64Array:
    return more if have is None else np.concatenate([have, more])


def _key(rank: Rank, codes: Int64Array) -> CollectiveKey:
    missing = is_na(codes)
    kernel = rank.names[int(codes[0])]

    def text(position: int) -> str | None:
        return None if bool(missing[position]) else rank.names[int(codes[position])]

    return CollectiveKey(
        operation=text(2) or operation_of(kernel) or "unknown",
        group=None if bool(missing[3]) else rank.groups[int(codes[3])],
        dtype=text(4) or type_of(kernel),
        message_bytes=None if bool(missing[5]) else int(codes[5]),
        shape=LaunchShape() if bool(missing[1]) else launch_shape(rank, int(codes[1])),
        kernel=kernel,
        calls=1 if bool(missing[6]) else int(codes[6]),
    )
