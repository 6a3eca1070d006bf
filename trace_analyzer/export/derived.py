"""What was computed of one rank, as tracks: steps, partition, findings, matched collectives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.cross_rank import CrossRank
from trace_analyzer.analyses.partition import Busy
from trace_analyzer.analyses.study import RankStudy
from trace_analyzer.export.finding_ranges import ranges_of
from trace_analyzer.export.lanes import Lanes, divide
from trace_analyzer.export.text_rows import Block, Numbers, Slices, Words, alike, heads, quoted
from trace_analyzer.export.tracks import Tracks
from trace_analyzer.findings import Finding, Range
from trace_analyzer.intervals import Intervals
from trace_analyzer.rank_facts import ANALYSIS_CATEGORY
from trace_analyzer.schema import NA_INT64, AnyArray, Int32Array, Int64Array, is_na


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DerivedTrack:
    """Slices that need one or more tracks. `code` holds positions in `names`.

    `lanes` is given where it is known which slices belong on one track.
    """

    label: str
    names: Sequence[str]
    code: AnyArray
    start_ns: Int64Array
    end_ns: Int64Array
    arguments: tuple[Words | Numbers, ...] = ()
    lanes: Lanes | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LaidTrack:
    """A track with the places of its lanes, and the lane of every slice."""

    track: DerivedTrack
    places: list[str]
    lane: Int32Array


def derive(
    item: RankStudy, cross: CrossRank | None, findings: Sequence[Finding]
) -> Iterator[DerivedTrack]:
    """Yield the tracks of a rank, on the rank's own clock; those without slices are left out."""
    yield from _filled(_steps(item), _partition(item), _findings(item, findings))
    if cross is not None:
        yield from _filled(_collectives(item, cross))


def _filled(*tracks: DerivedTrack) -> Iterator[DerivedTrack]:
    return (track for track in tracks if len(track.start_ns))


def lay_out(found: Iterable[DerivedTrack], pid: int, tracks: Tracks) -> list[LaidTrack]:
    """Give derived tracks their places in the process of their rank."""
    laid = []
    for track in found:
        lanes = track.lanes or _lanes(track.start_ns, track.end_ns)
        places = [
            tracks.place(pid, track.label if lane == 0 else f"{track.label} ({lane + 1})")
            for _, lane in lanes.keys
        ]
        laid.append(LaidTrack(track, places, lanes.track))
    return laid


def _lanes(start_ns: Int64Array, end_ns: Int64Array) -> Lanes:
    return divide(np.zeros(len(start_ns), dtype=np.int64), start_ns, end_ns)


def block(laid: LaidTrack, shift_ns: int) -> Block:
    """Return the lines of a track, moved by `shift_ns`."""
    track = laid.track
    return Slices(
        heads(
            "X",
            alike(ANALYSIS_CATEGORY, len(track.code)),
            Words(track.names, track.code),
            Words(laid.places, laid.lane),
        ),
        track.start_ns + shift_ns,
        track.end_ns + shift_ns,
        track.arguments,
    )


def _steps(item: RankStudy) -> DerivedTrack:
    steps, parts = item.steps, item.parts
    count = len(steps)
    states = [
        "partial" if steps.partial else "steady" if steady else "left out"
        for steady in item.steady.tolist()
    ]
    return DerivedTrack(
        label="steps",
        names=[f"step {number}" for number in steps.index.tolist()],
        code=np.arange(count),
        start_ns=steps.start_ns,
        end_ns=steps.end_ns,
        arguments=(
            Words([f'"state":{quoted(state)}' for state in states], np.arange(count)),
            Numbers("compute_ns", parts.compute_ns),
            Numbers("comm_exposed_ns", parts.comm_exposed_ns),
            Numbers("copy_exposed_ns", parts.copy_exposed_ns),
            Numbers("idle_ns", parts.idle_ns),
        ),
    )


