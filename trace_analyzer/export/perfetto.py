"""A run as one Chrome trace for Perfetto's UI: all ranks on one clock, recorded and computed.

The file is written rank by rank and a few thousand events at a time; nothing is held as a whole.
Our own reader gets back the ranks with their numbers (`rank_facts`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trace_analyzer import rank_facts
from trace_analyzer.analyses.study import Study
from trace_analyzer.export import derived, layout, recorded
from trace_analyzer.export.clock import CommonClock, common_clock
from trace_analyzer.export.layout import RecordedTracks
from trace_analyzer.export.text_rows import escaped, lines, quoted
from trace_analyzer.export.tracks import Tracks
from trace_analyzer.findings import Finding
from trace_analyzer.model import DataWarning, Device, Rank, Severity
from trace_analyzer.rank_facts import ExportFacts, RankFacts

_STATED = frozenset({"content", "payload"})  # how a recording itself says which rank it is

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _LaidRank:
    rank: Rank
    shift_ns: int
    recorded: RecordedTracks
    derived: list[derived.LaidTrack]
    metadata: list[str]
    pid: int


def trace(
    study: Study, findings: Sequence[Finding], progress: Progress | None = None
) -> Iterator[bytes]:
    """Yield the file's text. `progress` is told the rank, and events done and in all.

    Ranks without any event are left out.
    """
    clock = common_clock(study)
    tracks = Tracks()
    laid = [
        _lay_out(rank, study, findings, clock, tracks)
        for rank in study.run.ranks
        if _event_count(rank)
    ]
    yield _beginning(study, clock, laid).encode()
    total = sum(_event_count(item.rank) for item in laid)
    done = arrows = 0
    for number, item in enumerate(laid):
        if progress:
            progress(f"rank {item.rank.rank}", done, total)
        mark = ",\n" if number else "\n"
        yield (mark + ",\n".join(item.metadata)).encode()
        for track in item.derived:
            yield from lines(derived.block(track, item.shift_ns))
        for block in recorded.blocks(item.rank, item.recorded, item.shift_ns, arrows):
            yield from lines(block)
        arrows += len(item.rank.calls)
        done += _event_count(item.rank)
    if progress and laid:
        progress(f"rank {laid[-1].rank.rank}", done, total)
    yield b"\n]}\n"


def _event_count(rank: Rank) -> int:
    return sum(len(table) for table in (rank.operations, rank.calls, rank.events, rank.syncs))


def _lay_out(
    rank: Rank, study: Study, findings: Sequence[Finding], clock: CommonClock, tracks: Tracks
) -> _LaidRank:
    pid = tracks.process(_label(rank))
    item = study.ranks.get(rank.rank)
    found = () if item is None else derived.derive(item, study.cross, findings)
    computed = derived.lay_out(found, pid, tracks)
    tracks_of_events = layout.lay_out(rank, pid, tracks)
    return _LaidRank(
        rank=rank,
        shift_ns=clock.shift_ns[rank.rank],
        recorded=tracks_of_events,
        derived=computed,
        metadata=tracks.take_metadata(),
        pid=pid,
    )


def _label(rank: Rank) -> str:
    models = {device.ordinal: device.name for device in rank.devices}
    used = [models.get(int(number), "") for number in np.unique(rank.operations.device)]
    pieces = [f"rank {rank.rank}", *dict.fromkeys(used), rank.host or ""]
    pid = "" if rank.pid is None else f"pid {rank.pid}"
    return ", ".join(piece for piece in (*pieces, pid) if piece)


def _beginning(study: Study, clock: CommonClock, laid: list[_LaidRank]) -> str:
    """Return everything up to the events: what torch writes there, then the facts of the ranks."""
    ranks = [item.rank for item in laid]
    sizes = {rank.world_size for rank in ranks if rank.world_size is not None}
    distributed: dict[str, object] = {"rank": ranks[0].rank} if len(ranks) == 1 else {}
    if sizes:
        distributed["world_size"] = max(sizes)
    clocks = list(dict.fromkeys(_clock_name(rank) for rank in ranks))
    facts = ExportFacts(
        version=rank_facts.FORMAT_VERSION,
        ranks=tuple(_facts(item, clocks.index(_clock_name(item.rank))) for item in laid),
    )
    parts = ['"schemaVersion":1', '"displayTimeUnit":"ms"']
    if clock.base_ns is not None:
        parts.append(f'"baseTimeNanoseconds":{clock.base_ns}')
    if distributed:
        parts.append(f'"distributedInfo":{json.dumps(distributed)}')
    if len(ranks) == 1 and ranks[0].devices:
        listed = ",\n".join(_device(device) for device in ranks[0].devices)
        parts.append(f'"deviceProperties":[{listed}]')
    parts.append(f'"traceName":{quoted(study.run.name)}')
    parts.append(f'"{rank_facts.EXPORT_KEY}":{escaped(rank_facts.encode(facts).decode())}')
    return "{" + ",\n".join(parts) + ',\n"traceEvents":['


def _device(device: Device) -> str:
    return f'{{"id":{device.ordinal},"name":{quoted(device.name)}}}'


def _clock_name(rank: Rank) -> str:
    return rank.clock_name or rank.path


def _facts(item: _LaidRank, clock: int) -> RankFacts:
    rank = item.rank
    return RankFacts(
        rank=rank.rank,
        pid=item.pid,
        source=rank.source,
        clock=clock,
        threads=tuple(item.recorded.threads),
        groups=rank.groups,
        devices=rank.devices,
        world_size=rank.world_size,
        host=rank.host,
        process=rank.pid,
        capture=rank.capture,
        versions=dict(rank.versions),
        settings=dict(rank.settings),
        truncated=rank.truncated,
        warnings=tuple(_warnings(rank)),
    )


def _warnings(rank: Rank) -> Iterator[DataWarning]:
    for warning in rank.warnings:
        yield replace(warning, ranks=())
    if rank.rank_basis not in _STATED:
        yield DataWarning(
            code="TRC011",
            message=f"the recording that was exported does not tell its rank ({rank.rank_basis})",
            effect="it has the number that it was given then",
            severity=Severity.NOTE,
        )
