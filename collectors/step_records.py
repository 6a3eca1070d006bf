"""A timed step while its marks wait for the device, and the line that it becomes."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from typing import Any

import torch

from trace_analyzer.collectors.clocks import Clock, Memory

SCHEMA_VERSION = 1

# The end of a part: its name, its mark (None where only the host's clock was read), host time in
# nanoseconds. A plain tuple, because a named one takes as long to make as reading the clock.
Part = tuple[str, object, int]


@dataclass(slots=True)
class Step:
    """Marks of one step; `end` is the next step's begin mark where the steps follow on."""

    index: int
    phase: str
    start_unix_ns: int
    begin: object
    begin_host_ns: int
    parts: list[Part] = field(default_factory=list)
    end: object = None
    end_host_ns: int = 0
    end_is_next_begin: bool = False
    memory: Memory | None = None


def process_header(rank: int, world_size: int) -> dict[str, Any]:
    """Return what the first line of a step file says of the process."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "header",
        "rank": rank,
        "world_size": world_size,
        "pid": os.getpid(),
        "host": platform.node(),
        "torch": str(torch.__version__),
    }


def step_record(clock: Clock, step: Step) -> dict[str, Any]:
    """Return the line of `steps.schema.json` for a step whose marks are all passed.

    On the device a part without a mark of its own belongs to the part after it.
    """
    record: dict[str, Any] = {
        "kind": "step",
        "index": step.index,
        "phase": step.phase,
        "start_unix_ns": step.start_unix_ns,
        "step_ms": round(clock.elapsed_ms(step.begin, step.end), 6),
        "host_ms": (step.end_host_ns - step.begin_host_ns) / 1e6,
        "closed_by": "next" if step.end_is_next_begin else "end",
    }
    before, before_host_ns = step.begin, step.begin_host_ns
    for name, mark, host_ns in step.parts:
        host = f"{name}_host_ms"
        record[host] = round(record.get(host, 0.0) + (host_ns - before_host_ns) / 1e6, 6)
        before_host_ns = host_ns
        if mark is not None:
            device = f"{name}_ms"
            record[device] = round(record.get(device, 0.0) + clock.elapsed_ms(before, mark), 6)
            before = mark
    if step.memory is not None:
        record["memory_allocated_bytes"], record["memory_peak_bytes"] = step.memory
    return record


def close_by_next(clock: Clock, step: Step, mark: object, now_ns: int) -> None:
    """Let a step that has an end mark last until the next one's begin mark instead."""
    step.end_is_next_begin = True
    if all(part[1] is not step.end for part in step.parts):
        clock.release(step.end)
    step.end, step.end_host_ns = mark, now_ns


def release_part_marks(clock: Clock, step: Step) -> None:
    """Give back the marks of the parts, but not the step's own."""
    for _, mark, _ in step.parts:
        if mark is not None and mark is not step.end:
            clock.release(mark)


def release_marks(clock: Clock, step: Step) -> None:
    """Give back the marks that belong to this step alone."""
    clock.release(step.begin)
    release_part_marks(clock, step)
    if not step.end_is_next_begin:
        clock.release(step.end)
