"""COMM008: NCCL takes more of the GPU than the links need."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.rules.loop import diagnosed, recoverable_ms
from tests.rules.ranks import Ranks
from trace_analyzer.model import Run
from trace_analyzer.rules.compute_contention import RULE

MB = 1_000_000


def trained(channels: int, slower: float = 1.6, gbs: float = 300.0) -> Run:
    """Return two ranks; a kernel runs beside communication in one step and alone in the next."""
    ranks = Ranks()
    size = 600 * MB
    for step in range(8):
        ranks.step()

        def beside() -> None:
            ranks.collective(size, gbs, channels=channels)
            ranks.kernels(12, 100 * slower)

        if step % 2:
            beside()
            ranks.kernels(12, 100)
        else:
            ranks.kernels(12, 100)
            beside()
            ranks.kernels(2, 150, "relu")
        ranks.join()
        ranks.kernels(1, 100, "adam")
    return ranks.run()


def test_more_channels_than_the_links_need() -> None:
    run = replace(trained(32), environment={0: {"NCCL_MIN_CTAS": "32"}})
    diagnosis = diagnosed(RULE, run)
    (finding,) = diagnosis.findings
    assert finding.kind == "opportunity"
    assert "holds 32 channels" in finding.title
    assert "16 would feed the links" in finding.title
    assert "matrix products 1.60 times as long. NCCL_MIN_CTAS=32 is set." in finding.proof
    # A slow-down of 0.6 shrinks to 0.33: 12 × 27 µs, and some of a kernel at the transfer's end.
    assert recoverable_ms(diagnosis) == pytest.approx(0.36, abs=0.06)


def test_few_channels_have_none_to_spare() -> None:
    diagnosis = diagnosed(RULE, trained(16))
    assert diagnosis.findings == []
    assert "1.60 times as long; no group has channels to spare" in diagnosis.checks[0].reason


def test_kernels_that_are_not_slowed() -> None:
    assert diagnosed(RULE, trained(32, slower=1.0)).findings == []


def test_channels_that_wait_for_slow_links_are_another_cause() -> None:
    assert diagnosed(RULE, trained(32, gbs=100.0)).findings == []


def test_without_pairs_nothing_is_said() -> None:
    ranks = Ranks()
    for _ in range(4):
        ranks.step()
        ranks.kernels(4, 250)
        ranks.collective(200 * MB, channels=32)
        ranks.join()
        ranks.kernels(1, 100, "adam")
    assert diagnosed(RULE, ranks.run()).checks[0].state == "not-applicable"
