"""What a recorder costs on the host that was recorded, as measured there by small loops.

The loops run with the recorder and without it; times are host µs a call, medians over rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TORCH_PROFILER = "torch.profiler"
NSYS = "nsys"
RECORDERS = (TORCH_PROFILER, NSYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCost:
    """What one call of a kind costs; `delta_us` is what the recorder adds to it.

    The last two count the events that the recorder notes for a call; None where not known.
    """

    name: str
    calls: int
    unprofiled_us: float
    profiled_us: float
    delta_us: float
    delta_interval_us: tuple[float, float]
    cpu_ops_per_call: float | None = None
    runtime_calls_per_call: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The costs that one rank measured."""

    rank: int
    recorder: str  # one of RECORDERS
    rounds: int
    costs: tuple[CallCost, ...]
    device: str = ""
    options: Mapping[str, bool] = field(default_factory=dict)  # of the recorder
    path: str = ""

    def cost(self, name: str) -> CallCost | None:
        """Return the cost of a kind of call (`aten_op`, `runtime_call`, …), where measured."""
        return next((cost for cost in self.costs if cost.name == name), None)


__all__ = ["NSYS", "RECORDERS", "TORCH_PROFILER", "Calibration", "CallCost"]
