"""COMM001 exposed-collective.

## What it finds
Gradients are reduced when backward is through, although most of them were ready long before: in one
large bucket, one after the other by hand, or from a compiled backward that hands them out at its end.

## Why it costs
While gradients travel, the GPU has nothing to compute. In buckets that start as soon as their
gradients are ready, all but the last bucket hide behind what is left of backward.

## How it is measured
Counted is the transfer of reductions behind whose launch less computation follows than they take,
until something waits for them. This is a property of the program: neither a slow host nor a late
rank makes a reduction count. The fix leaves the last bucket, as large as DDP would make it from these
gradients, and it is not free: kernels run slower beside the transfers that they hide. Both stay in
the replay; the rest of the exposed transfer is gone.

## When it is wrong
The last bucket holds the first parameters; where these are large, as an embedding is, no order of
buckets hides them. A backward shorter than its reductions cannot hide them all. Without kernels that
touch each gradient once, the sizes of gradients are unknown, and the last bucket is taken to have
DDP's 25 MiB.

## What to do
Use DDP with its default `bucket_cap_mb` of 25 (up to 100 where links are slow); do not reduce by hand
after backward. Compiled models: wrap in DDP first, then compile, so that the compiler splits the
graph at the buckets.

## References
PyTorch distributed notes: DDP's buckets and the order in which they are reduced; DDPOptimizer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer.analyses.gradient_sizes import BUCKET_BYTES, buckets, gradient_sizes
from trace_analyzer.analyses.gradient_sync import GradientSync, gradient_sync
from trace_analyzer.analyses.overlap import Hideable, hideable
from trace_analyzer.analyses.references import START_NS, ring_reference
from trace_analyzer.findings import Evidence
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule
from trace_analyzer.rules.transfer_causes import (
    CHANNELS,
    contention,
    instances_of,
    transfer_ranges,
)
from trace_analyzer.schema import BoolArray, Float64Array, Int64Array, is_na

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit

# Backward takes twice as long as forward, and an optimizer follows: what of a step's computation
# before its last reduction belongs to backward.
BACKWARD_SHARE = 0.6
# When backward is through, at least this share of a step's computation is: an optimizer is less. What
# is reduced earlier, between layers, is no gradient.
LEAST_BEFORE = 0.5
# Kernels that run beside a transfer for a part of their time only lose more than that part: they wait
# for the slowest of their blocks. On H200, hiding 2.1 ms of transfers cost a step 1.4 ms where
# kernels wholly beside NCCL, by their kind, told 0.8.
STRADDLING = 1.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Late:
    """Late reductions of one rank: `instance` in order of launch, with `step`; times are a step's.

    `transfer_ns` is what they take, `left_ns` what the fix leaves of it: the last bucket, and how
    much longer kernels take beside the others. `tail_bytes` is that bucket, `known` whether sizes
    of gradients told it.
    """

    instance: Int64Array
    step: Int64Array
    transfer_ns: float
    left_ns: float
    tail_bytes: float
    total_bytes: float
    known: bool


def find(context: Context) -> Answer:
    """Return one cause for all ranks that reduce their gradients too late."""
    cross, replay = context.study.cross, context.replay
    if cross is None:
        return NotApplicable(
            reason="no collective was recorded on two ranks or more", needs="all ranks of the run"
        )
    if replay is None:
        return NotApplicable(reason=f"the replay is withheld: {context.withheld}")
    if context.transfers is not None and bool(is_na(context.transfers.message_bytes).all()):
        return NotApplicable(
            reason="the sizes of messages were not recorded",
            needs="a trace of torch.profiler, or an nsys export with `--include-json=true`",
        )
    could_hide = hideable(replay.built, replay.base)
    found: dict[int, _Late] = {}
    for number, item in context.ranks.items():
        sync = gradient_sync(item.rank, item.steps, item.steady)
        if sync is not None and number in could_hide:
            late = _late(context, number, sync, could_hide[number])
            if late is not None:
                found[number] = late
    if not found:
        return Passed(reason="every reduction of gradients has computation to hide behind")
    worst = max(found, key=lambda number: found[number].transfer_ns - found[number].left_ns)
    late = found[worst]
    if late.transfer_ns <= late.left_ns:
        return Passed(
            reason=(
                f"{late.transfer_ns / 1e6:.1f} ms a step of reductions follow backward, which is "
                "what the last bucket takes anyway"
            )
        )
    return [_cause(context, found, worst)]


def _late(context: Context, number: int, sync: GradientSync, could_hide: Hideable) -> _Late | None:
    """Return the reductions of a rank that come too late, None where there are none."""
    mine = sync.operation[sync.part == sync.times - 1]
    place = np.flatnonzero(np.isin(could_hide.operation, mine))
    instance = instances_of(context, number)[could_hide.operation[place]]
    cross, found = context.study.cross, context.transfers
    assert cross is not None
    assert found is not None
    # What shards gradients is waited for in ways that a trace does not tell well.
    reduces = np.array([name == "allreduce" for name in cross.events.operations], dtype=np.bool_)
    kept = (instance >= 0) & reduces[found.operation[np.maximum(instance, 0)]]
    place, instance = place[kept], instance[kept]
    if not len(instance) or bool(is_na(found.message_bytes[instance]).any()):
        return None
    transfer = _transfer_ns(context, instance)
    size = found.message_bytes[instance].astype(np.float64)
    late = could_hide.after_ns[place] < transfer
    late &= could_hide.before_ns[place] >= LEAST_BEFORE * could_hide.total_ns[place]
    if not bool(late.any()):
        return None
    steps = len(np.unique(could_hide.step[place]))
    total_ns, total_bytes = float(transfer[late].sum()) / steps, float(size[late].sum()) / steps
    if _spread_ns(could_hide, place[late]) > total_ns:
        return None  # layers lie between them: no gradients that wait for backward's end
    before = float(np.median(could_hide.before_ns[place[late]]))
    sizes = _sizes(context, number, sync, round(float(size.sum()) / steps))
    # Whichever end of the parameters is ready last, the larger one is assumed.
    wanted = [] if sizes is None else [buckets(sizes), buckets(sizes[::-1])]
    tail = min(max((part[-1] for part in wanted), default=BUCKET_BYTES), total_bytes)
    count = int(np.ceil(total_bytes / BUCKET_BYTES))
    if wanted:
        count = max(round(len(wanted[0]) * total_bytes / float(size.sum()) * steps), 1)
    # In buckets, a start-up each; both parts by the bandwidth that these transfers reach.
    rate = total_ns / total_bytes
    tail_ns = min(tail * rate + START_NS, total_ns)
    bucketed = total_bytes * rate + (count - int(late.sum()) / steps) * START_NS
    hidden = min(max(bucketed - tail_ns, 0.0), BACKWARD_SHARE * before)
    slower = STRADDLING * _contention(context, number) * hidden
    return _Late(
        instance=instance[late],
        step=could_hide.step[place[late]],
        transfer_ns=total_ns,
        left_ns=bucketed - hidden + slower,
        tail_bytes=tail,
        total_bytes=total_bytes,
        known=sizes is not None,
    )


def _spread_ns(could_hide: Hideable, place: Int64Array) -> float:
    """Return how much computation lies between a step's first and last of some reductions, ns."""
    steps, at = np.unique(could_hide.step[place], return_inverse=True)
    low = np.full(len(steps), np.inf)
    high = np.zeros(len(steps))
    np.minimum.at(low, at.reshape(-1), could_hide.before_ns[place])
    np.maximum.at(high, at.reshape(-1), could_hide.before_ns[place])
    return float(np.median(high - low))


