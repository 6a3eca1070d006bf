"""DATA001 dataloader-stall.

## What it finds
The GPU waits for the next batch: the training process loads it itself, its workers are too few or
too slow, or the process works on it before it goes to the GPU.

## Why it costs
While the host waits for a batch it launches nothing, and the GPU runs dry. In a distributed run one
rank that waits holds up all others.

## How it is measured
The host's time in the loader's `__next__` (or in a range called "data" or the like) and from there
to the batch's copy, without CUDA calls. The replay shortens it to what taking a ready batch costs,
0.3 ms. Where workers set the pace, the replay keeps that pace for the step without the profiler:
the host then waits longer than in the recording, because the profiled step is slower.

## When it is wrong
The first batch of an epoch starts the workers; a recording that holds it shows a long wait that
does not repeat. Without a range around the loader the silence before the batch's copy is taken for
it. Workers that would be too slow only without the profiler never make the profiled host wait, and
then nothing is seen.

## What to do
Load in workers (`num_workers` > 0, `persistent_workers=True`, `pin_memory=True`), add workers up to
the cores that a rank has, move work from the training process into `__getitem__` or `collate_fn`,
store data in a form that decodes faster.

## References
torch.utils.data documentation: single- and multi-process data loading, memory pinning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.fetches import READY_NS, Fetches, fetch_time, fetches
from trace_analyzer.findings import Evidence
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, Confidence, NotApplicable, Passed, Rule

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.analyses.replay.supply import Supply
    from trace_analyzer.intervals import Intervals

# Loading that takes less of a step than this cannot give back what a finding needs.
LEAST_SHARE = 0.01
# A stall that shows in fewer than half of the steps comes and goes; one alone may be an epoch's
# first batch.
LEAST_STALLS = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Stall:
    """What one rank's host spends on batches, ns a step, beyond taking ready ones."""

    found: Fetches
    spans: Intervals
    host_ns: float
    idle_ns: float
    stalled_steps: int
    prepared_ns: float
    supply: Supply | None

    @property
    def pace_ns(self) -> float | None:
        """What workers need for a batch, where they set the pace."""
        return None if self.supply is None else float(np.mean(self.supply.duration_ns))

    @property
    def place(self) -> str:
        """Where batches are made."""
        if self.found.guessed:
            return "not marked"
        if self.prepared_ns > 0.5 * self.host_ns:
            return "training process, after loading"
        if bool(self.found.in_process.any()):
            return "training process"
        return "workers" if bool(self.found.workers.any()) else "inside a range"


def find(context: Context) -> Answer:
    """Return one cause for all ranks whose hosts wait for batches or make them themselves."""
    stalls: dict[int, _Stall] = {}
    seen = 0
    for number in context.ranks:
        stall = _stall(context, number)
        if stall is not None:
            seen += 1
            stalls[number] = stall
    if not seen:
        return NotApplicable(
            reason="neither a range nor a copy shows where batches come from",
            needs="torch's DataLoader, a range called `data` around the loading, or copies of batches",
        )
    most = max(max(item.host_ns, item.pace_ns or 0.0) for item in stalls.values())
    chosen = {
        number: item
        for number, item in stalls.items()
        if item.supply is not None
        or (item.host_ns >= LEAST_SHARE * context.step_ns and item.stalled_steps >= LEAST_STALLS)
    }
    if not chosen:
        return Passed(reason=f"getting a batch takes the host {most / 1e6:.1f} ms a step at most")
    return [_cause(context, chosen)]


def _stall(context: Context, number: int) -> _Stall | None:
    item = context.ranks[number]
    rank = item.rank
    found = fetches(rank, item.steps.host_start_ns)
    if not len(found):
        return None
    spans = fetch_time(rank, found)
    steady = intervals.intersect(spans, context.host_windows(number))
    each = intervals.coverage(spans, item.steps.host_start_ns, item.steps.host_end_ns)
    prepared = intervals.intersect(steady, intervals.union(found.next_end_ns, found.end_ns))
    supply = None
    if context.replay is not None:
        supply = context.replay.built.parts[number].supply
    whole = intervals.union(found.start_ns, found.end_ns)
    return _Stall(
        found=found,
        spans=spans,
        host_ns=context.per_step_ns(number, steady.total),
        idle_ns=context.idle_ns(number, whole),
        stalled_steps=int(np.sum(each[item.steady] > READY_NS)),
        prepared_ns=context.per_step_ns(number, prepared.total),
        supply=supply,
    )


