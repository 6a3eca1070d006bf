"""A timed step while its marks wait for the device, and the line that it becomes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trace_analyzer.collectors.clocks import Clock, Memory


class Part(NamedTuple):
    """The end of a part; `mark` is None where only the host's clock was read."""

    name: str
    mark: object
    host_ns: int


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


def release_marks(clock: Clock, step: Step) -> None:
    """Give back the marks that belong to this step alone."""
    clock.release(step.begin)
    for part in step.parts:
        if part.mark is not None and part.mark is not step.end:
            clock.release(part.mark)
    if not step.end_is_next_begin:
        clock.release(step.end)
