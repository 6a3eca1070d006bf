"""What the profiler costs on this host, by kind of event.

Small loops run in the training process itself, profiled and not, in turns; the difference a call
is the profiler's cost. The kinds are kept apart, because they differ: a view operator records one
event, an operator that launches a kernel records the launch as well, an autograd node records
several. `mixed_step` is a small training step with many different operators, nearer to what
training feels (cold caches) than a tight loop of one operator; its counts of events a call go
with it.

The interval of a median of nine paired differences is [second smallest, second largest], which
covers it with 96 % (order statistics of a sign test), whatever their distribution.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trace_analyzer.bundle import Role, default_name
from trace_analyzer.calibration_facts import TORCH_PROFILER
from trace_analyzer.collectors.captures import experimental_config, one_cycle
from trace_analyzer.collectors.options import Options
from trace_analyzer.collectors.probes import Probe, probes
from trace_analyzer.collectors.rendezvous import Rendezvous

SCHEMA_VERSION = 1
ROUNDS = 9
_MARK = "calibration: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one call of a probe costs; times in microseconds a call."""

    name: str
    calls: int
    unprofiled_us: float
    profiled_us: float
    delta_us: float
    delta_interval_us: tuple[float, float]
    cpu_ops: float  # events a call
    runtime_calls: float


def record(options: Options, rank: int, *, together: bool) -> Path:
    """Measure and write `calibration_rank{r}.json`; return its path.

    `together`: all ranks of the process group call this at the same time, so that collectives
    may be measured.
    """
    costs = measure(options, together=together)
    path = options.path / default_name(Role.CALIBRATION, rank)
    path.write_text(json.dumps(document(options, rank, costs), indent=1) + "\n", encoding="utf-8")
    return path


def head(options: Options, rank: int, recorder: str) -> dict[str, Any]:
    """Return what a calibration says of the process and of the recorder."""
    return {
        "schema_version": SCHEMA_VERSION,
        "rank": rank,
        "recorder": recorder,
        "torch": str(torch.__version__),
        "device": torch.cuda.get_device_name() if _on_gpu() else "cpu",
        "options": {
            "record_shapes": options.record_shapes,
            "with_stack": options.with_stack,
            "profile_memory": options.profile_memory,
            "cuda_sync_events": recorder == TORCH_PROFILER and experimental_config() is not None,
        },
    }


def document(options: Options, rank: int, costs: Sequence[Cost]) -> dict[str, Any]:
    """Return the document of `calibration.schema.json`."""
    return {
        **head(options, rank, TORCH_PROFILER),
        "rounds": ROUNDS,
        "classes": [
            {
                "name": cost.name,
                "calls": cost.calls,
                "unprofiled_us": round(cost.unprofiled_us, 4),
                "profiled_us": round(cost.profiled_us, 4),
                "delta_us": round(cost.delta_us, 4),
                "delta_interval_us": [round(bound, 4) for bound in cost.delta_interval_us],
                "cpu_ops_per_call": cost.cpu_ops,
                "runtime_calls_per_call": cost.runtime_calls,
            }
            for cost in costs
        ],
    }


def measure(options: Options, *, together: bool = False, rounds: int = ROUNDS) -> list[Cost]:
    """Return the cost of every probe that this process can run."""
    offered = [probe for probe in probes(options) if together or not probe.collective]
    chosen = [probe for probe in offered if _works(probe)]
    meeting = Rendezvous("trace-analyzer/calibration")
    plain: dict[str, list[float]] = {probe.name: [] for probe in chosen}
    traced: dict[str, list[float]] = {probe.name: [] for probe in chosen}
    counts: dict[str, tuple[float, float]] = {}
    for number in range(rounds + 1):
        meeting.meet()
        once = {probe.name: _time(probe) for probe in chosen}
        meeting.meet()
        with _profile(options) as profile:
            again = {probe.name: _time(probe, marked=True) for probe in chosen}
        if number == 0:
            counts = _count_events(profile, chosen)
            continue  # the first profile pays for the profiler's own start
        for probe in chosen:
            plain[probe.name].append(once[probe.name])
            traced[probe.name].append(again[probe.name])
    return [_cost(probe, plain[probe.name], traced[probe.name], counts) for probe in chosen]


