"""STEP001 periodic-stall.

## What it finds
Some steps do something more than the usual step, while training waits: a checkpoint is copied from
the GPU and written, an evaluation runs, a report is made.

## Why it costs
Training stands still meanwhile, on all ranks, also where one rank alone saves. Spread over the
steps between two of them, it adds to each.

## How it is measured
The usual step is the sequence of operations that most steps launch. Steps that launch one block
more, in the same place of it, do extra work; the replay takes the block out, with the host time
between its neighbours. The mean step counts.

## When it is wrong
The cost a step depends on the period, and a recording of few steps shows no true period: with a
checkpoint every 1,000 steps, a window that holds two of them exaggerates. Steps that follow
different shapes or branches are not compared.

## What to do
Save asynchronously (`torch.distributed.checkpoint.async_save`, or copy into pinned memory and write
from a thread), less often, and sharded over ranks. Evaluate less often, on fewer batches, or in
another job.

## References
PyTorch distributed checkpoint documentation: asynchronous saving.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.extra_work import ExtraWork, extra_work
from trace_analyzer.analyses.idle import launching_threads
from trace_analyzer.findings import Evidence
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule
from trace_analyzer.tables import CallKind, HostCategory

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.model import Rank

LEAST_STEPS = 2
# Copies of more than this to the host are parameters, not values.
CHECKPOINT_BYTES = 1 << 20


def find(context: Context) -> Answer:
    """Return one cause for all ranks with extra work in some steps."""
    if not any(len(item.steps) >= 3 for item in context.ranks.values()):
        return NotApplicable(reason="fewer than 3 steps were recorded", needs="3 steps or more")
    seen = {
        number: later_extra_work(item.rank, context, number)
        for number, item in context.ranks.items()
    }
    chosen = {
        number: blocks
        for number, blocks in seen.items()
        if len(np.unique(blocks.step)) >= LEAST_STEPS
        and not _to_the_end(blocks, len(context.ranks[number].steps))
    }
    if not chosen:
        count = max((len(blocks) for blocks in seen.values()), default=0)
        return Passed(reason=f"{count} steps launch more than the usual step")

    def edit(change: Edit) -> None:
        for number, blocks in chosen.items():
            _take_out(change, number, blocks)

    counts = {number: _steps(context, number) for number in chosen}
    times = {number: blocks.spans.total / counts[number] for number, blocks in chosen.items()}
    worst = max(times, key=lambda number: times[number])
    blocks = chosen[worst]
    copied = float(np.median(blocks.copied_bytes))
    saves = copied > CHECKPOINT_BYTES
    inside = _inside(context.ranks[worst].rank, blocks)
    each = blocks.spans.total / len(blocks)
    what = "saves from the GPU" if saves else "does extra work"
    period = _period(blocks)
    return [
        Cause(
            title=(
                f"Training {what} in {len(blocks)} of {counts[worst]} steps on "
                f"{rank_list(chosen)}, {each / 1e6:.0f} ms each time."
            ),
            ranks=tuple(chosen),
            ceiling_ns=times[worst],
            edit=edit,
            edit_text="these steps do what the others do",
            proof=(
                f"Rank {worst} launches {int(np.median(blocks.kernels))} more kernels"
                + (f" and copies {copied / 1e6:.1f} MB to the host" if saves else "")
                + f" in these steps{period}{inside and f', inside {inside}'}."
            ),
            rival="Not a slow step. The rest of these steps is the usual one.",
            limits=(
                "The cost a step holds for the recorded steps; with a longer period it is less."
            ),
            evidence=(
                Evidence(
                    title="Steps that do more than the usual one",
                    columns=[
                        "rank",
                        "steps",
                        "of",
                        "ms each",
                        "ms a step on average",
                        "kernels more",
                        "MB to the host",
                    ],
                    rows=[
                        [
                            number,
                            len(item),
                            counts[number],
                            round(item.spans.total / len(item) / 1e6, 3),
                            round(times[number] / 1e6, 3),
                            int(np.median(item.kernels)),
                            round(float(np.median(item.copied_bytes)) / 1e6, 2),
                        ]
                        for number, item in chosen.items()
                    ],
                ),
            ),
            ranges=tuple(
                piece
                for number, item in chosen.items()
                for piece in context.ranges(number, item.start_ns, item.end_ns, "extra work")[:6]
            ),
            actions=_actions(saves=saves),
            mean=True,
        )
    ]


def _to_the_end(blocks: ExtraWork, steps: int) -> bool:
    """Return whether all steps from one on have the block: the step has changed for good."""
    step = np.unique(blocks.step)
    return bool(len(step) == steps - step[0] and len(step) > LEAST_STEPS)


def later_extra_work(rank: Rank, context: Context, number: int) -> ExtraWork:
    """Return a rank's extra work in steps from the first steady one on."""
    item = context.ranks[number]
    blocks = extra_work(rank, item.steps)
    first = int(np.argmax(item.steady)) if bool(item.steady.any()) else 0
    return blocks.take(blocks.step >= first)


def _steps(context: Context, number: int) -> int:
    item = context.ranks[number]
    first = int(np.argmax(item.steady)) if bool(item.steady.any()) else 0
    return len(item.steps) - first


def _take_out(change: Edit, number: int, blocks: ExtraWork) -> None:
    calls = change.ranks[number].calls
    change.remove(number, np.concatenate(blocks.operations))
    inside = np.flatnonzero(
        Context.starts_in(calls.start_ns, blocks.spans)
        & np.isin(calls.kind, (CallKind.SYNC, CallKind.MEMCPY, CallKind.FREE))
    )
    change.no_wait(number, inside)
    change.host(number, blocks.spans)


def _period(blocks: ExtraWork) -> str:
    distance = np.unique(np.diff(np.unique(blocks.step)))
    return f", every {int(distance[0])} steps" if len(distance) == 1 else ""


def _inside(rank: Rank, blocks: ExtraWork) -> str:
    """Return the name of the range that marks the extra work, "" without one."""
    events = rank.events
    rows = np.flatnonzero(
        (events.category == HostCategory.ANNOTATION)
        & np.isin(events.thread, launching_threads(rank))
        & Context.starts_in(events.start_ns, blocks.spans)
    )
    if not len(rows):
        return ""
    inside = intervals.coverage(blocks.spans, events.start_ns[rows], events.end_ns[rows])
    names, place = np.unique(events.name[rows], return_inverse=True)
    time = np.bincount(place.reshape(-1), weights=inside)
    return f"`{rank.names[int(names[int(np.argmax(time))])][:60]}`"


def _actions(*, saves: bool) -> tuple[str, ...]:
    if saves:
        return (
            (
                "Save asynchronously: `torch.distributed.checkpoint.async_save`, or copy into "
                "pinned memory and write from a thread."
            ),
            "Save less often, sharded over ranks, to a local disk first.",
        )
    return (
        "Evaluate or report less often, on fewer batches.",
        "Evaluate in another job that reads the checkpoints.",
    )


RULE = Rule(
    code="STEP001",
    name="periodic-stall",
    kind="fault",
    status="stable",
    needs="steps with their launches",
    find=find,
)
