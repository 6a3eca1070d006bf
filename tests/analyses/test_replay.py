"""The simulator on programs whose course is known, and replays of recorded runs by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.traces import real_trace
from trace_analyzer.analyses.replay.build import Built, build_program
from trace_analyzer.analyses.replay.program import (
    COMM,
    MATRIX,
    NONE,
    OTHER,
    Execution,
    Program,
    completions_ns,
)
from trace_analyzer.analyses.replay.replay import Replay, replay
from trace_analyzer.analyses.replay.simulate import ReplayError, simulate
from trace_analyzer.analyses.replay.steady_state import step_time_ns
from trace_analyzer.analyses.study import study
from trace_analyzer.readers.discovery import open_run
from trace_analyzer.tables import WorkClass


def program(
    nodes: list[list[tuple[int, int, list[int]]]],
    operations: list[dict[str, Any]],
    transfers: tuple[int, ...] = (),
    alpha: tuple[float, float] = (0.0, 0.0),
) -> Program:
    """Make a program: `nodes[rank]` holds (gap, cost, operations waited for)."""
    flat = [node for rank in nodes for node in rank]

    def column(name: str, default: int) -> np.ndarray[Any, Any]:
        return np.array([op.get(name, default) for op in operations], dtype=np.int64)

    deps = [op.get("deps", []) for op in operations]
    collective = column("collective", NONE)
    return Program(
        ranks=tuple(range(len(nodes))),
        node_first=np.cumsum([0, *[len(rank) for rank in nodes]]).astype(np.int64),
        node_gap_ns=np.array([node[0] for node in flat], dtype=np.int64),
        node_cost_ns=np.array([node[1] for node in flat], dtype=np.int64),
        node_step=np.array(
            [0 if k == 0 else NONE for rank in nodes for k in range(len(rank))], dtype=np.int32
        ),
        node_queue=np.full(len(flat), NONE, dtype=np.int32),
        wait_first=np.cumsum([0, *[len(node[2]) for node in flat]]).astype(np.int64),
        wait_operation=np.array([op for node in flat for op in node[2]], dtype=np.int32),
        op_rank=column("rank", 0).astype(np.int32),
        op_node=column("node", NONE).astype(np.int32),
        op_fixed_ns=column("fixed", 0),
        op_stream=column("stream", 0).astype(np.int32),
        op_class=column("kind", OTHER).astype(np.int8),
        op_base_ns=column("base", 0),
        op_latency_ns=column("latency", 0),
        op_gap_ns=column("gap", 0),
        op_collective=collective.astype(np.int32),
        op_end_offset_ns=column("offset", 0),
        dep_first=np.cumsum([0, *[len(item) for item in deps]]).astype(np.int64),
        dep_operation=np.array([op for item in deps for op in item], dtype=np.int32),
        collective_size=np.array(
            [int(np.sum(collective == k)) for k in range(len(transfers))], dtype=np.int32
        ),
        collective_transfer_ns=np.array(transfers, dtype=np.int64),
        alpha=np.array([*alpha, 0.0, 0.0]),
        steps=(0,),
    )


def test_launches_run_in_stream_order() -> None:
    done = simulate(
        program(
            [[(0, 10, []), (5, 10, [])]],
            [
                {"node": 0, "base": 100, "latency": 7},
                {"node": 1, "base": 20, "latency": 7, "gap": 2},
            ],
        )
    )
    assert done.node_end_ns.tolist() == [10, 25]
    assert done.op_start_ns.tolist() == [7, 109]
    assert done.op_end_ns.tolist() == [107, 129]


def test_a_host_that_waits_goes_on_after_the_operation() -> None:
    done = simulate(program([[(0, 10, []), (5, 3, [0]), (1, 1, [])]], [{"node": 0, "base": 100}]))
    assert done.node_start_ns.tolist() == [0, 15, 104]
    assert done.node_end_ns.tolist() == [10, 103, 105]


def test_streams_wait_for_their_dependencies() -> None:
    done = simulate(
        program(
            [[(0, 10, []), (0, 10, [])]],
            [
                {"node": 0, "base": 100, "stream": 0},
                {"node": 1, "base": 5, "stream": 1, "deps": [0], "gap": 3},
            ],
        )
    )
    assert done.op_start_ns.tolist() == [0, 103]


def test_a_collective_moves_from_its_last_arrival() -> None:
    done = simulate(
        program(
            [[(0, 10, [])], [(500, 10, [])]],
            [
                {"node": 0, "kind": COMM, "collective": 0, "rank": 0, "stream": 0, "offset": -4},
                {"node": 1, "kind": COMM, "collective": 0, "rank": 1, "stream": 1},
            ],
            transfers=(60,),
        )
    )
    assert done.op_start_ns.tolist() == [0, 500]
    assert done.op_end_ns.tolist() == [556, 560]


def test_kernels_are_slowed_while_communication_is_resident() -> None:
    """100 ns of work: 40 alone, then at half rate until the transfer ends, then alone again."""
    done = simulate(
        program(
            [[(0, 40, []), (0, 1, [])], [(60, 1, [])]],
            [
                {"node": 0, "base": 100, "kind": MATRIX, "stream": 0},
                {"node": 1, "kind": COMM, "collective": 0, "stream": 1},
                {"node": 2, "kind": COMM, "collective": 0, "rank": 1, "stream": 2},
            ],
            transfers=(20,),
            alpha=(1.0, 0.0),
        )
    )
    # Resident from 40 to 80: 20 ns of work are done there, so 40 are left at 80.
    assert done.op_end_ns.tolist() == [120, 80, 80]


def test_a_missing_launch_is_an_error() -> None:
    broken = program(
        [[(0, 10, [1])]], [{"node": 0, "base": 1}, {"node": 0, "base": 1, "deps": [1]}]
    )
    with pytest.raises(ReplayError, match="waiting for each other"):
        simulate(broken)


def test_backlog_starts_when_it_did() -> None:
    done = simulate(
        program([[(100, 5, [])]], [{"fixed": 30, "base": 200}, {"node": 0, "base": 10, "gap": 1}])
    )
    assert done.op_start_ns.tolist() == [30, 231]


def test_a_full_queue_holds_the_host() -> None:
    made = program(
        [[(0, 1, []), (0, 1, [])]],
        [{"node": 0, "base": 10, "latency": 50}, {"node": 1, "base": 10}],
    )
    made = replace(made, node_queue=np.array([NONE, 0], dtype=np.int32))
    assert simulate(made).node_end_ns.tolist() == [1, 51]


def built_of(name: str) -> Built:
    results = study(open_run(str(real_trace(name))))
    return build_program(
        {number: (item.rank, item.steps, item.busy) for number, item in results.ranks.items()},
        results.cross,
        results.contention,
        tuple(next(iter(results.ranks.values())).steps.index.tolist()),
    )


@pytest.mark.parametrize(
    "run",
    [
        "h200-ddp/healthy",
        "h200-ddp/slow_loader",
        "h200-ddp/item_sync",
        "h200-ddp/t1",
        "h200-ddp-nsys/nccl_1ch.sqlite",
    ],
)
def test_a_run_replays_itself(run: str) -> None:
    """Completions of steps are those recorded, within 0.2 % of the step (a percent is the bar)."""
    built = built_of(run)
    done = simulate(built.program)
    seen = Execution(
        node_start_ns=done.node_start_ns,
        node_end_ns=done.node_end_ns,
        op_start_ns=built.op_start_ns,
        op_end_ns=built.op_end_ns,
    )
    replayed = np.diff(completions_ns(built.program, done), axis=1)
    recorded = np.diff(completions_ns(built.program, seen), axis=1)
    assert np.max(np.abs(replayed / recorded - 1)) < 0.002
    assert (built.violated, built.unmatched) == (0, 0)


@pytest.mark.parametrize(
    ("run", "unprofiled_ms", "error"),
    [("healthy", 25.735, 0.01), ("nccl_1ch", 48.23, 0.01), ("item_sync", 29.10, 0.05)],
)
def test_the_unprofiled_step_is_predicted(run: str, unprofiled_ms: float, error: float) -> None:
    """Without the profiler's costs, steps take what they took unprofiled (these set the default)."""
    results = study(open_run(str(real_trace(f"h200-ddp/{run}"))))
    replayed = replay(results)
    assert isinstance(replayed, Replay)
    predicted = replayed.predicted.median_ns / 1e6
    assert abs(predicted / unprofiled_ms - 1) < error


