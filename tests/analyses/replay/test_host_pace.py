"""How slow a thread was at a moment, and when it had no core."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builder import RankBuilder
from trace_analyzer.analyses.replay.descheduled import descheduled_ns
from trace_analyzer.analyses.replay.host import NO_CALL, host_sequence
from trace_analyzer.analyses.replay.slowness import node_slowness
from trace_analyzer.tables import HostCategory

STEP_NS, STEPS, LAUNCHES = 10_000_000, 3, 20
USUAL_LAUNCH_NS, USUAL_EMPTY_NS = 5_200, 3_700


def paced(pace: list[list[float]], empty: bool = True) -> RankBuilder:
    """Make a rank whose thread `t` works `pace[t][k]` times as long as usual in step k."""
    made = RankBuilder()
    for step in range(STEPS):
        made.event(f"ProfilerStep#{step}", step * STEP_NS, (step + 1) * STEP_NS)
        for thread, paces in enumerate(pace):
            for number in range(LAUNCHES):
                at = step * STEP_NS + thread * STEP_NS // 2 + number * 100_000 + 1_000
                length = round(USUAL_LAUNCH_NS * paces[step] ** (1 / 1.5))
                made.operation("gemm", at, at + 50_000, launch=(at, at + length), thread=thread)
                if empty:
                    at += 50_000
                    end = at + round(USUAL_EMPTY_NS * paces[step])
                    kind = HostCategory.OPERATOR
                    made.event("aten::empty", at, end, category=kind, thread=thread)
    return made


def slowness_of(made: RankBuilder) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return slowness, thread and step of every call's node."""
    rank = made.build()
    marks = np.arange(STEPS, dtype=np.int64) * STEP_NS
    host = host_sequence(rank, marks, STEPS * STEP_NS)
    found = node_slowness(rank, host)
    assert len(found) == len(host)
    calls = host.call != NO_CALL
    return found[calls], rank.calls.thread[host.call[calls]], host.start_ns[calls] // STEP_NS


@pytest.mark.parametrize("empty", [True, False])
def test_threads_and_steps_have_their_own_pace(empty: bool) -> None:
    pace = [[1.0, 1.6, 0.7], [0.6, 0.6, 1.3]]
    found, thread, step = slowness_of(paced(pace, empty))
    np.testing.assert_allclose(found, np.array(pace)[thread, step], rtol=0.01)


def test_a_mark_goes_at_the_pace_of_what_follows() -> None:
    rank = paced([[1.0, 1.6, 0.7]]).build()
    marks = np.arange(STEPS, dtype=np.int64) * STEP_NS
    host = host_sequence(rank, marks, STEPS * STEP_NS)
    found = node_slowness(rank, host)[host.call == NO_CALL]
    np.testing.assert_allclose(found, [1.0, 1.6, 0.7, 0.7], rtol=0.01)


def test_a_step_with_few_launches_counts_as_its_thread_does() -> None:
    made = paced([[1.2, 1.2, 1.2]], empty=False)
    at = STEP_NS // 4 * 3
    made.operation("gemm", at, at + 10, launch=(at, at + 900_000), thread=1)
    made.operation(
        "gemm", at + 10**6, at + 10**6 + 10, launch=(at + 10**6, at + 10**6 + 9), thread=1
    )
    found, thread, _ = slowness_of(made)
    np.testing.assert_allclose(found[thread == 1], found[thread == 0][0], rtol=0.02)


@pytest.mark.parametrize("pace", [0.2, 9.0])
def test_another_recorder_tells_no_pace(pace: float) -> None:
    found, _, _ = slowness_of(paced([[pace] * STEPS]))
    np.testing.assert_array_equal(found, 1.0)


def test_nothing_to_tell_a_pace() -> None:
    made = RankBuilder()
    made.event("ProfilerStep#0", 0, STEP_NS * STEPS)
    made.call("cudaMemsetAsync", 10, 20)
    rank = made.build()
    host = host_sequence(rank, np.array([0], dtype=np.int64), STEP_NS)
    np.testing.assert_array_equal(node_slowness(rank, host), 1.0)


def gaps_of(steps: int, nodes: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Return gaps of 10 µs, and steps, of `nodes` nodes a step and the one that closes the window."""
    gap = np.full(steps * nodes + 1, 10_000, dtype=np.int64)
    step = np.append(np.repeat(np.arange(steps), nodes), steps - 1).astype(np.int32)
    return gap, step


def test_gaps_here_and_there_are_waits_for_a_core() -> None:
    gap, step = gaps_of(4)
    late = np.array([3, 7, 20, 34, 42, 55, 61, 79, 85, 98, 104, 113])
    gap[late] += 3_000_000
    gap[step == 2] += 1_000
    found = descheduled_ns(gap, step, 4)
    assert np.flatnonzero(found).tolist() == late.tolist()
    np.testing.assert_allclose(found[late], 3_000_000, atol=1_000)


def test_work_that_every_step_does_is_no_wait() -> None:
    gap, step = gaps_of(4)
    for place in (3, 9, 15, 21):
        gap[np.arange(4) * 30 + place] = 5_000_000
    assert not descheduled_ns(gap, step, 4).any()


def test_a_pause_of_the_program_is_no_wait_for_a_core() -> None:
    gap, step = gaps_of(4)
    gap[[40, 100]] = 80_000_000
    assert not descheduled_ns(gap, step, 4).any()


def test_steps_that_differ_are_not_compared() -> None:
    gap, step = gaps_of(2)
    gap[[3, 7, 20, 34, 42, 55]] = 5_000_000
    assert not descheduled_ns(gap, step, 2).any()
    assert not descheduled_ns(gap[:1], step[:1], 1).any()
