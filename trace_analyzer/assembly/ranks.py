"""Where the time of each rank went, as the report states it."""

from __future__ import annotations

import numpy as np

from trace_analyzer.analyses.cross_rank import RankWaits
from trace_analyzer.analyses.study import RankStudy, Study
from trace_analyzer.findings import RankDoc, StepPartition, StepRow, WindowPartition
from trace_analyzer.model import Rank
from trace_analyzer.schema import Int64Array


def ms(ns: float) -> float:
    """Return nanoseconds in milliseconds, to the nanosecond."""
    return round(float(ns) / 1e6, 6)


def rank_docs(study: Study) -> list[RankDoc]:
    """Return one entry a rank of the run, those without GPU operations included."""
    return [
        _without_gpu(rank)
        if rank.rank not in study.ranks
        else _with_gpu(study.ranks[rank.rank], _waits(study, rank.rank))
        for rank in study.run.ranks
    ]


def _waits(study: Study, rank: int) -> RankWaits | None:
    """Return how the rank's communication divides; None where none of it could be matched."""
    found = None if study.cross is None else study.cross.ranks[rank]
    return None if found is None or found.matched == 0 else found


def gpu_label(rank: Rank) -> str | None:
    """Return "GPU 1 (NVIDIA H200)" of the device that the rank used most, None where unknown."""
    used = rank.operations.device
    if len(used) == 0:
        return None
    ordinals, counts = np.unique(used, return_counts=True)
    ordinal = int(ordinals[np.argmax(counts)])
    device = next((item for item in rank.devices if item.ordinal == ordinal), None)
    number = ordinal if device is None or device.gpu is None else device.gpu
    if number < 0:
        return None if device is None else device.name or None
    return f"GPU {number} ({device.name})" if device and device.name else f"GPU {number}"


def _without_gpu(rank: Rank) -> RankDoc:
    return RankDoc(
        rank=rank.rank,
        gpu=None,
        host=rank.host,
        pid=rank.pid,
        rank_basis=rank.rank_basis,
        window=None,
        step=None,
        steps=[],
    )


def _with_gpu(item: RankStudy, split: RankWaits | None) -> RankDoc:
    window, steps, parts = item.window, item.steps, item.parts
    return RankDoc(
        rank=item.rank.rank,
        gpu=gpu_label(item.rank),
        host=item.rank.host,
        pid=item.rank.pid,
        rank_basis=item.rank.rank_basis,
        partial=steps.partial,
        window=WindowPartition(
            window_ms=ms(window.length_ns[0]),
            compute_ms=ms(window.compute_ns[0]),
            comm_ms=ms(window.comm_ns[0]),
            comm_exposed_ms=ms(window.comm_exposed_ns[0]),
            copy_exposed_ms=ms(window.copy_exposed_ns[0]),
            idle_ms=ms(window.idle_ns[0]),
            head_ms=ms(steps.head_ns),
            tail_ms=ms(steps.tail_ns),
        ),
        step=_mean_step(item, split),
        steps=[
            StepRow(
                index=int(steps.index[k]),
                start_ms=ms(steps.start_ns[k] - steps.window_start_ns),
                step_ms=ms(parts.length_ns[k]),
                compute_ms=ms(parts.compute_ns[k]),
                comm_ms=ms(parts.comm_ns[k]),
                comm_exposed_ms=ms(parts.comm_exposed_ns[k]),
                copy_exposed_ms=ms(parts.copy_exposed_ns[k]),
                idle_ms=ms(parts.idle_ns[k]),
                steady=bool(item.steady[k]),
            )
            for k in range(len(steps))
        ],
    )


def _mean_step(item: RankStudy, split: RankWaits | None) -> StepPartition | None:
    """Means over steady steps: sums of integers, divided once, so that the parts add up."""
    chosen = item.steady
    count = int(chosen.sum())
    if count == 0:
        return None

    def mean(values: Int64Array) -> float:
        return ms(int(values[chosen].sum()) / count)

    parts, idle = item.parts, item.idle
    return StepPartition(
        step_ms=mean(parts.length_ns),
        step_median_ms=ms(float(np.median(parts.length_ns[chosen]))),
        compute_ms=mean(parts.compute_ns),
        comm_ms=mean(parts.comm_ns),
        comm_exposed_ms=mean(parts.comm_exposed_ns),
        copy_exposed_ms=mean(parts.copy_exposed_ns),
        idle_ms=mean(parts.idle_ns),
        comm_transfer_ms=None if split is None else mean(split.transfer_ns),
        comm_wait_ms=None if split is None else mean(split.wait_ns),
        comm_exposed_transfer_ms=None if split is None else mean(split.exposed_transfer_ns),
        comm_exposed_wait_ms=None if split is None else mean(split.exposed_wait_ns),
        comm_exposed_unsplit_ms=None if split is None else mean(split.exposed_unsplit_ns),
        idle_launch_ms=mean(idle.launch_ns),
        idle_launch_by_host={name: mean(ns) for name, ns in idle.launch_by_host.items()},
        idle_latency_ms=mean(idle.latency_ns),
        idle_other_ms=mean(idle.other_ns),
    )