def _transfer_ns(context: Context, instance: Int64Array) -> Float64Array:
    """Return what reductions take, or should take where they are slow for another reason."""
    cross, found = context.study.cross, context.transfers
    assert cross is not None
    assert found is not None
    result: Float64Array = cross.waits.transfer_ns[instance].astype(np.float64)
    for number in np.unique(found.group[instance]).tolist():
        reference = ring_reference(context.study.run, cross.events.groups[number])
        mine = found.group[instance] == number
        if reference is not None:
            wanted = reference.transfer_ns(found.bus_bytes[instance][mine])
            result[mine] = np.minimum(result[mine], wanted)
    return result


def _sizes(
    context: Context, number: int, sync: GradientSync, total_bytes: int
) -> Int64Array | None:
    item = context.study.ranks[number]
    step = int(np.median(sync.step))
    step = int(sync.step[np.argmin(np.abs(sync.step - step))])
    rows = np.flatnonzero(
        (item.steps.operation_host_step == step) & ~is_na(item.rank.operations.launch)
    )
    rows = rows[np.argsort(item.rank.operations.launch[rows], kind="stable")]
    return gradient_sizes(item.rank, rows, total_bytes)


def _contention(context: Context, number: int) -> float:
    """Return by how much a rank's computation is slowed beside NCCL, as a share of its time."""
    known = context.study.contention.alpha
    usual = contention(CHANNELS[-1])
    matrix = usual[0] if known["matrix"] is None else known["matrix"]
    other = usual[1] if known["other"] is None else known["other"]
    replay = context.replay
    assert replay is not None
    program = replay.base
    mine = program.op_rank == program.ranks.index(number)
    time = [float(program.op_base_ns[mine & (program.op_class == kind)].sum()) for kind in (0, 1)]
    total = sum(time)
    return (matrix * time[0] + other * time[1]) / total if total else 0.0


