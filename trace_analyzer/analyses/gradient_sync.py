"""How often a step reduces its gradients: once, or after every micro-batch.

Gradients travel in large all-reduces (DDP) or reduce-scatters (FSDP), the same ones in the same
order for every backward pass. A step of k micro-batches that reduces after each repeats them k
times. That it has k micro-batches shows in its forward passes, or in the launches between the
repeats: a forward pass lies between them, and not between other neighbours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.host_syncs import small_collectives
from trace_analyzer.analyses.steps import DeviceSteps
from trace_analyzer.intervals import Intervals
from trace_analyzer.model import Rank
from trace_analyzer.nccl_names import operation_of
from trace_analyzer.schema import NA_INT64, BoolArray, Int64Array, is_na, widened
from trace_analyzer.tables import HostCategory, WorkClass

REDUCING = ("allreduce", "reducescatter")
# Ranges around a forward pass: those of DDP and FSDP, and what programs usually call theirs.
_FORWARD = re.compile(
    r"^(DistributedDataParallel\.forward|FullyShardedDataParallel\.forward|forward)$", re.IGNORECASE
)
_FSDP_REDUCE = re.compile(r"^FSDP::post_backward_reduce")
# A forward pass is a third of a micro-batch's launches; between neighbours of one backward pass
# there are fewer than this share of them.
BETWEEN_SHARE = 0.2
# Before the first gradient is reduced, at least a forward pass is launched, a third of a micro-batch;
# with ten micro-batches this share of the step.
LEAST_FORWARD = 0.03


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientSync:
    """Reductions of one rank. `times` is how often a step reduces the same gradients, 1 or more.

    Arrays have one entry a reduction, in order of launch: `operation` is the row in the GPU
    operations, `step` the number of the host step, `part` the micro-batch it belongs to. `passes`
    is the number of forward passes a step, None where no range shows it.
    """

    times: int
    operation: Int64Array
    step: Int64Array
    part: Int64Array
    passes: int | None

    @property
    def early(self) -> Int64Array:
        """Reductions of all micro-batches but the last."""
        found: Int64Array = self.operation[self.part < self.times - 1]
        return found


def gradient_sync(rank: Rank, steps: DeviceSteps, steady: BoolArray) -> GradientSync | None:
    """Return the reductions of gradients; None where steady steps have none, or differ in them.

    `steady` marks the steps that count. A group that reduces during forward passes, as tensor
    parallelism does, reduces no gradients; of several groups that remain, the busiest is taken.
    """
    rows, forward = _reductions(rank), _forward_passes(rank, steps, steady)
    table = rank.collectives
    collective = rank.operations.collective[rows]
    group = np.full(len(rows), NA_INT64, dtype=np.int64)
    if len(table):
        known = ~is_na(collective)
        group[known] = widened(table.group)[collective[known]]
    found: list[tuple[int, GradientSync]] = []
    for number in np.unique(group).tolist():
        mine = rows[group == number]
        sync = _of_group(rank, steps, steady, mine, forward)
        if sync is not None:
            took = rank.operations.end_ns[mine] - rank.operations.start_ns[mine]
            found.append((int(took.sum()), sync))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _of_group(
    rank: Rank,
    steps: DeviceSteps,
    steady: BoolArray,
    rows: Int64Array,
    forward: tuple[Int64Array, Int64Array] | None,
) -> GradientSync | None:
    number = steps.operation_host_step[rows]
    wanted = steps.index[steady]
    counts = [int(np.sum(number == step)) for step in wanted.tolist()]
    if not counts or min(counts) != max(counts) or not counts[0]:
        return None
    size = counts[0]
    inside = np.isin(number, [step for step in np.unique(number) if np.sum(number == step) == size])
    rows, number = rows[inside], number[inside]
    chosen = rows[np.isin(number, wanted)]
    marks = _signatures(rank, chosen).reshape(-1, size)
    launch = rank.calls.start_ns[rank.operations.launch[chosen]].reshape(-1, size)
    if forward is None:
        if _share_before(rank, steps, steady, launch[:, 0]) < LEAST_FORWARD:
            return None
        times = _repeats(rank, rows, number, wanted, marks)
    else:
        start, end = forward
        at = np.searchsorted(start.reshape(-1), launch.reshape(-1), side="right") - 1
        if bool(np.any((at >= 0) & (launch.reshape(-1) < end.reshape(-1)[np.maximum(at, 0)]))):
            return None
        times = start.shape[1]
        if not _one_a_pass(launch, start) or not _periodic(marks, times):
            times = 1
    ordinal = np.arange(len(rows)) % size
    return GradientSync(
        times=times,
        operation=rows,
        step=number,
        part=ordinal // (size // times),
        passes=None if forward is None else forward[0].shape[1],
    )


def _share_before(rank: Rank, steps: DeviceSteps, steady: BoolArray, first_ns: Int64Array) -> float:
    """Return which share of a steady step's launches comes before some time in each, the median."""
    launch = rank.operations.launch
    start = np.sort(rank.calls.start_ns[launch[~is_na(launch)]])
    low = np.searchsorted(start, steps.host_start_ns[steady])
    high = np.searchsorted(start, steps.host_end_ns[steady])
    at = np.searchsorted(start, first_ns)
    return float(np.median((at - low) / np.maximum(high - low, 1)))


