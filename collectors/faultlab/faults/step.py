"""What happens in some steps only."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from trace_analyzer.collectors.faultlab.fault import FIRST, Fault
from trace_analyzer.collectors.faultlab.faults.compute import extra_work
from trace_analyzer.collectors.faultlab.plan import StepPlan
from trace_analyzer.collectors.faultlab.trainer import Trainer


class CheckpointStall(Fault):
    """Rank 0 saves parameters every third step while training waits."""

    name = "checkpoint-stall"
    quick = False
    causes = ("S2",)
    magnitudes = (100.0, 40.0, 300.0)
    unit = "MB"
    where = FIRST
    comes_and_goes = True
    period = 3

    def __init__(self, magnitude: float, seed: int = 0) -> None:
        super().__init__(magnitude, seed)
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        chosen, total = {}, 0
        for name, parameter in trainer.model.named_parameters():
            size = parameter.numel() * parameter.element_size()
            if total + size <= self.magnitude * 1e6:
                chosen[name] = parameter
                total += size
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="faultlab-")
        target = Path(self._folder.name) / "checkpoint.pt"

        def save(trainer: Trainer) -> None:
            if trainer.index % self.period == 0:
                torch.save({name: value.detach().cpu() for name, value in chosen.items()}, target)

        plan.after_step.append(save)

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()


class EvaluationSpike(Fault):
    """Every third step is followed by forward passes of an evaluation."""

    name = "evaluation-spike"
    quick = False
    causes = ("S3",)
    magnitudes = (4.0, 2.0, 8.0)
    unit = "passes"
    comes_and_goes = True
    period = 3

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        passes = int(self.magnitude)

        def evaluate(trainer: Trainer) -> None:
            if trainer.index % self.period:
                return
            with trainer.range("evaluation"), torch.no_grad():
                for _ in range(passes):
                    batch = trainer.fetch(plan)
                    with trainer.autocast(plan):
                        trainer.model(*batch)

        plan.after_step.append(evaluate)


class Drift(Fault):
    """In the second half of the run every step computes more, on all ranks."""

    name = "drift"
    quick = False
    least_steps = 10  # some before it begins, some after
    causes = ("S4",)
    magnitudes = (0.3, 0.15, 0.6)
    unit = "of a nominal step"
    comes_and_goes = True

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        duration_ms = self.magnitude * trainer.workload.scale.nominal_step_ms

        def work(trainer: Trainer) -> None:
            if trainer.progress >= 0.5:
                extra_work(trainer, duration_ms)

        plan.before_backward.append(work)
