"""COMM007 serial-prefetch.

## What it finds
FSDP gathers the parameters of a layer only when the layer before has been computed: gathering and
computing take turns instead of overlapping.

## Why it costs
While parameters travel the GPU has nothing to compute, once a layer in forward and once in backward.

## How it is measured
All-gathers for which the program leaves no computation that could hide them: what they wait for and
what waits for them are neighbours on the computing stream, less than half a layer (or half the
transfer) apart. This is told by events and launches, not
by times; a slow host, which issues all-gathers late, does not make one count. In the replay these
all-gathers no longer wait for computation.

## When it is wrong
The first all-gather of a step has nothing to hide behind. A memory limit may be on purpose: gathering
ahead keeps two units whole at a time. Without recorded events, dependencies between streams are
inferred from all steps and ranks.

## What to do
FSDP2: remove waits between streams and `set_modules_to_forward_prefetch([])` or `…backward_prefetch`
that name a module's own block. FSDP1: `backward_prefetch=BackwardPrefetch.BACKWARD_PRE`,
`forward_prefetch=True`, and `limit_all_gathers` as it is by default.

## References
PyTorch documentation of FullyShardedDataParallel: forward_prefetch, backward_prefetch; of
`fully_shard`: set_modules_to_backward_prefetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer.analyses.host_syncs import SMALL_COPY_BYTES
from trace_analyzer.analyses.overlap import Hideable, chained, hideable
from trace_analyzer.findings import Evidence
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule
from trace_analyzer.rules.transfer_causes import instances_of, transfer_ranges
from trace_analyzer.schema import BoolArray, Int64Array

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit

# Of a step's all-gathers, how many must be serial for it to be a way of working.
SERIAL_SHARE = 0.5
# One gathered ahead has about a layer's computation beside it, one that is not has none. Links so slow
# that a transfer outlasts a layer make no all-gather serial.
LEAST_BESIDE = 0.5


def find(context: Context) -> Answer:
    """Return one cause for all ranks whose all-gathers wait for computation."""
    cross, replay = context.study.cross, context.replay
    if cross is None:
        return NotApplicable(
            reason="no collective was recorded on two ranks or more", needs="all ranks of the run"
        )
    if "allgather" not in cross.events.operations:
        return NotApplicable(reason="no parameters are gathered", needs="a run of FSDP")
    if replay is None:
        return NotApplicable(reason=f"the replay is withheld: {context.withheld}")
    serial: dict[int, tuple[Int64Array, Int64Array]] = {}
    rows: list[list[str | float | int | None]] = []
    seen = 0
    for number, found in hideable(replay.built, replay.base).items():
        instance = instances_of(context, number)[found.operation]
        gathers, late = _late(context, found, instance)
        seen += int(gathers.sum())
        if not bool(late.any()) or late.sum() < SERIAL_SHARE * gathers.sum():
            continue
        serial[number] = (found.position[late], instance[late])
        steps = len(np.unique(found.step[late]))
        exposed = float(cross.waits.transfer_ns[instance[late]].sum()) / steps
        rows.append(
            [
                number,
                round(int(gathers.sum()) / steps, 1),
                round(int(late.sum()) / steps, 1),
                round(exposed / 1e6, 3),
            ]
        )
    if not seen:
        return NotApplicable(
            reason="no all-gather above 64 KiB of known size was recorded",
            needs="a run of FSDP, with message sizes",
        )
    if not serial:
        return Passed(reason="most all-gathers have computation that can hide them")
    operations = chained(replay.base, np.concatenate([item[0] for item in serial.values()]))
    count = max(float(str(row[2])) for row in rows)
    exposed_ms = max(float(str(row[3])) for row in rows)

    def edit(change: Edit) -> None:
        change.detach(operations)

    return [
        Cause(
            title=(
                f"On {rank_list(serial)}, {count:.0f} all-gathers a step wait for the layer before "
                "to be computed."
            ),
            ranks=tuple(serial),
            ceiling_ns=exposed_ms * 1e6,
            edit=edit,
            edit_text="these all-gathers do not wait for computation",
            proof=(
                f"They move data for {exposed_ms:.1f} ms a step, and the program leaves no computation "
                "that could run meanwhile."
            ),
            rival="Not a slow host. Their order of launch and their events forbid the overlap.",
            limits="Gathering ahead keeps one unit more whole in memory.",
            evidence=(
                Evidence(
                    title="All-gathers that nothing can hide",
                    columns=["rank", "all-gathers a step", "of them serial", "ms a step"],
                    rows=rows,
                ),
            ),
            ranges=transfer_ranges(
                context, next(iter(serial.values()))[1], "parameters travel, nothing computes"
            ),
            actions=(
                (
                    "FSDP2: leave prefetching to `fully_shard`; check calls of "
                    "`set_modules_to_forward_prefetch` and `set_modules_to_backward_prefetch`."
                ),
                (
                    "FSDP1: `backward_prefetch=BackwardPrefetch.BACKWARD_PRE` and "
                    "`forward_prefetch=True`."
                ),
                "Remove `torch.cuda.synchronize()` and stream waits from hooks of the modules.",
            ),
            explains_late=False,
        )
    ]


def _late(context: Context, found: Hideable, instance: Int64Array) -> tuple[BoolArray, BoolArray]:
    """Return which are matched all-gathers of parameters, and which of them nothing can hide."""
    cross, facts = context.study.cross, context.transfers
    assert cross is not None
    assert facts is not None
    names = np.array([name == "allgather" for name in cross.events.operations], dtype=np.bool_)
    at = np.maximum(instance, 0)
    gathers: BoolArray = (instance >= 0) & names[facts.operation[at]] & found.used
    # Unknown sizes are the smallest number, and small.
    gathers &= facts.message_bytes[at] > SMALL_COPY_BYTES
    transfer = cross.waits.transfer_ns[at]
    between = np.diff(found.before_ns[gathers])
    layer = float(np.median(between[between > 0])) if bool((between > 0).any()) else np.inf
    beside = found.free_ns >= LEAST_BESIDE * np.minimum(transfer, layer)
    late: BoolArray = gathers & ~beside & (found.before_ns >= transfer)
    return gathers, late


RULE = Rule(
    code="COMM007",
    name="serial-prefetch",
    kind="fault",
    status="experimental",
    needs="all ranks of a run of FSDP, with message sizes",
    find=find,
)
