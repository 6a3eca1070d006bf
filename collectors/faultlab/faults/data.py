"""Faults of the input pipeline."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, distributed

from trace_analyzer.collectors.faultlab.batches import Batch
from trace_analyzer.collectors.faultlab.fault import Fault, nominal_step_s
from trace_analyzer.collectors.faultlab.plan import Hook, StepPlan
from trace_analyzer.collectors.faultlab.trainer import Trainer

STEPS = "of a nominal step"


def _sleep_per_sample_ms(fault: Fault, trainer: Trainer) -> float:
    return fault.magnitude * trainer.workload.scale.nominal_step_ms / trainer.workload.scale.batch


class LoaderInProcess(Fault):
    """Samples are loaded in the training process, which waits for them."""

    name = "loader-in-process"
    causes = ("D1",)
    magnitudes = (1.0, 0.5, 1.6)
    unit = STEPS

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        sleep_ms = _sleep_per_sample_ms(self, trainer)
        plan.loader = replace(plan.loader, workers=0, sleep_ms_per_sample=sleep_ms)


class LoaderTooFewWorkers(Fault):
    """One worker needs longer for a batch than a step takes."""

    name = "loader-too-few-workers"
    quick = False
    causes = ("D2",)
    magnitudes = (1.5, 1.25, 2.0)
    unit = STEPS
    needs = frozenset({"cuda"})  # tiny workloads load without workers

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        sleep_ms = _sleep_per_sample_ms(self, trainer)
        plan.loader = replace(plan.loader, workers=1, prefetch=2, sleep_ms_per_sample=sleep_ms)


class SlowTransform(Fault):
    """The main process converts every batch sample by sample, through Python lists."""

    name = "slow-transform"
    causes = ("D3",)
    magnitudes = (1.0, 0.5, 1.5)
    unit = STEPS

    def __init__(self, magnitude: float, seed: int = 0) -> None:
        super().__init__(magnitude, seed)
        self._conversions = 0

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        duration_s = self.magnitude * nominal_step_s(trainer.workload)

        def transform(batch: Batch) -> Batch:
            flat = batch[0].reshape(-1)[:2000]
            if not self._conversions:
                # The first batch tells how many make up the time. Later ones are as much work, not
                # as much time: a profiler makes it longer, as it does to a real transform.
                until = time.perf_counter() + duration_s
                while time.perf_counter() < until:
                    torch.tensor(flat.tolist())
                    self._conversions += 1
                return batch
            for _ in range(self._conversions):
                torch.tensor(flat.tolist())
            return batch

        plan.transform = transform


class _Payload(Fault):
    """Each batch brings a large tensor. Healthy: from pinned memory, asynchronously."""

    unit = "MB a step"
    needs = frozenset({"cuda"})

    def __init__(self, magnitude: float, seed: int = 0) -> None:
        super().__init__(magnitude, seed)
        self._pinned: Tensor | None = None
        self._pageable: Tensor | None = None
        self._healthy: Hook | None = None

    def pinned(self) -> Tensor:
        """Return the payload in pinned memory."""
        if self._pinned is None:
            self._pinned = self.pageable().pin_memory()
        return self._pinned

    def pageable(self) -> Tensor:
        """Return the payload in ordinary memory."""
        if self._pageable is None:
            self._pageable = torch.ones(int(self.magnitude * 1e6), dtype=torch.uint8)
        return self._pageable

    def baseline(self, plan: StepPlan, trainer: Trainer) -> None:
        payload = self.pinned()
        self._healthy = lambda t: _drop(payload.to(t.world.device, non_blocking=True))
        plan.after_transfer.append(self._healthy)

    def replace_copy(self, plan: StepPlan, copy: Hook) -> None:
        """Let `copy` take the place of the healthy copy."""
        assert self._healthy is not None
        plan.after_transfer[plan.after_transfer.index(self._healthy)] = copy

    def close(self) -> None:
        self._pinned = self._pageable = None


class PageableCopy(_Payload):
    """The payload is copied from pageable memory, which blocks the host."""

    name = "pageable-copy"
    causes = ("D4",)
    magnitudes = (64.0, 32.0, 128.0)

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        payload = self.pageable()
        self.replace_copy(plan, lambda t: _drop(payload.to(t.world.device, non_blocking=True)))


class PinInStep(_Payload):
    """The payload is pinned anew in every step by the main thread, then copied blocking."""

    name = "pin-in-step"
    causes = ("D5",)
    magnitudes = (32.0, 16.0, 64.0)

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        payload = self.pageable()
        self.replace_copy(plan, lambda t: _drop(payload.pin_memory().to(t.world.device)))


class CentralLoader(Fault):
    """Rank 0 loads the batches of all ranks and broadcasts them."""

    name = "central-loader"
    causes = ("D7",)
    magnitudes = (1.0, 0.5, 1.6)
    unit = STEPS
    needs = frozenset({"ranks"})

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        world = trainer.world
        sleep_ms = _sleep_per_sample_ms(self, trainer)
        extra = trainer.workload.scale.batch * (world.size - 1)
        options = replace(
            plan.loader,
            workers=0,
            sleep_ms_per_sample=sleep_ms / world.size,
            extra_samples=extra,
            sharded=False,
        )

        def fetch(trainer: Trainer) -> Batch:
            if world.rank == 0:
                inputs, targets = trainer.to_device(trainer.source(options).next())
            else:
                inputs, targets = (torch.empty_like(part) for part in shapes)
            whole = inputs.contiguous(), targets.contiguous()
            for tensor in whole:
                distributed.broadcast(tensor, 0)
            own_inputs, own_targets = (part.chunk(world.size)[world.rank] for part in whole)
            return own_inputs, own_targets

        shapes = trainer.to_device(trainer.source(replace(options, sleep_ms_per_sample=0.0)).next())
        trainer.close_sources(keep=plan.loader)
        plan.fetch = fetch


class ColdStorage(Fault):
    """The only worker reads every batch from a disk whose cache is cold."""

    name = "cold-storage"
    quick = False
    causes = ("D8", "D2")
    magnitudes = (32.0, 16.0, 64.0)
    unit = "MB a step"
    needs = frozenset({"cuda"})

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        size = self.magnitude / trainer.workload.scale.batch
        plan.loader = replace(plan.loader, workers=1, prefetch=2, read_mb_per_sample=size)


class UnshardedData(Fault):
    """All ranks train on the same samples. Costs no step time: it makes half of them vain."""

    name = "unsharded-data"
    causes = ("D9",)
    needs: ClassVar[frozenset[str]] = frozenset({"ranks"})

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        plan.loader = replace(plan.loader, sharded=False)


def _drop(value: Tensor) -> None:
    """Let go of a tensor: what a training step does with a payload it has used."""
    del value
