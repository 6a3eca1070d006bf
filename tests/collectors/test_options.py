from __future__ import annotations

import pytest

from trace_analyzer.collectors.options import Entry, Mode, Options, Schedule

SHORT = Schedule(skip=2, settle=1, unprofiled=4, warmup=2, active=3, after=5)


def rows(schedule: Schedule, mode: Mode) -> list[tuple[str, int, str]]:
    return [(item.phase, item.steps, item.entry.value) for item in schedule.segments(mode)]


def test_torch_times_steps_before_and_after_the_profiled_ones() -> None:
    assert rows(SHORT, Mode.TORCH) == [
        ("warmup", 2, "follow"),
        ("warmup", 1, "meet"),
        ("unprofiled", 4, "follow"),
        ("warmup", 2, "start"),
        ("profiled", 3, "follow"),
        ("warmup", 1, "stop"),
        ("unprofiled", 5, "follow"),
    ]
    assert SHORT.total_steps == 18


def test_nsys_times_no_unprofiled_step_in_its_own_process() -> None:
    assert all(item.phase != "unprofiled" for item in SHORT.segments(Mode.NSYS))
    assert rows(SHORT, Mode.NSYS)[-1] == ("warmup", 1, "stop")


def test_a_window_by_time_under_nsys_times_some_steps_before() -> None:
    schedule = Schedule(skip=2, settle=1, warmup=2, active=3, sample_seconds=1.0)
    assert rows(schedule, Mode.NSYS)[:3] == [
        ("warmup", 2, "follow"),
        ("warmup", 4, "meet"),
        ("warmup", 2, "start"),
    ]


def test_a_timing_run_times_as_many_steps_as_a_torch_recording() -> None:
    assert rows(SHORT, Mode.TIMER) == [
        ("warmup", 2, "follow"),
        ("warmup", 1, "meet"),
        ("unprofiled", 9, "follow"),
    ]


def test_the_capture_starts_and_stops_whatever_is_left_out() -> None:
    bare = Schedule(skip=0, settle=0, unprofiled=0, warmup=0, active=1, after=0)
    assert [item.entry for item in bare.segments(Mode.TORCH)] == [Entry.START, Entry.STOP]


@pytest.mark.parametrize(
    ("count", "message"),
    [
        ({"active": 0}, "active is 0; it must be 1 or more"),
        ({"skip": -1}, "skip is -1; it must be 0 or more"),
        ({"sample_seconds": 2.0, "unprofiled": 0}, "needs unprofiled steps"),
    ],
)
def test_counts_that_make_no_sense_are_refused(count: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule(**count)


def test_options_survive_the_way_into_a_rank() -> None:
    options = Options(folder="/data/bundle", mode=Mode.NSYS, schedule=SHORT, with_stack=True)
    assert Options.from_json(options.to_json()) == options


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"folder": "x"}', '{"mode": "later"}'])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Options.from_json(text)
