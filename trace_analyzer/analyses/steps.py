"""Steps on the device: from the completion of one host step's work to that of the next.

On the device, host step k ends at E_k, the running maximum of the ends of the GPU operations that
were launched (by any thread) in host steps up to k, and starts at E_(k-1). So steps tile the
timeline without gap or overlap, and window = head + steps + tail holds to the nanosecond.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trace_analyzer.analyses.host_steps import (
    KERNEL_SEQUENCE,
    HostSteps,
    find_host_steps,
    launch_times,
)
from trace_analyzer.model import DataWarning, Rank, Severity
from trace_analyzer.schema import NA_INT64, BoolArray, Int32Array, Int64Array, is_na

BEFORE_FIRST = -1  # launched before the first host step, or backlog of an earlier step
UNASSIGNED = -2  # no launch call in the file: belongs to no host step


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceSteps:
    """The steps of one rank, in order; all arrays have one entry a step.

    `head_ns` and `tail_ns` are what the window holds before the first and after the last step:
    window = head + sum of steps + tail. For a partial step that begins on the host before the
    first GPU operation, head is negative.
    """

    basis: str
    inferred: bool
    index: Int64Array
    host_start_ns: Int64Array
    host_end_ns: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    partial: bool
    excluded: tuple[tuple[int, str], ...]
    operation_step: Int32Array  # per GPU operation: row of the step, BEFORE_FIRST or UNASSIGNED
    operation_host_step: (
        Int64Array  # per GPU operation: number of the host step that launched it, or NA
    )
    window_start_ns: int
    window_end_ns: int
    warnings: tuple[DataWarning, ...]

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def head_ns(self) -> int:
        """Window before the first step, ns."""
        if len(self) == 0:
            return self.window_end_ns - self.window_start_ns
        return int(self.start_ns[0]) - self.window_start_ns

    @property
    def tail_ns(self) -> int:
        """Window after the last step, ns."""
        if len(self) == 0:
            return 0
        return self.window_end_ns - int(self.end_ns[-1])

    @property
    def length_ns(self) -> Int64Array:
        """Length of every step, ns."""
        return self.end_ns - self.start_ns


_PERIOD_WARNING = DataWarning(
    code="TRC010",
    message="steps are not marked; one period of the kernel sequence is taken for a step",
    effect="a period may be a layer or a micro-batch: record with step marks to be sure",
)


def window_of(rank: Rank) -> tuple[int, int] | None:
    """Return [first start, last end) over the GPU operations, or None without any."""
    operations = rank.operations
    if len(operations) == 0:
        return None
    return int(operations.start_ns.min()), int(operations.end_ns.max())


def device_steps(rank: Rank, step_range: str | None = None) -> DeviceSteps | None:
    """Return the steps of a rank on the device; None where it has no GPU operation.

    Without any boundary the result has no step, and the whole window is head.
    """
    window = window_of(rank)
    if window is None:
        return None
    host = find_host_steps(rank, step_range)
    if host is None:
        return _without_steps(rank, window)
    launch_ns = launch_times(rank)
    if bool(np.all(is_na(launch_ns))):
        return _by_host_time(rank, host, window)
    return _by_completion(rank, host, launch_ns, window)


def _assign(host: HostSteps, launch_ns: Int64Array) -> Int32Array:
    """Return the host step in which each operation was launched; len(host) after the last one."""
    step = np.searchsorted(host.start_ns, launch_ns, side="right") - 1
    step = np.where(launch_ns >= host.end_ns[-1], len(host), step)
    return np.where(is_na(launch_ns), UNASSIGNED, np.maximum(step, BEFORE_FIRST)).astype(np.int32)


def _backlog(rank: Rank, step: Int32Array) -> BoolArray:
    """Return which operations belong to work from before the first step.

    These are operations launched before it, and unlinked operations that start before the first
    linked operation of their own stream: the launch of those was not recorded because it came
    before the recording.
    """
    operations = rank.operations
    unlinked = step == UNASSIGNED
    lane = np.unique(
        np.stack([operations.device.astype(np.int64), operations.stream], axis=1),
        axis=0,
        return_inverse=True,
    )[1].reshape(-1)
    first_linked = np.full(int(lane.max()) + 1, np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(first_linked, lane[~unlinked], operations.start_ns[~unlinked])
    before_link = operations.start_ns < first_linked[lane]
    return np.asarray((step == BEFORE_FIRST) | (unlinked & before_link), dtype=np.bool_)


def _join_empty(
    host: HostSteps, step: Int32Array, ends: Int64Array, before: int | None
) -> tuple[HostSteps, Int32Array, tuple[DataWarning, ...]]:
    """Join steps that finish nothing on the device with the next (trailing ones with the previous)."""
    latest = np.full(len(host), np.iinfo(np.int64).min, dtype=np.int64)
    inside = (step >= 0) & (step < len(host))
    np.maximum.at(latest, step[inside], ends[inside])
    floor = np.iinfo(np.int64).min if before is None else before
    reach = np.maximum.accumulate(np.maximum(latest, floor))
    advances = reach > np.concatenate([[floor], reach[:-1]])  # a difference could overflow
    if bool(advances.all()) or not bool(advances.any()):
        return host, step, ()
    kept = np.flatnonzero(advances)
    # Row of the kept step that a step joins: the next one, or the last where none follows.
    target = np.minimum(np.searchsorted(kept, np.arange(len(host))), len(kept) - 1)
    first_of = np.searchsorted(target, np.arange(len(kept)))
    last_of = np.searchsorted(target, np.arange(len(kept)), side="right") - 1
    joined = replace(
        host,
        index=host.index[kept],
        start_ns=host.start_ns[first_of],
        end_ns=host.end_ns[last_of],
    )
    moved = step.copy()
    moved[inside] = target[step[inside]].astype(np.int32)
    moved[step == len(host)] = len(kept)
    empty = [int(host.index[k]) for k in np.flatnonzero(~advances)]
    warning = DataWarning(
        code="TRC010",
        message=(
            f"step {_some(empty)} finishes no GPU work of its own"
            if len(empty) == 1
            else f"{len(empty)} steps finish no GPU work of their own: {_some(empty)}"
        ),
        effect="each is counted together with its neighbour",
        count=len(empty),
    )
    return joined, moved, (warning,)


def _some(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:5])
    return shown if len(numbers) <= 5 else f"{shown} and {len(numbers) - 5} more"


def _by_completion(
    rank: Rank, host: HostSteps, launch_ns: Int64Array, window: tuple[int, int]
) -> DeviceSteps:
    ends = rank.operations.end_ns
    step = _assign(host, launch_ns)
    backlog = _backlog(rank, step)
    before = int(ends[backlog].max()) if bool(backlog.any()) else None
    host, step, warnings = _join_empty(host, step, ends, before)
    if host.basis == KERNEL_SEQUENCE:
        warnings += (_PERIOD_WARNING,)
    step = np.where(backlog, BEFORE_FIRST, step).astype(np.int32)
    latest = np.full(len(host), np.iinfo(np.int64).min, dtype=np.int64)
    inside = (step >= 0) & (step < len(host))
    np.maximum.at(latest, step[inside], ends[inside])
    if before is not None:
        latest[0] = max(int(latest[0]), before)
    boundary = np.maximum.accumulate(latest)
    excluded: list[tuple[int, str]] = []
    first = 0
    if before is None:
        excluded.append((int(host.index[0]), "nothing before it is recorded: its start is unknown"))
        first = 1
    last = len(host)
    if rank.truncated and last > first:
        last -= 1
        excluded.append((int(host.index[last]), "the trace is cut off inside it"))
    starts = boundary[:-1] if before is None else np.concatenate([[before], boundary[:-1]])
    ends_of = boundary[first:last]
    starts = starts[: len(ends_of)]
    result = DeviceSteps(
        basis=host.basis,
        inferred=host.inferred,
        index=host.index[first:last],
        host_start_ns=host.start_ns[first:last],
        host_end_ns=host.end_ns[first:last],
        start_ns=starts.astype(np.int64),
        end_ns=ends_of.astype(np.int64),
        partial=False,
        excluded=tuple(excluded),
        operation_step=_shift(step, first, last),
        operation_host_step=_numbers(host, step),
        window_start_ns=window[0],
        window_end_ns=window[1],
        warnings=warnings,
    )
    return result if len(result) else _partial(result, host, step)


def _numbers(host: HostSteps, step: Int32Array) -> Int64Array:
    """Return the number of each operation's host step, those included that are not complete."""
    inside = (step >= 0) & (step < len(host))
    numbers = np.full(len(step), NA_INT64, dtype=np.int64)
    numbers[inside] = host.index[step[inside]]
    return numbers


