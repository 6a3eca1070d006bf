"""Collectives that some ranks did not reach, issued differently, or never ended.

From Flight Recorder dumps alone. A dump is a still picture: of a job that stands it shows why; of
a job that runs on it shows what was in flight as unfinished. So dumps must have been written when
the job stood, as torch does on a timeout, or when nothing was in flight. They do not say which;
`HangReport.last_activity_ns` and `timeout_ms` help to judge.

Collectives are matched by process group and sequence number, which torch counts alike on every
rank. Of each group only the first collective of a kind is reported, with the number of those
after it, and none that follows from an earlier mismatch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trace_analyzer.analyses.flight_peers import peer_hangs
from trace_analyzer.analyses.flight_rows import FlightRows, flight_rows, newest_dumps
from trace_analyzer.analyses.flight_units import (
    COALESCED,
    FlightSets,
    FlightUnits,
    flight_sets,
    flight_units,
    run_starts,
)
from trace_analyzer.analyses.hang_facts import (
    GroupProgress,
    Hang,
    HangKind,
    HangReport,
    Reached,
    Variant,
)
from trace_analyzer.nccl_facts import FlightRecording
from trace_analyzer.schema import BoolArray, Int64Array, is_na

_NOTHING = -1  # below every sequence number


def find_hangs(recordings: Sequence[FlightRecording]) -> HangReport:
    """Return what went wrong according to the dumps of a run's ranks, one or more a rank.

    Dumps of an unknown rank are left out: they cannot be told apart.
    """
    dumps = newest_dumps(recordings)
    rows = flight_rows(dumps)
    units = flight_units(rows)
    sets = flight_sets(units)
    hangs, unplaced = peer_hangs(rows)
    progress = []
    for number in range(len(rows.groups)):
        group = _Group(rows, units, sets, dumps, number)
        hangs += group.hangs()
        progress.append(group.progress())
    kinds = list(HangKind)
    hangs.sort(
        key=lambda hang: (hang.created_ns is None, hang.created_ns or 0, kinds.index(hang.kind))
    )
    return HangReport(
        hangs=tuple(hangs),
        groups=tuple(progress),
        ranks=rows.ranks,
        without_dump=tuple(sorted({rank for item in progress for rank in item.without_dump})),
        last_activity_ns=_last_activity(dumps),
        timeout_ms=_shortest_timeout(dumps),
        unplaced=unplaced,
    )


class _Group:
    """One process group over all dumps."""

    def __init__(
        self,
        rows: FlightRows,
        units: FlightUnits,
        sets: FlightSets,
        dumps: Sequence[FlightRecording],
        number: int,
    ) -> None:
        self.rows, self.units = rows, units
        self.members = rows.groups[number]
        first, last = np.searchsorted(sets.group, [number, number + 1])
        self.sequence = sets.sequence[first:last]
        self.start, self.end = sets.start[first:last], sets.end[first:last]
        self.mismatched = sets.mismatched[first:last]
        self.unended = sets.unended[first:last]
        self.without_dump = tuple(r for r in self.members.ranks if r not in rows.ranks)
        self.last, self.last_ended = self._last(dumps)

    def _units(self, position: int) -> range:
        return range(int(self.start[position]), int(self.end[position]))

    def _last(self, dumps: Sequence[FlightRecording]) -> tuple[dict[int, int], dict[int, int]]:
        """Return the last collective of each member that was issued, and that ended.

        A member without entries has issued none, unless its status says otherwise: its entries
        may have made room for others'. Without a status nothing is known of it.
        """
        last: dict[int, int] = {}
        ended: dict[int, int] = {}
        for dump in dumps:
            rank = dump.rank
            if rank is None or rank not in self.members.ranks:
                continue
            same = [item for item in dump.groups if item.name == self.members.name]
            counted = same[0].last_enqueued if same else None
            if counted is not None or dump.has_status:
                last[rank] = _NOTHING if counted is None else counted
                completed = same[0].last_completed if same else None
                ended[rank] = _NOTHING if completed is None else completed
        if len(self.start):
            span = slice(int(self.start[0]), int(self.end[-1]))
            ranks, sequences = self.units.rank[span], self.units.sequence[span]
            order = np.lexsort((sequences, ranks))
            ranks, sequences = ranks[order], sequences[order]
            starts = run_starts(ranks)
            newest = np.maximum.reduceat(sequences, starts)
            finished = np.where(self.units.ended[span][order], sequences, _NOTHING)
            done = np.maximum(np.maximum.reduceat(finished, starts), sequences[starts] - 1)
            last |= dict(zip(ranks[starts].tolist(), newest.tolist(), strict=True))
            # What a dump no longer holds has ended; numbers begin at 1.
            done[done <= 0] = _NOTHING
            ended |= dict(zip(ranks[starts].tolist(), done.tolist(), strict=True))
        return last, ended

    def hangs(self) -> list[Hang]:
        """Return the first collective of each kind that does not follow from another."""
        if not len(self.sequence):
            return []
        reached = np.sort(np.array(list(self.last.values()), dtype=np.int64))
        absent = np.searchsorted(reached, self.sequence, side="left") > 0
        mismatched = self.mismatched | self._unbalanced(~absent)
        missing = absent & self.unended
        unfinished = self.unended & ~absent & ~mismatched
        found = []
        end = len(self.sequence)
        for kind, which in (
            (HangKind.MISMATCHED, mismatched),
            (HangKind.MISSING, missing),
            (HangKind.UNFINISHED, unfinished),
        ):
            positions = np.flatnonzero(which)
            if len(positions) and positions[0] < end:
                end = int(positions[0])
                found.append(self._hang(kind, end, len(positions) - 1))
        return found

    def _unbalanced(self, complete: BoolArray) -> BoolArray:
        """Return which all-to-alls send another number of elements than they receive, in all."""
        found = np.zeros(len(self.sequence), dtype=np.bool_)
        names = self.rows.names
        if "alltoall" not in names or self.without_dump or not self.members.listed:
            return found
        operation = names.index("alltoall")
        first = self.units.rows[self.units.starts[self.start]]
        for position in np.flatnonzero(complete & (self.rows.operation[first] == operation)):
            units = list(self._units(int(position)))
            if len(units) != len(self.members.ranks):
                continue
            rows = np.concatenate([self.units.rows_of(unit) for unit in units])
            sent, received = self.rows.in_elements[rows], self.rows.out_elements[rows]
            if not (is_na(sent).any() or is_na(received).any()):
                found[position] = int(sent.sum()) != int(received.sum())
        return found

    def _hang(self, kind: HangKind, position: int, later: int) -> Hang:
        units = self._units(position)
        sequence = int(self.sequence[position])
        present = tuple(int(self.units.rank[unit]) for unit in units)
        ended = tuple(int(self.units.rank[unit]) for unit in units if self.units.ended[unit])
        variants = self._variants(units)
        reached: tuple[Reached, ...] = ()
        if kind is HangKind.MISSING:
            ranks = tuple(sorted(r for r, last in self.last.items() if last < sequence))
            reached = tuple(self._reached(rank) for rank in ranks)
        elif kind is HangKind.UNFINISHED:
            ranks = tuple(rank for rank in present if rank not in ended)
        else:
            ranks = _minority(variants, present)
        times = self.units.created_ns[units.start : units.stop]
        times = times[~is_na(times)]
        return Hang(
            kind=kind,
            group=self.members.name,
            description=self.members.description,
            operation=max(variants, key=lambda variant: len(variant.ranks)).operation,
            sequence=sequence,
            ranks=ranks,
            present=present,
            ended=ended,
            without_dump=self.without_dump,
            variants=variants if kind is HangKind.MISMATCHED else (),
            reached=reached,
            created_ns=int(times.min()) if len(times) else None,
            later=later,
        )

    def _variants(self, units: range) -> tuple[Variant, ...]:
        """Return what was issued, by ranks that issued the same, shown at the first difference."""
        entries = [self.units.rows_of(unit) for unit in units]
        place = self._first_difference(entries)
        ranks: dict[tuple[str, str, int | None, int | None, int], list[int]] = {}
        for unit, rows in zip(units, entries, strict=True):
            key = self._shown(rows, place)
            ranks.setdefault(key, []).append(int(self.units.rank[unit]))
        return tuple(
            Variant(
                operation=operation,
                dtype=dtype,
                in_elements=sent,
                out_elements=received,
                calls=calls,
                ranks=tuple(found),
            )
            for (operation, dtype, sent, received, calls), found in ranks.items()
        )

    def _first_difference(self, entries: Sequence[Int64Array]) -> int:
        codes = [self.rows.codes[rows] for rows in entries]
        for place in range(max(len(item) for item in codes)):
            if len({int(item[place]) if place < len(item) else None for item in codes}) > 1:
                return place
        return 0

    def _shown(
        self, entries: Int64Array, place: int
    ) -> tuple[str, str, int | None, int | None, int]:
        rows, names = self.rows, self.rows.names
        if place >= len(entries):  # an older torch records only that several were one
            return COALESCED, "", None, None, len(entries)
        row = int(entries[place])
        dtype = int(rows.dtype[row])
        return (
            names[int(rows.operation[row])],
            names[dtype] if dtype >= 0 else "",
            _known(int(rows.in_elements[row])),
            _known(int(rows.out_elements[row])),
            len(entries),
        )

    def _reached(self, rank: int) -> Reached:
        """Return where a rank stands: its oldest collective that did not end, in any group."""
        last = self.last[rank]
        sequence = None if last == _NOTHING else last
        waiting = np.flatnonzero((self.units.rank == rank) & ~self.units.ended)
        if not len(waiting):
            return Reached(rank=rank, last_sequence=sequence)
        unit = int(waiting[np.argmin(self.units.created_ns[waiting])])
        shown = self._shown(self.units.rows_of(unit), 0)
        return Reached(
            rank=rank,
            last_sequence=sequence,
            group=self.rows.groups[int(self.units.group[unit])].name,
            operation=shown[0],
            sequence=int(self.units.sequence[unit]),
        )

    def progress(self) -> GroupProgress:
        """Return how far the group got."""
        return GroupProgress(
            group=self.members.name,
            description=self.members.description,
            ranks=self.members.ranks,
            without_dump=self.without_dump,
            last_recorded={r: last for r, last in sorted(self.last.items()) if last != _NOTHING},
            last_common=_lowest(self.last),
            last_ended=_lowest(self.last_ended),
        )


def _lowest(last: dict[int, int]) -> int | None:
    lowest = min(last.values(), default=_NOTHING)
    return None if lowest == _NOTHING else lowest


def _known(value: int) -> int | None:
    return None if value < 0 else value


def _minority(variants: Sequence[Variant], present: tuple[int, ...]) -> tuple[int, ...]:
    """Return the ranks that differ from what more than half of all issued."""
    largest = max(variants, key=lambda variant: len(variant.ranks))
    if 2 * len(largest.ranks) <= len(present) or len(variants) == 1:
        return present
    return tuple(rank for rank in present if rank not in largest.ranks)


def _last_activity(dumps: Sequence[FlightRecording]) -> int | None:
    newest = [
        int(values.max())
        for dump in dumps
        for values in (
            dump.entries.created_ns,
            dump.entries.started_ns,
            dump.entries.completed_ns,
        )
        if len(values)
    ]
    known = [value for value in newest if value > 0]
    return max(known, default=None)


def _shortest_timeout(dumps: Sequence[FlightRecording]) -> int | None:
    known = [
        int(values.min())
        for dump in dumps
        if len(values := dump.entries.timeout_ms[~is_na(dump.entries.timeout_ms)])
    ]
    return min(known, default=None)


__all__ = ["find_hangs"]
