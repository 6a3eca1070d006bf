"""Rows of the NCCL table whose sizes differ within 1 % as one row.

DDP cuts gradients into buckets of nearly, not exactly, the same size; a row a byte count would
hide that they are one kind of call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trace_analyzer.analyses.nccl_table import CollectiveKey, CollectiveRow

_JOINED_UP_TO = 1.01  # times the smallest size of a row


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeClass:
    """A row, and the smallest and largest size in it; None where it holds one size, or none."""

    row: CollectiveRow
    bytes_range: tuple[int, int] | None = None


def size_classes(rows: Iterable[CollectiveRow]) -> list[SizeClass]:
    """Return the rows by total duration, those of nearly equal sizes joined.

    The size of a joined row is the mean over its launches, so that size times count stays the
    volume.
    """
    alike: dict[CollectiveKey, list[CollectiveRow]] = {}
    for row in rows:
        alike.setdefault(replace(row.key, message_bytes=None), []).append(row)
    found = [_joined(members) for group in alike.values() for members in _clusters(group)]
    return sorted(found, key=_order)


def _order(item: SizeClass) -> tuple[int, str, str, int]:
    key = item.row.key
    total = int(item.row.all_durations_ns.sum())
    return (-total, key.operation, key.kernel, key.message_bytes or 0)


def _clusters(rows: Sequence[CollectiveRow]) -> Iterator[list[CollectiveRow]]:
    """Yield rows that belong together: each at most 1 % larger than the first."""
    unsized = [row for row in rows if row.key.message_bytes is None]
    yield from ([row] for row in unsized)
    members: list[CollectiveRow] = []
    for size, row in sorted(
        ((row.key.message_bytes, row) for row in rows if row.key.message_bytes is not None),
        key=lambda item: item[0],
    ):
        if members and size > _JOINED_UP_TO * (members[0].key.message_bytes or 0):
            yield members
            members = []
        members.append(row)
    if members:
        yield members


def _joined(rows: Sequence[CollectiveRow]) -> SizeClass:
    if len(rows) == 1:
        return SizeClass(row=rows[0])
    sizes = [row.key.message_bytes or 0 for row in rows]
    counts = [len(row.all_durations_ns) for row in rows]
    mean = sum(s * n for s, n in zip(sizes, counts, strict=True)) / sum(counts)
    whole = CollectiveRow(key=replace(rows[0].key, message_bytes=round(mean)))
    for rank in dict.fromkeys(number for row in rows for number in row.rows):
        having = [row for row in rows if rank in row.rows]
        positions = np.concatenate([row.rows[rank] for row in having])
        order = np.argsort(positions)
        whole.rows[rank] = positions[order]
        whole.duration_ns[rank] = np.concatenate([row.duration_ns[rank] for row in having])[order]
        whole.exposed_ns[rank] = sum(row.exposed_ns[rank] for row in having)
        whole.steady_count[rank] = sum(row.steady_count[rank] for row in having)
    return SizeClass(row=whole, bytes_range=(min(sizes), max(sizes)))
