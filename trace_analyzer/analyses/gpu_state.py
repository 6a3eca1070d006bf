"""What a rank's GPU was doing according to the samples beside the run: clock, limits, others."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from trace_analyzer.gpu_facts import GpuSamples
from trace_analyzer.model import Rank, Run
from trace_analyzer.schema import Float64Array, is_na

# Samples come ten times a second, a recording may be shorter: this much around it counts too.
AROUND_NS = 1_000_000_000
# NVML's reasons why a clock is not higher; idling and a set clock are none.
_LIMITS = {
    0x04: "power limit",
    0x08: "hardware slowdown",
    0x20: "temperature (software)",
    0x40: "temperature (hardware)",
    0x80: "power brake",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """Medians over the recording; None where not sampled. `limits` in words, with their share."""

    gpu: int
    samples: int
    clock_mhz: float | None
    power_w: float | None
    temperature_c: float | None
    limits: tuple[tuple[str, float], ...]
    foreign_processes: int | None

    @property
    def in_words(self) -> str:
        """Return what was sampled, as the end of a sentence about the GPU."""
        parts = []
        if self.clock_mhz is not None:
            parts.append(f"at {self.clock_mhz:,.0f} MHz")
        if self.power_w is not None:
            parts.append(f"{self.power_w:.0f} W")
        if self.temperature_c is not None:
            parts.append(f"{self.temperature_c:.0f} °C")
        parts += [
            f"held down by {name} in {100 * share:.0f} % of samples" for name, share in self.limits
        ]
        if self.foreign_processes:
            parts.append(
                f"with {self.foreign_processes} other "
                f"process{'es' if self.foreign_processes > 1 else ''} on it"
            )
        return ", ".join(parts)


def gpu_states(run: Run) -> dict[int, GpuState]:
    """Return the state of each rank's GPU, for ranks whose GPU and clock base are known.

    Samples count GPUs as the driver of one host does, so that several hosts are left out.
    """
    if len({rank.host for rank in run.ranks}) > 1:
        return {}
    by_gpu = {item.gpu: item for item in run.gpu_samples}
    found: dict[int, GpuState] = {}
    for rank in run.ranks:
        gpu = gpu_of(run, rank)
        if gpu in by_gpu and rank.clock_base_ns is not None and len(rank.operations):
            state = _state(by_gpu[gpu], rank, rank.clock_base_ns)
            if state is not None:
                found[rank.rank] = state
    return found


def gpu_of(run: Run, rank: Rank) -> int | None:
    """Return the GPU of a rank as the driver counts it, None where that is not known."""
    device = rank.operations.device
    used = np.unique(device[~is_na(device)])
    if len(used) != 1:
        return None
    ordinal = int(used[0])
    for item in rank.devices:
        if item.ordinal == ordinal and item.gpu is not None:
            return item.gpu
    seen = rank.settings.get("CUDA_VISIBLE_DEVICES") or run.environment.get(rank.rank, {}).get(
        "CUDA_VISIBLE_DEVICES", ""
    )
    if not seen:
        return ordinal
    numbers = re.fullmatch(r"\d+(?:,\d+)*", seen.replace(" ", ""))
    visible = [int(part) for part in numbers.group().split(",")] if numbers else []
    return visible[ordinal] if ordinal < len(visible) else None


def _state(samples: GpuSamples, rank: Rank, base_ns: int) -> GpuState | None:
    begin = base_ns + int(rank.operations.start_ns[0]) - AROUND_NS
    end = base_ns + int(rank.operations.end_ns.max()) + AROUND_NS
    inside = (samples.time_unix_ns >= begin) & (samples.time_unix_ns < end)
    count = int(inside.sum())
    if not count:
        return None
    bits = samples.clock_limits[inside]
    shares = {name: float(np.mean((bits & bit) != 0)) for bit, name in _LIMITS.items()}
    foreign = samples.foreign_processes[inside]
    foreign = foreign[np.isfinite(foreign)]
    return GpuState(
        gpu=samples.gpu,
        samples=count,
        clock_mhz=_median(samples.sm_clock_mhz[inside]),
        power_w=_median(samples.power_w[inside]),
        temperature_c=_median(samples.temperature_c[inside]),
        limits=tuple((name, share) for name, share in shares.items() if share > 0),
        foreign_processes=int(foreign.max()) if len(foreign) else None,
    )


def _median(values: Float64Array) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None
