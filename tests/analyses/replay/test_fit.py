"""What is made of a known unprofiled step."""

from __future__ import annotations

import numpy as np
import pytest

from tests.traces import real_trace
from trace_analyzer.analyses.replay.fit import SLOWEST_UNSEEN_HOST, Fit, fitted
from trace_analyzer.analyses.replay.replay import Replay, replay
from trace_analyzer.analyses.study import study
from trace_analyzer.readers.discovery import open_run


@pytest.fixture(scope="module", params=["healthy", "slow_loader"])
def found(request: pytest.FixtureRequest) -> Replay:
    """Replay one run that the device decides, and one that the host does."""
    result = replay(study(open_run(str(real_trace(f"h200-ddp/{request.param}")))))
    assert isinstance(result, Replay)
    return result


@pytest.mark.parametrize("share", [0.7, 0.96, 1.001, 1.03, 1.1, 1.6])
def test_a_fit_never_leaves_the_base_farther_off(found: Replay, share: float) -> None:
    known_ns = share * found.predicted.median_ns
    fit = fitted(found.clean, known_ns)
    off = abs(found.clean.time(fit).median_ns / known_ns - 1.0)
    assert off <= abs(1.0 / share - 1.0) + 1e-9
    if found.bound == "device":
        assert fit.host <= SLOWEST_UNSEEN_HOST
        assert abs(fit.device - 1.0) <= 0.1
    elif share >= 0.96:
        assert off < 0.003


def test_factors_act_on_their_own_columns(found: Replay) -> None:
    plain, host, device = (
        found.clean.program(fit) for fit in (Fit(), Fit(host=2.0), Fit(device=2.0))
    )
    np.testing.assert_array_equal(host.node_gap_ns, 2 * plain.node_gap_ns)
    np.testing.assert_array_equal(host.op_base_ns, plain.op_base_ns)
    np.testing.assert_array_equal(device.op_base_ns, 2 * plain.op_base_ns)
    np.testing.assert_array_equal(device.node_cost_ns, plain.node_cost_ns)
    assert found.clean.program(Fit()) is plain
