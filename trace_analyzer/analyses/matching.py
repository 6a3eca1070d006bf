"""Which communication operations of different ranks are one collective.

Tried for every group, in this order, and never mixed inside a group:
1. the sequence number, where every operation of the group carries one;
2. the step in which it was launched and the order in that step, where steps are numbered alike on
   all ranks: accepted for a step only if all ranks have the same operations, sizes and types;
3. the only shift between the ranks' sequences at which all operations, sizes and types agree.
What none of them settles stays unmatched, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.alignment import best_shift
from trace_analyzer.analyses.comm_events import CommEvents
from trace_analyzer.analyses.runs import place_in_run
from trace_analyzer.schema import BoolArray, Int64Array, is_na

BY_SEQUENCE, BY_STEP, BY_ALIGNMENT = "sequence number", "order in the step", "aligned sequence"

OUTSIDE = "outside the recorded steps"
NOT_ON_ALL = "not recorded on every rank"
DISAGREE = "ranks disagree on operations or sizes"
AMBIGUOUS = "more than one alignment fits"
ALONE = "its peers were not recorded"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Matches:
    """Matched operations, ordered by (instance, rank).

    `event` holds positions in CommEvents; `instance` numbers collectives from 0 in order of
    their first start; `first` is where each instance begins in `event` (one entry more at the end).
    `complete` says whether every member of the group was recorded.
    """

    event: Int64Array
    instance: Int64Array
    first: Int64Array
    complete: BoolArray
    basis: dict[int, str]  # per group
    unmatched: dict[tuple[int, str], int]  # (rank, reason) → operations

    @property
    def count(self) -> int:
        """Number of matched collectives."""
        return len(self.first) - 1


def match(events: CommEvents, clock_base_ns: dict[int, int | None]) -> Matches:
    """Match the operations of all ranks; `clock_base_ns` moves a rank's times to a common clock."""
    key = np.full(len(events), -1, dtype=np.int64)
    reason = np.full(len(events), "", dtype=object)
    basis: dict[int, str] = {}
    used = 0
    named = any(group.known for group in events.groups)
    bounds = np.flatnonzero(np.diff(events.group, prepend=-1, append=-1))
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        number = int(events.group[begin])
        part = slice(begin, end)
        if len(events.groups[number].recorded) < 2:
            reason[part] = ALONE
            continue
        if named and not events.groups[number].known:
            # Other operations name their group, so these lost it with their launch: backlog.
            reason[part] = OUTSIDE
            continue
        keys, why, how = _match_group(
            events, part, len(events.groups[number].recorded), clock_base_ns
        )
        matched = keys >= 0
        key[part] = np.where(matched, keys + used, -1)
        reason[part] = why
        basis[number] = how
        used += int(keys.max(initial=-1)) + 1
    return _collect(events, key, reason, basis)


def _match_group(
    events: CommEvents, part: slice, members: int, clock_base_ns: dict[int, int | None]
) -> tuple[Int64Array, np.ndarray[tuple[int], np.dtype[np.object_]], str]:
    sequence = events.sequence[part]
    if not bool(np.any(is_na(sequence))):
        keys, why = _by_key(events, part, sequence, members)
        if bool(np.any(keys >= 0)):
            return keys, why, BY_SEQUENCE
    step = events.step[part]
    if bool(np.any(~is_na(step))):
        keys, why = _by_step(events, part, members)
        if bool(np.any(keys >= 0)):
            return keys, why, BY_STEP
    keys, why = _by_alignment(events, part, members, clock_base_ns)
    return keys, why, BY_ALIGNMENT


def _by_key(
    events: CommEvents, part: slice, value: Int64Array, members: int
) -> tuple[Int64Array, np.ndarray[tuple[int], np.dtype[np.object_]]]:
    """Match equal values; each must occur once on every member, with one signature."""
    _, keys = np.unique(value, return_inverse=True)
    keys = keys.reshape(-1)
    rank = events.rank[part]
    count = np.bincount(keys)
    pairs = np.unique(np.stack([keys, rank]), axis=1)
    distinct = np.bincount(pairs[0], minlength=len(count))
    equal = _all_equal(keys, events.signature[part], len(count))
    full = (count == members) & (distinct == members)
    good = full & equal
    why = np.where(full[keys], np.where(equal[keys], "", DISAGREE), NOT_ON_ALL).astype(object)
    return np.where(good[keys], keys, -1), why


def _all_equal(keys: Int64Array, values: Int64Array, count: int) -> BoolArray:
    low = np.full(count, np.iinfo(np.int64).max, dtype=np.int64)
    high = np.full(count, np.iinfo(np.int64).min, dtype=np.int64)
    np.minimum.at(low, keys, values)
    np.maximum.at(high, keys, values)
    return np.asarray(low == high, dtype=np.bool_)


