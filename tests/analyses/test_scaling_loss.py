"""Where a loss goes: the parts of a step, what a profiler stretches, and what is left over."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.builder import run_of
from tests.comparisons import GPT, GROUP, NCCL, Kernel, rank_of, studied
from tests.real_runs import studied as recorded
from trace_analyzer.analyses.scaling.loss import Loss, cut_to, loss
from trace_analyzer.analyses.scaling.parts import Parts, RunParts, run_parts
from trace_analyzer.analyses.study import study


def parts(**values: float) -> Parts:
    return Parts(**{item.name: 0.0 for item in fields(Parts)} | values)


def run(rank: int = 0, **values: float) -> RunParts:
    return RunParts(rank=rank, parts=parts(**values), contention_known=True, communicates=True)


def divided(base: RunParts, other: RunParts, base_ms: float, ms: float, divisor: float = 2) -> Loss:
    return loss(
        base, other, base_step_ms=base_ms, step_ms=ms, divisor=divisor, interval_ms=(0.1, 99.0)
    )


def terms(found: Loss) -> dict[str, float]:
    return {term.name: round(term.ms, 6) for term in found.terms}


def test_parts_of_a_rank_sum_to_its_step() -> None:
    found = run_parts(studied())
    assert found is not None
    item = next(iter(studied().ranks.values()))
    assert found.parts.step_ms == pytest.approx(item.parts.length_ns[item.steady].mean() / 1e6)
    assert found.parts.kernels == pytest.approx(1.47, abs=0.01)
    assert (found.communicates, found.parts.transfer) == (False, 0.0)


def test_the_rank_that_waits_least_stands_for_the_run() -> None:
    program = (*GPT, Kernel(NCCL, 300, 24, comm=True))
    patient = (*GPT, Kernel(NCCL, 900, 24, comm=True))
    ranks = [
        rank_of(patient, rank=0, world=2).build(),
        rank_of(program, rank=1, world=2, late_us=600).build(),
    ]
    found = run_parts(study(run_of(*ranks, world_size=2)))
    assert found is not None
    assert found.rank == 1
    assert found.parts.host == pytest.approx(0.6, abs=0.05)
    assert found.parts.wait == pytest.approx(0.0, abs=1e-9)
    assert found.parts.transfer == pytest.approx(0.3, abs=0.01)
    assert GROUP.size == 2


def test_terms_and_residual_sum_to_the_loss() -> None:
    found = divided(
        run(kernels=40.0, gaps=2.0),
        run(kernels=22.0, beside_transfer=0.5, transfer=2.0, gaps=1.5),
        42.0,
        26.4,
    )
    assert terms(found) == {
        "kernels": 2.0,
        "contention": 0.5,
        "exposed-transfer": 2.0,
        "gaps": 0.5,
    }
    assert found.residual_ms == pytest.approx(0.4)
    assert sum(terms(found).values()) + found.residual_ms == pytest.approx(26.4 - 21.0)
    assert found.explained is True


def test_weak_scaling_subtracts_the_whole_step_of_the_base() -> None:
    found = divided(run(kernels=20.0), run(kernels=20.5, transfer=3.0), 20.0, 23.5, divisor=1)
    assert terms(found) == {"kernels": 0.5, "exposed-transfer": 3.0}
    assert found.residual_ms == pytest.approx(0.0)


def test_a_large_residual_is_not_explained() -> None:
    found = divided(run(kernels=40.0), run(kernels=20.0, transfer=1.0), 40.0, 24.0)
    assert found.residual_ms == pytest.approx(3.0)
    assert found.explained is False


def test_a_negative_residual_counts_as_well() -> None:
    found = divided(run(kernels=40.0), run(kernels=24.0), 40.0, 22.0)
    assert found.residual_ms == pytest.approx(-2.0)
    assert found.explained is False


def test_a_loss_that_is_not_told_from_none_is_neither_explained_nor_not() -> None:
    found = loss(
        run(kernels=40.0),
        run(kernels=20.0),
        base_step_ms=40.0,
        step_ms=20.1,
        divisor=2,
        interval_ms=(-0.2, 0.4),
    )
    assert found.explained is None


def test_what_a_profiler_stretches_is_cut_to_the_room_of_the_timed_step() -> None:
    traced = parts(kernels=20.0, transfer=2.0, host=12.0, wait=6.0)
    cut = cut_to(traced, 25.0)
    assert (cut.kernels, cut.transfer) == (20.0, 2.0)
    assert (cut.host, cut.wait) == pytest.approx((2.0, 1.0))
    assert cut.step_ms == pytest.approx(25.0)


def test_waits_never_grow_and_never_go_below_zero() -> None:
    traced = parts(kernels=20.0, host=2.0, wait=1.0)
    assert cut_to(traced, 30.0) == traced
    assert cut_to(traced, 15.0).host == 0.0
    assert cut_to(traced, 15.0).kernels == 20.0
    still = parts(kernels=20.0, gaps=1.0)
    assert cut_to(still, 10.0) is still


def test_waiting_that_the_trace_does_not_show_is_left_over() -> None:
    """Room in the timed step is no proof of waiting: without it in the trace it is not explained."""
    found = divided(run(kernels=40.0), run(kernels=20.0, host=0.5), 40.0, 30.0)
    assert terms(found) == {"kernels": 0.0, "host": 0.5}
    assert found.residual_ms == pytest.approx(9.5)
    assert found.explained is False


def test_communication_that_is_not_told_apart_has_its_own_term() -> None:
    found = divided(run(kernels=40.0), run(kernels=20.0, unsplit=3.0), 40.0, 23.0)
    assert terms(found) == {"kernels": 0.0, "exposed-communication": 3.0}


@pytest.mark.parametrize(
    ("name", "largest", "least"),
    [
        ("healthy", "kernels", 1.4),
        ("nccl_1ch", "exposed-transfer", 22.0),
        ("slow_cpu_rank", "host", 6.5),
        ("slow_loader", "host", 16.0),
    ],
)
def test_the_largest_term_of_recorded_runs_is_what_was_done_to_them(
    name: str, largest: str, least: float
) -> None:
    steps = {"healthy": 25.735, "nccl_1ch": 48.228, "slow_cpu_rank": 34.26, "slow_loader": 43.69}
    base, other = (run_parts(recorded(f"h200-ddp/{run}")) for run in ("t1", name))
    assert base is not None
    assert other is not None
    found = divided(base, other, 43.311, steps[name])
    by_name = terms(found)
    assert max(by_name, key=lambda term: by_name[term]) == largest
    assert by_name[largest] >= least
    total = steps[name] - 43.311 / 2
    assert sum(by_name.values()) + found.residual_ms == pytest.approx(total, abs=1e-5)
    assert found.explained is True
