"""COMM005: gradients that are reduced after every micro-batch."""

from __future__ import annotations

import pytest

from tests.rules.loop import diagnosed, recoverable_ms
from tests.rules.ranks import Ranks
from tests.traces import real_trace
from trace_analyzer.analyses.gradient_sync import gradient_sync
from trace_analyzer.analyses.steps import device_steps
from trace_analyzer.model import Run
from trace_analyzer.readers.discovery import open_run
from trace_analyzer.rules.redundant_gradient_sync import RULE
from trace_analyzer.tables import HostCategory

MB = 1_000_000


def accumulated(
    micro_batches: int,
    *,
    each: bool,
    operation: str = "allreduce",
    ranges: bool = True,
    sizes: tuple[int, ...] = (40 * MB, 40 * MB, 60 * MB),
    sized: bool = True,
) -> Run:
    """Return two ranks that accumulate; the transfers of a backward pass are half hidden."""
    ranks = Ranks()
    for _ in range(6):
        ranks.step()
        for number in range(micro_batches):
            begin = list(ranks.now)
            ranks.kernels(12, 60)
            if ranges:
                for rank, builder in enumerate(ranks.builders):
                    builder.event("DistributedDataParallel.forward", begin[rank], ranks.now[rank])
            for size in sizes:
                ranks.kernels(4, 60)
                if each or number == micro_batches - 1:
                    ranks.collective(size, operation=operation, sized=sized)
            ranks.join()
        ranks.kernels(1, 200, "adam")
    return ranks.run()


def test_reductions_after_each_of_four_micro_batches() -> None:
    diagnosis = diagnosed(RULE, accumulated(4, each=True))
    (finding,) = diagnosis.findings
    assert "after each of 4 micro-batches" in finding.title
    # Per pass 140 MB take 482 µs, the last 60 MB of which (205 µs) follow backward, and 2 × 138 µs
    # run beside 2 × 240 µs of kernels.
    assert finding.recoverable_ms == pytest.approx(3 * 0.205, abs=0.1)


def test_one_reduction_a_step_is_enough() -> None:
    for run in (accumulated(4, each=False), accumulated(1, each=True)):
        diagnosis = diagnosed(RULE, run)
        assert diagnosis.findings == []
        assert diagnosis.checks[0].reason == "gradients are reduced once a step"


def test_equal_buckets_of_one_backward_pass_are_no_repetition() -> None:
    equal = (40 * MB,) * 4
    assert diagnosed(RULE, accumulated(4, each=False, sizes=equal)).findings == []
    assert diagnosed(RULE, accumulated(1, each=True, sizes=equal, ranges=False)).findings == []


@pytest.mark.parametrize("sized", [True, False])
def test_without_ranges_the_launches_between_tell(*, sized: bool) -> None:
    run = accumulated(4, each=True, ranges=False, sized=sized)
    (finding,) = diagnosed(RULE, run).findings
    assert "4 micro-batches" in finding.title


def test_fsdp_reduces_and_scatters() -> None:
    run = accumulated(2, each=True, operation="reducescatter", sizes=(200 * MB, 300 * MB))
    (finding,) = diagnosed(RULE, run).findings
    assert "after each of 2 micro-batches" in finding.title
    assert "memory" in finding.limits


def test_what_ddp_does_behind_each_gradient_goes_too() -> None:
    """As users report it: accumulation over hosts takes twice as long as it should."""
    ranks = Ranks()
    for _ in range(6):
        ranks.step()
        for _ in range(4):
            ranks.event("forward", 100, category=HostCategory.ANNOTATION)
            ranks.kernels(12, 20, host_us=20)
            for _ in range(3):
                begin = list(ranks.now)
                ranks.event("torch::autograd::AccumulateGrad", 10)
                ranks.kernels(1, 5, "div", host_us=30)
                ranks.collective(40 * MB)
                ranks.silent(60)
                for rank, builder in enumerate(ranks.builders):
                    builder.event(
                        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
                        begin[rank],
                        ranks.now[rank],
                        category=HostCategory.OPERATOR,
                    )
            ranks.join()
        ranks.kernels(1, 200, "adam")
    # Behind 3 × 3 gradients the host needs 30 + 10 + 60 µs; in each of 3 passes 138 µs of transfer
    # follow the last one, while the host runs on for a little.
    assert recoverable_ms(diagnosed(RULE, ranks.run())) == pytest.approx(1.26, abs=0.1)


def test_real_steps_reduce_once() -> None:
    run = open_run(str(real_trace("h200-ddp/healthy")))
    for rank in run.ranks:
        steps = device_steps(rank)
        assert steps is not None
        sync = gradient_sync(rank, steps, steps.index >= 0)
        assert sync is not None
        assert sync.times == 1
        assert len(sync.operation) % 14 == 0