def _cause(context: Context, found: dict[int, _Late], worst: int) -> Cause:
    late = found[worst]
    rows: list[list[str | float | int | None]] = [
        [
            number,
            round(item.total_bytes / 1e6, 1),
            round(item.transfer_ns / 1e6, 3),
            round(item.tail_bytes / 1e6, 1),
            round(item.left_ns / 1e6, 3),
        ]
        for number, item in found.items()
    ]
    guess = (
        ""
        if late.known
        else " The sizes of single gradients are unknown; the last bucket is taken to be 25 MiB."
    )
    return Cause(
        title=(
            f"{late.total_bytes / 1e6:,.0f} MB of gradients are reduced only when backward is "
            f"through, on {rank_list(found)}."
        ),
        ranks=tuple(found),
        ceiling_ns=late.transfer_ns,
        edit=_overlapped(found[worst]),
        edit_text="gradients travel behind backward; the last bucket and the contention are left",
        proof=(
            f"{late.transfer_ns / 1e6:.1f} ms of transfer a step have no computation behind them. "
            f"The last of DDP's buckets would have {late.tail_bytes / 1e6:.0f} MB."
        ),
        rival="Not a late rank. Waits for peers are not in these times.",
        limits=(
            f"Beside hidden transfers kernels run slower: {late.left_ns / 1e6:.1f} ms a step are left."
            + guess
        ),
        evidence=(
            Evidence(
                title="Reductions with nothing behind them that could hide them",
                columns=["rank", "MB a step", "ms a step", "last bucket MB", "ms left"],
                rows=rows,
            ),
        ),
        ranges=transfer_ranges(context, late.instance, "gradients travel, nothing computes"),
        actions=(
            "Use `DistributedDataParallel` with `bucket_cap_mb=25`, its default, or up to 100.",
            "Do not reduce gradients by hand after `backward()`; DDP starts as they become ready.",
            "With torch.compile: `torch.compile(DDP(model))`, not `DDP(torch.compile(model))`.",
        ),
        explains_late=False,
    )


def _overlapped(late: _Late) -> Callable[[Edit], None]:
    """Return the edit: the last late reduction of a step takes what is left, the others nothing."""
    order = np.argsort(late.step, kind="stable")
    instance, step = late.instance[order], late.step[order]
    last: BoolArray = np.append(step[1:] != step[:-1], [True] * min(len(step), 1))
    wanted: Float64Array = np.where(last, late.left_ns, 0.0)

    def edit(change: Edit) -> None:
        change.transfer(instance, wanted)

    return edit


RULE = Rule(
    code="COMM001",
    name="exposed-collective",
    kind="fault",
    status="stable",
    needs="all ranks of the run, with the sizes of messages",
    find=find,
)
