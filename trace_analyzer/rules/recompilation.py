"""HOST006 recompilation.

## What it finds
`torch.compile` compiles again in the middle of training, or CUDA graphs are recorded again: a shape,
a Python number or a guarded object changes.

## Why it costs
Compiling one graph takes the host tenths of a second to minutes. All ranks wait for the one that
compiles; ranks that compile at different steps add up.

## How it is measured
Dynamo's own ranges of compilation, and the time from a stream capture to the instantiation of its
graph, in steps after warm-up. The replay takes this time out. It comes and goes, so that the mean
step counts.

## When it is wrong
The first steps compile once; they are warm-up. A recording that begins with the job shows that
warm-up; the rule asks for compilation in at least two later steps, or on one long after the first.

## What to do
`TORCH_LOGS=recompiles` names the guard that failed. Pad to a few sizes, mark what varies with
`torch._dynamo.mark_dynamic`, pass the learning rate as a tensor.

## References
PyTorch documentation: torch.compile troubleshooting, recompilation; CUDA graph trees.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.idle import launching_threads
from trace_analyzer.findings import Evidence
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule
from trace_analyzer.tables import HostCategory

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.intervals import Intervals
    from trace_analyzer.model import Rank

_COMPILING = re.compile(
    r"\(dynamo_timed\)$|^entire_frame_compile$|^_compile\.compile_inner|^backend_compile$|^dynamo$"
)
LEAST_STEPS = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Compilation:
    """What one rank compiles in the steps that count, ns."""

    spans: Intervals
    hit: int
    steps: int
    graphs: int
    idle_ns: float

    @property
    def mean_ns(self) -> float:
        """Time a step."""
        return self.spans.total / self.steps


def find(context: Context) -> Answer:
    """Return one cause for all ranks that compile in later steps."""
    if not context.ranks:
        return NotApplicable(reason="no complete step was recorded", needs="complete steps")
    seen = {number: _seen(context, number) for number in context.ranks}
    chosen = {number: item for number, item in seen.items() if item.hit >= LEAST_STEPS}
    if not chosen:
        hit = max(item.hit for item in seen.values())
        return Passed(reason=f"{hit} steps after warm-up compile or record a graph")
    worst = max(chosen, key=lambda number: chosen[number].mean_ns)
    top = chosen[worst]

    def edit(change: Edit) -> None:
        for number, item in chosen.items():
            change.host(number, item.spans)

    what = "records CUDA graphs" if 2 * top.graphs > top.hit else "compiles"
    return [
        Cause(
            title=(
                f"torch.compile {what} again in {top.hit} of {top.steps} steps on "
                f"{rank_list(chosen)}, {top.spans.total / max(top.hit, 1) / 1e6:.0f} ms each time."
            ),
            ranks=tuple(chosen),
            ceiling_ns=top.idle_ns,
            edit=edit,
            edit_text="nothing is compiled after warm-up",
            proof=(
                f"Rank {worst}'s host spends {top.mean_ns / 1e6:.1f} ms a step on compilation; its "
                f"GPU is idle for {top.idle_ns / 1e6:.1f} ms of it."
            ),
            rival="Not warm-up. It goes on after normal steps.",
            evidence=(
                Evidence(
                    title="Compilation after warm-up",
                    columns=[
                        "rank",
                        "steps that compile",
                        "steps",
                        "ms a step",
                        "graphs recorded",
                        "ms a step with an idle GPU",
                    ],
                    rows=[
                        [
                            number,
                            item.hit,
                            item.steps,
                            round(item.mean_ns / 1e6, 3),
                            item.graphs,
                            round(item.idle_ns / 1e6, 3),
                        ]
                        for number, item in chosen.items()
                    ],
                ),
            ),
            ranges=tuple(
                piece
                for number, item in chosen.items()
                for piece in context.ranges(number, item.spans.start, item.spans.end, "compiles")[
                    :6
                ]
            ),
            actions=(
                "Run with `TORCH_LOGS=recompiles` to see which guard fails.",
                (
                    "Pad or bucket inputs to a few sizes; for what really varies, "
                    "`torch._dynamo.mark_dynamic(x, dim)` or `torch.compile(dynamic=True)`."
                ),
                "Pass numbers that change (learning rate, step) as tensors.",
            ),
            mean=True,
        )
    ]


def _seen(context: Context, number: int) -> _Compilation:
    item = context.ranks[number]
    first = int(np.argmax(item.steady)) if bool(item.steady.any()) else 0
    begin, end = item.steps.host_start_ns[first:], item.steps.host_end_ns[first:]
    window = intervals.single(int(begin[0]), int(end[-1]))
    graphs = intervals.intersect(_captures(item.rank), window)
    spans = intervals.intersect(intervals.merge(compiling(item.rank), graphs), window)
    idle = intervals.subtract(spans, item.busy.any)
    return _Compilation(
        spans=spans,
        hit=int(np.sum(intervals.coverage(spans, begin, end) > 0)),
        steps=len(begin),
        graphs=len(graphs),
        idle_ns=idle.total / len(begin),
    )


def compiling(rank: Rank) -> Intervals:
    """Return when the launching threads of a rank compile."""
    events = rank.events
    named = np.array([_COMPILING.search(text) is not None for text in rank.names], dtype=np.bool_)
    rows = (
        named[events.name]
        & np.isin(events.thread, launching_threads(rank))
        & (events.category != HostCategory.PYTHON)
    )
    return intervals.union(events.start_ns[rows], events.end_ns[rows])


def _captures(rank: Rank) -> Intervals:
    """Return the time from each stream capture to the instantiation of what it recorded."""
    calls = rank.calls
    begins = np.array(["StreamBeginCapture" in text for text in rank.names], dtype=np.bool_)
    ends = np.array(["GraphInstantiate" in text for text in rank.names], dtype=np.bool_)
    start = calls.start_ns[begins[calls.name]]
    end = np.sort(calls.end_ns[ends[calls.name]])
    after = np.searchsorted(end, start)
    have = after < len(end)
    return intervals.union(start[have], end[after[have]])


RULE = Rule(
    code="HOST006",
    name="recompilation",
    kind="fault",
    status="stable",
    needs="torch.profiler's operators, or CUDA calls of graph capture",
    find=find,
)