def _shift(step: Int32Array, first: int, last: int) -> Int32Array:
    """Number steps from the first kept one; what was launched outside the kept ones is not theirs."""
    moved = np.where(step >= 0, step - first, step)
    moved = np.where((step >= 0) & (step < first), BEFORE_FIRST, moved)
    return np.where(step >= last, UNASSIGNED, moved).astype(np.int32)


def _partial(steps: DeviceSteps, host: HostSteps, step: Int32Array) -> DeviceSteps:
    """No complete step: the window from the first host step's start to the last completion."""
    return replace(
        steps,
        index=host.index[:1],
        host_start_ns=host.start_ns[:1],
        host_end_ns=host.end_ns[:1],
        start_ns=np.minimum(host.start_ns[:1], steps.window_end_ns - 1),
        end_ns=np.array([steps.window_end_ns], dtype=np.int64),
        partial=True,
        excluded=(),
        operation_step=np.where(step >= 0, 0, step).astype(np.int32),
    )


def _by_host_time(rank: Rank, host: HostSteps, window: tuple[int, int]) -> DeviceSteps:
    """No launch is known, so host boundaries stand for the device's."""
    start = np.clip(host.start_ns, *window)
    end = np.clip(host.end_ns, *window)
    kept = end > start
    if rank.truncated and bool(kept.any()):
        kept[np.flatnonzero(kept)[-1]] = False
    start, end = start[kept], end[kept]
    midpoint = rank.operations.start_ns
    row = np.searchsorted(start, midpoint, side="right") - 1
    inside = (row >= 0) & (midpoint < end[np.maximum(row, 0)]) if len(end) else row > len(end)
    warning = DataWarning(
        code="TRC004",
        severity=Severity.WARNING,
        message="no GPU operation can be linked to its launch call",
        effect="steps are cut at host time, and late launches cannot be told from other idle time",
        count=len(rank.operations),
        ranks=(rank.rank,),
    )
    return DeviceSteps(
        basis=f"{host.basis}, host time",
        inferred=True,
        index=host.index[kept],
        host_start_ns=host.start_ns[kept],
        host_end_ns=host.end_ns[kept],
        start_ns=start,
        end_ns=end,
        partial=False,
        excluded=(),
        operation_step=np.where(inside, row, UNASSIGNED).astype(np.int32),
        operation_host_step=np.full(len(midpoint), NA_INT64, dtype=np.int64),
        window_start_ns=window[0],
        window_end_ns=window[1],
        warnings=(warning,),
    )


def _without_steps(rank: Rank, window: tuple[int, int]) -> DeviceSteps:
    nothing = np.empty(0, dtype=np.int64)
    warning = DataWarning(
        code="TRC010",
        message="no step boundary: no ProfilerStep mark, no repeating range, no period of kernels",
        effect="only the window as a whole is divided",
        ranks=(rank.rank,),
    )
    return DeviceSteps(
        basis="none",
        inferred=False,
        index=nothing,
        host_start_ns=nothing,
        host_end_ns=nothing,
        start_ns=nothing,
        end_ns=nothing,
        partial=False,
        excluded=(),
        operation_step=np.full(len(rank.operations), UNASSIGNED, dtype=np.int32),
        operation_host_step=np.full(len(rank.operations), NA_INT64, dtype=np.int64),
        window_start_ns=window[0],
        window_end_ns=window[1],
        warnings=(warning,),
    )