def _cause(context: Context, chosen: dict[int, _Stall]) -> Cause:
    worst = max(chosen, key=lambda number: chosen[number].host_ns)
    stall = chosen[worst]
    steps = context.steady_count(worst)
    rare = stall.supply is None and 2 * stall.stalled_steps < steps
    pace = stall.pace_ns
    confidence: Confidence = "medium" if stall.found.guessed else "high"

    def edit(change: Edit) -> None:
        for number, item in chosen.items():
            spans = item.spans
            if item.supply is not None:
                change.batches(number, 0.0)
                spans = intervals.subtract(spans, item.supply.blocked)
            change.host(number, spans)

    return Cause(
        title=_title(chosen, stall),
        ranks=tuple(chosen),
        ceiling_ns=stall.idle_ns,
        edit=edit,
        edit_text="a batch is ready when it is asked for",
        proof=(
            f"Rank {worst}'s host spends {stall.host_ns / 1e6:.1f} ms a step on getting batches; "
            f"its GPU is idle for {stall.idle_ns / 1e6:.1f} ms of them."
            + (
                f" Workers deliver one batch in {pace / 1e6:.1f} ms, however fast the step is."
                if pace is not None
                else ""
            )
        ),
        rival=(
            "Not a slow launch loop. The host launches nothing meanwhile."
            if len(chosen) == len(context.ranks)
            else f"Not the network. Only {rank_list(chosen)} come late, and from the loader."
        ),
        limits=(
            "Profiled steps are slower, so that the recording shows a shorter wait than there is."
            if pace is not None
            else "No range marks the loader: silence before the batch's copy is taken for it."
            if stall.found.guessed
            else ""
        ),
        evidence=(
            Evidence(
                title="What the host spends on batches",
                columns=[
                    "rank",
                    "loaded in",
                    "ms a step",
                    "ms of it with an idle GPU",
                    "steps with a stall",
                    "ms a batch of the workers",
                ],
                rows=[_row(number, item) for number, item in chosen.items()],
            ),
        ),
        ranges=tuple(
            piece
            for number, item in chosen.items()
            for piece in context.ranges(
                number, item.spans.start, item.spans.end, "waits for a batch"
            )[:6]
        ),
        actions=_actions(stall, _workers(context, worst)),
        mean=rare,
        confidence=confidence,
        confidence_reason="no range marks the loader" if confidence == "medium" else "",
    )


def _row(number: int, item: _Stall) -> list[str | float | int | None]:
    pace = item.pace_ns
    return [
        number,
        item.place,
        round(item.host_ns / 1e6, 3),
        round(item.idle_ns / 1e6, 3),
        item.stalled_steps,
        None if pace is None else round(pace / 1e6, 3),
    ]


def _title(chosen: dict[int, _Stall], stall: _Stall) -> str:
    where = rank_list(chosen)
    if stall.pace_ns is not None:
        return (
            f"Loader workers are too slow on {where}: a batch takes them "
            f"{stall.pace_ns / 1e6:.1f} ms."
        )
    took = f"{stall.host_ns / 1e6:.1f} ms a step"
    if stall.place == "workers":
        return f"The host waits {took} for loader workers on {where}."
    if stall.place == "training process":
        return f"The training process loads its batches itself on {where}: {took}."
    if stall.place == "training process, after loading":
        return f"The training process works {took} on loaded batches on {where}."
    return f"Getting a batch takes the host {took} on {where}."


def _workers(context: Context, number: int) -> int | None:
    """Return the loader's workers, where the settings were recorded."""
    text = context.study.run.environment.get(number, {}).get("setting.dataloader.num_workers", "")
    return int(text) if text.isdecimal() else None


def _actions(stall: _Stall, workers_now: int | None) -> tuple[str, ...]:
    workers = (
        "Load in workers: `DataLoader(..., num_workers=4, pin_memory=True, "
        "persistent_workers=True, prefetch_factor=4)`; workers times ranks stay below the cores."
    )
    double = (
        f"Raise `num_workers` from {workers_now} to {2 * workers_now}"
        if workers_now
        else "Double `num_workers`"
    )
    more = (
        f"{double} while cores are free, and set `persistent_workers=True`; otherwise make a batch "
        "cheaper: decode less, cache, or read larger files from a local disk."
    )
    move = (
        "Move tokenizing, collating and conversions into `__getitem__` or `collate_fn`, so that "
        "workers do them, or onto the GPU."
    )
    own = (
        "Where one rank loads for all and broadcasts, give each rank its own loader with a "
        "`DistributedSampler` (Accelerate: `dispatch_batches=False`)."
    )
    if stall.supply is not None or stall.place == "workers":
        return (more, move, own)
    if stall.place == "training process, after loading":
        return (move, workers, own)
    return (workers, move, own)


RULE = Rule(
    code="DATA001",
    name="dataloader-stall",
    kind="fault",
    status="stable",
    needs="the loader's own ranges, a range around the loading, or the batches' copies",
    find=find,
)
