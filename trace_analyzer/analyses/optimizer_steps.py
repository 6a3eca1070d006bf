"""The optimizer's steps of a rank: when the host is in them, and what they launch."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.idle import launching_threads
from trace_analyzer.intervals import Intervals
from trace_analyzer.model import Rank
from trace_analyzer.schema import BoolArray, Int64Array, is_na
from trace_analyzer.tables import HostCategory, WorkClass

_OWN = re.compile(r"^Optimizer\.step#")
_RANGE = re.compile(r"^(?:opt|optim|optimizer)(?:[._ ]?step)?$", re.IGNORECASE)
_FUSED = re.compile(r"fused|apex|triton", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OptimizerSteps:
    """Steps in order. `operation` are the computing GPU operations launched in them, by launch.

    `step` is the position of each one's step; `fused` whether it is a fused optimizer's kernel.
    """

    start_ns: Int64Array
    end_ns: Int64Array
    operation: Int64Array
    step: Int64Array
    fused: BoolArray

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def spans(self) -> Intervals:
        """When the host is in them."""
        return intervals.union(self.start_ns, self.end_ns)


def optimizer_steps(rank: Rank) -> OptimizerSteps:
    """Return the optimizer's steps: torch's own ranges, else ranges that are called so."""
    events, calls, operations = rank.events, rank.calls, rank.operations
    usable = np.isin(events.thread, launching_threads(rank)) & (
        events.category == HostCategory.ANNOTATION
    )
    rows = np.empty(0, dtype=np.int64)
    for pattern in (_OWN, _RANGE):
        named = np.array([pattern.search(text) is not None for text in rank.names], dtype=np.bool_)
        rows = np.flatnonzero(usable & named[events.name])
        if len(rows):
            break
    rows = rows[intervals.outermost(events.start_ns[rows], events.end_ns[rows])]
    start, end = events.start_ns[rows], events.end_ns[rows]
    linked = np.flatnonzero(~is_na(operations.launch) & (operations.work == WorkClass.COMPUTE))
    at = calls.start_ns[operations.launch[linked]]
    order = np.argsort(at, kind="stable")
    linked, at = linked[order], at[order]
    step = np.searchsorted(start, at, side="right") - 1
    inside = (step >= 0) & (at < end[np.maximum(step, 0)]) if len(rows) else at > at.max(initial=0)
    is_fused = np.array([_FUSED.search(text) is not None for text in rank.names], dtype=np.bool_)
    return OptimizerSteps(
        start_ns=start,
        end_ns=end,
        operation=linked[inside].astype(np.int64),
        step=step[inside].astype(np.int64),
        fused=is_fused[operations.name[linked[inside]]],
    )
