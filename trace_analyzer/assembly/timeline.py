"""The lanes of the timeline, from the tables of the ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.cross_rank import RankWaits
from trace_analyzer.analyses.idle import is_enclosing, launching_threads
from trace_analyzer.analyses.study import RankStudy, Study
from trace_analyzer.assembly.ranks import gpu_label
from trace_analyzer.assembly.redact import kernel_aliases
from trace_analyzer.kernels import category
from trace_analyzer.model import Rank
from trace_analyzer.names import NameTable
from trace_analyzer.schema import NA_INT64, BoolArray, Int8Array, Int64Array, is_na
from trace_analyzer.tables import CallKind, HostCategory, WorkClass
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Lane:
    """Disjoint slices in order of start, on the rank's own clock and names."""

    kind: LaneKind
    label: str
    start: Int64Array
    end: Int64Array
    name: Int64Array
    slice_kind: Int8Array
    bytes: Int64Array | None = None
    transfer_start: Int64Array | None = None


def build_timeline(study: Study, *, redact: bool = False) -> Timeline:
    """Return the timeline of all ranks with GPU operations, on one clock."""
    if not study.ranks:
        return Timeline.empty()
    names = NameTable()
    shift = _shifts(study)
    ranks = tuple(
        _rank_timeline(
            item,
            None if study.cross is None else study.cross.ranks[number],
            shift[number],
            names,
            redact=redact,
        )
        for number, item in study.ranks.items()
    )
    return Timeline(
        names=tuple(names.texts),
        ranks=ranks,
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


def _rank_timeline(
    item: RankStudy, split: RankWaits | None, shift: int, names: NameTable, *, redact: bool
) -> RankTimeline:
    rank = item.rank
    aliases = _aliases(rank) if redact else {}
    lanes = [*_range_lanes(item), *_host_lanes(rank), *_stream_lanes(rank, split)]
    return RankTimeline(
        rank=rank.rank,
        lanes=tuple(_drawn(lane, rank, shift, names, aliases) for lane in lanes),
        steps=tuple(
            StepSpan(
                index=int(item.steps.index[k]),
                start_ns=int(item.steps.start_ns[k]) + shift,
                end_ns=int(item.steps.end_ns[k]) + shift,
            )
            for k in range(len(item.steps))
        ),
        window_start_ns=item.steps.window_start_ns + shift,
        gpu=gpu_label(rank) or "",
    )


def _aliases(rank: Rank) -> dict[str, str]:
    used = np.unique(rank.operations.name).tolist()
    return kernel_aliases([(rank.names[n], category(rank.names[n])) for n in used])


def _drawn(lane: _Lane, rank: Rank, shift: int, names: NameTable, aliases: dict[str, str]) -> Lane:
    """Move a lane to the timeline's clock and names."""
    used, inverse = np.unique(lane.name, return_inverse=True)
    texts = [rank.names[position] for position in used.tolist()]
    codes = np.array([names.intern(aliases.get(text, text)) for text in texts], dtype=np.int32)
    columns = {} if lane.bytes is None else {"bytes": lane.bytes}
    if lane.transfer_start is not None:
        moved = np.maximum(lane.transfer_start, lane.start) + shift
        columns["transfer_start_ns"] = np.where(is_na(lane.transfer_start), NA_INT64, moved)
    return Lane(
        kind=lane.kind,
        label=lane.label,
        slices=Slices.from_columns(
            len(lane.start),
            start_ns=lane.start + shift,
            end_ns=lane.end + shift,
            kind=lane.slice_kind,
            name=codes[inverse.reshape(-1)] if len(codes) else np.empty(0, dtype=np.int32),
            **columns,
        ),
    )


def _range_lanes(item: RankStudy) -> list[_Lane]:
    """Named stretches of the program, outermost but for those that enclose whole steps."""
    rank, events = item.rank, item.rank.events
    # Operators and profiler marks are drawn elsewhere; "nccl:" ranges repeat the collective.
    hidden = [
        i for i, text in enumerate(rank.names) if is_enclosing(text) or text.startswith("nccl")
    ]
    rows = np.flatnonzero(
        (events.category == HostCategory.ANNOTATION)
        & np.isin(events.thread, launching_threads(rank))
        & ~np.isin(events.name, hidden)
    )
    rows = rows[intervals.outermost(events.start_ns[rows], events.end_ns[rows])]
    if len(rows) == 0:
        return []
    return [
        _Lane(
            kind=LaneKind.RANGES,
            label="host · ranges",
            start=events.start_ns[rows],
            end=events.end_ns[rows],
            name=events.name[rows].astype(np.int64),
            slice_kind=np.full(len(rows), SliceKind.RANGE, dtype=np.int8),
        )
    ]


def _host_lanes(rank: Rank) -> list[_Lane]:
    """One lane a launching thread: operators and CUDA calls, with blocking calls cut out of them."""
    lanes: list[_Lane] = []
    events, calls = rank.events, rank.calls
    for number, thread in enumerate(_by_work(rank, launching_threads(rank))):
        operators = (events.thread == thread) & (events.category == HostCategory.OPERATOR)
        mine = calls.thread == thread
        start = np.concatenate([events.start_ns[operators], calls.start_ns[mine]])
        end = np.concatenate([events.end_ns[operators], calls.end_ns[mine]])
        name = np.concatenate([events.name[operators], calls.name[mine]]).astype(np.int64)
        order = np.lexsort((-end, start))
        start, end, name = start[order], end[order], name[order]
        free = intervals.outermost(start, end)
        blocked = mine & (calls.kind == CallKind.SYNC)
        lanes.append(
            _cut(
                (start[free], end[free], name[free]),
                (calls.start_ns[blocked], calls.end_ns[blocked], calls.name[blocked]),
                f"host · {_thread_label(rank, thread, number)}",
            )
        )
    return lanes


def _by_work(rank: Rank, threads: Int64Array) -> list[int]:
    """Return threads by number of calls, the busiest first."""
    counts = {int(t): int((rank.calls.thread == t).sum()) for t in threads}
    return sorted(counts, key=lambda thread: (-counts[thread], thread))


def _thread_label(rank: Rank, thread: int, number: int) -> str:
    name = rank.threads.name[thread]
    if not bool(is_na(rank.threads.name[thread : thread + 1])[0]) and rank.names[int(name)]:
        return rank.names[int(name)]
    return f"thread {number + 1}"


def _cut(
    events: tuple[Int64Array, Int64Array, Int64Array],
    blocked: tuple[Int64Array, Int64Array, Int64Array],
    label: str,
) -> _Lane:
    """Return disjoint slices of `events`, with those of `blocked` in their place where both are."""
    start, end, name = events
    free = intervals.outermost(blocked[0], blocked[1])
    b_start, b_end, b_name = (part[free] for part in blocked)
    cuts = np.unique(np.concatenate([start, end, b_start, b_end]))
    left, right = cuts[:-1], cuts[1:]

    def inside(low: Int64Array, high: Int64Array) -> tuple[BoolArray, Int64Array]:
        row = np.searchsorted(low, left, side="right") - 1
        safe = np.maximum(row, 0)
        hit = (row >= 0) & (right <= high[safe]) if len(low) else np.zeros(len(left), np.bool_)
        return np.asarray(hit, dtype=np.bool_), safe

    in_event, event = inside(start, end)
    in_block, block = inside(b_start, b_end)
    kept = in_event | in_block
    names = np.zeros(len(left), dtype=np.int64)
    names[in_event] = name[event[in_event]]
    names[in_block] = b_name[block[in_block]]
    kinds = np.where(in_block, SliceKind.BLOCKED, SliceKind.HOST).astype(np.int8)
    return _Lane(
        kind=LaneKind.HOST,
        label=label,
        start=left[kept],
        end=right[kept],
        name=names[kept],
        slice_kind=kinds[kept],
    )


def _stream_lanes(rank: Rank, split: RankWaits | None) -> list[_Lane]:
    """One lane a GPU stream, in order of device and stream, communication streams last."""
    operations = rank.operations
    key = np.stack([operations.device.astype(np.int64), operations.stream])
    distinct, inverse = np.unique(key, axis=1, return_inverse=True)
    inverse = inverse.reshape(-1)
    several = len(np.unique(distinct[0])) > 1
    lanes: list[_Lane] = []
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
            _Lane(
                kind=LaneKind.COMM if comm else LaneKind.STREAM,
                label=f"{'NCCL' if comm else 'GPU'}{f' {device}' if several else ''} · {where}",
                start=begin,
                end=operations.end_ns[rows],
                name=operations.name[rows].astype(np.int64),
                slice_kind=_WORK_KINDS[operations.work[rows]],
                bytes=_bytes(rank, rows),
                transfer_start=None if split is None else split.transfer_start_ns[rows],
            )
        )
    return sorted(lanes, key=lambda lane: lane.kind == LaneKind.COMM)


def _bytes(rank: Rank, rows: Int64Array) -> Int64Array:
    """Return the size of copies and of collectives, NA elsewhere."""
    size = rank.operations.bytes[rows].copy()
    collective = rank.operations.collective[rows]
    known = ~is_na(collective)
    size[known] = rank.collectives.message_bytes[collective[known]]
    return size
