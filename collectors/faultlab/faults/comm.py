"""Faults of collectives and of their overlap with computation."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import distributed

from trace_analyzer.collectors.faultlab.fault import Fault
from trace_analyzer.collectors.faultlab.plan import StepPlan
from trace_analyzer.collectors.faultlab.trainer import Trainer, gradients
from trace_analyzer.collectors.faultlab.workload import BuildOptions

DDP = frozenset({"ddp", "ranks"})
NCCL = frozenset({"cuda", "ddp", "ranks"})


class OneBucket(Fault):
    """All gradients travel in one bucket, which is full only when backward is through."""

    name = "one-bucket"
    causes = ("N2", "N1")
    magnitudes = (100_000.0, 400.0)
    unit = "MB a bucket"
    needs = DDP

    def build(self, options: BuildOptions) -> BuildOptions:
        return replace(options, bucket_cap_mb=self.magnitude)


class TinyBuckets(Fault):
    """Buckets so small that nearly every parameter is reduced alone."""

    name = "tiny-buckets"
    causes = ("N3",)
    magnitudes = (0.1, 1.0)
    unit = "MB a bucket"
    needs = DDP

    def build(self, options: BuildOptions) -> BuildOptions:
        return replace(options, bucket_cap_mb=self.magnitude)


class SerialReduction(Fault):
    """Gradients are reduced one by one (1) or all at once (2), after backward has ended."""

    name = "serial-reduction"
    causes = ("N4", "N2")
    magnitudes = (1.0, 2.0)
    unit = "1 each, 2 flat"
    needs = DDP

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        flat = self.magnitude >= 2

        def reduce(trainer: Trainer) -> None:
            parts = gradients(trainer)
            if flat:
                joined = torch.cat([part.flatten() for part in parts])
                distributed.all_reduce(joined)
                joined /= trainer.world.size
                pieces = joined.split([part.numel() for part in parts])
                for part, piece in zip(parts, pieces, strict=True):
                    part.copy_(piece.view_as(part))
                return
            for part in parts:
                distributed.all_reduce(part)
                part.div_(trainer.world.size)

        plan.own_reduction = True
        plan.after_backward.append(reduce)


class UnusedParameterSearch(Fault):
    """DDP looks for unused parameters in every step although there are none."""

    name = "unused-parameter-search"
    causes = ("N5",)
    needs = DDP

    def build(self, options: BuildOptions) -> BuildOptions:
        return replace(options, find_unused_parameters=True)


class ReductionEachMicroBatch(Fault):
    """Gradients are reduced after every micro-batch. Healthy: once, after the last."""

    name = "reduction-each-micro-batch"
    causes = ("N6",)
    magnitudes = (4.0, 2.0)
    unit = "micro-batches"
    needs = frozenset({"ranks"})

    def baseline(self, plan: StepPlan, trainer: Trainer) -> None:
        plan.micro_batches = int(self.magnitude)

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        plan.sync_each_micro_batch = True


class FewChannels(Fault):
    """NCCL may use few channels."""

    name = "few-channels"
    causes = ("N7",)
    magnitudes = (1.0, 2.0, 4.0)
    unit = "channels"
    needs = NCCL

    def build(self, options: BuildOptions) -> BuildOptions:
        return replace(options, max_ctas=int(self.magnitude))


class ManyChannels(Fault):
    """NCCL takes more channels than the link needs, away from computation. Healthy: eight."""

    name = "many-channels"
    causes = ("N11",)
    magnitudes = (32.0,)
    unit = "channels"
    needs = NCCL

    def baseline_build(self, options: BuildOptions) -> BuildOptions:
        return replace(options, max_ctas=8)

    def build(self, options: BuildOptions) -> BuildOptions:
        channels = int(self.magnitude)
        return replace(options, max_ctas=channels, min_ctas=channels)


class ForcedProtocol(Fault):
    """NCCL is told to use its low-latency protocol for large messages too."""

    name = "forced-protocol"
    causes = ("N8",)
    needs = NCCL

    def build(self, options: BuildOptions) -> BuildOptions:
        return replace(options, communicator_environment=(("NCCL_PROTO", "LL"),))


class SlowTransport(Fault):
    """No peer-to-peer copies: shared memory instead (1), or sockets (2)."""

    name = "slow-transport"
    causes = ("N9", "N10")
    magnitudes = (1.0, 2.0)
    unit = "1 shared memory, 2 sockets"
    needs = NCCL

    def environment(self) -> dict[str, str]:
        variables = {"NCCL_P2P_DISABLE": "1"}
        if self.magnitude >= 2:
            variables["NCCL_SHM_DISABLE"] = "1"
        return variables


class BufferBroadcast(Fault):
    """Buffers are broadcast from rank 0 before every forward pass."""

    name = "buffer-broadcast"
    causes = ("N16",)
    needs = frozenset({"conv", "ddp", "ranks"})

    def build(self, options: BuildOptions) -> BuildOptions:
        return replace(options, broadcast_buffers=True)


class MetricReductions(Fault):
    """Scalars are reduced over ranks and read by the host in every step."""

    name = "metric-reductions"
    causes = ("N17",)
    magnitudes = (5.0, 10.0, 20.0)
    unit = "scalars a step"
    needs = frozenset({"ranks"})

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        count = int(self.magnitude)

        def reduce(trainer: Trainer) -> None:
            for _ in range(count):
                scalar = trainer.loss.clone()
                distributed.all_reduce(scalar)
                scalar.item()

        plan.after_step.append(reduce)


class StepBarrier(Fault):
    """Ranks meet at barriers in every step."""

    name = "step-barrier"
    causes = ("L8",)
    magnitudes = (2.0, 1.0, 4.0)
    unit = "barriers a step"
    needs = frozenset({"ranks"})

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        places = (plan.before_step, plan.after_backward, plan.after_transfer, plan.after_step)
        for place in places[: int(self.magnitude)]:
            place.append(_barrier)


class SerialAllGathers(Fault):
    """A block's parameters are gathered only when the block before it has been computed."""

    name = "serial-all-gathers"
    causes = ("N14",)
    needs = frozenset({"fsdp", "ranks"})

    def build(self, options: BuildOptions) -> BuildOptions:
        return replace(options, serial_all_gathers=True)


class FineSharding(Fault):
    """Every linear layer is gathered and reduced alone."""

    name = "fine-sharding"
    causes = ("N15",)
    needs = frozenset({"fsdp", "ranks"})

    def build(self, options: BuildOptions) -> BuildOptions:
        return replace(options, shard_each_linear=True)


class SingleProcess(Fault):
    """One process drives all GPUs (DataParallel). Healthy: DDP with a process a GPU."""

    name = "single-process"
    causes = ("N19",)
    needs = NCCL

    def environment(self) -> dict[str, str]:
        return {"FAULTLAB_SINGLE_PROCESS": "1"}

    def build(self, options: BuildOptions) -> BuildOptions:
        return replace(options, data_parallel=True)

    def edit(self, plan: StepPlan, trainer: Trainer) -> None:
        extra = trainer.workload.scale.batch * (torch.cuda.device_count() - 1)
        plan.loader = replace(plan.loader, extra_samples=extra)


def _barrier(trainer: Trainer) -> None:
    if trainer.world.cuda:
        distributed.barrier(device_ids=[trainer.world.device.index])
    else:
        distributed.barrier()
