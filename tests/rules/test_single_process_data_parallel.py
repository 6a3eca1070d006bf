"""COMM012: replicas of a model on several GPUs of one process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.builder import RankBuilder, run_of
from tests.rules.loop import context_of, diagnosed, recoverable_ms
from trace_analyzer.analyses.replay.devices import own_streams
from trace_analyzer.model import Rank, Run
from trace_analyzer.rules import host_pause
from trace_analyzer.rules.single_process_data_parallel import RULE
from trace_analyzer.tables import OperationKind

LAUNCH, KERNEL = 40_000, 50_000


def process(
    *, together: bool, copies: bool = True, named: bool = False, gpus: int = 2, starting: int = 0
) -> Run:
    """Return a process whose host launches kernels on each of its GPUs in turn, or GPU after GPU.

    It stands still for `starting` ns before, as DataParallel does until its threads launch.
    """
    builder, device, starts = RankBuilder(), [], []
    now, free = 1_000_000, [0] * gpus
    for _ in range(6):
        starts.append(now)
        now += starting
        if copies:
            begin, now = now, now + 10_000
            start = max(begin + 5_000, *free)
            builder.operation(
                "Memcpy PtoP (Device -> Device)",
                start,
                start + 200_000,
                launch=(begin, now),
                kind=OperationKind.MEMCPY,
                size=1 << 26,
            )
            free = [start + 200_000] * gpus
            device.append((start, 0))
        order = [gpu for _ in range(20) for gpu in range(gpus)]
        if not together:
            order.sort()
        for gpu in order:
            begin, now = now, now + LAUNCH
            before = 0 if together or not gpu else free[gpu - 1]
            start = max(begin + 5_000, free[gpu], before) + gpu  # no two start at one time
            builder.operation("gemm", start, start + KERNEL, launch=(begin, now))
            free[gpu] = start + KERNEL
            device.append((start, gpu))
        if named:
            builder.event("DataParallel.forward", starts[-1], now)
    builder.profiler_steps(starts, now)
    rank = builder.build()
    table = dict(device)
    numbers = np.array([table[start] for start in rank.operations.start_ns.tolist()])
    return run_of(
        replace(rank, operations=replace(rank.operations, device=numbers.astype("int16")))
    )


def test_replicas_in_one_process() -> None:
    run = process(together=True)
    diagnosis = diagnosed(RULE, run)
    (finding,) = diagnosis.findings
    assert "drives 2 GPUs as DataParallel does" in finding.title
    # The host needs 40 launches of 40 µs and a copy's of 10, less what the profiler cost; with a
    # process a GPU, the 20 kernels of 50 µs on each GPU are what a step takes.
    before = context_of(run).step_ns / 1e6
    assert recoverable_ms(diagnosis) == pytest.approx(before - 1.0, abs=0.03)


def test_a_model_spread_by_layers_is_no_data_parallelism() -> None:
    diagnosis = diagnosed(RULE, process(together=False))
    assert diagnosis.findings == []
    assert diagnosis.checks[0].reason == "no process computes the same on several GPUs"


def test_one_gpu() -> None:
    assert diagnosed(RULE, process(together=True, gpus=1)).findings == []


def test_the_range_of_data_parallel_is_enough() -> None:
    diagnosis = diagnosed(RULE, process(together=True, copies=False, named=True))
    assert [finding.code for finding in diagnosis.findings] == ["COMM012"]


def test_streams_of_different_gpus_do_not_wait_for_each_other() -> None:
    run = process(together=True)
    rank: Rank = run.ranks[0]
    assert len(np.unique(rank.operations.stream)) == 1
    assert len(np.unique(own_streams(rank).operations.stream)) == 2
    context = context_of(run)
    assert context.replay is not None
    assert context.replay.error < 0.001


def test_one_device_keeps_its_streams() -> None:
    rank = process(together=True, gpus=1).ranks[0]
    assert own_streams(rank) is rank


def test_what_its_threads_wait_for_is_no_pause_of_the_host() -> None:
    run = process(together=True, copies=False, named=True, starting=5_000_000)
    assert recoverable_ms(diagnosed(RULE, run)) > 5.0
    assert diagnosed(host_pause.RULE, run).findings == []
