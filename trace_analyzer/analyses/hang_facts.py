"""What went wrong with a collective, as found in Flight Recorder dumps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class HangKind(StrEnum):
    """How a collective, or a send and its receive, went wrong."""

    MISMATCHED = "mismatched"  # ranks issued different ones under the same number
    MISSING = "missing"  # some ranks never issued it, and others wait in it
    UNFINISHED = "unfinished"  # all issued the same, and it did not end everywhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What some ranks issued; elements are None where they are not recorded."""

    operation: str
    dtype: str
    in_elements: int | None
    out_elements: int | None
    calls: int  # collectives issued as one
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Where a rank stands that others wait for.

    `last_sequence` is its last collective in the group, None if there was none. The other fields
    name the oldest operation in which it is itself waiting; empty where it is in none, so that its
    host is busy with something else, or the process is gone.
    """

    rank: int
    last_sequence: int | None
    group: str = ""
    operation: str = ""
    sequence: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """One operation that went wrong.

    `ranks` are those at fault as far as the dumps tell: the ones that did not issue it, that
    issued something else than most (all where no variant prevails), or on which it did not end.
    """

    kind: HangKind
    group: str
    description: str
    operation: str
    sequence: int | None  # None for send and receive
    ranks: tuple[int, ...]
    present: tuple[int, ...]  # issued it
    ended: tuple[int, ...]  # saw it end
    without_dump: tuple[int, ...] = ()  # members of which nothing is known
    variants: tuple[Variant, ...] = ()
    reached: tuple[Reached, ...] = ()  # of the ranks that did not issue it
    created_ns: int | None = None  # first issued, Unix time
    later: int = 0  # operations of the group after it in the same state
    source: int | None = None  # global ranks of send and receive
    destination: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProgress:
    """How far a group's collectives got, in its own sequence numbers; None where nothing is known."""

    group: str
    description: str
    ranks: tuple[int, ...]
    without_dump: tuple[int, ...]
    last_recorded: Mapping[int, int]  # rank → last issued
    last_common: int | None  # last that every rank with a dump issued
    last_ended: int | None  # last that ended on every rank with a dump


@dataclass(frozen=True, slots=True, kw_only=True)
class HangReport:
    """What the dumps of a run tell. `hangs` are in order of first issue."""

    hangs: tuple[Hang, ...]
    groups: tuple[GroupProgress, ...]
    ranks: tuple[int, ...]  # with a dump
    without_dump: tuple[int, ...]  # members of some group, without a dump
    last_activity_ns: int | None  # newest time in any dump
    timeout_ms: int | None  # shortest timeout of any group
    unplaced: int = 0  # sends and receives that did not end, between ranks that cannot be told


__all__ = ["GroupProgress", "Hang", "HangKind", "HangReport", "Reached", "Variant"]
