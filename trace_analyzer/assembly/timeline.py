"""The lanes of the timeline, from the tables of the ranks."""

from __future__ import annotations

import numpy as np

from trace_analyzer.analyses.cross_rank import RankWaits
from trace_analyzer.analyses.study import RankStudy, Study
from trace_analyzer.assembly.ranks import gpu_label
from trace_analyzer.assembly.redact import host_aliases, kernel_aliases
from trace_analyzer.assembly.timeline_details import (
    DetailTable,
    launch_delays_ns,
    message_bytes,
    operation_details,
)
from trace_analyzer.assembly.timeline_host import DrawnLane, host_lanes, range_lanes
from trace_analyzer.kernels import category
from trace_analyzer.model import Rank
from trace_analyzer.names import NameTable
from trace_analyzer.schema import NA_INT64, AnyArray, is_na
from trace_analyzer.tables import WorkClass
from trace_analyzer.timeline import (
    Lane,
    LaneKind,
    RankTimeline,
    SliceKind,
    Slices,
    StepSpan,
    Timeline,
)

_WORK_KINDS = np.array(
    [
        {
            WorkClass.COMPUTE: SliceKind.COMPUTE,
            WorkClass.COMM: SliceKind.COMM,
            WorkClass.COPY: SliceKind.COPY,
        }[work]
        for work in WorkClass
    ],
    dtype=np.int8,
)


def build_timeline(study: Study, *, redact: bool = False) -> Timeline:
    """Return the timeline of all ranks with GPU operations, on one clock."""
    if not study.ranks:
        return Timeline.empty()
    names, details = NameTable(), DetailTable()
    shift = _shifts(study)
    hosts = host_aliases(rank.host for rank in study.run.ranks) if redact else {}
    ranks = []
    for number, item in study.ranks.items():
        rank = item.rank
        aliases = _aliases(rank) if redact else {}
        split = None if study.cross is None else study.cross.ranks[number]
        lanes = [*range_lanes(item), *host_lanes(rank), *_stream_lanes(rank, split, details)]
        ranks.append(
            RankTimeline(
                rank=number,
                lanes=tuple(_drawn(lane, rank, shift[number], names, aliases) for lane in lanes),
                steps=_step_spans(item, shift[number]),
                window_start_ns=item.steps.window_start_ns + shift[number],
                gpu=gpu_label(rank) or "",
                host=hosts.get(rank.host or "", rank.host or ""),
            )
        )
    return Timeline(
        names=tuple(names.texts),
        ranks=tuple(ranks),
        details=tuple(details.items),
        shown_step=_median_step(study),
        clock_residual_ns=None if study.cross is None else study.cross.residual_ns,
    )


def _shifts(study: Study) -> dict[int, int]:
    """Return what to add to each rank's times, so that the earliest window starts at zero.

    By the clock bases where every rank has one; else the windows' starts are put together.
    """
    starts = {number: item.steps.window_start_ns for number, item in study.ranks.items()}
    bases = {
        number: item.rank.clock_base_ns
        for number, item in study.ranks.items()
        if item.rank.clock_base_ns is not None
    }
    if len(bases) < len(starts):
        return {number: -start for number, start in starts.items()}
    first = min(starts[number] + base for number, base in bases.items())
    return {number: base - first for number, base in bases.items()}


def _median_step(study: Study) -> int | None:
    """Return the steady step of the slowest rank whose length is nearest to the median."""
    best: tuple[float, int] | None = None
    for item in study.ranks.values():
        length = item.steps.length_ns[item.steady].astype(np.float64)
        if len(length) == 0:
            continue
        middle = float(np.median(length))
        if best is None or middle > best[0]:
            number = item.steps.index[item.steady][int(np.argmin(np.abs(length - middle)))]
            best = (middle, int(number))
    return None if best is None else best[1]


def _step_spans(item: RankStudy, shift: int) -> tuple[StepSpan, ...]:
    return tuple(
        StepSpan(
            index=int(item.steps.index[k]),
            start_ns=int(item.steps.start_ns[k]) + shift,
            end_ns=int(item.steps.end_ns[k]) + shift,
        )
        for k in range(len(item.steps))
    )


def _aliases(rank: Rank) -> dict[str, str]:
    used = np.unique(rank.operations.name).tolist()
    return kernel_aliases([(rank.names[n], category(rank.names[n])) for n in used])


def _drawn(
    lane: DrawnLane, rank: Rank, shift: int, names: NameTable, aliases: dict[str, str]
) -> Lane:
    """Move a lane to the timeline's clock and names."""
    used, inverse = np.unique(lane.name, return_inverse=True)
    texts = [rank.names[position] for position in used.tolist()]
    codes = np.array([names.intern(aliases.get(text, text)) for text in texts], dtype=np.int32)
    given = {
        "bytes": lane.bytes,
        "detail": lane.detail,
        "launch_delay_ns": lane.launch_delay,
    }
    columns: dict[str, AnyArray] = {
        name: values for name, values in given.items() if values is not None
    }
    if lane.transfer_start is not None:
        moved = np.maximum(lane.transfer_start, lane.start) + shift
        columns["transfer_start_ns"] = np.where(is_na(lane.transfer_start), NA_INT64, moved)
    return Lane(
        kind=lane.kind,
        label=lane.label,
        level=lane.level,
        slices=Slices.from_columns(
            len(lane.start),
            start_ns=lane.start + shift,
            end_ns=lane.end + shift,
            kind=lane.slice_kind,
            name=codes[inverse.reshape(-1)] if len(codes) else np.empty(0, dtype=np.int32),
            **columns,
        ),
    )


def _stream_lanes(rank: Rank, split: RankWaits | None, details: DetailTable) -> list[DrawnLane]:
    """One lane a GPU stream, in order of device and stream, communication streams last."""
    operations = rank.operations
    key = np.stack([operations.device.astype(np.int64), operations.stream])
    distinct, inverse = np.unique(key, axis=1, return_inverse=True)
    inverse = inverse.reshape(-1)
    several = len(np.unique(distinct[0])) > 1
    detail = operation_details(rank, details)
    lanes: list[DrawnLane] = []
    for item in range(distinct.shape[1]):
        rows = np.flatnonzero(inverse == item)
        # Kernels of one stream overlap by a little under programmatic launch: the later one yields.
        reach = np.maximum.accumulate(operations.end_ns[rows])
        begin = np.maximum(operations.start_ns[rows], np.concatenate([[NA_INT64], reach[:-1]]))
        lasting = reach > begin
        rows, begin = rows[lasting], begin[lasting]
        comm = bool(len(rows)) and bool(np.all(operations.work[rows] == WorkClass.COMM))
        device, stream = (int(value) for value in distinct[:, item])
        where = "unknown stream" if stream == NA_INT64 else f"stream {stream}"
        lanes.append(
            DrawnLane(
                kind=LaneKind.COMM if comm else LaneKind.STREAM,
                label=f"{'NCCL' if comm else 'GPU'}{f' {device}' if several else ''} · {where}",
                start=begin,
                end=operations.end_ns[rows],
                name=operations.name[rows].astype(np.int64),
                slice_kind=_WORK_KINDS[operations.work[rows]],
                bytes=message_bytes(rank, rows),
                detail=detail[rows],
                launch_delay=launch_delays_ns(rank, rows),
                transfer_start=None if split is None else split.transfer_start_ns[rows],
            )
        )
    return sorted(lanes, key=lambda lane: lane.kind == LaneKind.COMM)
