"""Training of several ranks as in public reports of slow steps: DDP and FSDP, with NCCL's log."""

from __future__ import annotations

from dataclasses import replace

from tests.rules.loop import context_of
from tests.rules.ranks import Ranks
from trace_analyzer.model import Run
from trace_analyzer.nccl_facts import NcclCommunicator, NcclGraph, NcclLog, NcclTransport
from trace_analyzer.rules.catalogue import rules
from trace_analyzer.rules.context import Context
from trace_analyzer.rules.judge import Diagnosis, diagnose

MB = 1_000_000
FULL = 132 * 16  # blocks that fill the GPU


def whole(of: Run | Context) -> Diagnosis:
    """Return what the whole catalogue says; no rule may fail."""
    found = diagnose(of if isinstance(of, Context) else context_of(of), rules())
    assert not [check.reason for check in found.checks if check.state == "error"]
    return found


def forward(
    ranks: Ranks, count: int, us: float, name: str = "DistributedDataParallel.forward"
) -> None:
    """Launch a forward pass inside its range."""
    begin = list(ranks.now)
    ranks.kernels(count, us, grid=FULL)
    for rank, builder in enumerate(ranks.builders):
        builder.event(name, begin[rank], ranks.now[rank])


def ddp(
    micro_batches: int = 1,
    *,
    gbs: float = 300.0,
    world: int = 2,
    gpu: str = "NVIDIA H200",
    each: bool = True,
    channels: int = 24,
    bucket: int = 32 * MB,
) -> Run:
    """Return ranks that reduce four buckets in the backward pass of each micro-batch, or of the last."""
    ranks = Ranks(world=world, gpu=gpu)
    for _ in range(6):
        ranks.step()
        for number in range(micro_batches):
            forward(ranks, 10, 200)
            for _ in range(4):
                ranks.kernels(5, 200, grid=FULL)
                if each or number == micro_batches - 1:
                    ranks.collective(bucket, gbs, channels=channels)
            ranks.join()
        ranks.kernels(2, 200, "multi_tensor_apply_kernel<FusedAdamMathFunctor>", grid=FULL)
    return ranks.run()


def fsdp(
    micro_batches: int = 1,
    *,
    gbs: float = 300.0,
    world: int = 2,
    gpu: str = "NVIDIA H200",
    channels: int = 24,
    layer: int = 64 * MB,
    each: bool = True,
) -> Run:
    """Return ranks that gather every layer one ahead, and reduce and scatter its gradients."""
    ranks = Ranks(world=world, gpu=gpu)
    layers = 4
    for _ in range(6):
        ranks.step()
        for number in range(micro_batches):
            begin = list(ranks.now)

            def gather() -> None:
                ranks.collective(layer, gbs, operation="allgather", channels=channels)

            gather()
            for index in range(layers):
                ranks.join()
                if index < layers - 1:
                    gather()
                ranks.kernels(5, 200, grid=FULL)
            for rank, builder in enumerate(ranks.builders):
                builder.event("FSDP::root_pre_forward", begin[rank], begin[rank] + 20_000)
            # The last layer is still whole.
            for index in range(layers):
                ranks.join()
                if index < layers - 1:
                    gather()
                ranks.kernels(10, 200, grid=FULL)
                if each or number == micro_batches - 1:
                    ranks.collective(layer, gbs, operation="reducescatter", channels=channels)
            ranks.join()
        ranks.kernels(2, 200, "multi_tensor_apply_kernel<FusedAdamMathFunctor>", grid=FULL)
    return ranks.run()


def logged(run: Run, kind: str, plugin: str = "", nodes: int = 1, path: str = "") -> Run:
    """Return the run with what NCCL's log says of its ways."""
    size = len(run.ranks)
    graphs: tuple[NcclGraph, ...] = ()
    if path:
        graphs = (
            NcclGraph(
                pattern=4,
                name="ring",
                channels=2,
                intra_gbs=6.0,
                inter_gbs=6.0,
                intra_type=path,
                inter_type="PIX",
                cross_nic=0,
            ),
        )
    log = NcclLog(
        path="nccl.log",
        host="node0",
        pid=1,
        rank=0,
        communicators=(NcclCommunicator(id=1, rank=0, size=size, nodes=nodes, graphs=graphs),),
        transports=(
            NcclTransport(
                communicator=0,
                source=0,
                destination=1,
                kind=kind,
                detail="",
                channels=(0, 1),
                plugin=plugin,
            ),
        ),
    )
    return replace(run, nccl_logs=(log,))
