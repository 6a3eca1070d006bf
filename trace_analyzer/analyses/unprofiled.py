"""Step times without a profiler: given by the user, or measured beside the recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from trace_analyzer.model import UnprofiledSteps


@dataclass(frozen=True, slots=True, kw_only=True)
class Unprofiled:
    """T without a profiler, ms; `steps_ms` are those of the rank that decides it."""

    step_ms: float
    mean_ms: float | None
    basis: str  # "given" or "measured"
    steps_ms: tuple[float, ...] = ()


def unprofiled_step(
    measured: Sequence[UnprofiledSteps], given_ms: float | None = None
) -> Unprofiled | None:
    """Return the given time, else the maximum over ranks of measured medians; None without either."""
    if given_ms is not None:
        return Unprofiled(step_ms=given_ms, mean_ms=None, basis="given")
    with_steps = [item for item in measured if item.step_ms]
    if not with_steps:
        return None
    slowest = max(with_steps, key=lambda item: median(item.step_ms))
    return Unprofiled(
        step_ms=median(slowest.step_ms),
        mean_ms=max(fmean(item.step_ms) for item in with_steps),
        basis="measured",
        steps_ms=slowest.step_ms,
    )
