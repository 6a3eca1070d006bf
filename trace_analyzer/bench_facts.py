"""What our own micro-benchmarks measured on the machine of a run.

Every value is a median over repetitions with its 95 % interval; bandwidths are decimal GB/s.
Ranks are those of the benchmark: GPUs of one host, in the host's order.
"""

from __future__ import annotations

from dataclasses import dataclass

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSize:
    """An all-reduce of one size."""

    bytes: int
    time_us: float
    time_interval_us: Interval
    busbw_gbs: float
    busbw_interval_gbs: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchLink:
    """One direction between two GPUs, with nothing else running."""

    source: int
    destination: int
    bytes: int  # message of the bandwidth
    latency_us: float
    latency_interval_us: Interval
    bandwidth_gbs: float
    bandwidth_interval_gbs: Interval
    limit_gbs: float | None
    limit_basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """One benchmark. `sizes` are of `allreduce`, `links` of `links`; the others are empty."""

    path: str
    kind: str
    device: str  # "cuda" or "cpu"
    backend: str  # "nccl" or "gloo"
    ranks: int
    gpus: tuple[str, ...]
    dtype: str = ""
    latency_us: float | None = None  # of the fitted line, time = latency + bus bytes / bandwidth
    busbw_gbs: float | None = None
    limit_gbs: float | None = None
    limit_basis: str = ""
    sizes: tuple[BenchSize, ...] = ()
    links: tuple[BenchLink, ...] = ()

    @property
    def is_reference(self) -> bool:
        """Tell whether it measured GPUs: what it found on a CPU bounds nothing of them."""
        return self.device == "cuda" and self.backend == "nccl"


__all__ = ["BenchLink", "BenchResult", "BenchSize"]
