"""COMM012 single-process-data-parallel.

## What it finds
One process drives several GPUs with a copy of the model on each: `nn.DataParallel`.

## Why it costs
In every step the parameters are sent to all GPUs before forward, the outputs gathered and the gradients
added up on the first GPU, while the others wait. One interpreter launches the work of all GPUs, so
that each gets a share of its launches only.

## How it is measured
Kernels of one process on several GPUs, with the same kernels on each, and transfers between them, or
the range of DataParallel. In the replay the transfers between GPUs are gone, the host needs for
each launch what it would need with a process a GPU: the time divided by their number, and the time
in DataParallel's forward in which no thread launches anything (threads that start, and wait for the
interpreter) is gone too.

## When it is wrong
A model that is spread over GPUs by layers, in one process, is no data parallelism; its GPUs run
different kernels. The gain leaves out what DDP's own last bucket exposes.

## What to do
Use `DistributedDataParallel` with one process a GPU: `torchrun --nproc-per-node=N train.py`.

## References
PyTorch documentation of DataParallel, which recommends DistributedDataParallel also for one machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trace_analyzer import intervals
from trace_analyzer.analyses.pauses import find_pauses
from trace_analyzer.findings import Evidence, Range
from trace_analyzer.intervals import Intervals
from trace_analyzer.model import Rank
from trace_analyzer.rules.context import Context, rank_list
from trace_analyzer.rules.rule import Answer, Cause, Passed, Rule
from trace_analyzer.schema import Int64Array, is_na
from trace_analyzer.tables import OperationKind, WorkClass

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit

_RANGE = re.compile(r"^DataParallel\.forward$")
_BETWEEN = re.compile(r"PtoP|Peer to Peer|Memcpy P2P", re.IGNORECASE)
# Replicas run the same kernels, but for the optimizer and what adds gradients up on the first GPU.
LEAST_COMMON = 0.7
# Layers of one model on different GPUs run one after the other; replicas side by side, as far as one
# interpreter launches fast enough.
LEAST_TOGETHER = 0.2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Replicas:
    """One process with replicas: its devices, transfers between them, busy time of each a step.

    `pauses` is where DataParallel's forward launches nothing for a millisecond or more.
    """

    devices: tuple[int, ...]
    between: Int64Array
    pauses: Intervals
    busy_ns: tuple[float, ...]
    between_ns: float


def find(context: Context) -> Answer:
    """Return one cause for each process that holds replicas on several GPUs."""
    found: dict[int, _Replicas] = {}
    for number in context.ranks:
        replicas = _replicas(context, number)
        if replicas is not None:
            found[number] = replicas
    if not found:
        return Passed(reason="no process computes the same on several GPUs")
    return [_cause(context, number, replicas) for number, replicas in found.items()]


def _replicas(context: Context, number: int) -> _Replicas | None:
    item = context.study.ranks[number]
    rank, operations = item.rank, item.rank.operations
    computes = (operations.work == WorkClass.COMPUTE) & ~is_na(operations.device)
    devices = np.unique(operations.device[computes])
    if len(devices) < 2:
        return None
    forward = forward_passes(rank)
    named = bool(len(forward))
    between = _between(rank)
    work = []
    for device in devices.tolist():
        mine = computes & (operations.device == device)
        busy = intervals.union(operations.start_ns[mine], operations.end_ns[mine])
        work.append(intervals.intersect(busy, context.steady_windows(number)))
    if not named and not (len(between) and _alike(rank, devices.astype(np.int64), work)):
        return None
    steady = context.steady_windows(number)
    moving = intervals.union(operations.start_ns[between], operations.end_ns[between])
    return _Replicas(
        devices=tuple(devices.tolist()),
        between=between,
        pauses=intervals.intersect(find_pauses(rank), forward),
        busy_ns=tuple(context.per_step_ns(number, part.total) for part in work),
        between_ns=context.per_step_ns(number, intervals.intersect(moving, steady).total),
    )


def forward_passes(rank: Rank) -> Intervals:
    """Return DataParallel's forward passes on the host; none where the trace has no operators."""
    names = np.array([_RANGE.search(text) is not None for text in rank.names], dtype=np.bool_)
    rows = np.flatnonzero(names[rank.events.name])
    return intervals.union(rank.events.start_ns[rows], rank.events.end_ns[rows])


def _between(rank: Rank) -> Int64Array:
    """Return the operations of a process that move data between its own GPUs."""
    operations = rank.operations
    peer = np.array([bool(_BETWEEN.search(text)) for text in rank.names], dtype=np.bool_)
    copies = (operations.kind == OperationKind.MEMCPY) & peer[operations.name]
    return np.flatnonzero(copies | (operations.work == WorkClass.COMM)).astype(np.int64)


def _alike(rank: Rank, devices: Int64Array, work: list[Intervals]) -> bool:
    """Tell whether all devices run the same kernels, and at the same time."""
    operations = rank.operations
    kernels = operations.work == WorkClass.COMPUTE
    counts = np.stack(
        [
            np.bincount(
                operations.name[kernels & (operations.device == device)], minlength=len(rank.names)
            )
            for device in devices.tolist()
        ]
    )
    common = int(counts.min(axis=0).sum()) / max(int(counts.sum(axis=1).max()), 1)
    least = min(part.total for part in work)
    together = work[0]
    for part in work[1:]:
        together = intervals.intersect(together, part)
    return common >= LEAST_COMMON and together.total >= LEAST_TOGETHER * least


def _cause(context: Context, number: int, replicas: _Replicas) -> Cause:
    count = len(replicas.devices)
    busiest = max(replicas.busy_ns)
    step_ns = context.study.step_ns or 0.0

    def edit(change: Edit) -> None:
        change.remove(number, replicas.between)
        change.all_host(number, 1.0 / count)
        change.host(number, replicas.pauses)

    return Cause(
        title=f"One process ({rank_list([number])}) drives {count} GPUs as DataParallel does.",
        ranks=(number,),
        ceiling_ns=max(step_ns - busiest, 0.0),
        edit=edit,
        edit_text="a process a GPU: no copies between GPUs, launches shared by as many hosts",
        proof=(
            f"The same kernels run on {count} GPUs of one process, the busiest for "
            f"{busiest / 1e6:.1f} of {step_ns / 1e6:.1f} ms a step; data moves between them for "
            f"{replicas.between_ns / 1e6:.1f} ms."
        ),
        rival="Not one slow GPU. All wait for the same process.",
        limits="What DDP's own last bucket would expose is not taken off.",
        evidence=(
            Evidence(
                title="GPUs of the process",
                columns=["GPU", "ms of kernels a step"],
                rows=[
                    [device, round(busy / 1e6, 3)]
                    for device, busy in zip(replicas.devices, replicas.busy_ns, strict=True)
                ],
            ),
        ),
        ranges=_ranges(context, number, replicas),
        actions=(
            f"Start one process a GPU: `torchrun --nproc-per-node={count} train.py`.",
            (
                "Replace `nn.DataParallel(model)` by "
                "`DistributedDataParallel(model, device_ids=[local_rank])`."
            ),
        ),
        explains_late=False,
    )


def _ranges(context: Context, number: int, replicas: _Replicas) -> tuple[Range, ...]:
    operations = context.study.ranks[number].rank.operations
    rows = replicas.between
    if not len(rows):
        return ()
    start, end = operations.start_ns[rows], operations.end_ns[rows]
    return context.ranges(number, start, end, "data moves between GPUs of one process")[:6]


RULE = Rule(
    code="COMM012",
    name="single-process-data-parallel",
    kind="fault",
    status="stable",
    needs="GPU operations with their device",
    find=find,
)