def early_hooks(rank: Rank, steps: DeviceSteps, sync: GradientSync) -> Intervals:
    """Return the host time that reducing gradients takes in all micro-batches but the last.

    It is what DDP does behind the accumulation of each gradient (divide, fill buckets, launch) and
    behind the last one (let the computing stream wait), and FSDP's range of its reductions.
    """
    spans = [after_accumulation(rank), _ranges(rank, _FSDP_REDUCE)]
    start = np.concatenate([item[0] for item in spans])
    end = np.concatenate([item[1] for item in spans])
    call = widened(rank.operations.launch[sync.operation])
    launch = rank.calls.start_ns[call]
    before = np.zeros(len(start), dtype=np.bool_)
    # A few steps, and one loop over them.
    for step in np.unique(sync.step).tolist():
        last = launch[(sync.step == step) & (sync.part == sync.times - 2)].max()
        since = steps.host_start_ns[steps.index == step]
        before |= (start >= since.min(initial=last)) & (start <= last)
    change = np.flatnonzero(np.diff(sync.part) != 0)
    change = change[sync.part[change] < sync.times - 1]
    waits = _waits_behind(rank, call[change])
    return intervals.union(
        np.concatenate([start[before], waits[0]]), np.concatenate([end[before], waits[1]])
    )


