"""Steps on the device, on ranks whose truth is known by construction."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builder import RankBuilder
from trace_analyzer.analyses.host_steps import find_host_steps
from trace_analyzer.analyses.steps import BEFORE_FIRST, UNASSIGNED, DeviceSteps, device_steps
from trace_analyzer.model import Rank
from trace_analyzer.tables import HostCategory


def steps_of(rank: Rank, step_range: str | None = None) -> DeviceSteps:
    found = device_steps(rank, step_range)
    assert found is not None
    window = found.window_end_ns - found.window_start_ns
    assert found.head_ns + int(found.length_ns.sum()) + found.tail_ns == window
    assert found.end_ns.tolist()[:-1] == found.start_ns.tolist()[1:]
    return found


def three_steps(*, backlog: bool) -> RankBuilder:
    """Host steps at 0, 100, 200; each launches two kernels that end 30 ns into the next step."""
    builder = RankBuilder()
    builder.profiler_steps([0, 100, 200], 300, first=5)
    if backlog:
        builder.operation("k0", 2, 25)
    for start in (0, 100, 200):
        builder.operation("k1", start + 30, start + 60, launch=(start + 5, start + 10))
        builder.operation("k2", start + 90, start + 130, launch=(start + 15, start + 20))
    return builder


def test_backlog_starts_the_first_step() -> None:
    steps = steps_of(three_steps(backlog=True).build())
    assert steps.index.tolist() == [5, 6, 7]
    assert steps.start_ns.tolist() == [25, 130, 230]
    assert steps.end_ns.tolist() == [130, 230, 330]
    assert steps.operation_step.tolist() == [BEFORE_FIRST, 0, 0, 1, 1, 2, 2]
    assert (steps.head_ns, steps.tail_ns) == (23, 0)


def test_without_backlog_the_first_step_is_excluded() -> None:
    steps = steps_of(three_steps(backlog=False).build())
    assert steps.index.tolist() == [6, 7]
    assert [number for number, _ in steps.excluded] == [5]
    assert steps.operation_step.tolist() == [BEFORE_FIRST, BEFORE_FIRST, 0, 0, 1, 1]


def test_an_operation_launched_before_the_first_step_is_backlog() -> None:
    builder = three_steps(backlog=False)
    builder.operation("early", 1, 20, launch=(-10, -5))
    steps = steps_of(builder.build())
    assert steps.start_ns[0] == 20
    assert len(steps) == 3


def test_unlinked_operations_after_the_first_linked_one_belong_to_no_step() -> None:
    builder = three_steps(backlog=True)
    builder.operation("lost", 240, 400)
    steps = steps_of(builder.build())
    assert steps.operation_step.tolist()[-2:] != [2, 2]
    assert UNASSIGNED in steps.operation_step.tolist()
    assert steps.tail_ns == 400 - 330


def test_work_that_outlives_the_next_step_moves_its_boundary() -> None:
    builder = three_steps(backlog=True)
    builder.operation("long", 61, 250, launch=(21, 22), stream=8)
    steps = steps_of(builder.build())
    # Step 6 finishes nothing after step 5 does: it joins step 7.
    assert steps.index.tolist() == [5, 7]
    assert steps.end_ns.tolist() == [250, 330]
    assert [w.code for w in steps.warnings] == ["TRC010"]


def test_a_trailing_step_without_gpu_work_joins_the_previous_one() -> None:
    builder = three_steps(backlog=True)
    builder.event("ProfilerStep#8", 300, 400)
    steps = steps_of(builder.build())
    assert steps.index.tolist() == [5, 6, 7]
    assert "8" in steps.warnings[0].message


def test_a_truncated_trace_does_not_call_its_last_step_complete() -> None:
    rank = replace(three_steps(backlog=True).build(), truncated=True)
    steps = steps_of(rank)
    assert steps.index.tolist() == [5, 6]
    assert steps.excluded == ((7, "the trace is cut off inside it"),)
    assert steps.tail_ns == 100


def test_one_step_without_backlog_is_partial() -> None:
    builder = RankBuilder()
    builder.profiler_steps([0], 100)
    builder.operation("k", 40, 90, launch=(10, 20))
    steps = steps_of(builder.build())
    assert steps.partial
    assert (int(steps.start_ns[0]), int(steps.end_ns[0])) == (0, 90)
    assert steps.head_ns == -40


def test_launch_threads_do_not_matter() -> None:
    builder = three_steps(backlog=True)
    builder.operation("autograd", 131, 190, launch=(110, 112), thread=1, stream=9)
    assert steps_of(builder.build()).operation_step.tolist().count(1) == 3


def test_without_launches_host_time_stands_in() -> None:
    builder = RankBuilder()
    builder.profiler_steps([0, 100], 200)
    builder.operation("k", 10, 50)
    builder.operation("k", 110, 150)
    steps = steps_of(builder.build())
    assert steps.start_ns.tolist() == [10, 100]
    assert steps.end_ns.tolist() == [100, 150]
    assert steps.warnings[0].code == "TRC004"


def test_no_boundary_leaves_the_window_as_head() -> None:
    builder = RankBuilder()
    builder.operation("k", 10, 50, launch=(1, 2))
    steps = steps_of(builder.build())
    assert len(steps) == 0
    assert steps.head_ns == 40
    assert steps.warnings[0].code == "TRC010"


def test_no_gpu_operation_has_no_window() -> None:
    builder = RankBuilder()
    builder.profiler_steps([0, 100], 200)
    assert device_steps(builder.build()) is None


def ranges(builder: RankBuilder, name: str, *, inner: bool = True) -> None:
    for number, start in enumerate((0, 100, 200)):
        builder.event(f"{name} {number + 3}", start, start + 95)
        if inner:
            builder.event("forward", start + 2, start + 12)
            builder.event("backward", start + 13, start + 90)
        builder.operation("k", start + 30, start + 60, launch=(start + 5, start + 10))
        builder.operation("m", start + 90, start + 130, launch=(start + 15, start + 20))


def test_a_range_that_encloses_the_launches_is_found() -> None:
    builder = RankBuilder()
    ranges(builder, "train batch")
    host = find_host_steps(builder.build())
    assert host is not None
    assert host.basis == "range train batch #"
    assert host.index.tolist() == [3, 4, 5]


def test_a_range_can_be_named() -> None:
    builder = RankBuilder()
    ranges(builder, "train batch")
    host = find_host_steps(builder.build(), "backward")
    assert host is not None
    # It holds one of two launches a step, so that where the last step ends is not known.
    assert host.start_ns.tolist() == [13, 113]
    whole = find_host_steps(builder.build(), "train batch 3")
    assert whole is not None
    assert len(whole) == 3
    assert find_host_steps(builder.build(), "no such range") is None


def test_marks_of_2021_are_operators() -> None:
    builder = RankBuilder()
    for start in (0, 100):
        name = f"ProfilerStep#{start // 100}"
        builder.event(name, start, start + 100, category=HostCategory.OPERATOR)
    builder.operation("k", 30, 60, launch=(5, 10))
    host = find_host_steps(builder.build())
    assert host is not None
    assert host.basis == "ProfilerStep#N"


def test_optimizer_steps_cut_where_nothing_else_does() -> None:
    builder = RankBuilder()
    for start in (0, 100, 200):
        builder.operation("k", start + 30, start + 60, launch=(start + 5, start + 10))
        builder.event("Optimizer.step#SGD.step", start + 70, start + 80)
    host = find_host_steps(builder.build())
    assert host is not None
    assert host.basis == "Optimizer.step"
    assert host.start_ns.tolist() == [80, 180]


@pytest.mark.parametrize("layers", [1, 6])
def test_the_kernel_sequence_gives_steps(layers: int) -> None:
    builder = RankBuilder()
    at = 0
    for _ in range(4):
        for name in [*(["a", "b", "c", "a", "d"] * layers), *"efghijklm", "adam_kernel"]:
            builder.operation(name, at + 5, at + 9, launch=(at, at + 1))
            at += 10
    host = find_host_steps(builder.build())
    assert host is not None
    assert host.basis == "kernel sequence"
    period = 10 * (5 * layers + 10)
    assert set((host.end_ns - host.start_ns).tolist()) == {period}
    assert host.start_ns[0] % period == 0


def test_repeating_layers_between_other_kernels_are_no_steps() -> None:
    builder = RankBuilder()
    at = 0
    for name in ["embed", *(list("abcdefgh") * 12), "head", "sample"]:
        builder.operation(name, at + 5, at + 9, launch=(at, at + 1))
        at += 10
    assert find_host_steps(builder.build()) is None
