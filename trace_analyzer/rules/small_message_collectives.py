"""COMM002 small-message-collectives.

## What it finds
Gradients or parameters travel in many small messages: DDP with tiny buckets, or FSDP that wraps
single layers instead of blocks.

## Why it costs
Every collective has a price that does not depend on its size: the host prepares and launches it, and
the GPUs greet each other, which takes as long as moving some ten megabytes over NVLink. Ranks wait
for each other every time.

## How it is measured
Collectives of one kind that follow each other in a step are merged until they hold 25 MiB, as DDP's
buckets do. In the replay the first of them carries all bytes and the others none, and the host's work
for the others is gone: FSDP's ranges of these units, or the call itself. Counted are steps in which
that leaves half of the collectives, or fewer.

## When it is wrong
Some collectives are small because their tensors are: metrics, batch statistics, normalisation layers.
They are not counted (64 KiB or less). Larger FSDP units hold more whole parameters at a time, and
need more memory.

## What to do
DDP: leave `bucket_cap_mb` at 25. FSDP: `fully_shard` transformer blocks, not their linear layers; keep
parameters of small models whole after forward (`reshard_after_forward=False`).

## References
PyTorch documentation of `fully_shard`: which modules to wrap. NCCL sources, `tuning.cc`: latencies of
algorithms and protocols.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.gradient_sizes import BUCKET_BYTES
from trace_analyzer.analyses.host_syncs import SMALL_COPY_BYTES
from trace_analyzer.analyses.references import START_NS
from trace_analyzer.analyses.transfers import Transfers
from trace_analyzer.findings import Evidence
from trace_analyzer.intervals import Intervals
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule
from trace_analyzer.rules.transfer_causes import transfer_ranges
from trace_analyzer.schema import BoolArray, Float64Array, Int64Array, is_na
from trace_analyzer.tables import HostCategory

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit

MERGED = ("allreduce", "allgather", "reducescatter")
# What merging leaves of the collectives, at most, and what a step must have of them, at least.
LARGEST_SHARE = 0.5
LEAST_COLLECTIVES = 8
# Of a start-up, what two messages in one save: all-gathers of 8 and of 25 MB over NVLink.
SAVED_NS = START_NS / 2
_FSDP = re.compile(r"^FSDP::\w+(?: for \S+)?(?: \((?P<unit>.+)\))?$")
_CALL = re.compile(r"^c10d::\w+")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Merged:
    """Collectives of one group and kind: `first` of each new message carries `merged_ns`.

    All arrays have one entry a collective, in order of launch.
    """

    instance: Int64Array
    steady: BoolArray
    first: BoolArray
    merged_ns: Float64Array
    bytes: Int64Array
    transfer_ns: Int64Array


def find(context: Context) -> Answer:
    """Return one cause for all kinds of collectives that are too small."""
    cross, found = context.study.cross, context.transfers
    if cross is None or found is None:
        return NotApplicable(
            reason="no collective was recorded on two ranks or more", needs="all ranks of the run"
        )
    large = ~is_na(found.message_bytes) & (found.message_bytes > SMALL_COPY_BYTES)
    if not bool(large.any()):
        return NotApplicable(
            reason="no message above 64 KiB of known size was recorded",
            needs="a trace of torch.profiler, or an nsys export with `--include-json=true`",
        )
    steps = max(len(context.study.steady.used), 1)
    chosen: dict[tuple[int, int], _Merged] = {}
    for group in np.unique(found.group[large]).tolist():
        for operation in np.unique(found.operation[large]).tolist():
            if cross.events.operations[operation] not in MERGED:
                continue
            mine = found.take(large & (found.group == group) & (found.operation == operation))
            merged = _merge(mine)
            count, left = int(mine.steady.sum()), int((merged.first & mine.steady).sum())
            if count >= LEAST_COLLECTIVES * steps and left <= LARGEST_SHARE * count:
                chosen[group, operation] = merged
    if not chosen:
        return Passed(reason="merging would not halve the collectives of any kind")
    return [_cause(context, chosen)]


def _merge(mine: Transfers) -> _Merged:
    """Merge neighbours of a step until they hold `BUCKET_BYTES`."""
    first = np.zeros(len(mine), dtype=np.bool_)
    merged = np.zeros(len(mine), dtype=np.float64)
    at, filled = 0, BUCKET_BYTES
    # A few hundred collectives a step at most.
    for k, (size, step, took) in enumerate(
        zip(
            mine.message_bytes.tolist(),
            mine.step.tolist(),
            mine.transfer_ns.tolist(),
            strict=True,
        )
    ):
        if filled >= BUCKET_BYTES or step != int(mine.step[at]):
            at, filled = k, 0
            first[k], merged[k] = True, took
        else:
            merged[at] = max(merged[at] + took - SAVED_NS, took)
        filled += size
    return _Merged(
        instance=mine.instance,
        steady=mine.steady,
        first=first,
        merged_ns=merged,
        bytes=mine.message_bytes,
        transfer_ns=mine.transfer_ns,
    )


def _cause(context: Context, chosen: Mapping[tuple[int, int], _Merged]) -> Cause:
    cross = context.study.cross
    assert cross is not None
    steps = max(len(context.study.steady.used), 1)
    ranks = sorted({rank for group, _ in chosen for rank in cross.events.groups[group].recorded})
    gone = np.concatenate([item.instance[~item.first] for item in chosen.values()])
    spans = {number: _host_work(context, number, gone) for number in ranks}
    rows: list[list[str | float | int | None]] = []
    for (group, operation), item in chosen.items():
        rows.append(
            [
                cross.events.groups[group].name,
                cross.events.operations[operation],
                round(int(item.steady.sum()) / steps, 1),
                round(float(np.median(item.bytes[item.steady])) / 1e6, 2),
                round(int((item.first & item.steady).sum()) / steps, 1),
                round(float(item.transfer_ns[item.steady].sum()) / steps / 1e6, 3),
                round(float(item.merged_ns[item.steady].sum()) / steps / 1e6, 3),
            ]
        )
    count = sum(int(item.steady.sum()) for item in chosen.values()) / steps
    left = sum(int((item.first & item.steady).sum()) for item in chosen.values()) / steps
    size = float(np.median(np.concatenate([item.bytes[item.steady] for item in chosen.values()])))
    host = {
        number: context.per_step_ns(
            number, intervals.intersect(spans[number], context.host_windows(number)).total
        )
        for number in ranks
    }
    busiest = max(host, key=lambda number: host[number])
    idle = max(context.idle_ns(number, spans[number]) for number in ranks)
    saved = sum(
        float((item.transfer_ns - item.merged_ns)[item.steady].sum()) for item in chosen.values()
    )
    names = sorted({cross.events.operations[operation] for _, operation in chosen})
    return Cause(
        title=(
            f"{count:.0f} collectives a step on {rank_list(ranks)} carry {size / 1e6:.1f} MB in the "
            f"median; {left:.0f} would do."
        ),
        ranks=tuple(ranks),
        ceiling_ns=idle + max(saved, 0.0) / steps,
        edit=_fewer(chosen, spans),
        edit_text="neighbouring collectives travel as one, up to 25 MiB each",
        proof=(
            f"Rank {busiest}'s host spends {host[busiest] / 1e6:.1f} ms a step on those that could "
            f"be merged ({', '.join(names)})."
        ),
        rival="Not slow links. Small messages never reach the links' bandwidth.",
        limits="Larger FSDP units hold more whole parameters at a time.",
        evidence=(
            Evidence(
                title="Collectives that could be merged",
                columns=[
                    "group",
                    "operation",
                    "a step",
                    "median MB",
                    "a step if merged",
                    "ms a step",
                    "ms a step if merged",
                ],
                rows=rows,
            ),
        ),
        ranges=transfer_ranges(context, gone, "small message"),
        actions=(
            "FSDP: call `fully_shard(block)` for each transformer block, not for its linear layers.",
            "DDP: leave `bucket_cap_mb` at its default of 25.",
            "Small FSDP models: `reshard_after_forward=False` saves the all-gathers of backward.",
        ),
        explains_late=False,
    )


def _fewer(
    chosen: Mapping[tuple[int, int], _Merged], spans: Mapping[int, Intervals]
) -> Callable[[Edit], None]:
    def edit(change: Edit) -> None:
        for item in chosen.values():
            change.transfer(item.instance, item.merged_ns)
        for number, mine in spans.items():
            change.host(number, mine)

    return edit


def _host_work(context: Context, number: int, instances: Int64Array) -> Intervals:
    """Return when a rank's host works for some collectives: FSDP's ranges of their units, else calls.

    All ranges of a unit count in the steps in which its collectives are gone.
    """
    cross, rank = context.study.cross, context.study.ranks[number].rank
    assert cross is not None
    matched = np.isin(cross.matches.instance, instances)
    event = cross.matches.event[matched]
    row = cross.events.row[event[cross.events.rank[event] == number]]
    launch = rank.operations.launch[row[~is_na(rank.operations.launch[row])]]
    at, end = rank.calls.start_ns[launch], rank.calls.end_ns[launch]
    events = rank.events
    found = [_FSDP.match(text) for text in rank.names]
    unit_names = [None if match is None else match.group("unit") for match in found]
    kinds = (HostCategory.OPERATOR, HostCategory.ANNOTATION)
    usable = np.isin(events.category, [int(kind) for kind in kinds])
    own = np.array([bool(_CALL.match(text)) for text in rank.names], dtype=np.bool_)
    gathers = np.array([name is not None for name in unit_names], dtype=np.bool_)
    covered, units = _enclosing(events.start_ns, events.end_ns, usable & gathers[events.name], at)
    wanted = {unit_names[events.name[k]] for k in units.tolist()}
    mine = np.array([name in wanted and name is not None for name in unit_names], dtype=np.bool_)
    rows = np.flatnonzero(usable & mine[events.name])
    bare = at[~covered]
    _, calls = _enclosing(events.start_ns, events.end_ns, usable & own[events.name], bare)
    return intervals.union(
        np.concatenate([events.start_ns[rows], events.start_ns[calls], at[~covered]]),
        np.concatenate([events.end_ns[rows], events.end_ns[calls], end[~covered]]),
    )


def _enclosing(
    start: Int64Array, end: Int64Array, chosen: BoolArray, at: Int64Array
) -> tuple[BoolArray, Int64Array]:
    """Return which times lie in a chosen range, and the last such range to begin before each."""
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return np.zeros(len(at), dtype=np.bool_), rows
    last = np.searchsorted(start[rows], at, side="right") - 1
    inside = (last >= 0) & (at < end[rows[np.maximum(last, 0)]])
    return inside, np.unique(rows[last[inside]]).astype(np.int64)


RULE = Rule(
    code="COMM002",
    name="small-message-collectives",
    kind="opportunity",
    status="stable",
    needs="all ranks of the run, with the sizes of messages",
    find=find,
)