def _waits_behind(rank: Rank, call: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the time from some launch calls to the last stream wait before the next launch."""
    calls, operations = rank.calls, rank.operations
    names = np.array(["StreamWaitEvent" in text for text in rank.names], dtype=np.bool_)
    waits = np.flatnonzero(names[calls.name])
    launches = np.unique(operations.launch[~is_na(operations.launch)])
    following = np.searchsorted(launches, call, side="right")
    limit = np.append(launches, len(calls))[following]
    last = np.searchsorted(waits, limit) - 1
    row = waits[np.maximum(last, 0)] if len(waits) else np.zeros(len(call), dtype=np.int64)
    found = (last >= 0) & (row > call)
    return calls.end_ns[call[found]], calls.end_ns[row[found]]


def after_accumulation(rank: Rank) -> tuple[Int64Array, Int64Array]:
    """Return the parts of autograd's accumulation nodes behind the accumulation itself."""
    outer = _ranges(rank, re.compile(r"^autograd::engine::evaluate_function: .*AccumulateGrad$"))
    inner = _ranges(rank, re.compile(r"^torch::autograd::AccumulateGrad$"))
    if not len(inner[0]):
        return outer[0][:0], outer[1][:0]
    at = np.searchsorted(inner[0], outer[0])
    at = np.minimum(at, len(inner[0]) - 1)
    inside = (inner[0][at] >= outer[0]) & (inner[1][at] <= outer[1])
    return inner[1][at][inside], outer[1][inside]


def _ranges(rank: Rank, name: re.Pattern[str]) -> tuple[Int64Array, Int64Array]:
    wanted = np.array([bool(name.search(text)) for text in rank.names], dtype=np.bool_)
    rows = np.flatnonzero(wanted[rank.events.name])
    return rank.events.start_ns[rows], rank.events.end_ns[rows]


def _reductions(rank: Rank) -> Int64Array:
    """Return the large reductions in order of launch."""
    operations, table = rank.operations, rank.collectives
    kind = np.array([operation_of(text) in REDUCING for text in rank.names], dtype=np.bool_)
    found = (operations.work == WorkClass.COMM) & kind[operations.name] & ~is_na(operations.launch)
    told = found & ~is_na(operations.collective)
    if len(table):
        texts = np.array([text in REDUCING for text in rank.names], dtype=np.bool_)
        said = texts[table.operation[np.maximum(operations.collective, 0)]]
        found = np.where(told, said, found)
    rows = np.flatnonzero(found & ~small_collectives(rank))
    return rows[np.argsort(operations.launch[rows], kind="stable")].astype(np.int64)


def _signatures(rank: Rank, rows: Int64Array) -> Int64Array:
    """Return one number for equal reductions: size where known, else kernel and launch shape."""
    operations, table = rank.operations, rank.collectives
    known = ~is_na(operations.collective[rows])
    size = np.full(len(rows), NA_INT64, dtype=np.int64)
    if len(table):
        size[known] = table.message_bytes[operations.collective[rows][known]]
    facts = np.stack(
        [
            size,
            operations.name[rows].astype(np.int64),
            np.where(size == NA_INT64, widened(operations.launch_config[rows]), 0),
        ]
    )
    return np.unique(facts, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _forward_passes(
    rank: Rank, steps: DeviceSteps, steady: BoolArray
) -> tuple[Int64Array, Int64Array] | None:
    """Return when forward passes begin and end on the host, each of shape (steady steps, passes).

    None where no range shows them, or not equally often in every step.
    """
    events = rank.events
    names = np.array([bool(_FORWARD.match(text)) for text in rank.names], dtype=np.bool_)
    rows = np.flatnonzero(names[events.name] & (events.category == HostCategory.ANNOTATION))
    low, high = steps.host_start_ns[steady], steps.host_end_ns[steady]
    best: tuple[Int64Array, Int64Array] | None = None
    # DDP's own range lies in the program's, where both are there: each name counts alone.
    for name in np.unique(events.name[rows]).tolist():
        mine = rows[events.name[rows] == name]
        start, end = events.start_ns[mine], events.end_ns[mine]
        at = np.searchsorted(low, start, side="right") - 1
        inside = (at >= 0) & (start < high[np.maximum(at, 0)])
        count = np.bincount(at[inside], minlength=len(low))
        if len(count) and count.min() == count.max() and count[0]:
            tables = start[inside].reshape(len(low), -1), end[inside].reshape(len(low), -1)
            if best is None or tables[0].shape[1] < best[0].shape[1]:
                best = tables
    return best


def _one_a_pass(launch: Int64Array, forward: Int64Array) -> bool:
    """Tell whether every forward pass is followed by its own share of a step's reductions."""
    size, passes = launch.shape[1], forward.shape[1]
    if size % passes:
        return False
    wanted = np.arange(size) // (size // passes) + 1
    return all(
        bool(np.all(np.searchsorted(begin, mine, side="right") == wanted))
        for mine, begin in zip(launch, forward, strict=True)
    )


def _repeats(
    rank: Rank, rows: Int64Array, number: Int64Array, wanted: Int64Array, marks: Int64Array
) -> int:
    """Return how many times the reductions repeat with a forward pass between, 1 if they do not."""
    launch = rank.operations.launch
    linked = np.sort(launch[~is_na(launch)])
    place = np.searchsorted(linked, launch[rows])
    first = rows[number == wanted[0]]
    mine = place[number == wanted[0]]
    size = len(first)
    later = place[number > wanted[0]]
    whole = (int(later[0]) if len(later) else len(linked)) - int(mine[0])
    # One or two reductions a pass may be anything: then ranges alone can tell.
    for times in (k for k in range(size // 3, 1, -1) if size % k == 0):
        if not _periodic(marks, times):
            continue
        between = np.diff(mine)
        border = np.zeros(len(between), dtype=np.bool_)
        border[size // times - 1 :: size // times] = True
        least = BETWEEN_SHARE * whole / times
        if bool(np.all(between[border] >= least)) and bool(np.all(between[~border] < least)):
            return times
    return 1


def _periodic(marks: Int64Array, times: int) -> bool:
    """Tell whether every step's reductions (rows of `marks`) are one sequence `times` times."""
    size = marks.shape[1]
    if size % times:
        return False
    parts = marks.reshape(len(marks), times, size // times)
    return bool(np.all(parts == parts[:, :1]))
