"""Clocks, power, temperature and processes of a GPU, sampled beside a run."""

from __future__ import annotations

from dataclasses import dataclass

from trace_analyzer.schema import Float64Array, Int64Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GpuSamples:
    """Samples of one GPU in order of time; NaN is a value that the driver did not tell.

    `gpu` counts as the driver does. `clock_limits` are NVML's bits of why the clock is not higher,
    0 where none or unknown; `foreign_processes` those that the job did not start.
    """

    gpu: int
    time_unix_ns: Int64Array
    sm_clock_mhz: Float64Array
    clock_limits: Int64Array
    power_w: Float64Array
    temperature_c: Float64Array
    foreign_processes: Float64Array
    path: str = ""