def _partition(item: RankStudy) -> DerivedTrack:
    """The four parts of the window, and what idle time is made of inside it."""
    parts = partition_sets(item.busy, item.steps.window_start_ns, item.steps.window_end_ns)
    gaps = item.gaps
    names = [*parts, "launch: the host was late", "latency", "other"]
    sets = [*parts.values(), gaps.launch, gaps.latency, gaps.other]
    start = np.concatenate([found.start for found in sets])
    end = np.concatenate([found.end for found in sets])
    code = np.repeat(np.arange(len(sets)), [len(found) for found in sets])
    # Stable, so that a part of idle time comes after the idle time that it fills.
    order = np.lexsort((-end, start))
    return DerivedTrack(
        label="partition",
        names=names,
        code=code[order],
        start_ns=start[order],
        end_ns=end[order],
    )


def partition_sets(work: Busy, start_ns: int, end_ns: int) -> dict[str, Intervals]:
    """Return when each part of the window [start_ns, end_ns) is: disjoint, and together all of it."""
    return {
        "compute": work.compute,
        "exposed comm": intervals.subtract(work.comm, work.compute),
        "exposed copy": intervals.subtract(work.copy, work.compute_or_comm),
        "idle": intervals.complement(work.any, start_ns, end_ns),
    }


def _findings(item: RankStudy, findings: Sequence[Finding]) -> DerivedTrack:
    names: list[str] = []
    found: list[Range] = []
    for finding in findings:
        mine = [one for one in ranges_of(finding) if one.rank == item.rank.rank]
        found += mine
        title = f"{finding.code} {finding.title}"
        names += [f"{title}: {one.label}" if one.label else title for one in mine]
    window = item.steps.window_start_ns
    return DerivedTrack(
        label="findings",
        names=names,
        code=np.arange(len(names)),
        start_ns=np.array([one.start_ns + window for one in found], dtype=np.int64),
        end_ns=np.array([one.end_ns + window for one in found], dtype=np.int64),
    )


def _collectives(item: RankStudy, cross: CrossRank) -> DerivedTrack:
    """Matched collectives of a rank, with waiting and moving data inside each."""
    events, matches, split = cross.events, cross.matches, cross.waits
    mine = np.flatnonzero(events.rank[matches.event] == item.rank.rank)
    event, instance = matches.event[mine], matches.instance[mine]
    start, end = events.start_ns[event], events.end_ns[event]
    change = cross.ranks[item.rank.rank].transfer_start_ns[events.row[event]]
    names, code = _titles(cross, event)
    late = np.where(cross.undecided[instance], NA_INT64, split.late_rank[instance])
    parts = (len(names), len(names) + 1)
    none = np.full(2 * len(event), NA_INT64, dtype=np.int64)
    starts = np.concatenate([start, start, change])
    ends = np.concatenate([end, change, end])
    codes = np.concatenate([code, *(np.full(len(event), part) for part in parts)])
    columns = {
        "collective": instance,
        "message_bytes": events.message_bytes[event],
        "wait_ns": change - start,
        "transfer_ns": end - change,
        "late_rank": late,
    }
    kept = np.concatenate([np.ones(len(event), np.bool_), change > start, end > change])
    order = np.lexsort((-ends, starts))
    order = order[kept[order]]
    lanes = _lanes(start, end)  # of the collectives, with which their parts stay
    return DerivedTrack(
        label="matched collectives",
        names=[*names, "wait", "transfer"],
        code=codes[order],
        start_ns=starts[order],
        end_ns=ends[order],
        arguments=tuple(
            Numbers(key, np.concatenate([values.astype(np.int64), none])[order])
            for key, values in columns.items()
            if not bool(np.all(is_na(values)))
        ),
        lanes=Lanes(np.tile(lanes.track, 3)[order], lanes.keys),
    )


def _titles(cross: CrossRank, event: Int64Array) -> tuple[list[str], Int64Array]:
    """Return "allreduce, default_pg" of matched operations, and the position of each."""
    events = cross.events
    pairs = events.operation[event].astype(np.int64) * len(events.groups) + events.group[event]
    used, code = np.unique(pairs, return_inverse=True)
    names = [
        f"{events.operations[pair // len(events.groups)]}, {events.groups[pair % len(events.groups)].name}"
        for pair in used.tolist()
    ]
    return names, code.reshape(-1).astype(np.int64)
