"""Faults and opportunities of computation on the GPU."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from trace_analyzer.collectors.faultlab.fault import LAST, Fault
from trace_analyzer.collectors.faultlab.plan import StepPlan
from trace_analyzer.collectors.faultlab.trainer import Trainer
from trace_analyzer.collectors.faultlab.workload import BuildOptions

EAGER = frozenset({"eager"})
SPIN_ROUNDS_PER_MS = 40_000  # of the spin kernel, when it shares a multiprocessor


class FullPrecision(Fault):
    """Some blocks run in float32, outside autocast."""

    name = "full-precision"
    causes = ("C1",)
    magnitudes = (2.0, 1.0, 4.0)
    unit = "blocks"
    needs = EAGER

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        plan.full_precision = int(self.magnitude)


class ElementwiseChain(Fault):
    """The activation is written out as a chain of element-wise operations, repeated."""

    name = "elementwise-chain"
    causes = ("C2",)
    magnitudes = (1.0, 2.0, 3.0)
    unit = "chains a block"
    needs = frozenset({"eager", "gpt"})

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        chains = int(self.magnitude)

        def activation(values: Tensor) -> Tensor:
            for _ in range(chains):
                cubed = values * values * values
                values = 0.5 * values * (1.0 + torch.tanh(0.79788456 * (values + 0.044715 * cubed)))
            return values

        plan.activation = activation


class OddVocabulary(Fault):
    """A vocabulary whose size no matrix kernel divides well."""

    name = "odd-vocabulary"
    causes = ("C3",)
    magnitudes = (1.0, 17.0)
    unit = "tokens too many"
    needs = frozenset({"gpt"})

    def build(self, options: BuildOptions) -> BuildOptions:
        return replace(options, extra_vocabulary=int(self.magnitude))


class LayoutCopies(Fault):
    """Activations are transposed into new memory and back after every block."""

    name = "layout-copies"
    causes = ("A2",)
    magnitudes = (2.0, 1.0, 4.0)
    unit = "round trips a block"
    needs = EAGER

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        trips = int(self.magnitude)

        def probe(index: int, hidden: Tensor) -> Tensor:  # noqa: ARG001
            for _ in range(trips):
                hidden = hidden.transpose(1, 2).contiguous().transpose(1, 2).contiguous()
            return hidden

        plan.probes.append(probe)


class NoAutocastCache(Fault):
    """Weights are cast anew for each of several micro-batches. Healthy: cast once a step."""

    name = "no-autocast-cache"
    causes = ("C4",)
    magnitudes = (4.0, 2.0)
    unit = "micro-batches"
    needs = frozenset({"eager", "gpt"})

    def baseline(self, plan: StepPlan, trainer: Trainer) -> None:
        plan.micro_batches = int(self.magnitude)
        plan.shared_autocast = True

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        plan.autocast_cache = False


class ChannelsFirst(Fault):
    """Convolutions in NCHW layout, which the matrix kernels have to transpose."""

    name = "channels-first"
    causes = ("C5",)
    needs = frozenset({"conv"})

    def build(self, options: BuildOptions) -> BuildOptions:
        return replace(options, channels_last=False)


class Recomputation(Fault):
    """Blocks keep no activations although memory suffices, and run forward twice."""

    name = "recomputation"
    causes = ("C7",)
    magnitudes = (1.0, 0.5)
    unit = "of the blocks"
    needs = EAGER

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        plan.recomputed = round(self.magnitude * len(trainer.model.blocks))


class VariedImages(Fault):
    """cuDNN benchmarks its kernels anew for every image size. Healthy: the same sizes, without."""

    name = "varied-images"
    quick = False
    causes = ("C6",)
    magnitudes = (3.0, 2.0)
    unit = "steps between sizes"
    needs = frozenset({"conv", "cuda"})
    comes_and_goes = True
    period = 3

    def baseline(self, plan: StepPlan, trainer: Trainer) -> None:
        scale, loader, every = trainer.workload.scale, plan.loader, int(self.magnitude)
        assert scale.conv is not None
        side = scale.conv.image

        def fetch(trainer: Trainer) -> tuple[Tensor, Tensor]:
            images, labels = trainer.to_device(trainer.source(loader).next())
            turn = trainer.index // every
            height, width = side - turn % 8, side - turn // 8 % 8
            return images[:, :, :height, :width].contiguous(), labels

        plan.fetch = fetch

    def switch_on(self, trainer: Trainer) -> None:
        torch.backends.cudnn.benchmark = True

    def switch_off(self, trainer: Trainer) -> None:
        torch.backends.cudnn.benchmark = False


class BusyMultiprocessors(Fault):
    """On the last rank, a kernel on another stream keeps some multiprocessors busy all the time."""

    name = "busy-multiprocessors"
    causes = ("C8", "N12-device")
    magnitudes = (32.0, 16.0, 64.0)
    unit = "multiprocessors"
    where = LAST
    needs = frozenset({"cuda"})

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        from trace_analyzer.collectors.faultlab.spin_kernel import spin

        programs = 2 * int(self.magnitude)  # two blocks of 1,024 threads fill a multiprocessor
        values = torch.ones(programs * 4096, device=trainer.world.device)
        stream = torch.cuda.Stream()
        rounds = int(SPIN_ROUNDS_PER_MS * trainer.workload.scale.nominal_step_ms * 0.8)

        def occupy(_: Trainer) -> None:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                spin(values, programs, rounds)

        plan.before_step.append(occupy)


class CoTenant(Fault):
    """Another process computes on the last rank's GPU for a part of the time."""

    name = "co-tenant"
    quick = False
    causes = ("C9", "C8", "N12-device")
    magnitudes = (0.5, 0.25, 0.75)
    unit = "of the time"
    where = LAST
    needs = frozenset({"cuda"})

    def __init__(self, magnitude: float, seed: int = 0) -> None:
        super().__init__(magnitude, seed)
        self._tenant: subprocess.Popen[str] | None = None

    def switch_on(self, trainer: Trainer) -> None:
        if self._tenant is None:
            program = "trace_analyzer.collectors.faultlab.tenant"
            self._tenant = subprocess.Popen(  # noqa: S603
                [
                    sys.executable,
                    "-m",
                    program,
                    str(trainer.world.device.index),
                    str(self.magnitude),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        self._say("on")

    def switch_off(self, trainer: Trainer) -> None:
        self._say("off")

    def close(self) -> None:
        if self._tenant is not None:
            self._tenant.kill()
            self._tenant.wait()
            self._tenant = None

    def _say(self, word: str) -> None:
        assert self._tenant is not None
        assert self._tenant.stdin is not None
        assert self._tenant.stdout is not None
        self._tenant.stdin.write(word + "\n")
        self._tenant.stdin.flush()
        if not self._tenant.stdout.readline():
            raise RuntimeError("the co-tenant ended")


def extra_work(trainer: Trainer, milliseconds: float) -> None:
    """Queue about this much dense work on the device, as matrix products and their activation."""
    side = 4096 if trainer.world.cuda else 64
    values = torch.ones(side, side, device=trainer.world.device, dtype=torch.bfloat16)
    # 0.19 ms a product at 720 TFLOP/s; on a CPU the amount does not matter
    rounds = max(1, round(milliseconds / 0.2)) if trainer.world.cuda else 1
    for _ in range(rounds):
        values = functional.relu(values @ values)
