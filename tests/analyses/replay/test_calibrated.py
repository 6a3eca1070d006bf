"""Costs of recording from loops on the host that was recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builder import RankBuilder, run_of
from trace_analyzer.analyses.replay.calibrated import STEP_TO_LOOP, calibrated, recording_costs
from trace_analyzer.analyses.replay.costs import DEFAULT_KINETO, DEFAULT_NSYS
from trace_analyzer.calibration_facts import NSYS, TORCH_PROFILER, Calibration, CallCost
from trace_analyzer.model import SourceKind

# As `collect` measured them on an H200 server, rank 0.
LOOPS = {
    "aten_op": (0.85, 1.0, 0.0),
    "aten_launch": (2.65, 1.0, 1.0),
    "autograd_node": (4.75, 4.0, 0.0),
    "annotation": (1.2, 1.0, 0.0),
    "runtime_call": (0.7, 0.0, 2.0),
}


def calibration(rank: int = 0, factor: float = 1.0, **changes: float) -> Calibration:
    """Return a calibration; `changes` replace what a loop's call costs, µs."""
    costs = [
        CallCost(
            name=name,
            calls=400,
            unprofiled_us=5.0,
            profiled_us=5.0 + changes.get(name, delta * factor),
            delta_us=changes.get(name, delta * factor),
            delta_interval_us=(0.0, 10.0),
            cpu_ops_per_call=operators,
            runtime_calls_per_call=calls,
        )
        for name, (delta, operators, calls) in LOOPS.items()
    ]
    return Calibration(rank=rank, recorder=TORCH_PROFILER, rounds=9, costs=tuple(costs))


def test_a_loop_is_taken_apart() -> None:
    costs = calibrated([calibration()])
    assert costs is not None
    assert costs.operator_ns == pytest.approx(STEP_TO_LOOP * 850)
    assert costs.launch_ns == pytest.approx(STEP_TO_LOOP * 1_800)
    assert costs.autograd_ns == pytest.approx(STEP_TO_LOOP * (4_750 - 3 * 850))
    assert costs.annotation_ns == pytest.approx(STEP_TO_LOOP * 1_200)
    assert costs.call_ns == pytest.approx(STEP_TO_LOOP * 350)
    assert costs.basis != DEFAULT_KINETO.basis


def test_ranks_count_alike() -> None:
    both = calibrated([calibration(0), calibration(1, factor=3.0)])
    assert both is not None
    assert both.operator_ns == pytest.approx(STEP_TO_LOOP * 2 * 850)


def test_noise_below_zero_costs_nothing() -> None:
    costs = calibrated([calibration(aten_op=-0.2, annotation=-1.0)])
    assert costs is not None
    assert (costs.operator_ns, costs.annotation_ns) == (0.0, 0.0)
    assert costs.launch_ns == pytest.approx(STEP_TO_LOOP * 2_650)


def test_what_cannot_be_is_not_taken() -> None:
    whole = calibration()
    assert calibrated([]) is None
    assert calibrated([replace(whole, costs=whole.costs[1:])]) is None
    assert calibrated([replace(whole, recorder=NSYS)]) is None
    assert calibrated([calibration(aten_launch=0.9)]) is None
    assert calibrated([calibration(aten_launch=90.0)]) is None


def test_runs_without_calibration_have_the_default() -> None:
    made = RankBuilder()
    made.event("ProfilerStep#0", 0, 10)
    rank = made.build()
    assert recording_costs(run_of(rank)) is DEFAULT_KINETO
    of_nsys = replace(rank, source=SourceKind.NSYS)
    assert recording_costs(run_of(of_nsys, calibration=(calibration(),))) is DEFAULT_NSYS
    costs = recording_costs(run_of(rank, calibration=(calibration(),)))
    assert costs == calibrated([calibration()])
