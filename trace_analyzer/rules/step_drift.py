"""STEP002 step-drift.

## What it finds
Steps become longer in the middle of the recording and stay so: the program computes more from some
step on, or the same kernels take longer.

## Why it costs
All later steps pay for what changed.

## How it is measured
The step after which the median of the later steps exceeds that of the earlier ones most: by 10 % or
more, with three steps on each side, and with the slowest earlier step below the median of the later
ones. The replay takes out of the later steps what earlier ones do not launch, and gives the rest
the earlier kernel times.

## When it is wrong
Sequence lengths that grow by design, a curriculum or a new phase of training are wanted. Under a
profiler the host may slow down while its buffers fill; that is not counted, because only work and
kernel times are edited.

## What to do
Compare the two parts: new operations, longer kernels (clocks, temperature, another process on the
GPU), growing buffers or logs.

## References
Change-point detection with verification by the shift of the mean (Greyhound, ATC 2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer.analyses.extra_work import ExtraWork, extra_work, launched_in_steps
from trace_analyzer.findings import Evidence
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.schema import AnyArray, Int64Array

# A shift counts from 10 % on: two halves of a healthy eager run differ by up to 8 % under a profiler.
LEAST_SHIFT = 0.10
LEAST_SIDE = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Shift:
    """A rank's steps before and from position `at` on, of those after warm-up; medians in ns."""

    first: int
    at: int
    before_ns: float
    after_ns: float
    blocks: ExtraWork


def find(context: Context) -> Answer:
    """Return one cause for all ranks whose steps become longer for good."""
    counts = [len(item.steps) for item in context.ranks.values()]
    if max(counts, default=0) < 2 * LEAST_SIDE:
        return NotApplicable(
            reason=f"fewer than {2 * LEAST_SIDE} steps were recorded",
            needs=f"{2 * LEAST_SIDE} steps or more",
        )
    shifts = {n: shift for n in context.ranks if (shift := _shift(context, n)) is not None}
    if not shifts:
        return Passed(reason="no step divides the recording into a faster and a slower part")

    def edit(change: Edit) -> None:
        for number, shift in shifts.items():
            _as_before(context, change, number, shift)

    worst = max(shifts, key=lambda number: shifts[number].after_ns - shifts[number].before_ns)
    top = shifts[worst]
    steps = context.ranks[worst].steps
    number = int(steps.index[top.at])
    more = int(np.median(top.blocks.kernels)) if len(top.blocks) else 0
    later = len(steps) - top.at
    return [
        Cause(
            title=(
                f"From step {number} on steps take {top.after_ns / 1e6:.1f} ms instead of "
                f"{top.before_ns / 1e6:.1f} ms on {rank_list(shifts)}."
            ),
            ranks=tuple(shifts),
            ceiling_ns=(top.after_ns - top.before_ns) * later / (len(steps) - top.first),
            edit=edit,
            edit_text="later steps launch what earlier ones do, with their kernel times",
            proof=(
                f"{later} steps from step {number} on are longer than those before; each launches "
                f"{more} kernels more."
            ),
            rival="Not a stall. It stays to the end of the recording.",
            limits="A schedule that changes the work on purpose looks the same.",
            evidence=(
                Evidence(
                    title="Before and after",
                    columns=["rank", "from step", "ms before", "ms after", "kernels more a step"],
                    rows=[
                        [
                            rank,
                            int(context.ranks[rank].steps.index[shift.at]),
                            round(shift.before_ns / 1e6, 3),
                            round(shift.after_ns / 1e6, 3),
                            int(np.median(shift.blocks.kernels)) if len(shift.blocks) else 0,
                        ]
                        for rank, shift in shifts.items()
                    ],
                ),
            ),
            ranges=context.ranges(
                worst, steps.start_ns[top.at :], steps.end_ns[top.at :], "longer step"
            )[:6],
            actions=(
                f"Compare steps before and after step {number}: kernels, shapes, data, schedules.",
                "Look at GPU clocks and temperature, and at other processes on the GPU, over time.",
            ),
            mean=True,
        )
    ]


def _shift(context: Context, number: int) -> _Shift | None:
    item = context.ranks[number]
    first = int(np.argmax(item.steady)) if bool(item.steady.any()) else 0
    length = item.steps.length_ns[first:].astype(np.float64)
    best: tuple[float, int] | None = None
    for at in range(LEAST_SIDE, len(length) - LEAST_SIDE + 1):
        before, after = float(np.median(length[:at])), float(np.median(length[at:]))
        apart = float(np.max(length[:at])) < after and before < float(np.min(length[at:]))
        if (
            apart
            and after >= (1 + LEAST_SHIFT) * before
            and (best is None or after - before > best[0])
        ):
            best = (after - before, at)
    if best is None:
        return None
    at = best[1]
    blocks = extra_work(item.rank, item.steps, slice(first, first + at))
    return _Shift(
        first=first,
        at=first + at,
        before_ns=float(np.median(length[:at])),
        after_ns=float(np.median(length[at:])),
        blocks=blocks.take(blocks.step >= first + at),
    )


def _as_before(context: Context, change: Edit, number: int, shift: _Shift) -> None:
    item = context.ranks[number]
    operations = item.rank.operations
    extra = np.zeros(len(operations), dtype=np.bool_)
    if len(shift.blocks):
        rows = np.concatenate(shift.blocks.operations)
        change.remove(number, rows)
        change.host(number, shift.blocks.spans)
        extra[rows] = True
    parts = [part[~extra[part]] for part in launched_in_steps(item.rank, item.steps)]
    earlier = parts[shift.first : shift.at]
    usual = earlier[len(earlier) // 2]
    length = operations.end_ns - operations.start_ns
    times = np.median(
        [length[part] for part in earlier if _alike(operations.name, part, usual)], axis=0
    )
    later = [part for part in parts[shift.at :] if _alike(operations.name, part, usual)]
    if later:
        rows = np.concatenate(later)
        share = np.minimum(np.tile(times, len(later)) / np.maximum(length[rows], 1), 1.0)
        change.scale_duration(number, rows, share)


def _alike(name: AnyArray, left: Int64Array, right: Int64Array) -> bool:
    return len(left) == len(right) and bool(np.all(name[left] == name[right]))


RULE = Rule(
    code="STEP002",
    name="step-drift",
    kind="fault",
    status="stable",
    needs="6 steps or more",
    find=find,
)
