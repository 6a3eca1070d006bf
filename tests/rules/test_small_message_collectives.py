"""COMM002: many small messages where a few would do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.loop import context_of, diagnosed, recoverable_ms
from tests.rules.ranks import COMPUTE, Ranks
from trace_analyzer.model import Run
from trace_analyzer.readers.discovery import open_run
from trace_analyzer.rules.small_message_collectives import RULE
from trace_analyzer.tables import HostCategory

MB = 1_000_000
FAULTLAB = Path(__file__).parents[1] / "data" / "faultlab"


def sharded(units: int, size: int, *, host_us: float = 400.0) -> Run:
    """Return two ranks that gather `units` units a step, each by a range of its own on the host."""
    ranks = Ranks()
    for _ in range(6):
        ranks.step()
        for unit in range(units):
            begin = list(ranks.now)
            ranks.collective(size, 200.0, operation="allgather", latency_us=20)
            ranks.silent(host_us - 10)
            for rank, builder in enumerate(ranks.builders):
                builder.event(
                    f"FSDP::pre_forward (blocks.{unit})",
                    begin[rank],
                    ranks.now[rank],
                    category=HostCategory.ANNOTATION,
                )
            ranks.join()
            ranks.kernels(2, 50, host_us=20)
        ranks.kernels(1, 200, "adam")
    return ranks.run()


def test_single_layers_are_gathered_alone() -> None:
    run = sharded(24, 4 * MB)
    diagnosis = diagnosed(RULE, run)
    (finding,) = diagnosis.findings
    assert finding.kind == "opportunity"
    assert finding.title.startswith("24 collectives a step on ranks 0 and 1 carry 4.0 MB")
    assert "4 would do" in finding.title
    # 20 of 24 ranges of 400 µs go; the host still launches kernels for 24 × 41 µs.
    before = context_of(run).step_ns / 1e6
    assert recoverable_ms(diagnosis) == pytest.approx(before - (4 * 0.4 + 24 * 0.041), rel=0.2)


def test_whole_blocks_are_well() -> None:
    diagnosis = diagnosed(RULE, sharded(8, 50 * MB))
    assert diagnosis.findings == []
    assert diagnosis.checks[0].state == "passed"


def test_tiny_buckets() -> None:
    ranks = Ranks()
    for _ in range(6):
        ranks.step()
        ranks.kernels(10, 40)
        for _ in range(60):
            ranks.kernels(1, 40)
            ranks.collective(MB, 100.0, latency_us=20)
            ranks.silent(60)
        ranks.join()
        ranks.kernels(1, 200, "adam")
    (finding,) = diagnosed(RULE, ranks.run()).findings
    assert "60 collectives a step" in finding.title


def test_metrics_are_no_small_messages() -> None:
    ranks = Ranks()
    for _ in range(6):
        ranks.step()
        ranks.kernels(10, 40)
        for _ in range(20):
            ranks.collective(4, 1.0, channels=1, block=128, stream=COMPUTE)
        ranks.pending = 0
        ranks.collective(50 * MB)
        ranks.join()
        ranks.kernels(1, 200, "adam")
    assert diagnosed(RULE, ranks.run()).findings == []


def test_recorded_fine_sharding() -> None:
    run = open_run(str(FAULTLAB / "gpt-small-fsdp.fine-sharding_1.kineto"))
    (finding,) = diagnosed(RULE, run).findings
    assert finding.recoverable_interval_ms is not None
    low, high = finding.recoverable_interval_ms
    assert low < 63.8  # the interval of the label itself
    assert high > 49.1
