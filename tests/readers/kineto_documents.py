"""Small torch.profiler traces for tests of their reader: events, documents, files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trace_analyzer.model import Rank
from trace_analyzer.readers import kineto
from trace_analyzer.tables import GpuOperations

PID = 100
BASE_NS = 1_790_857_026_000_000_000
START_US = 5_131_672_000_000

Event = dict[str, Any]


def event(category: str, name: str, ts: Any, dur: Any, **changes: Any) -> Event:
    """A complete event of the host; `args` and other keys can be given."""
    made: Event = {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": PID,
        "tid": PID,
        "ts": ts,
        "dur": dur,
    }
    made.update(changes)
    return made


def kernel(ts: Any, dur: Any, *, name: str = "gemm", correlation: int = 0, **args: Any) -> Event:
    """A kernel on device 0, stream 7."""
    given = {"device": 0, "context": 1, "stream": 7, "correlation": correlation, **args}
    return event("kernel", name, ts, dur, pid=0, tid=7, args=given)


def launch(
    ts: Any, dur: Any, correlation: int, *, name: str = "cudaLaunchKernel", **args: Any
) -> Event:
    """A runtime call."""
    return event("cuda_runtime", name, ts, dur, args={"correlation": correlation, **args})


def document(events: Sequence[Any], **header: Any) -> dict[str, Any]:
    """A whole trace, its header before the events."""
    return {"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS, **header, "traceEvents": events}


def write(path: Path, content: Any) -> Path:
    """Write text, bytes, or anything else as JSON."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        text = content if isinstance(content, str) else json.dumps(content, indent=1)
        path.write_text(text, encoding="utf-8")
    return path


def read(folder: Path, content: Any, **options: Any) -> Rank:
    """Write a trace into a folder and read it."""
    return kineto.read(write(folder / "trace.json", content), **options)


def codes(rank: Rank) -> dict[str, int]:
    """The count of every warning's code."""
    found: dict[str, int] = {}
    for warning in rank.warnings:
        found[warning.code] = found.get(warning.code, 0) + warning.count
    return found


def names(rank: Rank) -> list[str]:
    """The names of the GPU operations."""
    return [rank.names[name] for name in rank.operations.name]


# An independent computation of the numbers of REFERENCE.csv: lists and integers.


def reference_ns(operations: GpuOperations) -> dict[str, int]:
    """Window, compute, comm, overlap, idle and the rest in ns, by plain Python."""
    rows = list(
        zip(
            operations.start_ns.tolist(),
            operations.end_ns.tolist(),
            operations.work.tolist(),
            strict=True,
        )
    )
    compute = [(start, end) for start, end, work in rows if work == 0]
    comm = [(start, end) for start, end, work in rows if work == 1]
    window = max(end for _, end, _ in rows) - min(start for start, _, _ in rows)
    covered = covered_ns([(start, end) for start, end, _ in rows])
    both = covered_ns(compute) + covered_ns(comm) - covered_ns(compute + comm)
    return {
        "window": window,
        "compute": covered_ns(compute),
        "comm": covered_ns(comm),
        "overlap": both,
        "idle": window - covered,
        "noncompute": covered - covered_ns(compute),
    }


def covered_ns(spans: list[tuple[int, int]]) -> int:
    """The length of the union of half-open spans."""
    total, reach = 0, int(np.iinfo(np.int64).min)
    for start, end in sorted(spans):
        if end > reach:
            total += end - max(start, reach)
            reach = end
    return total
