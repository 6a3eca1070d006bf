"""Sends and receives that wait for each other's end.

They carry no number that both sides share, so a side is told to be missing only where the other
one waits and no counterpart does; whether an early send just went into a buffer is told by
counting both sides, where the dumps reach back to the first of them.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from trace_analyzer.analyses.flight_rows import FlightMembers, FlightRows
from trace_analyzer.analyses.flight_units import COALESCED, ended_units, run_starts
from trace_analyzer.analyses.hang_facts import Hang, HangKind
from trace_analyzer.schema import NA_INT64, BoolArray, Int64Array, is_na

Pair = tuple[int, int, int]  # group, source, destination; global ranks


def peer_hangs(rows: FlightRows) -> tuple[list[Hang], int]:
    """Return a finding for each pair of ranks with a send or receive that did not end.

    The second value counts those that did not end and whose two ranks cannot be told.
    """
    p2p = np.flatnonzero(rows.is_p2p & ~is_na(rows.sequence))
    if not len(p2p):
        return [], 0
    order = np.lexsort((rows.sequence[p2p], rows.group[p2p], rows.rank[p2p]))
    p2p = p2p[order]
    ended = _ended(rows, p2p)
    waiting = np.unique(rows.group[p2p[~ended]])
    sends: dict[Pair, list[int]] = defaultdict(list)
    receives: dict[Pair, list[int]] = defaultdict(list)
    counts: dict[tuple[Pair, bool], int] = defaultdict(int)
    unplaced = 0
    for place in np.flatnonzero(np.isin(rows.group[p2p], waiting)):
        row = int(p2p[place])
        pair = _pair(rows, row)
        operation = rows.names[rows.operation[row]]
        if operation not in {"send", "recv"}:
            continue
        if pair is None:
            unplaced += not ended[place]
            continue
        is_send = operation == "send"
        counts[pair, is_send] += 1
        side = sends if is_send else receives
        if ended[place]:
            side[pair].clear()  # one stream a pair: what came before has ended too
        else:
            side[pair].append(row)
    waits = sorted(pair for pair in {*sends, *receives} if sends.get(pair) or receives.get(pair))
    found = [
        _hang(rows, pair, sends.get(pair, []), receives.get(pair, []), counts) for pair in waits
    ]
    return found, unplaced


def _ended(rows: FlightRows, p2p: Int64Array) -> BoolArray:
    """Return which entries ended; of those issued as one, the marker at their end tells."""
    starts = run_starts(rows.rank[p2p], rows.group[p2p], rows.sequence[p2p])
    coalesced = rows.names.index(COALESCED) if COALESCED in rows.names else NA_INT64
    marker = rows.operation[p2p] == coalesced
    units = ended_units(rows.ended[p2p], marker, starts)
    return np.repeat(units, np.diff(np.append(starts, len(p2p)))) | rows.ended[p2p]


def _pair(rows: FlightRows, row: int) -> Pair | None:
    """Return group and global ranks; None where they cannot be told."""
    group = int(rows.group[row])
    members = rows.groups[group]
    source, destination = int(rows.source[row]), int(rows.destination[row])
    if source < 0 or destination < 0:
        return None
    if not members.listed:  # true of the group of all ranks, and of no other that is likely
        is_send = rows.names[rows.operation[row]] == "send"
        own = source if is_send else destination
        return (group, source, destination) if own == rows.rank[row] else None
    if max(source, destination) >= len(members.ranks):
        return None
    return group, members.ranks[source], members.ranks[destination]


def _hang(
    rows: FlightRows,
    pair: Pair,
    sends: list[int],
    receives: list[int],
    counts: dict[tuple[Pair, bool], int],
) -> Hang:
    group, source, destination = pair
    members = rows.groups[group]
    present = tuple(rank for rank, side in ((source, sends), (destination, receives)) if side)
    missing = destination if sends else source
    kind, ranks = HangKind.UNFINISHED, present
    if len(present) == 1 and {source, destination} <= rows.whole:
        issued = counts.get((pair, not sends), 0)
        waited = counts[pair, bool(sends)]
        if issued < waited:
            kind, ranks = HangKind.MISSING, (missing,)
    first = [side[0] for side in (sends, receives) if side]
    return Hang(
        kind=kind,
        group=members.name,
        description=members.description,
        operation="send" if sends else "recv",
        sequence=None,
        ranks=ranks,
        present=present,
        ended=(),
        without_dump=_without_dump(members, rows, (source, destination)),
        created_ns=_earliest(rows, first),
        later=max(len(sends), len(receives)) - 1,
        source=source,
        destination=destination,
    )


def _without_dump(
    members: FlightMembers, rows: FlightRows, ranks: tuple[int, ...]
) -> tuple[int, ...]:
    return tuple(rank for rank in members.ranks if rank in ranks and rank not in rows.ranks)


def _earliest(rows: FlightRows, found: list[int]) -> int | None:
    times = rows.created_ns[found]
    times = times[~is_na(times)]
    return int(times.min()) if len(times) else None


__all__ = ["peer_hangs"]