def _by_step(
    events: CommEvents, part: slice, members: int
) -> tuple[Int64Array, np.ndarray[tuple[int], np.dtype[np.object_]]]:
    step, rank = events.step[part], events.rank[part].astype(np.int64)
    keys = np.full(len(step), -1, dtype=np.int64)
    why = np.full(len(step), OUTSIDE, dtype=object)
    rows = np.flatnonzero(~is_na(step))
    # Rows are ordered by rank and issue, so the operations of a step stand together.
    order = np.lexsort((np.arange(len(rows)), step[rows], rank[rows]))
    rows = rows[order]
    ordinal = place_in_run(rank[rows], step[rows])
    steps, step_of = np.unique(step[rows], return_inverse=True)
    step_of = step_of.reshape(-1)
    width = int(ordinal.max(initial=0)) + 1
    distinct, slot = np.unique(step_of * width + ordinal, return_inverse=True)
    slot = slot.reshape(-1)
    full = np.bincount(slot, minlength=len(distinct)) == members
    equal = _all_equal(slot, events.signature[part][rows], len(distinct))
    # A step counts as a whole: one missing or differing operation makes its order worthless.
    incomplete = np.zeros(len(steps), dtype=np.bool_)
    differing = np.zeros(len(steps), dtype=np.bool_)
    owner = distinct // width
    np.logical_or.at(incomplete, owner, ~full)
    np.logical_or.at(differing, owner, ~equal)
    bad = incomplete | differing
    good = ~bad[step_of]
    keys[rows[good]] = slot[good]
    on_all = _same_ranks(step_of, rank[rows], members, len(steps))[step_of]
    why[rows] = np.where(good, "", np.where(on_all, DISAGREE, NOT_ON_ALL))
    return keys, why


def _same_ranks(step_of: Int64Array, rank: Int64Array, members: int, count: int) -> BoolArray:
    """Return, for each step, whether all members have any operation in it."""
    pairs = np.unique(np.stack([step_of, rank]), axis=1)
    return np.asarray(np.bincount(pairs[0], minlength=count) == members, dtype=np.bool_)


def _by_alignment(
    events: CommEvents, part: slice, members: int, clock_base_ns: dict[int, int | None]
) -> tuple[Int64Array, np.ndarray[tuple[int], np.dtype[np.object_]]]:
    rank = events.rank[part]
    size = len(rank)
    keys = np.full(size, -1, dtype=np.int64)
    why = np.full(size, NOT_ON_ALL, dtype=object)
    ranks, begin = np.unique(rank, return_index=True)
    if len(ranks) < members:
        return keys, why
    ends = np.append(begin[1:], size)
    bases = [clock_base_ns.get(int(number)) for number in ranks]
    clocked = all(base is not None for base in bases)
    finish = [
        events.end_ns[part][low:high] + ((base or 0) if clocked else 0)
        for low, high, base in zip(begin, ends, bases, strict=True)
    ]
    signatures = [events.signature[part][low:high] for low, high in zip(begin, ends, strict=True)]
    shifts = [0]
    for k in range(1, len(ranks)):
        shift = best_shift(
            signatures[0],
            signatures[k],
            finish[0] if clocked else None,
            finish[k] if clocked else None,
        )
        if shift is None:
            why[:] = AMBIGUOUS
            return keys, why
        shifts.append(shift)
    # Position in the reference's sequence; those that all ranks have are matched.
    low_common = max(shift for shift in shifts)
    high_common = min(
        shift + (high - low) for shift, low, high in zip(shifts, begin, ends, strict=True)
    )
    for shift, low, high in zip(shifts, begin, ends, strict=True):
        position = np.arange(high - low) + shift
        inside = (position >= low_common) & (position < high_common)
        keys[low:high] = np.where(inside, position - low_common, -1)
        why[low:high] = np.where(inside, "", NOT_ON_ALL)
    return keys, why


def _collect(
    events: CommEvents,
    key: Int64Array,
    reason: np.ndarray[tuple[int], np.dtype[np.object_]],
    basis: dict[int, str],
) -> Matches:
    matched = np.flatnonzero(key >= 0)
    distinct, instance = np.unique(key[matched], return_inverse=True)
    instance = instance.reshape(-1)
    starts = np.full(len(distinct), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(starts, instance, events.start_ns[matched])
    renumber = np.empty(len(distinct), dtype=np.int64)
    renumber[np.argsort(starts, kind="stable")] = np.arange(len(distinct))
    instance = renumber[instance]
    order = np.lexsort((events.rank[matched], instance))
    event, instance = matched[order], instance[order]
    first = np.searchsorted(instance, np.arange(len(distinct) + 1)).astype(np.int64)
    group = events.groups
    complete = np.array(
        [len(group[g].recorded) == group[g].size for g in events.group[event[first[:-1]]]],
        dtype=np.bool_,
    )
    unmatched: dict[tuple[int, str], int] = {}
    for row in np.flatnonzero(key < 0).tolist():
        item = (int(events.rank[row]), str(reason[row]))
        unmatched[item] = unmatched.get(item, 0) + 1
    return Matches(
        event=event.astype(np.int64),
        instance=instance,
        first=first,
        complete=complete,
        basis=basis,
        unmatched=unmatched,
    )
