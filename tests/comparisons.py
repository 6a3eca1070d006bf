"""Runs made by hand for comparing: a program of kernels, its steps, and series of step times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.builder import NCCL, RankBuilder, run_of
from trace_analyzer.analyses.study import Study, study
from trace_analyzer.model import ProcessGroup, Run
from trace_analyzer.schema import Float64Array
from trace_analyzer.tables import HostCategory

GROUP = ProcessGroup(name="0", description="default_pg", size=2, ranks=(0, 1))


@dataclass(frozen=True)
class Kernel:
    """A launch of a step; `us` is its duration. With `comm` it is an all-reduce of 4 MB."""

    name: str
    us: int
    grid: int = 64
    comm: bool = False
    stream: int = 7


GPT = (
    Kernel("gemm_bf16_a", 400),
    Kernel("layer_norm_kernel", 100, 8192),
    Kernel("gemm_bf16_b", 300),
    Kernel("softmax_forward", 150, 8192),
    Kernel("gemm_bf16_a", 400),
    Kernel("multi_tensor_apply_kernel<FusedAdam>", 120, 320),
)


def rank_of(
    kernels: Sequence[Kernel] = GPT,
    *,
    steps: int = 6,
    rank: int = 0,
    late_us: int = 0,
    operators: Sequence[str] = ("aten::mm", "aten::layer_norm"),
    jitter_ns: int = 200,
    world: int = 1,
) -> RankBuilder:
    """Return a rank that runs the kernels back to back in every step, after `late_us` of idle host.

    Durations vary by up to `jitter_ns` from step to step, in a fixed pattern.
    """
    builder = RankBuilder(rank=rank, world=world, group=GROUP if world > 1 else None)
    starts = []
    at = 1_000_000
    for step in range(steps):
        starts.append(at)
        host = at + 1000 * late_us
        device = host + 20_000
        for place, name in enumerate(operators):
            builder.event(
                name, at + 10 + 10 * place, at + 15 + 10 * place, category=HostCategory.OPERATOR
            )
        for place, kernel in enumerate(kernels):
            launch = (host + 100 * place, host + 100 * place + 50)
            wobble = (step * 7 + place * 3) % 5 * jitter_ns // 4
            end = device + 1000 * kernel.us + wobble
            meta: dict[str, Any] = {"operation": "allreduce", "dtype": "Float", "message_bytes": 4_000_000,
                    "elements": 1_000_000, "group": 0, "sequence": step} if kernel.comm else {}  # fmt: skip
            builder.operation(
                kernel.name,
                device,
                end,
                launch=launch,
                grid=kernel.grid,
                stream=kernel.stream,
                **meta,
            )
            device = end + 1000
        at = device + 5000
    builder.profiler_steps(starts, at)
    return builder


def run(kernels: Sequence[Kernel] = GPT, name: str = "made", **options: int) -> Run:
    """Return a run of one rank."""
    return run_of(rank_of(kernels, **options).build(), name=name)  # type: ignore[arg-type]


def studied(kernels: Sequence[Kernel] = GPT, name: str = "made", **options: int) -> Study:
    """Return the analysis of a run of one rank."""
    return study(run(kernels, name, **options))


def slower(kernels: Sequence[Kernel], name: str, factor: float) -> tuple[Kernel, ...]:
    """Return the program with one kernel slower, at all its places."""
    return tuple(
        replace(kernel, us=round(kernel.us * factor)) if kernel.name == name else kernel
        for kernel in kernels
    )


def series(
    generator: np.random.Generator,
    count: int,
    *,
    median_ms: float = 25.0,
    variation: float = 0.03,
    correlation: float = 0.0,
    outliers: float = 0.0,
) -> Float64Array:
    """Return log-normal step times whose logarithms are an AR(1) process; outliers take 1.5 times as long."""
    noise = generator.standard_normal(count + 60)
    state = np.empty(count + 60)
    state[0] = noise[0]
    fresh = np.sqrt(1.0 - correlation**2)
    for at in range(1, count + 60):
        state[at] = correlation * state[at - 1] + fresh * noise[at]
    values: Float64Array = median_ms * np.exp(np.sqrt(np.log1p(variation**2)) * state[60:])
    values[generator.random(count) < outliers] *= 1.5
    return values


__all__ = ["GPT", "GROUP", "NCCL", "Kernel", "rank_of", "run", "series", "slower", "studied"]