def test_repeating_a_program_keeps_its_steady_step() -> None:
    """One host task of 50 and a kernel of 80 a step: the kernel sets the pace."""
    made = program(
        [[(0, 0, []), (10, 40, []), (0, 0, [])]], [{"node": 1, "base": 80, "latency": 3, "gap": 2}]
    )
    assert step_time_ns(made) == 82
    faster = replace(made, op_base_ns=np.array([30], dtype=np.int64))
    assert step_time_ns(faster) == 50
    waiting = program([[(0, 0, []), (10, 40, []), (0, 5, [0])]], [{"node": 1, "base": 80}])
    assert step_time_ns(waiting) == 10 + 80 + 5


@pytest.fixture(scope="module")
def healthy() -> Replay:
    """Return the replay of a healthy run of two ranks."""
    replayed = replay(study(open_run(str(real_trace("h200-ddp/healthy")))))
    assert isinstance(replayed, Replay)
    return replayed


def test_no_edit_gives_exactly_nothing(healthy: Replay) -> None:
    gain = healthy.gain(healthy.edit())
    assert (gain.gain_ns, gain.interval_ns) == (0.0, (0.0, 0.0))
    assert gain.left_ns == healthy.time.median_ns


def test_an_edit_leaves_the_base_alone(healthy: Replay) -> None:
    before = healthy.base.node_gap_ns.copy()
    edit = healthy.edit()
    edit.all_host(0, 10.0)
    assert healthy.gain(edit).gain_ns < -healthy.time.median_ns
    assert np.array_equal(healthy.base.node_gap_ns, before)


