"""Negative controls: nothing, or something that costs nothing because it is hidden."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from queue import SimpleQueue

import torch
from torch import distributed

from trace_analyzer.collectors.faultlab.fault import LAST, Fault, nominal_step_s
from trace_analyzer.collectors.faultlab.plan import StepPlan
from trace_analyzer.collectors.faultlab.trainer import Trainer

CUDA = frozenset({"cuda"})


class Healthy(Fault):
    """Nothing at all."""

    name = "healthy"


class HiddenLoader(Fault):
    """Workers need half a step for a batch; prefetching hides it."""

    name = "hidden-loader"
    quick = False
    magnitudes = (0.5, 0.9)
    unit = "of a nominal step"
    needs = CUDA

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        scale = trainer.workload.scale
        sleep_ms = self.magnitude * scale.nominal_step_ms / scale.batch
        plan.loader = replace(plan.loader, sleep_ms_per_sample=sleep_ms)


class HiddenPageableCopy(Fault):
    """A thread copies from pageable memory on a stream of its own, ahead of its use."""

    name = "hidden-pageable-copy"
    magnitudes = (32.0, 16.0)
    unit = "MB a step"
    needs = frozenset({"cuda", "large"})

    def __init__(self, magnitude: float, seed: int = 0) -> None:
        super().__init__(magnitude, seed)
        self._requests: SimpleQueue[bool] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        device, stream = trainer.world.device, torch.cuda.Stream()
        payload = torch.ones(int(self.magnitude * 1e6), dtype=torch.uint8)
        target = torch.empty_like(payload, device=device)

        def copy() -> None:
            torch.cuda.set_device(device)
            while self._requests.get():
                with torch.cuda.stream(stream):
                    target.copy_(payload)

        if self._thread is None:
            self._thread = threading.Thread(target=copy, name="prefetch", daemon=True)
            self._thread.start()
        plan.after_transfer.append(lambda _: self._requests.put(True))

    def close(self) -> None:
        if self._thread is not None:
            self._requests.put(False)
            self._thread.join()


class SyncWhileBusy(Fault):
    """The host reads the loss of the step before last, which the GPU has long passed."""

    name = "sync-while-busy"
    needs = CUDA

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        slots = [torch.zeros((), pin_memory=True) for _ in range(2)]
        events = [torch.cuda.Event() for _ in range(2)]

        def log(trainer: Trainer) -> None:
            turn = trainer.index % 2
            events[turn].synchronize()
            float(slots[turn])
            slots[turn].copy_(trainer.loss.float(), non_blocking=True)
            events[turn].record()

        plan.after_step.append(log)


class ScalarReductions(Fault):
    """Scalars are reduced over ranks asynchronously; nobody waits for them."""

    name = "scalar-reductions"
    magnitudes = (2.0, 5.0)
    unit = "scalars a step"
    needs = frozenset({"cuda", "ranks"})

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        count = int(self.magnitude)

        def reduce(trainer: Trainer) -> None:
            for _ in range(count):
                distributed.all_reduce(trainer.loss.clone(), async_op=True)

        plan.before_backward.append(reduce)


class HiddenHostDelay(Fault):
    """The last rank's host pauses, but its GPU has work enough queued."""

    name = "hidden-host-delay"
    magnitudes = (0.2, 0.1)
    unit = "of a nominal step"
    where = LAST
    needs = frozenset({"large", "ranks"})

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        pause_s = self.magnitude * nominal_step_s(trainer.workload)
        plan.after_transfer.append(lambda _: time.sleep(pause_s))


class BelowNoise(Fault):
    """Every step computes one hundredth of a step more: too little to be told."""

    name = "below-noise"
    magnitudes = (0.01, 0.005)
    unit = "of a nominal step"

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        side = 2048 if trainer.world.cuda else 16
        values = torch.ones(side, side, device=trainer.world.device)
        rounds = max(1, round(self.magnitude * trainer.workload.scale.nominal_step_ms / 0.01))

        def work(_trainer: Trainer) -> None:
            for _ in range(rounds):
                values.mul_(1.0)

        plan.before_backward.append(work)


class SmallPageableCopies(Fault):
    """A few kilobytes from pageable memory in every step."""

    name = "small-pageable-copies"
    magnitudes = (4.0, 8.0)
    unit = "copies of 16 KB"

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        values, count = torch.ones(1 << 14, dtype=torch.uint8), int(self.magnitude)

        def copy(trainer: Trainer) -> None:
            for _ in range(count):
                values.to(trainer.world.device, non_blocking=True)

        plan.after_transfer.append(copy)


class LateStart(Fault):
    """The last rank's recording begins some steps later than the others'."""

    name = "late-start"
    magnitudes = (1.0, 2.0)
    unit = "steps"
    where = LAST
    needs = frozenset({"ranks"})
