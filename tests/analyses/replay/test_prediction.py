"""The interval of a predicted step is as wide as the host matters."""

from __future__ import annotations

import pytest

from tests.traces import real_trace
from trace_analyzer.analyses.replay.prediction import DEVICE_ERROR, HOST_ERROR
from trace_analyzer.analyses.replay.replay import Replay, replay
from trace_analyzer.analyses.study import study
from trace_analyzer.readers.discovery import open_run


def shares(run: str) -> tuple[float, float, Replay]:
    """Return how far an h200-ddp run's interval reaches below and above its prediction."""
    found = replay(study(open_run(str(real_trace(f"h200-ddp/{run}")))))
    assert isinstance(found, Replay)
    low, high = found.predicted_interval_ns
    middle = found.predicted.median_ns
    return 1.0 - low / middle, high / middle - 1.0, found


def test_where_the_gpu_decides_the_host_adds_nothing() -> None:
    below, above, found = shares("nccl_1ch")
    assert found.bound == "device"
    assert below == pytest.approx(DEVICE_ERROR, abs=0.002)
    assert above == pytest.approx(DEVICE_ERROR, abs=0.002)


def test_where_the_host_decides_its_error_is_the_steps() -> None:
    below, above, found = shares("slow_loader")
    assert found.bound == "host"
    assert below == pytest.approx(HOST_ERROR, abs=0.03)
    assert above == pytest.approx(HOST_ERROR, abs=0.03)
    low, high = found.predicted_interval_ns
    assert low < 43.69e6 < high
