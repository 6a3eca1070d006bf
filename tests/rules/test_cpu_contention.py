"""HOST007: threads that are taken off their cores."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rules.loop import Loop, diagnosed, recoverable_ms, single
from trace_analyzer.model import Run
from trace_analyzer.rules import host_pause
from trace_analyzer.rules.cpu_contention import RULE


def test_interruptions_anywhere_in_a_step() -> None:
    dice = np.random.default_rng(7)

    def body(loop: Loop, _: int) -> None:
        hit = set(dice.choice(60, 6, replace=False).tolist())
        for number in range(60):
            loop.silent(3_000 if number in hit and number % 2 else 5)
            loop.launch("gemm", 25, host_us=3_000 if number in hit and not number % 2 else 10)

    run = single(body)
    found = diagnosed(RULE, run)
    (finding,) = found.findings
    # Six times 3 ms a step go; the kernels take 1.5 ms.
    assert recoverable_ms(found) == pytest.approx(17, abs=1.5)
    assert "taken off their cores on rank 0" in finding.title
    assert not diagnosed(host_pause.RULE, run).findings


def with_long_gaps(count: int) -> Run:
    """Return a run of which each step has so many gaps of 4 ms among 60, at other places."""
    dice = np.random.default_rng(5)

    def body(loop: Loop, _: int) -> None:
        hit = set(dice.choice(60, count, replace=False).tolist())
        for number in range(60):
            loop.silent(4_000 if number in hit else 40)
            loop.launch("gemm", 25, host_us=10)

    return single(body)


def test_gaps_that_are_longer_at_other_places_of_every_step() -> None:
    # Operators between calls are interrupted, calls are not: they take a small part of the time.
    run = with_long_gaps(5)
    found = diagnosed(RULE, run)
    (finding,) = found.findings
    # Five times 4 ms a step go, less what the profiler takes of them.
    assert recoverable_ms(found) == pytest.approx(19, abs=2.0)
    assert "gaps a step between calls are longer by 0.5 ms" in finding.proof
    assert not diagnosed(host_pause.RULE, run).findings


def test_two_long_gaps_a_step_are_no_shared_core() -> None:
    assert not diagnosed(RULE, with_long_gaps(2)).findings


def test_pauses_between_calls_only_are_the_programs_own() -> None:
    def body(loop: Loop, _: int) -> None:
        loop.launches(30, 25)
        loop.silent(6_000)
        loop.launches(30, 25)

    run = single(body)
    assert not diagnosed(RULE, run).findings
    assert diagnosed(host_pause.RULE, run).findings


def test_calls_at_a_full_queue_wait_for_the_gpu() -> None:
    def body(loop: Loop, _: int) -> None:
        for number in range(30):
            loop.launch("gemm", 500, host_us=10 if number % 5 else 400)

    assert not diagnosed(RULE, single(body)).findings
