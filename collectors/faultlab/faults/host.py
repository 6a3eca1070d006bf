"""Faults of the host: synchronisation, launches, pauses, contention for cores."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from trace_analyzer.collectors.faultlab.fault import FIRST, LAST, Fault, nominal_step_s
from trace_analyzer.collectors.faultlab.plan import StepPlan
from trace_analyzer.collectors.faultlab.trainer import Trainer
from trace_analyzer.collectors.faultlab.workload import BuildOptions

EAGER = frozenset({"eager"})


class ItemSync(Fault):
    """A statistic of each of the first blocks is read by the host with `.item()`."""

    name = "item-sync"
    causes = ("D6-small",)
    magnitudes = (8.0, 4.0, 2.0)
    unit = "reads a step"
    needs = EAGER

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        reads = int(self.magnitude)

        def probe(index: int, hidden: Tensor) -> Tensor:
            if index < reads:
                hidden.detach().abs().max().item()
            return hidden

        plan.probes.append(probe)


class CheckedClipping(Fault):
    """Gradient clipping checks for non-finite values on the host. Healthy: clipping without."""

    name = "checked-clipping"
    causes = ("L9",)

    def baseline(self, plan: StepPlan, trainer: Trainer) -> None:
        plan.clip = "free"

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        plan.clip = "checked"


class GarbagePause(Fault):
    """Full garbage collections over many objects, at random steps of each rank."""

    name = "garbage-pause"
    quick = False
    causes = ("L4",)
    magnitudes = (1.0, 0.5, 2.0)
    unit = "million objects"
    comes_and_goes = True
    period = 3

    def __init__(self, magnitude: float, seed: int = 0) -> None:
        super().__init__(magnitude, seed)
        self._objects: list[list[object]] = []
        self._random = random.Random(seed)  # noqa: S311

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        self._random.seed(self.seed * 1000 + trainer.world.rank)

        def collect(_: Trainer) -> None:
            if self._random.random() < 1 / self.period:
                gc.collect()

        plan.after_step.append(collect)

    def switch_on(self, trainer: Trainer) -> None:
        gc.disable()
        for _ in range(int(self.magnitude * 1e6)):
            item: list[object] = []
            item.append(item)
            self._objects.append(item)
        gc.enable()

    def switch_off(self, trainer: Trainer) -> None:
        self._objects.clear()
        gc.collect()


class FirstRankPause(Fault):
    """Rank 0 does extra work on the host (logging, say) every third step."""

    name = "first-rank-pause"
    quick = False
    causes = ("L7",)
    magnitudes = (2.0, 1.0, 4.0)
    unit = "nominal steps"
    where = FIRST
    comes_and_goes = True
    period = 3

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        pause_s = self.magnitude * nominal_step_s(trainer.workload)

        def pause(trainer: Trainer) -> None:
            if trainer.index % self.period == 0:
                time.sleep(pause_s)

        plan.before_step.append(pause)


class TinyMicroBatches(Fault):
    """The batch is worked off in small parts, each with all its launches; one reduction a step."""

    name = "tiny-micro-batches"
    causes = ("L1",)
    magnitudes = (4.0, 2.0, 8.0)
    unit = "parts"

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        plan.micro_batches = int(self.magnitude)


class GraphBreaks(Fault):
    """Every compiled block falls apart into three graphs with eager code between."""

    name = "graph-breaks"
    causes = ("L12",)
    needs = frozenset({"compiled", "gpt"})

    def build(self, options: BuildOptions) -> BuildOptions:
        return replace(options, graph_breaks=True)


class NotCompiled(Fault):
    """The program runs eagerly although it can be compiled. Healthy: compiled blocks."""

    name = "not-compiled"
    causes = ("L2",)
    needs = frozenset({"compiled"})

    def build(self, options: BuildOptions) -> BuildOptions:
        return replace(options, force_eager=True)


class UnfusedOptimizer(Fault):
    """AdamW as a chain of kernels for every parameter (2) or for groups of them (1)."""

    name = "unfused-optimizer"
    causes = ("L3",)
    magnitudes = (2.0, 1.0)
    unit = "1 foreach, 2 loop"

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        plan.optimizer = "loop" if self.magnitude >= 2 else "foreach"


class _Cores(Fault):
    """Keeps all threads of a process on few cores."""

    needs = frozenset({"cuda"})

    def __init__(self, magnitude: float, seed: int = 0) -> None:
        super().__init__(magnitude, seed)
        self._before: set[int] = set()

    def bind(self, cores: list[int]) -> None:
        """Bind all threads."""
        self._before = self._before or os.sched_getaffinity(0)
        _bind_threads(set(cores))

    def unbind(self) -> None:
        """Undo `bind`."""
        if self._before:
            _bind_threads(self._before)


class FewCores(_Cores):
    """All threads of all ranks share the same core (or few)."""

    name = "few-cores"
    quick = False
    causes = ("L5",)
    magnitudes = (1.0, 2.0)
    unit = "cores"

    def switch_on(self, trainer: Trainer) -> None:
        self.bind(_cores_of_host()[: int(self.magnitude)])

    def switch_off(self, trainer: Trainer) -> None:
        self.unbind()


class NoisyNeighbour(_Cores):
    """The last rank has one core and shares it with busy processes."""

    name = "noisy-neighbour"
    quick = False
    causes = ("L5", "L6", "N12-host")
    magnitudes = (2.0, 1.0, 4.0)
    unit = "busy processes"
    where = LAST

    def __init__(self, magnitude: float, seed: int = 0) -> None:
        super().__init__(magnitude, seed)
        self._busy: list[subprocess.Popen[bytes]] = []

    def switch_on(self, trainer: Trainer) -> None:
        cores = sorted(os.sched_getaffinity(0))[:1]
        self.bind(cores)
        for _ in range(int(self.magnitude)):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            os.sched_setaffinity(process.pid, cores)
            self._busy.append(process)
        time.sleep(0.2)

    def switch_off(self, trainer: Trainer) -> None:
        self.close()
        self.unbind()

    def close(self) -> None:
        for process in self._busy:
            process.kill()
            process.wait()
        self._busy.clear()


class LaunchBlocking(Fault):
    """CUDA_LAUNCH_BLOCKING=1: every launch waits for its kernel."""

    name = "launch-blocking"
    causes = ("L10",)
    needs = frozenset({"cuda"})

    def environment(self) -> dict[str, str]:
        return {"CUDA_LAUNCH_BLOCKING": "1"}


class AnomalyMode(Fault):
    """Autograd's anomaly detection, left on: every node's output is checked on the host."""

    name = "anomaly-mode"
    causes = ("L10", "D6-small")
    needs = EAGER

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        plan.anomaly_mode = True


class Recompilation(Fault):
    """A compiled function meets a new shape every few steps and is compiled again."""

    name = "recompilation"
    quick = False
    causes = ("L11",)
    magnitudes = (3.0, 2.0)
    unit = "steps between shapes"
    comes_and_goes = True
    period = 3
    needs = frozenset({"cuda"})

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        torch._dynamo.config.recompile_limit = 1 << 20  # noqa: SLF001
        torch._dynamo.config.accumulated_recompile_limit = 1 << 20  # noqa: SLF001
        every = int(self.magnitude)
        values = torch.ones(1 << 16, device=trainer.world.device)

        def smooth(part: Tensor) -> Tensor:
            return (part.cumsum(0) / part.shape[0]).tanh().sum()

        compiled = torch.compile(smooth, dynamic=False)

        def call(trainer: Trainer) -> None:
            compiled(values[: 1024 + trainer.index // every])

        plan.before_backward.append(call)


def _cores_of_host() -> list[int]:
    return list(range(os.cpu_count() or 1))


def _bind_threads(cores: set[int]) -> None:
    for task in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(task.name), cores)
        except ProcessLookupError:
            continue  # the thread has ended since
