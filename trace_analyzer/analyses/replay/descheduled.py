"""Time in which a host wanted to run and had no core.

Steps do the same work in the same order, so that a gap that is much longer than the one at its place
in other steps is no work. A pause of the program (garbage collection, a checkpoint) is one such gap in
some steps; a host that shares its cores with others has several in every step: in labelled runs 5 to
9, and never more than 1.4 where nothing shared them.
"""

from __future__ import annotations

import numpy as np

from trace_analyzer.schema import Float64Array, Int32Array, Int64Array

# A gap that is longer by this than its like is no scatter of the same work: a time slice of the
# Linux scheduler takes 0.75 ms and more.
LEAST_EXCESS_NS = 500_000
LEAST_A_STEP = 3.0
LEAST_STEPS = 3


def descheduled_ns(gap_ns: Int64Array, step: Int32Array, steps: int) -> Float64Array:
    """Return how much of each node's gap is waiting for a core; 0 where cores were not shared.

    `step` is the step of each node, in order. Only steps with the usual number of nodes are
    compared, and nothing is found with fewer than three of these.
    """
    none = np.zeros(len(gap_ns), dtype=np.float64)
    first = np.searchsorted(step, np.arange(steps))
    # The last node closes the window and is no node of its step's like.
    count = np.diff(np.append(first, len(step) - 1))
    usual = int(np.median(count))
    alike = np.flatnonzero(count == usual)
    if len(alike) < LEAST_STEPS or usual < 2:
        return none
    # What lies before the mark of a step is the end of the step before.
    places = first[alike][:, None] + np.arange(1, usual)[None, :]
    gaps = gap_ns[places]
    like = np.sort(gaps, axis=0)[(len(alike) - 1) // 2]
    excess = gaps - like
    found = excess > LEAST_EXCESS_NS
    if found.sum() < LEAST_A_STEP * len(alike):
        return none
    none[places] = np.where(found, excess, 0)
    return none