def test_removing_all_communication_leaves_the_compute(healthy: Replay) -> None:
    edit = healthy.edit()
    for number, rank in healthy.ranks.items():
        edit.remove(number, np.flatnonzero(rank.operations.work == WorkClass.COMM))
    assert 0 < healthy.gain(edit).gain_ns < 0.2 * healthy.time.median_ns


def test_the_profiler_makes_a_late_rank_that_does_not_exist(healthy: Replay) -> None:
    assert max(swap.host_ns for swap in healthy.swaps.values()) < 0.01 * healthy.time.median_ns


def test_a_late_rank_that_exists_stays() -> None:
    slow = replay(study(open_run(str(real_trace("h200-ddp/slow_cpu_rank")))), 34.26e6)
    assert isinstance(slow, Replay)
    assert slow.time.median_ns == pytest.approx(34.26e6, rel=0.002)
    assert slow.swaps[1].host_ns == pytest.approx(8.53e6, rel=0.2)
    assert slow.swaps[0].host_ns < 0.01 * slow.time.median_ns


def test_a_known_step_below_what_any_host_allows_is_the_devices() -> None:
    """The host is predicted to decide; the known step is shorter than its GPU's work was."""
    slow = study(open_run(str(real_trace("h200-ddp/slow_cpu_rank"))))
    free = replay(slow)
    assert isinstance(free, Replay)
    edit = free.edit()
    for number in free.ranks:
        edit.all_host(number, 0.25)
    floor_ns = free.gain(edit).left_ns
    assert free.bound != "device"
    told = replay(slow, 0.98 * floor_ns)
    assert isinstance(told, Replay)
    assert told.bound == "device"
    assert told.time.median_ns == pytest.approx(0.98 * floor_ns, rel=0.004)
    pauses = told.edit()
    for number in told.ranks:
        pauses.all_host(number, 0.5)
    assert told.gain(pauses).gain_ns < 0.01 * floor_ns


def test_a_gain_that_a_faster_host_would_not_have_is_unsure(healthy: Replay) -> None:
    """The GPU decides this step: what only the host gains is nothing, with an interval from 0."""
    gain = healthy.gain_of(lambda edit: edit.all_host(1, 0.5))
    assert gain.gain_ns == pytest.approx(0.0, abs=0.002 * healthy.time.median_ns)
    assert gain.interval_ns[0] <= 0.0
    none = healthy.gain_of(lambda _: None)
    assert (none.gain_ns, none.interval_ns) == (0.0, (0.0, 0.0))
