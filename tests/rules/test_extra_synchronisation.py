"""COMM009: ranks that meet more often than gradients need."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.loop import context_of, diagnosed, recoverable_ms
from tests.rules.ranks import COMPUTE, Ranks
from tests.rules.recorded import cost_ms, diagnosed_recording
from tests.traces import real_trace
from trace_analyzer.analyses.host_syncs import SyncFor, host_syncs
from trace_analyzer.model import Run
from trace_analyzer.readers.discovery import open_run
from trace_analyzer.rules import per_step_sync
from trace_analyzer.rules.extra_synchronisation import RULE
from trace_analyzer.tables import OperationKind

MB = 1_000_000


def trained(
    after: Callable[[Ranks], object],
    before: Callable[[Ranks], object] = lambda _: None,
    host_us: float = 100.0,
) -> Run:
    """Return two ranks whose hosts need less time for a step than their GPUs."""
    ranks = Ranks()
    for _ in range(8):
        ranks.step()
        ranks.silent(800)  # hidden behind the step before, unless the host waits for it
        before(ranks)
        ranks.kernels(10, 400, host_us=host_us)
        ranks.collective(16 * MB)
        ranks.join()
        ranks.kernels(2, 300, "adam")
        after(ranks)
    return ranks.run()


def metrics(ranks: Ranks) -> None:
    for _ in range(3):
        scalar(ranks)
        ranks.read()


def scalar(ranks: Ranks) -> None:
    ranks.collective(4, 1.0, channels=1, block=128, stream=COMPUTE)
    ranks.pending -= 1


def test_metrics_reduced_and_read_in_every_step() -> None:
    run = trained(metrics)
    (finding,) = diagnosed(RULE, run).findings
    assert finding.title.startswith("3 small collectives a step")
    healthy = trained(lambda _: None)
    gain = _step_ms(run) - _step_ms(healthy)
    assert recoverable_ms(diagnosed(RULE, run)) == pytest.approx(gain, abs=0.1)
    assert diagnosed(per_step_sync.RULE, run).findings == []


def _step_ms(run: Run) -> float:
    return context_of(run).step_ns / 1e6


def test_one_read_after_several_reductions() -> None:
    def reduce(ranks: Ranks) -> None:
        for _ in range(3):
            scalar(ranks)
        ranks.read()

    run = trained(reduce)
    (finding,) = diagnosed(RULE, run).findings
    assert finding.title.startswith("3 small collectives a step")


def test_reductions_that_nobody_waits_for() -> None:
    diagnosis = diagnosed(RULE, trained(scalar))
    assert diagnosis.findings == []
    assert diagnosis.checks[0].state == "passed"


def test_a_value_of_the_rank_alone_is_another_cause() -> None:
    run = trained(lambda ranks: ranks.read())
    assert diagnosed(RULE, run).findings == []
    assert [item.code for item in diagnosed(per_step_sync.RULE, run).findings] == ["HOST002"]


def test_a_read_long_after_a_reduction_is_another_cause() -> None:
    def late(ranks: Ranks) -> None:
        scalar(ranks)
        ranks.kernels(8, 20, "foreach")
        ranks.read()

    rank = trained(late).ranks[0]
    assert set(host_syncs(rank).purpose.tolist()) == {int(SyncFor.READ_VALUE)}


def test_a_copy_inside_the_device_is_waited_for_by_nobody() -> None:
    ranks = Ranks()
    for _ in range(4):
        ranks.step()
        ranks.kernels(4, 100)
        for rank in range(2):
            start = ranks.free[rank, COMPUTE]
            ranks.launch(
                rank,
                "Memcpy DtoD (Device -> Device)",
                start,
                start + 1_000,
                COMPUTE,
                host_us=600.0,
                kind=OperationKind.MEMCPY,
            )
    assert len(host_syncs(ranks.run().ranks[0]).call) == 0


def test_barriers() -> None:
    def barrier(ranks: Ranks) -> None:
        scalar(ranks)
        ranks.wait()

    run = trained(barrier, before=barrier)
    (finding,) = diagnosed(RULE, run).findings
    assert finding.title == "Ranks 0 and 1 meet at 2 barriers a step."
    assert diagnosed(per_step_sync.RULE, run).findings == []


def test_buffers_broadcast_before_forward() -> None:
    def broadcast(ranks: Ranks) -> None:
        begin = list(ranks.now)
        ranks.kernels(1, 20, "CatArrayBatchedCopy", host_us=20)
        ranks.collective(60_000, 20.0, operation="broadcast", channels=4, block=512)
        ranks.join()
        ranks.kernels(60, 4, "direct_copy_kernel", host_us=20)
        ranks.kernels(10, 300, "conv", host_us=20)
        for rank in range(2):
            builder = ranks.builders[rank]
            builder.event("DistributedDataParallel.forward", begin[rank], ranks.now[rank])

    run = trained(lambda _: None, before=broadcast, host_us=100)
    (finding,) = diagnosed(RULE, run).findings
    assert finding.title.startswith("DDP broadcasts buffers before every forward pass")
    # 60 copies of 4 µs, one of 20 and the broadcast of 8; the convolutions stay.
    assert finding.recoverable_ms == pytest.approx(0.268, abs=0.02)


def test_batches_broadcast_by_rank_0_are_no_buffers() -> None:
    def central(ranks: Ranks) -> None:
        ranks.collective(131_072, 20.0, operation="broadcast", channels=16, block=512)
        ranks.join()
        begin = list(ranks.now)
        ranks.kernels(10, 300, "conv", host_us=20)
        for rank in range(2):
            builder = ranks.builders[rank]
            builder.event("DistributedDataParallel.forward", begin[rank], ranks.now[rank])

    assert diagnosed(RULE, trained(lambda _: None, before=central)).findings == []


def test_real_buffers() -> None:
    """A convolution model with 106 buffers, on one of two ranks."""
    name = "public/HolisticTraceAnalysis/nccl_parser_config/nccl_data.json.gz"
    (finding,) = diagnosed(RULE, open_run(str(real_trace(name)))).findings
    assert finding.title.startswith("DDP broadcasts buffers before every forward pass on rank 0")
    # Some 38 ms of host time a step, with the profiler's cost.
    assert finding.recoverable_ms == pytest.approx(34, abs=6)


def test_recorded_metrics() -> None:
    name = "gpt-small-ddp.metric-reductions_5.kineto"
    (finding,) = diagnosed_recording(RULE, name).findings
    assert finding.title.startswith("5 small collectives a step")
    assert finding.recoverable_ms == pytest.approx(cost_ms(name), abs=0.3)
    assert finding.recoverable_interval_ms is not None
    low, high = finding.recoverable_interval_ms
    assert low < 0.96  # the interval of the label itself
    assert high > 0.41
    assert diagnosed_recording(per_step_sync.RULE, name).findings == []
