"""COMM006: DDP that looks for parameters without gradients."""

from __future__ import annotations

import pytest

from tests.rules.loop import diagnosed, recoverable_ms
from tests.rules.ranks import Ranks
from trace_analyzer.model import Run
from trace_analyzer.rules.unused_parameter_search import RULE
from trace_analyzer.tables import HostCategory, OperationKind

MB = 1_000_000
SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"


def trained(*, search_us: float, kernel_us: float) -> Run:
    """Return two ranks; DDP searches between forward and backward, and tells the others."""
    ranks = Ranks()
    for _ in range(8):
        ranks.step()
        begin = list(ranks.now)
        ranks.kernels(20, kernel_us, host_us=20)
        if search_us:
            ranks.event(SEARCH, search_us)
        for rank, builder in enumerate(ranks.builders):
            builder.event("DistributedDataParallel.forward", begin[rank], ranks.now[rank])
        ranks.kernels(40, kernel_us, host_us=20)
        begin = list(ranks.now)
        ranks.event("torch::autograd::AccumulateGrad", 10)
        ranks.collective(8 * MB)
        if search_us:
            for rank in range(2):
                start = ranks.now[rank] + 5_000
                ranks.launch(rank, "Memcpy HtoD (Pinned -> Device)", start, start + 1_000, 19,
                             kind=OperationKind.MEMCPY, size=800)  # fmt: skip
            ranks.collective(800, 0.1, channels=1, block=128)
        for rank, builder in enumerate(ranks.builders):
            builder.event(
                "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
                begin[rank],
                ranks.now[rank],
                category=HostCategory.OPERATOR,
            )
        ranks.join()
        ranks.kernels(2, 50, "adam")
    return ranks.run()


def test_a_search_that_the_gpu_waits_for() -> None:
    diagnosis = diagnosed(RULE, trained(search_us=600, kernel_us=10))
    (finding,) = diagnosis.findings
    assert "DDP searches for unused parameters in every step on ranks 0 and 1" in finding.title
    # The search, two launches of 10 µs and a wait of 1 µs.
    assert recoverable_ms(diagnosis) == pytest.approx(0.62, abs=0.02)


def test_a_search_while_the_gpu_is_busy_costs_nothing() -> None:
    """As users report it: the warning is there, and no impact can be measured."""
    diagnosis = diagnosed(RULE, trained(search_us=600, kernel_us=120))
    assert diagnosis.findings == []
    assert diagnosis.checks[0].state == "passed"
    assert "% of the step" in diagnosis.checks[0].reason


def test_ddp_without_a_search() -> None:
    diagnosis = diagnosed(RULE, trained(search_us=0, kernel_us=10))
    assert diagnosis.checks[0].reason == "DDP does not search for unused parameters"


def test_a_run_without_ranges_of_ddp() -> None:
    ranks = Ranks()
    for _ in range(4):
        ranks.step()
        ranks.kernels(4, 250)
    assert diagnosed(RULE, ranks.run()).checks[0].state == "not-applicable"
