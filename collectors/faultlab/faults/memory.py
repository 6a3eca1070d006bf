"""Faults of memory: allocator churn and blocking copies."""

from __future__ import annotations

import torch
from torch import Tensor

from trace_analyzer.collectors.faultlab.fault import Fault
from trace_analyzer.collectors.faultlab.plan import StepPlan
from trace_analyzer.collectors.faultlab.trainer import Trainer

CUDA = frozenset({"cuda"})


class EmptyCache(Fault):
    """The allocator's cache is emptied in every step, and memory asked for anew."""

    name = "empty-cache"
    causes = ("A1",)
    magnitudes = (1.0, 2.0, 3.0)
    unit = "times a step"
    needs = CUDA

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        places = (plan.after_step, plan.before_backward, plan.after_transfer)
        for place in places[: int(self.magnitude)]:
            place.append(_empty_cache)


class HostLogging(Fault):
    """A large tensor is copied to ordinary host memory in every step."""

    name = "host-logging"
    causes = ("D6-large",)
    magnitudes = (16.0, 8.0, 32.0)
    unit = "MB a step"
    needs = CUDA

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        values = torch.ones(
            int(self.magnitude * 1e6), dtype=torch.uint8, device=trainer.world.device
        )
        plan.before_backward.append(lambda _: _read(values))


class BlockingOffload(Fault):
    """Parameters (a part of them) visit the host in every step: out and back, each blocking."""

    name = "blocking-offload"
    causes = ("A3",)
    magnitudes = (16.0, 8.0, 32.0)
    unit = "MB each way"
    needs = CUDA

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        values = torch.ones(
            int(self.magnitude * 1e6), dtype=torch.uint8, device=trainer.world.device
        )

        def offload(_: Trainer) -> None:
            values.copy_(values.cpu())

        plan.before_step.append(offload)


def _empty_cache(_: Trainer) -> None:
    torch.cuda.empty_cache()


def _read(values: Tensor) -> None:
    values.cpu()
