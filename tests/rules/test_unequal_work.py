"""RANK003: ranks that have more to compute than their peers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rules.loop import context_of, diagnosed, recoverable_ms
from tests.rules.ranks import COMPUTE, LATENCY, Ranks
from tests.rules.recorded import diagnosed_recording
from trace_analyzer.analyses.unequal_work import Work, compare, line_up
from trace_analyzer.model import Run
from trace_analyzer.rules import late_rank_device, slow_device
from trace_analyzer.rules.judge import diagnose
from trace_analyzer.rules.unequal_work import RULE
from trace_analyzer.tables import OperationKind

MB = 1_000_000
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"


def trained(world: int = 2, extra: int = 0, more: tuple[float, ...] = (), steps: int = 6) -> Run:
    """Return a run in which the last rank launches `extra` kernels of 100 µs.

    `more[step * world + rank]` is how much larger a rank's batch is in a step.
    """
    ranks = Ranks(world=world)
    for number in range(steps):
        ranks.step()
        for rank in range(world):
            larger = 1.0 + (more[number * world + rank] if more else 0.0)
            ranks.kernels(10, 200 * larger, "forward", rank, grid=round(1_000 * larger))
            if rank == world - 1:
                ranks.kernels(extra, 100, "metric", rank)
            ranks.kernels(10, 400 * larger, "backward", rank, grid=round(2_000 * larger))
        ranks.collective(8 * MB)
        ranks.join()
        ranks.kernels(2, 300, "adam")
    return ranks.run()


def test_kernels_of_one_rank_alone_are_taken_out() -> None:
    found = diagnosed(RULE, trained(extra=10))
    (finding,) = found.findings
    assert finding.kind == "fault"
    assert finding.ranks == [1]
    assert finding.title.startswith("Rank 1 computes 10 kernels a step that the peers do not")
    assert recoverable_ms(found) == pytest.approx(1.0, abs=0.05)


def test_a_larger_batch_on_one_rank_is_given_its_peers_durations() -> None:
    found = diagnosed(RULE, trained(world=3, more=(0.0, 0.0, 0.25) * 6))
    (finding,) = found.findings
    assert finding.ranks == [2]
    assert "25 % more blocks" in finding.title
    assert recoverable_ms(found) == pytest.approx(0.25 * 6.0, abs=0.1)


def with_memsets(kinds: tuple[int, ...]) -> Run:
    """Return a run whose last rank has a larger batch, for which a library clears workspaces.

    Its products keep the same launches, one block a multiprocessor, and take longer all the same.
    """
    ranks = Ranks()
    for _ in range(6):
        ranks.step()
        for rank, memsets in enumerate(kinds):
            larger = 1.25 if rank else 1.0
            for _ in range(20):
                ranks.kernels(1, 300 * larger, GEMM, rank, grid=132)
                ranks.kernels(1, 100 * larger, "relu", rank, grid=round(1_000 * larger))
            for _ in range(memsets):
                start = max(ranks.now[rank] + LATENCY, ranks.free[rank, COMPUTE])
                memset = OperationKind.MEMSET
                ranks.launch(rank, "Memset (Device)", start, start + 1_000, COMPUTE, kind=memset)
        ranks.collective(8 * MB)
        ranks.join()
        ranks.kernels(2, 300, "adam")
    return ranks.run()


def test_memory_that_is_set_more_often_does_not_keep_kernels_from_lining_up() -> None:
    found = diagnosed(RULE, with_memsets((0, 7)))
    assert recoverable_ms(found) == pytest.approx(0.25 * 20 * 0.4, abs=0.1)


def test_more_work_in_launches_that_look_alike_is_no_slow_gpu() -> None:
    rules = [late_rank_device.RULE, slow_device.RULE, RULE]
    found = diagnose(context_of(with_memsets((0, 7))), rules)
    assert [finding.code for finding in found.findings] == ["RANK003"]
    states = {check.code: check.state for check in found.checks}
    assert states["RANK002"] == "not-applicable"


def test_random_image_sizes_make_another_rank_last_every_step() -> None:
    # Symptom: two GPUs are hardly faster than one, loading takes equally long on both.
    more = tuple(np.random.default_rng(3).permuted(np.tile([[0.0, 0.5]], (12, 1)), axis=1).ravel())
    found = diagnosed(RULE, trained(more=more, steps=12))
    (finding,) = found.findings
    assert finding.ranks == [0, 1]
    assert "another rank has the largest" in finding.title
    # The larger of two batches takes 3 ms longer, their mean 1.5 ms.
    assert recoverable_ms(found) == pytest.approx(1.5, abs=0.2)


def test_equal_work_passes_even_where_one_rank_is_slower() -> None:
    ranks = Ranks()
    for _ in range(6):
        ranks.step()
        ranks.kernels(10, 200, "forward", 0)
        ranks.kernels(10, 300, "forward", 1)
        ranks.collective(8 * MB)
        ranks.join()
    found = diagnosed(RULE, ranks.run())
    assert not found.findings
    assert found.checks[0].state == "passed"


def test_stages_that_differ_by_design_are_not_compared() -> None:
    ranks = Ranks()
    for _ in range(6):
        ranks.step()
        ranks.kernels(20, 200, "encoder", 0)
        ranks.kernels(4, 200, "head", 1)
        ranks.collective(8 * MB)
        ranks.join()
    found = diagnosed(RULE, ranks.run())
    assert not found.findings
    assert found.checks[0].state == "not-applicable"


def test_kernels_are_lined_up_around_what_is_left_over() -> None:
    def work(names: list[int]) -> Work:
        count = len(names)
        return Work(
            row=np.arange(count) + 100,
            step=np.zeros(count, dtype=np.int64),
            name=np.array(names, dtype=np.int64),
            blocks=np.ones(count, dtype=np.int64),
        )

    one, other = work([1, 2, 3, 9, 9, 4, 5, 8, 6]), work([1, 2, 3, 4, 7, 6])
    found = compare(one, other)
    assert found.surplus.tolist() == [103, 104, 107]
    assert (found.missing, found.lined_up) == (0, 6)
    assert compare(other, one).missing == 3


def test_long_steps_are_lined_up_at_windows_that_both_have_equally_often() -> None:
    layer = [1, 2, 3, 4, 5, 2, 3, 6, 7, 8]
    long = np.array(layer * 500, dtype=np.int64)
    other = long.copy()
    own = np.insert(long, [1_234] * 5 + [3_456] * 7, [9] * 5 + [2] * 7)
    left, right = line_up(own, other)
    assert len(left) == len(right) == len(other)
    assert np.all(np.diff(left) > 0)
    assert np.mean(own[left] == other[right]) > 0.999
    surplus = np.setdiff1d(np.arange(len(own)), left)
    assert len(surplus) == 12
    assert set(own[surplus].tolist()) == {2, 9}


def test_recorded_healthy_run_lines_up() -> None:
    found = diagnosed_recording(RULE, "gpt-small-ddp.healthy_1.kineto")
    assert not found.findings
    assert found.checks[0].state == "passed"
