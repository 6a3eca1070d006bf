"""MEM002 rank-memory-skew.

## What it finds
One rank needs much more GPU memory than the others.

## Why it costs
It costs no time by itself. The fullest rank limits batch size and model for all; it is the first to
run out of memory, or to empty its allocator's cache again and again.

## How it is measured
The largest peak that the caching allocator handed out in any step, of each rank, from the step
timer's files. A rank counts from a quarter and 1 GiB above the median of the others on.

## When it is wrong
Pipeline stages and ranks with an embedding or a loss of their own need more by design.

## What to do
Look for what one rank holds alone: tensors gathered for logging or evaluation, an unsharded
optimizer state, CUDA contexts of other processes that chose GPU 0, longer sequences.

## References
PyTorch documentation: understanding CUDA memory usage, memory snapshots.
"""

from __future__ import annotations

import numpy as np

from trace_analyzer.findings import Evidence
from trace_analyzer.rules.context import Context
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule

# Peaks of equal ranks agree within a few per cent: buckets and workspaces are the same.
LEAST_EXCESS = 0.25
LEAST_EXCESS_BYTES = 1 << 30


def find(context: Context) -> Answer:
    """Return one cause for the rank whose peak is far above the others'."""
    peaks = {
        item.rank: item.memory_peak_bytes
        for item in context.study.run.unprofiled
        if item.memory_peak_bytes is not None
    }
    if len(peaks) < 2:
        return NotApplicable(
            reason=f"memory peaks of {len(peaks)} ranks are known",
            needs="the step timer's files of two ranks or more (`trace-analyzer collect`)",
        )
    top = max(peaks, key=lambda rank: peaks[rank])
    usual = float(np.median([peaks[rank] for rank in peaks if rank != top]))
    excess = peaks[top] - usual
    if excess < LEAST_EXCESS_BYTES or excess < LEAST_EXCESS * usual:
        return Passed(reason=f"peaks of all ranks lie within {excess / 2**30:.2f} GiB")
    return [
        Cause(
            title=(
                f"Rank {top} needs {peaks[top] / 2**30:.1f} GiB of GPU memory, the others "
                f"{usual / 2**30:.1f} GiB."
            ),
            ranks=(top,),
            ceiling_ns=None,
            proof=f"Its peak is {100 * excess / max(usual, 1.0):.0f} % above the others' median.",
            rival="Not fragmentation. What is handed out differs, not what is reserved.",
            limits="It costs no time by itself.",
            evidence=(
                Evidence(
                    title="Peak of the memory handed out",
                    columns=["rank", "GiB"],
                    rows=[[rank, round(peaks[rank] / 2**30, 2)] for rank in sorted(peaks)],
                ),
            ),
            actions=(
                f"Take a memory snapshot of rank {top} and of another rank, and compare them.",
                "Gather for logging or evaluation on the host, or shard it over ranks.",
            ),
            explains_late=False,
            size=min(excess / max(usual, 1.0), 1.0),
        )
    ]


RULE = Rule(
    code="MEM002",
    name="rank-memory-skew",
    kind="fault",
    status="experimental",
    needs="memory peaks of the step timer",
    find=find,
    evidence_only=True,
)
