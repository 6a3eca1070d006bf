"""One rank that is late, or has more to do."""

from __future__ import annotations

import time
from dataclasses import replace

from torch import Tensor

from trace_analyzer.collectors.faultlab.fault import LAST, Fault, nominal_step_s
from trace_analyzer.collectors.faultlab.faults.compute import extra_work
from trace_analyzer.collectors.faultlab.plan import StepPlan
from trace_analyzer.collectors.faultlab.trainer import Trainer

RANKS = frozenset({"ranks"})


class LateHost(Fault):
    """The last rank's host sleeps before every forward pass."""

    name = "late-host"
    causes = ("L6", "N12-host")
    magnitudes = (0.6, 0.35, 1.0)
    unit = "of a nominal step"
    where = LAST
    needs = RANKS

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        pause_s = self.magnitude * nominal_step_s(trainer.workload)
        plan.after_transfer.append(lambda _: time.sleep(pause_s))


class SlowPython(Fault):
    """The last rank's Python needs longer in every block."""

    name = "slow-python"
    causes = ("L6", "N12-host")
    magnitudes = (1.0, 0.5, 2.0)
    unit = "of a nominal step"
    where = LAST
    needs = frozenset({"ranks", "eager"})

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        pause_s = self.magnitude * nominal_step_s(trainer.workload) / len(trainer.model.blocks)

        def probe(index: int, hidden: Tensor) -> Tensor:  # noqa: ARG001
            until = time.perf_counter() + pause_s
            while time.perf_counter() < until:
                pass
            return hidden

        plan.probes.append(probe)


class ExtraKernels(Fault):
    """The last rank computes something more on its GPU in every step."""

    name = "extra-kernels"
    causes = ("N12-device", "N13")
    magnitudes = (0.3, 0.15, 0.6)
    unit = "of a nominal step"
    where = LAST
    needs = RANKS

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        duration_ms = self.magnitude * trainer.workload.scale.nominal_step_ms
        plan.before_backward.append(lambda t: extra_work(t, duration_ms))


class UnequalBatch(Fault):
    """The last rank's batch is larger."""

    name = "unequal-batch"
    causes = ("N13",)
    magnitudes = (0.25, 0.5, 0.125)
    unit = "of the batch more"
    where = LAST
    needs = RANKS

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        extra = max(1, round(self.magnitude * trainer.workload.scale.batch))
        plan.loader = replace(plan.loader, extra_samples=extra)
