"""What our own recorder left in a recording: who each process is, and where training ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from trace_analyzer.capture_marks import CALIBRATION_MARK, read_rank_mark
from trace_analyzer.names import NameTable
from trace_analyzer.readers.nsys_events import CallRows, GpuRows
from trace_analyzer.readers.nsys_ranges import EventRows
from trace_analyzer.readers.nsys_sync import SyncRows
from trace_analyzer.schema import NA_INT64, BoolArray, Int64Array

Rows = TypeVar("Rows", GpuRows, CallRows, EventRows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """By process key: (rank, world size), and when the recorder's own benchmark begins (ns)."""

    ranks: Mapping[int, tuple[int, int]]
    calibration_ns: Mapping[int, int]


def read_marks(events: EventRows, names: NameTable) -> Marks:
    """Find the marks. A process with two different ranks has none."""
    told: dict[int, set[tuple[int, int]]] = {}
    calibration: dict[int, int] = {}
    for position, text in enumerate(names.texts):
        rank = read_rank_mark(text)
        if rank is None and text != CALIBRATION_MARK:
            continue
        rows = np.flatnonzero((events.name == position) & (events.start == events.end))
        for process, start in zip(
            events.process[rows].tolist(), events.start[rows].tolist(), strict=True
        ):
            if rank is None:
                calibration[process] = min(start, calibration.get(process, start))
            else:
                told.setdefault(process, set()).add(rank)
    return Marks(
        ranks={process: ranks.pop() for process, ranks in told.items() if len(ranks) == 1},
        calibration_ns=calibration,
    )


def without_calibration(
    operations: GpuRows, calls: CallRows, events: EventRows, syncs: SyncRows, marks: Marks
) -> tuple[GpuRows, CallRows, EventRows, SyncRows, dict[int, int]]:
    """Leave out the recorder's own benchmark; also return the rows left out of each process.

    It begins when the device has nothing left to do, so a row belongs to it by its start. A row
    whose process the file does not tell belongs to it from the first benchmark on. Event records
    have no time of their own and go with the calls that made them.
    """
    left_out = dict.fromkeys(marks.calibration_ns, 0)
    if not left_out:
        return operations, calls, events, syncs, left_out

    def training(process: Int64Array, start: Int64Array) -> BoolArray:
        after = np.zeros(len(start), dtype=np.bool_)
        for key, begin_ns in marks.calibration_ns.items():
            mine = (process == key) & (start >= begin_ns)
            left_out[key] += int(np.count_nonzero(mine))
            after |= mine
        after |= (process == NA_INT64) & (start >= min(marks.calibration_ns.values()))
        return ~after

    kept = training(syncs.syncs["process"], syncs.syncs["start"])
    return (
        _kept(operations, training(operations.process, operations.start)),
        _kept(calls, training(calls.process, calls.start)),
        _kept(events, training(events.process, events.start)),
        SyncRows(
            syncs={name: values[kept] for name, values in syncs.syncs.items()},
            records=syncs.records,
        ),
        left_out,
    )


def _kept(rows: Rows, keep: BoolArray) -> Rows:
    columns: dict[str, Any] = {
        field.name: value[keep]
        for field in fields(rows)
        if isinstance(value := getattr(rows, field.name), np.ndarray)
    }
    return replace(rows, **columns)
