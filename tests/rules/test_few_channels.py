"""COMM003: one channel for large messages, and what only looks like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.loop import diagnosed, recoverable_ms
from tests.rules.ranks import Ranks
from tests.traces import real_trace
from trace_analyzer.model import Run
from trace_analyzer.readers.discovery import open_run
from trace_analyzer.rules.few_channels import RULE

MB = 1_000_000
FAULTLAB = Path(__file__).parents[1] / "data" / "faultlab"


def trained(
    gbs: float, channels: int, *, size: int = 64 * MB, sized: bool = True, gpu: str = "NVIDIA H200"
) -> Run:
    """Return four buckets a step that overlap backward; the last one is exposed."""
    ranks = Ranks(gpu=gpu)
    for _ in range(6):
        ranks.step()
        ranks.kernels(10, 400)
        for _ in range(4):
            ranks.kernels(2, 400)
            ranks.collective(size, gbs, channels=channels, sized=sized)
        ranks.join()
        ranks.kernels(1, 500, "adam")
    return ranks.run()


def test_one_channel_is_named_with_what_more_would_give() -> None:
    diagnosis = diagnosed(RULE, trained(20.9, 1))
    (finding,) = diagnosis.findings
    assert "one NCCL channel" in finding.title
    assert "21 of 323 GB/s" in finding.title
    # 4 × 3.06 ms, of which 2.4 ms run beside backward; at the reference all but the last is hidden,
    # but kernels beside transfers are slower.
    assert finding.recoverable_ms == pytest.approx(9.4, abs=0.3)


def test_small_messages_have_one_channel_anyway() -> None:
    diagnosis = diagnosed(RULE, trained(2.0, 1, size=32_768))
    assert diagnosis.findings == []
    assert diagnosis.checks[0].state == "passed"


def test_few_channels_of_a_slow_way_are_not_the_cause() -> None:
    assert diagnosed(RULE, trained(26.0, 4)).findings == []


def test_four_channels_that_deliver_are_too_few() -> None:
    assert "4 NCCL channels" in diagnosed(RULE, trained(80.0, 4)).findings[0].title


def test_without_sizes_one_long_channel_is_enough() -> None:
    (finding,) = diagnosed(RULE, trained(20.9, 1, sized=False)).findings
    assert finding.confidence == "medium"
    assert "estimated" in finding.limits


def test_a_late_rank_is_not_blamed_on_the_channels() -> None:
    ranks = Ranks()
    for _ in range(6):
        ranks.step()
        ranks.kernels(10, 400)
        ranks.silent(20_000, rank=1)
        ranks.kernels(1, 400)
        ranks.collective(64 * MB, 250.0)
        ranks.join()
        ranks.kernels(1, 500, "adam")
    assert diagnosed(RULE, ranks.run()).findings == []


def test_gpus_without_nvlink_have_no_reference() -> None:
    diagnosis = diagnosed(RULE, trained(20.9, 1, gpu="NVIDIA A10G"))
    assert diagnosis.findings == []
    assert diagnosis.checks[0].state == "not-applicable"
    assert "bench allreduce" in diagnosis.checks[0].needs


def test_recorded_with_one_channel() -> None:
    run = open_run(str(FAULTLAB / "gpt-large-ddp.few-channels_1.kineto"))
    assert recoverable_ms(diagnosed(RULE, run)) == pytest.approx(111.8, rel=0.02)


@pytest.mark.parametrize("name", ["h200-ddp/nccl_1ch", "h200-ddp-nsys/nccl_1ch.sqlite"])
def test_real_one_channel(name: str) -> None:
    gain = recoverable_ms(diagnosed(RULE, open_run(str(real_trace(name)))))
    assert gain == pytest.approx(22.49, abs=0.5)


def test_real_healthy_channels() -> None:
    run = open_run(str(real_trace("h200-ddp/healthy")))
    assert diagnosed(RULE, run).findings == []
