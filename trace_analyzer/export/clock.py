"""All ranks on one clock: by clock bases and the ends of matched collectives.

A rank's times are moved by a constant, so that every duration stays as it was recorded; drift is
taken at the middle of the rank's window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.study import Study
from trace_analyzer.model import Rank

_MARGIN_NS = 1_000_000  # times stay positive, and none is zero


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonClock:
    """`shift_ns` is what to add to a rank's times; the first event of all is then at 1 ms.

    `base_ns` is the Unix time of zero, None where no recording tells it.
    """

    shift_ns: dict[int, int]
    base_ns: int | None


def common_clock(study: Study) -> CommonClock:
    """Return where the times of every rank lie on the clock of all.

    Ranks that share a matched collective with the reference are moved by the fit, others by their
    clock base; where there is neither, windows are put together at their starts.
    """
    ranks = {rank.rank: rank for rank in study.run.ranks}
    shift: dict[int, int] = {}
    fits = {} if study.cross is None else study.cross.clocks
    for number, fit in fits.items():
        base = ranks[number].clock_base_ns or 0
        steps = study.ranks[number].steps
        middle = (steps.window_start_ns + steps.window_end_ns) // 2 + base
        at = np.array([middle], dtype=np.int64)
        shift[number] = base + int(fit.to_reference(at)[0]) - middle
    reference = min(fits, default=None)
    unix = (
        any(rank.clock_base_ns is not None for rank in ranks.values())
        if reference is None
        else ranks[reference].clock_base_ns is not None
    )
    left = [number for number in ranks if number not in shift]
    bases = {number: ranks[number].clock_base_ns for number in left}
    if unix:
        shift |= {number: base for number, base in bases.items() if base is not None}
    begun = {number: first_ns(rank) for number, rank in ranks.items()}
    placed = [begun[number] + moved for number, moved in shift.items()]
    origin = min(placed, default=0)
    shift |= {number: origin - begun[number] for number in ranks if number not in shift}
    zero = min((begun[n] + moved for n, moved in shift.items()), default=0) - _MARGIN_NS
    return CommonClock(
        shift_ns={number: shift[number] - zero for number in ranks},
        base_ns=zero if unix else None,
    )


def first_ns(rank: Rank) -> int:
    """Return the start of a rank's first event of any kind, 0 without any."""
    tables = (rank.operations, rank.calls, rank.events, rank.syncs)
    return min((int(table.start_ns.min()) for table in tables if len(table)), default=0)
