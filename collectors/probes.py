"""The loops that calibration times, one kind of event each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed, nn

from trace_analyzer.collectors.options import Mode, Options

# A stream holds 1,022 pending operations; a loop that fills it measures the device.
CALLS = 400
MIXED_STEPS = 4
COLLECTIVES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A loop to time: `run(calls)` does `calls` calls, `prepare(calls)` what must not be timed."""

    name: str
    calls: int
    run: Callable[[Any], None]
    prepare: Callable[[int], Any] = int
    collective: bool = False  # every rank must take part


def probes(options: Options) -> list[Probe]:
    """Return the probes that this process can run."""
    on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
    device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
    return list(_probes(options, device))


def _probes(options: Options, device: torch.device) -> Iterator[Probe]:
    vector = torch.zeros(16, device=device)
    yield Probe(name="aten_op", calls=CALLS, run=_repeated(lambda: vector.view(16)))
    name = "aten_launch" if device.type == "cuda" else "aten_compute"
    yield Probe(name=name, calls=CALLS, run=_repeated(lambda: vector.add_(1.0)))
    yield Probe(name="autograd_node", calls=CALLS, prepare=_chain(vector), run=_backward)
    yield Probe(name="annotation", calls=CALLS, run=_repeated(_annotate))
    if options.mode is not Mode.TORCH:
        yield Probe(name="nvtx_range", calls=CALLS, run=_repeated(_nvtx_range))
    if device.type == "cuda":
        event = torch.cuda.Event()
        yield Probe(name="runtime_call", calls=CALLS, run=_repeated(event.record))
    if options.with_stack:
        yield Probe(name="python_call", calls=CALLS, run=_repeated(_nothing))
    if uses_triton():
        from trace_analyzer.collectors import triton_probe

        yield Probe(name="triton_launch", calls=CALLS, run=_repeated(triton_probe.launch(vector)))
    yield Probe(name="mixed_step", calls=MIXED_STEPS, run=_repeated(_mixed(device)))
    if in_group():
        yield Probe(
            name="collective",
            calls=COLLECTIVES,
            run=_repeated(lambda: distributed.all_reduce(vector)),
            collective=True,
        )


def _repeated(call: Callable[[], Any]) -> Callable[[int], None]:
    def run(calls: int) -> None:
        for _ in range(calls):
            call()

    return run


def _annotate() -> None:
    with torch.profiler.record_function("annotation"):
        pass


def _nvtx_range() -> None:
    torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("nvtx_range"))


def _nothing() -> None:
    """Stand for a Python call."""


def _chain(vector: torch.Tensor) -> Callable[[int], tuple[torch.Tensor, torch.Tensor]]:
    def prepare(calls: int) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.enable_grad():
            leaf = vector.detach().clone().requires_grad_()
            end = leaf
            for number in range(calls):
                end = end.view(4, 4) if number % 2 == 0 else end.view(16)
            return leaf, end

    return prepare


def _backward(prepared: tuple[torch.Tensor, torch.Tensor]) -> None:
    leaf, end = prepared
    torch.autograd.grad(end, leaf, torch.ones_like(end))


def _mixed(device: torch.device) -> Callable[[], None]:
    """Return a step of a small encoder: some hundred operators of many kinds."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        model = nn.Sequential(
            nn.Linear(32, 32),
            nn.GELU(),
            nn.LayerNorm(32),
            nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True),
            nn.Linear(32, 4),
        ).to(device)
        batch = torch.randn(2, 8, 32, device=device)
    parameters = list(model.parameters())

    def step() -> None:
        # Plain updates: an optimizer would call the hooks that find training steps.
        with torch.enable_grad():
            loss = model(batch).square().mean()
            gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.add_(gradient, alpha=-1e-3)

    return step


def in_group() -> bool:
    """Whether there are peers to run collectives with."""
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )


def uses_triton() -> bool:
    """Whether this process has compiled kernels, so that their launches matter."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
    return on_gpu and dynamo is not None and bool(dynamo.counters["stats"]["unique_graphs"])
