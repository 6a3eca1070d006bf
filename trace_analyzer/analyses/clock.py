"""How far apart the clocks of the ranks are, from the ends of matched collectives.

All participants of an all-participant collective leave it together, but for a bias: the rank that
came first ends about 11 µs earlier than the one that came last. So ends are compared where ranks
arrived within 3 µs of each other; where too few did, the bias is fitted along with the offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.comm_events import PEER, ROOTED, CommEvents
from trace_analyzer.analyses.matching import Matches
from trace_analyzer.schema import BoolArray, Float64Array, Int64Array

# Arrivals this near leave no bias (measured: -0.15 µs, quartiles -0.42 and 0.34 µs).
NEAR_ARRIVAL_NS = 3_000
# Fewer near arrivals than this do not carry a fit of their own.
LEAST_NEAR = 8
# What the first to arrive ends earlier by, once arrivals differ (measured: 11.0 and 11.1 µs).
ARRIVAL_BIAS_NS = 11_000.0
# No order is claimed below this, whatever the fit says: hand-over and bias are of this size.
LEAST_RESIDUAL_NS = 15_000
# Drift is fitted only over recordings that are long enough for 20 ppm to exceed the residual.
LEAST_DRIFT_SPAN_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockFit:
    """A rank's clock against the reference rank of the run.

    Time on the reference's clock = t - offset_ns - drift * (t - origin_ns). `residual_ns` is the
    95th percentile of what the fit leaves, at least 15 µs. `count` is the number of collectives
    used; with none, offset is 0 and the clock bases alone are trusted.
    """

    rank: int
    offset_ns: float
    drift: float
    origin_ns: int
    residual_ns: int
    count: int

    def to_reference(self, times_ns: Int64Array) -> Int64Array:
        """Return times of this rank on the reference's clock, ns."""
        shift = self.offset_ns + self.drift * (times_ns - self.origin_ns).astype(np.float64)
        return times_ns - np.rint(shift).astype(np.int64)


def fit_clocks(
    events: CommEvents, matches: Matches, base_ns: Mapping[int, int], recording: Mapping[int, str]
) -> dict[int, ClockFit]:
    """Return the clock of every rank that takes part in a matched collective.

    `base_ns` is added to a rank's times first; ranks without one are fitted all the same. Ranks
    are reached from the lowest one through the groups they share. `recording` names where a rank's
    times come from: ranks of one recording share a clock, so that only a residual is found.
    """
    kind = np.array([name in ROOTED or name in PEER for name in events.operations], dtype=np.bool_)
    whole = ~kind[events.operation[matches.event[matches.first[:-1]]]]
    table = _Table(events, matches, whole, base_ns)
    reference = min(table.ranks, default=None)
    if reference is None:
        return {}
    fits = {
        reference: ClockFit(
            rank=reference,
            offset_ns=0.0,
            drift=0.0,
            origin_ns=0,
            residual_ns=LEAST_RESIDUAL_NS,
            count=0,
        )
    }
    pending = [reference]
    while pending:
        source = pending.pop(0)
        for target in table.peers(source):
            if target in fits:
                continue
            shared = recording.get(source, "") == recording.get(target, None)
            fits[target] = _fit(table, source, target, fits[source], shared=shared)
            pending.append(target)
    return fits


class _Table:
    """Ends and durations of all-participant collectives, by rank."""

    def __init__(
        self, events: CommEvents, matches: Matches, whole: BoolArray, base_ns: Mapping[int, int]
    ) -> None:
        chosen = whole[matches.instance]
        event, self.instance = matches.event[chosen], matches.instance[chosen]
        self.rank = events.rank[event]
        base = np.array(
            [base_ns.get(int(rank), 0) for rank in np.unique(self.rank)], dtype=np.int64
        )
        position = np.searchsorted(np.unique(self.rank), self.rank)
        self.end = events.end_ns[event] + (base[position] if len(base) else 0)
        self.duration = events.duration_ns[event]
        self.ranks = [int(rank) for rank in np.unique(self.rank)]
        self.rows = {rank: np.flatnonzero(self.rank == rank) for rank in self.ranks}

    def peers(self, rank: int) -> list[int]:
        mine = np.zeros(int(self.instance.max(initial=-1)) + 1, dtype=np.bool_)
        mine[self.instance[self.rows[rank]]] = True
        return [int(other) for other in np.unique(self.rank[mine[self.instance]])]

    def common(self, left: int, right: int) -> tuple[Int64Array, Int64Array]:
        a, b = self.rows[left], self.rows[right]
        _, i, j = np.intersect1d(
            self.instance[a], self.instance[b], assume_unique=True, return_indices=True
        )
        return a[i], b[j]


def _fit(table: _Table, source: int, target: int, through: ClockFit, *, shared: bool) -> ClockFit:
    mine, theirs = table.common(target, source)
    end = table.end[mine]
    delta = (end - through.to_reference(table.end[theirs])).astype(np.float64)
    # Positive where the target arrived later than the source, which needs no clock.
    later = (table.duration[theirs] - table.duration[mine]).astype(np.float64)
    near = np.abs(later) <= NEAR_ARRIVAL_NS
    origin = int(end.min())
    if int(near.sum()) >= LEAST_NEAR:
        corrected, used = delta, near
    else:
        bias = np.clip(later / NEAR_ARRIVAL_NS, -1.0, 1.0)
        corrected, used = delta - bias * _bias(delta, bias), np.ones(len(delta), dtype=np.bool_)
    at_ns = (end - origin)[used].astype(np.float64)
    offset, drift = (0.0, 0.0) if shared else _line(corrected[used], at_ns)
    left = np.abs(corrected[used] - offset - drift * at_ns)
    residual = max(float(np.percentile(left, 95)), float(LEAST_RESIDUAL_NS))
    residual = max(residual, float(through.residual_ns))
    if abs(offset) <= residual and abs(drift) * float(np.ptp(end)) <= residual:
        # What the residual can explain is no offset.
        offset, drift = 0.0, 0.0
    return ClockFit(
        rank=target,
        offset_ns=offset,
        drift=drift,
        origin_ns=origin,
        residual_ns=round(residual),
        count=int(used.sum()),
    )


def _bias(delta: Float64Array, bias: Float64Array) -> float:
    """Return the bias of unequal arrivals: fitted where both orders occur, else the usual one."""
    first, last = delta[bias < -0.5], delta[bias > 0.5]
    if min(len(first), len(last)) >= LEAST_NEAR:
        return float(np.median(last) - np.median(first)) / 2
    return ARRIVAL_BIAS_NS


def _line(values: Float64Array, at_ns: Float64Array) -> tuple[float, float]:
    """Return (offset at 0, slope) of a robust line; slope 0 over short recordings.

    Slope by the median of slopes between the first and the second half (Theil-Sen on pairs half a
    recording apart), which is linear in the number of points and resists outliers.
    """
    if len(values) < 2 * LEAST_NEAR or float(np.ptp(at_ns)) < LEAST_DRIFT_SPAN_NS:
        return float(np.median(values)), 0.0
    order = np.argsort(at_ns, kind="stable")
    values, at_ns = values[order], at_ns[order]
    half = len(values) // 2
    run = at_ns[half : 2 * half] - at_ns[:half]
    slope = float(np.median((values[half : 2 * half] - values[:half]) / np.maximum(run, 1.0)))
    return float(np.median(values - slope * at_ns)), slope
