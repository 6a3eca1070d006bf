"""How fast a thread's host was at a moment, from work that is nearly the same in every run.

A core serves another task beside this one, or does not: the same work of the same thread then takes
up to 1.7 times as long, for some steps or for all, on one thread and not on the other. What shows it
are launch calls and operators that do next to nothing. Within a recording the host time of a thread's
steps follows them: in 187 threads whose pace changed, with a correlation of 0.99 in the median.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.idle import launching_threads
from trace_analyzer.analyses.replay.host import NO_CALL, HostSequence
from trace_analyzer.model import Rank
from trace_analyzer.schema import Float64Array, Int64Array
from trace_analyzer.tables import HostCategory


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Host events whose length tells the pace: what a `quantile` of them usually takes, ns by name.

    `exponent` says how the pace follows from the ratio: a part of some events is no work of the
    host's. `calls` tells runtime calls from operators.
    """

    usual_ns: Mapping[str, float]
    quantile: float
    exponent: float
    calls: bool


# Between the medians of two occasions on which tuning runs of eager GPT models were recorded (torch
# 2.11, x86 servers with two H200), one with 0.75 of these lengths and one with 1.3. The lower
# quartile of launches has no waits for a full queue in it; their logarithm varies by two thirds of
# what that of operators does. Lengths of these hardly depend on thread, model, or recorded shapes.
KINETO_REFERENCES = (
    Reference(
        usual_ns={"cudaLaunchKernel": 5_200.0, "cuLaunchKernelEx": 5_300.0},
        quantile=0.25,
        exponent=1.5,
        calls=True,
    ),
    Reference(usual_ns={"aten::empty": 3_700.0}, quantile=0.5, exponent=1.0, calls=False),
    Reference(usual_ns={"aten::as_strided": 500.0}, quantile=0.5, exponent=1.0, calls=False),
)
NSYS_REFERENCES = (
    Reference(
        usual_ns={"cudaLaunchKernel": 5_200.0, "cuLaunchKernelEx": 5_300.0},
        quantile=0.25,
        exponent=1.5,
        calls=True,
    ),
)
LEAST_SAMPLES = 8
# 240 recordings of one kind of server lie between 0.5 and 2.4; a profiler of 2021 on another server
# recorded 5 and 13, and its costs are not 13 times those of today.
FARTHEST = 3.0


def node_slowness(
    rank: Rank, host: HostSequence, references: tuple[Reference, ...] = KINETO_REFERENCES
) -> Float64Array:
    """Return, for each node, how many times slower than usual its thread was in its step.

    A step of a thread with too few of the events counts as the thread does, a thread as the rank,
    and a rank as usual; so does one so far off that another recorder must have recorded it.
    """
    threads = np.unique(launching_threads(rank))
    marks = host.start_ns[host.step != NO_CALL]
    steps = len(marks)
    cell, thread, whole = (
        _known_mean(values)
        for values in zip(
            *(_paces(rank, reference, threads, marks) for reference in references), strict=True
        )
    )
    farthest = float(np.log(FARTHEST))
    if np.isnan(whole[0]) or abs(whole[0]) > farthest:
        return np.ones(len(host), dtype=np.float64)
    thread = np.where(np.isnan(thread), whole[0], thread)
    cell = np.where(np.isnan(cell), np.repeat(thread, steps), cell)
    step = np.maximum.accumulate(np.where(host.step == NO_CALL, 0, host.step))
    at = np.searchsorted(threads, _node_thread(rank, host)) * steps + step
    result: Float64Array = np.exp(np.clip(cell[at], -farthest, farthest))
    return result


def _node_thread(rank: Rank, host: HostSequence) -> Int64Array:
    """Return the thread of each node; a mark belongs to the thread that goes on behind it."""
    count = len(host)
    here = np.where(host.call != NO_CALL, np.arange(count), count)
    following = np.minimum.accumulate(here[::-1])[::-1]
    last = int(here[here < count].max(initial=0))
    call = host.call[np.where(following == count, last, following)]
    found: Int64Array = rank.calls.thread[np.maximum(call, 0)].astype(np.int64)
    return found


def _known_mean(rows: tuple[Float64Array, ...]) -> Float64Array:
    """Return the mean over references of what is known, NaN where nothing is."""
    table = np.stack(rows)
    known = ~np.isnan(table)
    count = known.sum(axis=0)
    total = np.where(known, table, 0.0).sum(axis=0)
    mean: Float64Array = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean


def _paces(
    rank: Rank, reference: Reference, threads: Int64Array, marks: Int64Array
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return logarithms of the pace by thread and step, by thread, and of the rank."""
    usual = np.full(len(rank.names), np.nan)
    for row, text in enumerate(rank.names):
        usual[row] = reference.usual_ns.get(text, np.nan)
    table = rank.calls if reference.calls else rank.events
    chosen = np.isin(table.thread, threads) & ~np.isnan(usual[table.name])
    if not reference.calls:
        chosen &= rank.events.category == HostCategory.OPERATOR
    length = np.maximum(table.end_ns[chosen] - table.start_ns[chosen], 1)
    pace = reference.exponent * np.log(length / usual[table.name[chosen]])
    thread = np.searchsorted(threads, table.thread[chosen])
    step = np.searchsorted(marks, table.start_ns[chosen], side="right") - 1
    steps = len(marks)
    inside = step >= 0
    by_step = thread[inside] * steps + step[inside]
    return (
        _quantiles(by_step, pace[inside], reference.quantile, len(threads) * steps),
        _quantiles(thread, pace, reference.quantile, len(threads)),
        _quantiles(np.zeros_like(thread), pace, reference.quantile, 1),
    )


def _quantiles(
    group: Int64Array, value: Float64Array, quantile: float, groups: int
) -> Float64Array:
    """Return a quantile (the lower of two values) of each group, NaN for those with too few."""
    order = np.lexsort((value, group))
    count = np.bincount(group, minlength=groups)
    first = np.cumsum(count) - count
    at = first + (quantile * np.maximum(count - 1, 0)).astype(np.int64)
    enough = count >= LEAST_SAMPLES
    found = np.full(groups, np.nan)
    found[enough] = value[order][at[enough]]
    return found
