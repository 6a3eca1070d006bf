"""One training program in one process: model, wrapper, optimizers, and the step loop's body."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from trace_analyzer.collectors.faultlab.batches import Batch, BatchSource
from trace_analyzer.collectors.faultlab.conv import Conv
from trace_analyzer.collectors.faultlab.gpt import Gpt, fused_gelu
from trace_analyzer.collectors.faultlab.parallel import Wrapped, wrap
from trace_analyzer.collectors.faultlab.plan import StepPlan
from trace_analyzer.collectors.faultlab.workload import BuildOptions, LoaderOptions, Workload
from trace_analyzer.collectors.faultlab.world import World

LEARNING_RATE = 1e-4


class Trainer:
    """A built program. `step(plan)` trains one step; `index` counts them.

    `progress` is the position inside the segment of steps that runs, from 0 to 1: faults that
    begin late read it. `loss` is the last loss, on the device.
    """

    def __init__(self, workload: Workload, options: BuildOptions, world: World) -> None:
        self.workload = workload
        self.options = options
        self.world = world
        self.index = 0
        self.progress = 0.0
        self.nvtx = False
        self.loss = torch.zeros((), device=world.device)
        torch.manual_seed(0)
        self.model = _model(workload, options, world)
        self.wrapped: Wrapped = wrap(self.model, workload, options, world)
        self._optimizers: dict[str, torch.optim.Optimizer] = {}
        self._sources: dict[LoaderOptions, BatchSource] = {}

    def step(self, plan: StepPlan) -> None:
        """Train one step."""
        with self.range(f"step {self.index}") if self.nvtx else contextlib.nullcontext():
            _run(plan.before_step, self)
            with self.range("data"):
                batch = self.fetch(plan)
            _run(plan.after_transfer, self)
            self._forward_backward(plan, batch)
            with self.range("optimizer"):
                self._update(plan)
            _run(plan.after_step, self)
        self.index += 1

    def fetch(self, plan: StepPlan) -> Batch:
        """Return the next batch on the device."""
        if plan.fetch is not None:
            return plan.fetch(self)
        batch = self.source(plan.loader).next()
        if plan.transform is not None:
            batch = plan.transform(batch)
        return self.to_device(batch)

    def to_device(self, batch: Batch) -> Batch:
        """Return the batch on the device; the copy is asynchronous where memory is pinned."""
        place = self.world.device
        return batch[0].to(place, non_blocking=True), batch[1].to(place, non_blocking=True)

    def source(self, options: LoaderOptions) -> BatchSource:
        """Return the loader of these options, started when first asked for."""
        if options not in self._sources:
            self._sources[options] = BatchSource(
                self.workload, options, self.world.rank, self.world.size
            )
        return self._sources[options]

    def optimizer(self, kind: str) -> torch.optim.Optimizer:
        """Return AdamW in this form: fused, foreach or loop (one kernel chain a parameter)."""
        if kind not in self._optimizers:
            self._optimizers[kind] = torch.optim.AdamW(
                self.wrapped.module.parameters(),
                lr=LEARNING_RATE,
                fused=kind == "fused",
                foreach=kind == "foreach",
            )
        return self._optimizers[kind]

    def apply_model_settings(self, plan: StepPlan) -> None:
        """Set what the model itself reads; only eager models may change after the first step."""
        default = fused_gelu if isinstance(self.model, Gpt) else nn.functional.relu
        settings = {
            "probe": plan.probe(),
            "recomputed": plan.recomputed,
            "full_precision": plan.full_precision,
        }
        for name, value in settings.items():
            if getattr(self.model, name) != value:
                setattr(self.model, name, value)
        activation = plan.activation or default
        for block in self.model.blocks:
            if getattr(block, "activation", activation) is not activation:
                block.activation = activation  # type: ignore[assignment]

    def close_sources(self, keep: LoaderOptions | None = None) -> None:
        """End all loaders but one."""
        for options in [known for known in self._sources if known != keep]:
            self._sources.pop(options).close()

    def close(self) -> None:
        """Give back memory and worker processes."""
        self.close_sources()
        self._optimizers.clear()
        self.wrapped.close()
        del self.wrapped, self.model
        gc.collect()
        if self.world.cuda:
            torch.cuda.empty_cache()

    @contextlib.contextmanager
    def range(self, name: str) -> Iterator[None]:
        """Name what runs inside, for torch.profiler and, under nsys, for NVTX."""
        if self.nvtx:
            torch.cuda.nvtx.range_push(name)
        with torch.profiler.record_function(name):
            yield
        if self.nvtx:
            torch.cuda.nvtx.range_pop()

    def autocast(self, plan: StepPlan) -> contextlib.AbstractContextManager[Any]:
        """Return the precision context of a forward pass."""
        if self.workload.parallel == "fsdp":  # the wrapper's own policy casts
            return contextlib.nullcontext()
        return torch.autocast(
            self.world.device.type, dtype=torch.bfloat16, cache_enabled=plan.autocast_cache
        )

    def _forward_backward(self, plan: StepPlan, batch: Batch) -> None:
        parts = [batch]
        if plan.micro_batches > 1:
            chunks = (tensor.chunk(plan.micro_batches) for tensor in batch)
            parts = list(zip(*chunks, strict=True))
        with contextlib.ExitStack() as stack:
            if plan.anomaly_mode:
                stack.enter_context(torch.autograd.set_detect_anomaly(mode=True))
            if plan.shared_autocast:
                stack.enter_context(self.autocast(plan))
            for position, part in enumerate(parts):
                last = position == len(parts) - 1
                reduce = (last or plan.sync_each_micro_batch) and not plan.own_reduction
                with self.wrapped.reduction(enabled=reduce):
                    self._pass(plan, part, len(parts))
        with self.range("backward") if plan.after_backward else contextlib.nullcontext():
            _run(plan.after_backward, self)

    def _pass(self, plan: StepPlan, part: Batch, parts: int) -> None:
        with self.range("forward"):
            inner = contextlib.nullcontext() if plan.shared_autocast else self.autocast(plan)
            with inner:
                loss: Tensor = self.wrapped.module(*part)
            if loss.dim():
                loss = loss.mean()  # data parallelism in one process returns one loss a GPU
            if parts > 1:
                loss = loss / parts
        _run(plan.before_backward, self)
        with self.range("backward"):
            loss.backward()
        self.loss = loss.detach()

    def _update(self, plan: StepPlan) -> None:
        if plan.clip:
            nn.utils.clip_grad_norm_(
                self.wrapped.module.parameters(), 1e6, error_if_nonfinite=plan.clip == "checked"
            )
        optimizer = self.optimizer(plan.optimizer)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def _model(workload: Workload, options: BuildOptions, world: World) -> Gpt | Conv:
    scale = workload.scale
    model: Gpt | Conv
    with torch.device(world.device):
        if scale.gpt is not None:
            shape = scale.gpt
            if options.extra_vocabulary:
                from dataclasses import replace

                shape = replace(shape, vocabulary=shape.vocabulary + options.extra_vocabulary)
            model = Gpt(shape, graph_breaks=options.graph_breaks)
        else:
            assert scale.conv is not None
            model = Conv(scale.conv, graph_breaks=options.graph_breaks)
            model.channels_last = options.channels_last
    if isinstance(model, Conv) and options.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if workload.compiled and not options.force_eager:
        for block in model.blocks:
            block.compile(dynamic=False, backend=options.compile_backend)
    return model


def _run(hooks: list[Any], trainer: Trainer) -> None:
    for hook in hooks:
        hook(trainer)


def gradients(trainer: Trainer) -> list[Tensor]:
    """Return the gradients of all parameters that have one."""
    return [
        parameter.grad
        for parameter in trainer.wrapped.module.parameters()
        if parameter.grad is not None
    ]
