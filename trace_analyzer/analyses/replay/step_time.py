"""Settled steps of a program, and T of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.replay.program import Program
from trace_analyzer.analyses.replay.steady_state import step_times_ns
from trace_analyzer.schema import BoolArray, Float64Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTime:
    """Settled steps of a program: `table_ns`, shape (ranks, steps); which of them are `steady`."""

    table_ns: Float64Array
    steady: BoolArray

    @property
    def steady_ns(self) -> Float64Array:
        """The steady steps, shape (ranks, their number)."""
        chosen: Float64Array = self.table_ns[:, self.steady]
        return chosen

    @property
    def median_ns(self) -> float:
        """Maximum over ranks of the median steady step."""
        return float(np.max(np.median(self.steady_ns, axis=1)))

    @property
    def mean_ns(self) -> float:
        """Maximum over ranks of the mean step."""
        return float(np.max(np.mean(self.table_ns, axis=1)))

    def value_ns(self, *, mean: bool) -> float:
        """Return T by the statistic that fits the cause."""
        return self.mean_ns if mean else self.median_ns


def step_time(program: Program, steady: BoolArray) -> StepTime:
    """Return the settled steps of a program. Raises `ReplayError`."""
    return StepTime(table_ns=step_times_ns(program), steady=steady)
