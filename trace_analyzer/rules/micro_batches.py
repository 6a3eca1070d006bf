"""Steps that work their batch off in several forward passes, and such a step with only one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.weight_casts import repeated_casts
from trace_analyzer.findings import Evidence
from trace_analyzer.rules.context import Context
from trace_analyzer.rules.kernel_sets import kernel_codes, take_out
from trace_analyzer.rules.rule import Answer, Cause, Passed
from trace_analyzer.schema import Int64Array, is_na
from trace_analyzer.tables import HostCategory, OperationKind, WorkClass

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit
    from trace_analyzer.intervals import Intervals
    from trace_analyzer.model import Rank

# What a kernel takes however little it has to do: the shortest ones of a step take 1.5 to 2 µs.
FIXED_KERNEL_NS = 2_000
# Less than this share of a step is not worth another batch size.
LEAST_SHARE = 0.01
_ACCUMULATES = re.compile(r"evaluate_function: torch::autograd::AccumulateGrad$")


class PartsOfStep:
    """The `parts` micro-batches of a rank's steps, which make so many `launches` each step."""

    def __init__(self, context: Context, number: int, parts: int, launches: float) -> None:
        self._context = context
        self._number = number
        self.parts = parts
        self.launches = launches

    @cached_property
    def repeated_ns(self) -> float:
        """GPU time of additions of gradients and of casts made again, ns a step."""
        rows = np.concatenate([self._added, self._casts])
        rows = rows[self._context.in_steady(self._number)[rows]]
        operations = self._rank.operations
        total = int((operations.end_ns[rows] - operations.start_ns[rows]).sum())
        return total / self._context.steady_count(self._number)

    def in_one(self, change: Edit, launching: Intervals) -> None:
        """Let a step work off its batch in one pass; `launching` is the host's launch work.

        Launches become fewer, each kernel has the work of all passes but its fixed time once, no
        gradients are added up, and no weight is cast twice.
        """
        number, operations = self._number, self._rank.operations
        share = 1.0 / self.parts
        change.host(number, launching, share)
        kernels = self._kernels
        length = (operations.end_ns - operations.start_ns)[kernels]
        fixed = np.minimum((1.0 - share) * FIXED_KERNEL_NS, length)
        change.scale_duration(number, kernels, 1.0 - fixed / np.maximum(length, 1))
        change.scale_gaps(number, kernels, share)
        change.remove(number, self._added, launch=False)
        if len(self._casts):
            take_out(self._context, change, number, self._casts)

    @cached_property
    def _rank(self) -> Rank:
        return self._context.ranks[self._number].rank

    @cached_property
    def _kernels(self) -> Int64Array:
        operations = self._rank.operations
        found: Int64Array = np.flatnonzero(
            (operations.kind == OperationKind.KERNEL) & (operations.work == WorkClass.COMPUTE)
        )
        return found

    @cached_property
    def _added(self) -> Int64Array:
        """Kernels that add a gradient to that of the parts before."""
        rank, kernels = self._rank, self._kernels
        events = rank.events
        nodes = np.array(
            [_ACCUMULATES.search(text) is not None for text in rank.names], dtype=np.bool_
        )
        inside = nodes[events.name] & (events.category == HostCategory.OPERATOR)
        spans = intervals.union(events.start_ns[inside], events.end_ns[inside])
        adds = np.array(["functor_add" in text.lower() for text in rank.names], dtype=np.bool_)
        launch = rank.operations.launch[kernels]
        begins = rank.calls.start_ns[np.maximum(launch, 0)]
        added = (
            ~is_na(launch) & adds[rank.operations.name[kernels]] & Context.starts_in(begins, spans)
        )
        found: Int64Array = kernels[added]
        return found

    @cached_property
    def _casts(self) -> Int64Array:
        item = self._context.ranks[self._number]
        return repeated_casts(item.rank, item.steps, kernel_codes(self._context, self._number))


def parts_answer(
    context: Context,
    ranks: Mapping[int, PartsOfStep],
    edit: Callable[[Edit], None],
    gain_ns: float,
) -> Answer:
    """Return the cause for GPUs that do not wait for launches, but do more than they had to."""
    if gain_ns < LEAST_SHARE * context.step_ns:
        return Passed(
            reason=f"one forward pass a step instead of several gives {gain_ns / 1e6:.2f} ms a step"
        )
    worst = max(ranks, key=lambda number: ranks[number].repeated_ns)
    top = ranks[worst]
    cause = Cause(
        title=(
            f"Each step works its batch off in {top.parts} parts, and what does not depend on "
            "their size is done for each."
        ),
        ranks=tuple(ranks),
        ceiling_ns=gain_ns,
        edit=edit,
        edit_text="the batch is worked off in one part",
        proof=(
            f"A step has {top.parts} forward passes. Adding up gradients and casting weights again "
            f"take {top.repeated_ns / 1e6:.1f} ms of rank {worst}'s GPU; the rest is "
            f"{top.launches:.0f} launches a step with a gap behind each."
        ),
        rival="Not the launches themselves. The GPU does not wait for its host.",
        limits="How much faster larger kernels do the same work is not counted.",
        evidence=(
            Evidence(
                title="What every part of a batch repeats",
                columns=["rank", "forward passes a step", "launches a step", "repeated ms a step"],
                rows=[
                    [
                        number,
                        item.parts,
                        round(item.launches, 1),
                        round(item.repeated_ns / 1e6, 3),
                    ]
                    for number, item in ranks.items()
                ],
            ),
        ),
        actions=(
            (
                "Work off the batch in fewer, larger parts, as far as memory allows: fewer "
                "accumulation steps with a larger batch each."
            ),
        ),
        explains_late=False,
    )
    return [cause]
