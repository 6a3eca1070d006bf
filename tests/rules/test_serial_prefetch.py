"""COMM007: parameters that are gathered one layer after the other."""

from __future__ import annotations

import pytest

from tests.rules.loop import context_of, diagnosed, recoverable_ms
from tests.rules.ranks import Ranks
from trace_analyzer.analyses.overlap import chained, hideable
from trace_analyzer.model import Run
from trace_analyzer.rules.serial_prefetch import RULE

MB = 1_000_000


def sharded(*, ahead: bool, host_us: float = 10.0, late_us: float = 0.0, gbs: float = 250.0) -> Run:
    """Return two ranks with 12 layers of 1 ms, whose parameters take 0.25 ms to gather."""
    ranks = Ranks()

    def gather() -> None:
        ranks.collective(120 * MB, gbs, operation="allgather", latency_us=10)

    for _ in range(6):
        ranks.step()
        if late_us:
            ranks.silent(late_us, rank=1)
        if ahead:
            gather()
        for layer in range(12):
            if not ahead:
                gather()
            ranks.join()
            if ahead and layer < 11:
                gather()
            ranks.kernels(4, 250, "relu", host_us=host_us)
        ranks.kernels(1, 300, "adam")
    return ranks.run()


def test_layers_that_wait_for_the_one_before() -> None:
    diagnosis = diagnosed(RULE, sharded(ahead=False))
    (finding,) = diagnosis.findings
    assert "11 all-gathers a step wait for the layer before" in finding.title
    # All but the first of 12 × 0.25 ms are hidden; the host is far ahead.
    assert recoverable_ms(diagnosis) == pytest.approx(12 * 0.25, abs=0.35)


def test_gathering_ahead_is_well() -> None:
    diagnosis = diagnosed(RULE, sharded(ahead=True))
    assert diagnosis.findings == []
    assert diagnosis.checks[0].reason == "most all-gathers have computation that can hide them"


def test_links_slower_than_layers_make_no_gathering_serial() -> None:
    """A transfer of 3 ms has 1 ms of computation beside it, which is all that there is."""
    assert diagnosed(RULE, sharded(ahead=True, gbs=20.0)).findings == []
    assert len(diagnosed(RULE, sharded(ahead=False, gbs=20.0)).findings) == 1


def test_on_a_slow_host_nothing_is_gained() -> None:
    diagnosis = diagnosed(RULE, sharded(ahead=False, host_us=400.0))
    assert diagnosis.findings == []
    assert "0.0 % of the step" in diagnosis.checks[0].reason


def test_a_late_rank_makes_no_gathering_serial() -> None:
    assert diagnosed(RULE, sharded(ahead=True, late_us=5_000)).findings == []


def test_runs_without_fsdp() -> None:
    ranks = Ranks()
    for _ in range(4):
        ranks.step()
        ranks.kernels(4, 250)
        ranks.collective(20 * MB)
        ranks.join()
        ranks.kernels(1, 100, "adam")
    assert diagnosed(RULE, ranks.run()).checks[0].state == "not-applicable"


def test_what_is_free_and_what_is_chained() -> None:
    context = context_of(sharded(ahead=True))
    assert context.replay is not None
    found = hideable(context.replay.built, context.replay.base)[0]
    mine = found.step == 1
    assert found.free_ns[mine] == pytest.approx([0.0] + [1_000_000.0] * 11)
    assert found.after_ns[mine] == pytest.approx([0.0] + [1_000_000.0] * 11)
    operations = chained(context.replay.base, found.position[mine])
    assert operations.tolist() == sorted(found.position[mine].tolist())
