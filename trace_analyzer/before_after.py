"""Whether steps timed after the profiled ones may be pooled with those timed before them.

A profiler that has stopped can leave a host-bound process slower than it was (buffers, callbacks
that stay registered, a fragmented heap), so later steps are not always unprofiled ones. Where the
two rows of steps differ by more than their noise, only the earlier ones count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median

LEAST_STEPS = 5  # on either side; with fewer there is no telling, and all count
_SIGMAS = 3.0
_LEAST_SHARE = 0.01  # of the step: below it, it does not matter which are taken
_MAD_TO_SIGMA = 1.4826
_MEDIAN_TO_MEAN = 1.2533  # standard error of a median over that of a mean, for a normal spread
NOTE_BEGINS = "unprofiled steps after the profiled ones take "


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlike:
    """Medians of two rows of steps that differ, in ms."""

    before_ms: float
    after_ms: float

    def text(self) -> str:
        """Return the finding as one clause."""
        return f"{NOTE_BEGINS}{self.after_ms:.2f} ms, those before {self.before_ms:.2f} ms"


def unlike(before_ms: Sequence[float], after_ms: Sequence[float]) -> Unlike | None:
    """Return the medians where they differ beyond noise; None where all steps may be pooled."""
    if len(before_ms) < LEAST_STEPS or len(after_ms) < LEAST_STEPS:
        return None
    before, after = median(before_ms), median(after_ms)
    noise = _SIGMAS * sqrt(_error(before_ms, before) ** 2 + _error(after_ms, after) ** 2)
    if abs(after - before) <= max(noise, _LEAST_SHARE * before):
        return None
    return Unlike(before_ms=before, after_ms=after)


def _error(values: Sequence[float], centre: float) -> float:
    spread = _MAD_TO_SIGMA * median(abs(value - centre) for value in values)
    return _MEDIAN_TO_MEAN * spread / sqrt(len(values))
