"""Wait against transfer: what part of a matched collective moved data, and who was late.

Transfer is the shortest duration among the participants, because the one that comes last does not
wait: an upper estimate, so that wait = own duration - transfer is a lower one. For rooted
collectives the root may leave early, and the shortest non-root counts. These are observations of
the recorded run; whom to blame is the replay's to say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.comm_events import ROOTED, CommEvents
from trace_analyzer.analyses.matching import Matches
from trace_analyzer.schema import BoolArray, Int64Array, is_na

# Lateness up to three residuals of clock and matching is not told from none.
DECIDED_RESIDUALS = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waits:
    """Transfer and wait of matched collectives.

    `transfer_ns`, `late_rank`, `lateness_ns`, `rooted` and `guessed` have one entry an instance;
    `wait_ns` has one a matched operation, in the order of `Matches.event`.
    `lateness_ns` is how long the first to arrive waited. `guessed` marks rooted collectives whose
    root is not known, so that the shortest of all counts.
    """

    transfer_ns: Int64Array
    wait_ns: Int64Array
    late_rank: Int64Array
    lateness_ns: Int64Array
    rooted: BoolArray
    guessed: BoolArray


def waits(events: CommEvents, matches: Matches) -> Waits:
    """Split every matched collective."""
    duration = events.duration_ns[matches.event]
    rank = events.rank[matches.event].astype(np.int64)
    begin = matches.first[:-1]
    names = np.array([name in ROOTED for name in events.operations], dtype=np.bool_)
    rooted = names[events.operation[matches.event[begin]]]
    root = events.root[matches.event]
    is_root = ~is_na(root) & (root == rank) & rooted[matches.instance]
    counted = np.where(is_root, np.iinfo(np.int64).max, duration)
    transfer = np.minimum.reduceat(counted, begin) if len(begin) else duration[:0]
    # A broadcast of which only the root was recorded has no other duration than the root's.
    alone = transfer == np.iinfo(np.int64).max
    if bool(alone.any()):
        transfer = np.where(alone, np.minimum.reduceat(duration, begin), transfer)
    wait = np.maximum(duration - transfer[matches.instance], 0)
    longest = np.maximum.reduceat(duration, begin) if len(begin) else duration[:0]
    # The first of the shortest, in order of rank, is the one that arrived last.
    order = np.lexsort((rank, counted, matches.instance))
    late = rank[order][begin] if len(begin) else rank[:0]
    known = np.zeros(len(begin), dtype=np.bool_)
    np.logical_or.at(known, matches.instance, is_root)
    return Waits(
        transfer_ns=transfer,
        wait_ns=wait,
        late_rank=late,
        lateness_ns=np.maximum(longest - transfer, 0),
        rooted=rooted,
        guessed=rooted & ~known,
    )


def undecided(split: Waits, residual_ns: int) -> BoolArray:
    """Return which instances name no late rank, given the residual of clock and matching."""
    return np.asarray(split.lateness_ns <= DECIDED_RESIDUALS * residual_ns, dtype=np.bool_)
