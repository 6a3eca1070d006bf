"""What one step does beyond the plain training step. Faults edit a plan; the trainer follows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from trace_analyzer.collectors.faultlab.batches import Batch
from trace_analyzer.collectors.faultlab.workload import LoaderOptions

if TYPE_CHECKING:
    from trace_analyzer.collectors.faultlab.trainer import Trainer

Hook = Callable[["Trainer"], None]


@dataclass(kw_only=True)
class StepPlan:
    """A step, and the hooks that run in it in this order."""

    loader: LoaderOptions = field(default_factory=LoaderOptions)
    fetch: Callable[[Trainer], Batch] | None = None  # instead of the loader
    transform: Callable[[Batch], Batch] | None = None  # after the loader, on the host
    micro_batches: int = 1
    sync_each_micro_batch: bool = False
    own_reduction: bool = False  # DDP reduces nothing; a hook does
    autocast_cache: bool = True
    shared_autocast: bool = False  # one autocast context around all micro-batches
    anomaly_mode: bool = False
    optimizer: str = "fused"  # fused, foreach or loop
    clip: str = ""  # "", "free" (no host sync) or "checked" (error_if_nonfinite)
    # model settings (eager models only)
    probes: list[Callable[[int, Tensor], Tensor]] = field(default_factory=list)
    activation: Callable[[Tensor], Tensor] | None = None
    recomputed: int = 0
    full_precision: int = 0
    # hooks
    before_step: list[Hook] = field(default_factory=list)
    after_transfer: list[Hook] = field(default_factory=list)
    before_backward: list[Hook] = field(default_factory=list)
    after_backward: list[Hook] = field(default_factory=list)
    after_step: list[Hook] = field(default_factory=list)

    def probe(self) -> Callable[[int, Tensor], Tensor] | None:
        """Return all probes as one, in order; None where there are none."""
        if not self.probes:
            return None

        def chain(index: int, hidden: Tensor) -> Tensor:
            for probe in self.probes:
                hidden = probe(index, hidden)
            return hidden

        return chain