def rounds_of(
    offered: Sequence[Probe], meeting: Rendezvous, rounds: int = ROUNDS
) -> dict[str, list[float]]:
    """Return the times of the probes that this process can run: µs a call, one value a round."""
    chosen = [probe for probe in offered if _works(probe)]
    found: dict[str, list[float]] = {probe.name: [] for probe in chosen}
    for _ in range(rounds):
        meeting.meet()
        for probe in chosen:
            found[probe.name].append(_time(probe))
    return found


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return an interval that covers the median: 96 % for nine values, all of fewer than six."""
    ordered = sorted(values)
    inner = 1 if len(ordered) >= 6 else 0
    return ordered[inner], ordered[-1 - inner]


def _cost(
    probe: Probe,
    plain: Sequence[float],
    traced: Sequence[float],
    counts: dict[str, tuple[float, float]],
) -> Cost:
    deltas = [after - before for before, after in zip(plain, traced, strict=True)]
    cpu_ops, runtime_calls = counts.get(probe.name, (0.0, 0.0))
    return Cost(
        name=probe.name,
        calls=probe.calls,
        unprofiled_us=statistics.median(plain),
        profiled_us=statistics.median(traced),
        delta_us=statistics.median(deltas),
        delta_interval_us=median_interval(deltas),
        cpu_ops=cpu_ops,
        runtime_calls=runtime_calls,
    )


def _works(probe: Probe) -> bool:
    """Run a probe once: allocations, first launches, compilation (which needs a C compiler)."""
    try:
        _time(probe)
    except Exception as error:  # noqa: BLE001  # one kind less, and it is said
        reason = str(error).strip().splitlines() or [""]
        print(  # noqa: T201
            f"trace-analyzer: not calibrated: {probe.name}: {type(error).__name__}: {reason[0]}",
            file=sys.stderr,
        )
        return False
    return True


def _time(probe: Probe, *, marked: bool = False) -> float:
    prepared = probe.prepare(probe.calls)
    _synchronize()
    if marked:
        with torch.profiler.record_function(_MARK + probe.name):
            begin = time.perf_counter_ns()
            probe.run(prepared)
            end = time.perf_counter_ns()
    else:
        begin = time.perf_counter_ns()
        probe.run(prepared)
        end = time.perf_counter_ns()
    _synchronize()
    return (end - begin) / 1e3 / probe.calls


def _profile(options: Options) -> torch.profiler.profile:
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    return torch.profiler.profile(
        activities=activities,
        record_shapes=options.record_shapes,
        with_stack=options.with_stack,
        profile_memory=options.profile_memory,
        experimental_config=experimental_config(trace_only=False),
        **one_cycle(),
    )


def _count_events(
    profile: torch.profiler.profile, chosen: Sequence[Probe]
) -> dict[str, tuple[float, float]]:
    results: Any = getattr(profile.profiler, "kineto_results", None)
    if results is None:
        return {}
    events = [
        (event.start_ns(), event.duration_ns(), event.name(), str(event.device_type()))
        for event in results.events()
    ]
    windows = {
        name.removeprefix(_MARK): (start, start + duration)
        for start, duration, name, kind in events
        if name.startswith(_MARK) and kind.endswith("CPU")
    }
    counts = {}
    for probe in chosen:
        begin, end = windows.get(probe.name, (0, 0))
        inside = [
            name for start, _, name, kind in events if begin < start < end and kind.endswith("CPU")
        ]
        runtime = sum(1 for name in inside if name.startswith(("cuda", "cuLaunch", "hip")))
        counts[probe.name] = (
            round((len(inside) - runtime) / probe.calls, 3),
            round(runtime / probe.calls, 3),
        )
    return counts


def _on_gpu() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_initialized()


def _synchronize() -> None:
    if _on_gpu():
        torch.cuda.synchronize()
