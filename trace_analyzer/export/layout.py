"""Which track every recorded event of a rank is drawn on: a stream, a thread, synchronisation."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from trace_analyzer.export.lanes import Lanes, divide
from trace_analyzer.export.text_rows import quoted
from trace_analyzer.export.tracks import Tracks, place
from trace_analyzer.model import Rank
from trace_analyzer.rank_facts import ThreadFacts
from trace_analyzer.schema import NA_INT64, AnyArray, Int64Array, is_na, widened


@dataclass(slots=True, kw_only=True)
class RecordedTracks:
    """Where the events of one rank are drawn; places are texts, lanes hold positions in them."""

    threads: list[ThreadFacts] = field(default_factory=list)
    operation_places: list[str] = field(default_factory=list)
    operations: Lanes
    host_places: list[str] = field(default_factory=list)
    host: Lanes  # rows of events, then those of calls
    sync_places: list[str] = field(default_factory=list)
    syncs: Lanes


def lay_out(rank: Rank, pid: int, tracks: Tracks) -> RecordedTracks:
    """Give every event of a rank a track of its process: a stream, a thread, synchronisation."""
    operations, events, calls, syncs = rank.operations, rank.events, rank.calls, rank.syncs
    streams, of_stream = _streams(rank)
    laid = RecordedTracks(
        operations=divide(of_stream, operations.start_ns, operations.end_ns),
        host=divide(
            np.concatenate([events.thread, calls.thread]),
            np.concatenate([events.start_ns, calls.start_ns]),
            np.concatenate([events.end_ns, calls.end_ns]),
        ),
        syncs=divide(widened(syncs.device), syncs.start_ns, syncs.end_ns),
    )
    _lay_out_devices(laid, rank.rank, streams, pid, tracks)
    _lay_out_threads(laid, rank, pid, tracks)
    return laid


def _streams(rank: Rank) -> tuple[list[tuple[int, int]], Int64Array]:
    """Return the (device, stream) pairs of a rank, and the position of every operation's."""
    devices, device = np.unique(widened(rank.operations.device), return_inverse=True)
    streams, stream = np.unique(rank.operations.stream, return_inverse=True)
    pairs = device.reshape(-1) * max(len(streams), 1) + stream.reshape(-1)
    used, position = np.unique(pairs, return_inverse=True)
    found = [
        (int(devices[pair // len(streams)]), int(streams[pair % len(streams)]))
        for pair in used.tolist()
    ]
    return found, position.reshape(-1).astype(np.int64)


def _lay_out_devices(
    laid: RecordedTracks,
    rank: int,
    streams: list[tuple[int, int]],
    pid: int,
    tracks: Tracks,
) -> None:
    for key, lane in laid.operations.keys:
        device, stream = streams[key]
        if stream == NA_INT64:
            # A thread id that is a number would be read as the stream.
            label = _laned(f"{_device(device)} of rank {rank}, no stream", lane)
            laid.operation_places.append(f'"pid":{pid},"tid":{quoted(label)}')
        else:
            label = _laned(f"{_device(device)}, stream {stream}", lane)
            laid.operation_places.append(tracks.place(pid, label))
    for device, lane in laid.syncs.keys:
        label = _laned(f"{_device(device)}, synchronisation", lane)
        laid.sync_places.append(tracks.place(pid, label))


def _device(device: int) -> str:
    return "GPU" if device == NA_INT64 else f"GPU {device}"


def _lay_out_threads(laid: RecordedTracks, rank: Rank, pid: int, tracks: Tracks) -> None:
    for row, lane in laid.host.keys:
        process, thread = _known(rank.threads.process, row), _known(rank.threads.thread, row)
        position = _known(rank.threads.name, row)
        name = None if position is None else rank.names[position]
        where = "host" if process in {None, rank.pid} else f"host, pid {process}"
        label = name or ("thread" if thread is None else f"thread {thread}")
        tid = tracks.thread(pid, _laned(f"{where}, {label}", lane))
        laid.host_places.append(place(pid, tid))
        laid.threads.append(
            ThreadFacts(pid=pid, tid=tid, process=process, thread=thread, name=name)
        )


def _laned(label: str, lane: int) -> str:
    return label if lane == 0 else f"{label} ({lane + 1})"


def _known(column: AnyArray, row: int) -> int | None:
    return None if bool(is_na(column[row : row + 1])[0]) else int(column[row])
