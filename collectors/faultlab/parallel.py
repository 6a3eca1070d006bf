"""How a model is spread over processes: alone, DDP, FSDP2, or one process for all GPUs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import distributed, nn

from trace_analyzer.collectors.faultlab.workload import BuildOptions, Workload
from trace_analyzer.collectors.faultlab.world import World


class Wrapped:
    """A model that takes batches and leaves reduced gradients."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    @contextlib.contextmanager
    def reduction(self, *, enabled: bool) -> Iterator[None]:  # noqa: ARG002
        """Forward and backward inside reduce gradients over ranks, or leave them local."""
        yield

    def close(self) -> None:
        """Give back what the wrapper holds."""
        del self.module


class DdpWrapped(Wrapped):
    """`DistributedDataParallel` on a process group of its own where options ask for one."""

    def __init__(self, model: nn.Module, options: BuildOptions, world: World) -> None:
        self._group = _own_group(options, world)
        ddp = nn.parallel.DistributedDataParallel(
            model,
            device_ids=[world.device.index] if world.cuda else None,
            bucket_cap_mb=options.bucket_cap_mb,
            find_unused_parameters=options.find_unused_parameters,
            broadcast_buffers=options.broadcast_buffers,
            gradient_as_bucket_view=True,
            process_group=self._group,
        )
        super().__init__(ddp)

    @contextlib.contextmanager
    def reduction(self, *, enabled: bool) -> Iterator[None]:
        assert isinstance(self.module, nn.parallel.DistributedDataParallel)
        with contextlib.nullcontext() if enabled else self.module.no_sync():
            yield

    def close(self) -> None:
        super().close()
        if self._group is not None:
            distributed.destroy_process_group(self._group)


class FsdpWrapped(Wrapped):
    """FSDP2: parameters sharded over ranks, gathered a block (or a linear layer) at a time."""

    def __init__(self, model: Any, options: BuildOptions, world: World) -> None:  # noqa: ANN401
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        settings: dict[str, Any] = {
            "mesh": init_device_mesh(world.device.type, (world.size,)),
            "mp_policy": policy,
        }
        for block in model.blocks:
            if options.shard_each_linear:
                for layer in block.modules():
                    if isinstance(layer, (nn.Linear, nn.Conv2d)):
                        fully_shard(layer, **settings)
            fully_shard(block, **settings)
        fully_shard(model, **settings)
        if options.serial_all_gathers:
            for block in model.blocks:
                _serialize(block, world)
        super().__init__(model)

    @contextlib.contextmanager
    def reduction(self, *, enabled: bool) -> Iterator[None]:
        module: Any = self.module
        module.set_requires_gradient_sync(enabled)
        yield


def wrap(model: nn.Module, workload: Workload, options: BuildOptions, world: World) -> Wrapped:
    """Return the model spread as the workload says."""
    if options.data_parallel or workload.parallel == "dp":
        devices = list(range(torch.cuda.device_count()))
        return Wrapped(nn.DataParallel(_LossVector(model), device_ids=devices))
    if workload.parallel == "ddp":
        return DdpWrapped(model, options, world)
    if workload.parallel == "fsdp":
        return FsdpWrapped(model, options, world)
    return Wrapped(model)


class _LossVector(nn.Module):
    """Gives the loss one dimension, which gathering from several GPUs needs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.model(inputs, targets)
        return loss.reshape(1)


def _own_group(options: BuildOptions, world: World) -> distributed.ProcessGroup | None:
    """Return a communicator with the options' limits and environment, or None for the default."""
    if not (options.max_ctas or options.min_ctas or options.communicator_environment):
        return None
    settings: Any = None
    if world.cuda:
        settings = distributed.ProcessGroupNCCL.Options()
        if options.max_ctas:
            settings.config.max_ctas = options.max_ctas
        if options.min_ctas:
            settings.config.min_ctas = options.min_ctas
    before = {name: os.environ.get(name) for name, _ in options.communicator_environment}
    os.environ.update(dict(options.communicator_environment))
    try:
        group = distributed.new_group(list(range(world.size)), pg_options=settings)
        # The communicator is built by its first collective, and reads the environment then.
        distributed.all_reduce(torch.zeros(1, device=world.device), group=group)
        world.synchronize()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    assert isinstance(group, distributed.ProcessGroup)
    return group


def _serialize(block: Any, world: World) -> None:  # noqa: ANN401
    """Let a block's parameters be gathered only when the layers before it are done.

    Forward: the gathering streams wait for the compute stream. Backward: the block names itself
    as what to prefetch, which replaces the prefetching of its predecessor.
    """
    block.set_modules_to_backward_prefetch([block])
    if not world.cuda:
        return
    state = block._get_fsdp_state()  # noqa: SLF001

    def wait_for_compute(*_: object) -> None:
        context = state._comm_ctx  # noqa: SLF001
        for stream in (context.all_gather_copy_in_stream, context.all_gather_stream):
            stream.wait_stream(torch.cuda.current_stream())

    block.register_forward_pre_hook(wait_for_compute, prepend=True)
    block.register_full_backward_pre_hook(wait_for_compute, prepend=True)
