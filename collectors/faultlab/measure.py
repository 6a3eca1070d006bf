"""Step times without a profiler, and the recordings."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from trace_analyzer.collectors.faultlab.plan import StepPlan
from trace_analyzer.collectors.faultlab.trainer import Trainer

PROFILER_WARMUP_STEPS = 2


@dataclass(kw_only=True)
class StepTimes:
    """Times of consecutive steps of this rank, in ms.

    `step_ms`: from a step's begin mark on the device's stream to the next one's, which is
    completion to completion. `host_ms`: the same on the host's clock.
    """

    step_ms: list[float] = field(default_factory=list)
    host_ms: list[float] = field(default_factory=list)
    start_unix_ns: list[int] = field(default_factory=list)

    def part(self, begin: int, end: int | None) -> StepTimes:
        """Return the times of some of the steps."""
        return StepTimes(
            step_ms=self.step_ms[begin:end],
            host_ms=self.host_ms[begin:end],
            start_unix_ns=self.start_unix_ns[begin:end],
        )

    def document(self) -> dict[str, Any]:
        """Return the times as JSON values."""
        return {
            "step_ms": [round(value, 5) for value in self.step_ms],
            "host_ms": [round(value, 5) for value in self.host_ms],
            "start_unix_ns": self.start_unix_ns,
        }


def timed_steps(
    trainer: Trainer,
    plan: StepPlan,
    count: int,
    *,
    settle: int = 0,
    after: Callable[[], None] | None = None,
) -> StepTimes:
    """Train `settle` + `count` steps without a pause between; return the times of the last `count`.

    Waits for the device only at the very end. `after` runs at the end of every step, before the
    next begin mark; after the last step's end mark.
    """
    marks: list[Any] = []
    hosts: list[int] = []
    started: list[int] = []
    total = settle + count
    for index in range(total):
        marks.append(_mark(trainer))
        hosts.append(time.perf_counter_ns())
        started.append(time.time_ns())
        trainer.progress = max(0, index - settle) / count
        trainer.step(plan)
        if after is not None and index < total - 1:
            after()
    marks.append(_mark(trainer))
    hosts.append(time.perf_counter_ns())
    if after is not None:
        after()
    trainer.world.synchronize()
    steps = range(settle, total)
    return StepTimes(
        step_ms=[_elapsed_ms(marks[index], marks[index + 1]) for index in steps],
        host_ms=[(hosts[index + 1] - hosts[index]) / 1e6 for index in steps],
        start_unix_ns=started[settle:],
    )


def alternating_steps(
    states: Sequence[tuple[Trainer, StepPlan]], *, pairs: int, steps: int, settle: int
) -> list[list[StepTimes]]:
    """Train short blocks of the states in turn; return the times by state and pair.

    Every block begins with an empty queue and `settle` steps that are not in the times: with what
    another state had queued, a host that is too slow would not be seen for many steps. Blocks
    that lie within a second of each other see the same machine, however it drifts.
    """
    found: list[list[StepTimes]] = [[] for _ in states]
    for _ in range(pairs):
        for (trainer, plan), times in zip(states, found, strict=True):
            trainer.apply_model_settings(plan)
            trainer.world.meet()
            times.append(timed_steps(trainer, plan, steps, settle=settle))
    return found


def profiled_steps(
    trainer: Trainer,
    plan: StepPlan,
    active: int,
    path: Path,
    *,
    record_shapes: bool,
    around: tuple[int, int] = (0, 0),
    delays: tuple[int, int] = (0, 0),
) -> dict[str, StepTimes]:
    """Record `active` steps with torch.profiler into `path` (plain JSON); return step times.

    `around`: how many plain steps settle and how many are timed right before the recording, and
    again right after it (before the export): a host's pace drifts within seconds. `delays`: more
    plain steps between the two, before the recording and after it. Their sum is the same on all
    ranks; where they differ, the windows of the ranks do.
    """
    settle, plain = around
    activities = [torch.profiler.ProfilerActivity.CPU]
    if trainer.world.cuda:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    profile = torch.profiler.profile(
        activities=activities,
        # repeat=1: without it the profiler begins another cycle after the last step, and the
        # export is of that one.
        schedule=torch.profiler.schedule(
            wait=0, warmup=PROFILER_WARMUP_STEPS, active=active, repeat=1
        ),
        record_shapes=record_shapes,
        experimental_config=_with_sync_events(),
    )
    trainer.world.meet()
    before = timed_steps(trainer, plan, plain, settle=settle)
    trainer.world.meet()
    timed_steps(trainer, plan, delays[0])
    profile.start()
    times = timed_steps(trainer, plan, PROFILER_WARMUP_STEPS + active, after=profile.step)
    profile.stop()
    timed_steps(trainer, plan, delays[1])
    trainer.world.meet()
    after = timed_steps(trainer, plan, plain, settle=settle)
    profile.export_chrome_trace(str(path))
    return {
        "before": before,
        "warmup": times.part(0, PROFILER_WARMUP_STEPS),
        "profiled": times.part(PROFILER_WARMUP_STEPS, None),
        "after": after,
    }


def captured_steps(trainer: Trainer, plan: StepPlan, count: int) -> StepTimes:
    """Let the nsys that started this process record `count` steps with NVTX ranges.

    Rank 0 opens and closes the window for all ranks of the host.
    """
    world = trainer.world
    trainer.nvtx = True
    world.meet()
    if world.rank == 0:
        torch.cuda.cudart().cudaProfilerStart()
        time.sleep(0.5)  # nsys switches the other rank's tracing on a moment later
    world.meet()
    timed = timed_steps(trainer, plan, count)
    world.meet()
    if world.rank == 0:
        torch.cuda.cudart().cudaProfilerStop()
    world.meet()
    trainer.nvtx = False
    return timed


def _mark(trainer: Trainer) -> Any:  # noqa: ANN401
    if not trainer.world.cuda:
        return time.perf_counter_ns()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _elapsed_ms(begin: Any, end: Any) -> float:  # noqa: ANN401
    if isinstance(begin, int):
        return float(end - begin) / 1e6
    return float(begin.elapsed_time(end))


def _with_sync_events() -> Any:  # noqa: ANN401
    from torch._C._profiler import _ExperimentalConfig

    return _ExperimentalConfig(enable_cuda_sync_events=True)
