from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from trace_analyzer.collectors import clocks, scalars, timer  # noqa: E402
from trace_analyzer.collectors.lines import LineFile  # noqa: E402

pytestmark = pytest.mark.torch


class ScriptedClock:
    """A device clock under the test's control: time is set, marks pass when the test says so."""

    name = "cuda-event"
    memory_s = 0.0

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.device_ms = -1.0  # marks up to here are passed
        self.waited = 0
        self.taken = 0
        self.prepared = 0
        self.asked = 0
        self.released: list[object] = []

    def prepare(self, marks: int) -> None:
        self.prepared = max(self.prepared, marks)

    def mark(self) -> object:
        self.taken += 1
        return (self.taken, self.now_ms)

    def passed(self, mark: Any) -> bool:
        return bool(mark[1] <= self.device_ms)

    def wait(self, mark: Any) -> None:
        self.waited += 1
        self.device_ms = max(self.device_ms, mark[1])

    def elapsed_ms(self, begin: Any, end: Any) -> float:
        assert begin not in self.released
        assert end not in self.released
        return float(end[1] - begin[1])

    def release(self, mark: object) -> None:
        assert mark not in self.released, "a mark was given back twice"
        self.released.append(mark)

    def memory(self, *, reset_peak: bool) -> clocks.Memory | None:
        self.asked += 1
        time.sleep(self.memory_s)
        return clocks.Memory(100, 200)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ScriptedClock:
    scripted = ScriptedClock()
    monkeypatch.setattr(timer, "open_clock", lambda device: scripted)
    return scripted


def run_step(steps: timer.StepTimer, clock: ScriptedClock, phase: str = "unprofiled") -> None:
    steps.begin_step(phase)
    for part, lasts_ms in (("data", 1.0), ("forward", 4.0), ("backward", 8.0), ("optimizer", 2.0)):
        clock.now_ms += lasts_ms
        steps.mark(part)
    steps.end_step()
    clock.now_ms += 5.0  # outside of the step, but before the next one begins


def test_step_lasts_from_begin_to_next_begin(clock: ScriptedClock) -> None:
    steps = timer.StepTimer(rank=0)
    for _ in range(3):
        run_step(steps, clock)
    records = steps.drain(final=True)
    assert [record["step_ms"] for record in records] == [20.0, 20.0, 15.0]
    assert [record["closed_by"] for record in records] == ["next", "next", "end"]
    assert [record["index"] for record in records] == [0, 1, 2]
    assert records[0]["data_ms"] == 1.0
    assert records[0]["forward_ms"] == 4.0
    assert records[0]["backward_ms"] == 8.0
    assert records[0]["optimizer_ms"] == 2.0
    assert records[0]["memory_peak_bytes"] == 200


def test_change_of_phase_and_break_close_by_the_end_mark(clock: ScriptedClock) -> None:
    steps = timer.StepTimer(rank=0)
    run_step(steps, clock, "unprofiled")
    run_step(steps, clock, "profiled")
    steps.break_sequence()
    run_step(steps, clock, "profiled")
    records = steps.drain(final=True)
    assert [record["step_ms"] for record in records] == [15.0, 15.0, 15.0]
    assert [record["phase"] for record in records] == ["unprofiled", "profiled", "profiled"]


def test_begin_without_end_shares_one_mark(clock: ScriptedClock) -> None:
    steps = timer.StepTimer(rank=0)
    for phase in ("unprofiled", "unprofiled", "profiled", "profiled"):
        steps.begin_step(phase)
        clock.now_ms += 10.0
    records = steps.drain(final=True)
    assert [record["step_ms"] for record in records] == [10.0] * 4
    assert clock.taken == 5


def test_drain_does_not_wait_unless_final(clock: ScriptedClock) -> None:
    steps = timer.StepTimer(rank=0)
    for _ in range(4):
        run_step(steps, clock)
    assert steps.drain() == []
    clock.device_ms = 40.0  # the second step's closing mark
    assert [record["index"] for record in steps.drain()] == [0, 1]
    assert clock.waited == 0
    assert [record["index"] for record in steps.drain(final=True)] == [2, 3]
    assert clock.waited == 2


def test_every_mark_is_given_back_once(clock: ScriptedClock) -> None:
    steps = timer.StepTimer(rank=0)
    for _ in range(5):
        run_step(steps, clock)
    steps.close()
    assert len(clock.released) == clock.taken


def test_parts_of_one_name_add_up(clock: ScriptedClock) -> None:
    steps = timer.StepTimer(rank=0)
    steps.begin_step()
    for _ in range(3):
        clock.now_ms += 2.0
        steps.mark("forward")
        clock.now_ms += 3.0
        steps.mark("backward")
    record = steps.drain(final=True)[0]
    assert (record["forward_ms"], record["backward_ms"]) == (6.0, 9.0)
    assert record["step_ms"] == 15.0


def test_a_part_that_ends_with_its_step_shares_the_mark(clock: ScriptedClock) -> None:
    steps = timer.StepTimer(rank=0)
    steps.begin_step()
    for _ in range(3):
        clock.now_ms += 2.0
        steps.mark("other", on_device=False)
        clock.now_ms += 5.0
        steps.mark("backward")
        clock.now_ms += 3.0
        steps.begin_step(ended="optimizer")
    steps.break_sequence(ended="optimizer")
    records = steps.drain(final=True)
    assert [record["step_ms"] for record in records] == [10.0, 10.0, 10.0, 0.0]
    assert [record["optimizer_ms"] for record in records] == [3.0, 3.0, 3.0, 0.0]
    assert records[0]["backward_ms"] == 7.0  # with what was marked on the host alone
    assert "other_ms" not in records[0]
    assert "other_host_ms" in records[0]
    assert clock.taken == 1 + 3 * 2 + 1
    assert len(clock.released) == clock.taken


def test_parts_of_some_steps_are_marked_and_all_steps_are_timed(clock: ScriptedClock) -> None:
    steps = timer.StepTimer(rank=0, parts_every=4)
    for phase in ["unprofiled"] * 22 + ["profiled"] * 3 + ["unprofiled"] * 4:
        steps.begin_step(phase, ended="optimizer")
        clock.now_ms += 2.0
        steps.mark("forward")
        assert steps.marks_parts is (steps._open is not None and bool(steps._open.parts))
        clock.now_ms += 3.0
    steps.end_step(ended="optimizer")
    records = steps.drain(final=True)
    with_parts = [record["index"] for record in records if "forward_ms" in record]
    # The first two of a phase, then one of each four, a place further each time; all profiled ones.
    assert with_parts == [0, 1, 5, 10, 15, 16, 21, 22, 23, 24, 25, 26]
    assert all("optimizer_ms" in records[index] for index in with_parts)
    assert sum("optimizer_ms" in record for record in records) == len(with_parts)
    assert {record["step_ms"] for record in records} == {5.0}
    assert clock.taken == len(records) + 1 + len(with_parts)
    assert len(clock.released) == clock.taken


def test_misuse_is_refused(clock: ScriptedClock) -> None:
    steps = timer.StepTimer(rank=0)
    with pytest.raises(RuntimeError, match="outside a step"):
        steps.mark("data")
    with pytest.raises(RuntimeError, match="without begin_step"):
        steps.end_step()
    with pytest.raises(ValueError, match="phase must be one of"):
        steps.begin_step("measured")
    with pytest.raises(ValueError, match="parts_every is 0"):
        timer.StepTimer(rank=0, parts_every=0)


def test_host_clock_file(tmp_path: Path) -> None:
    path = tmp_path / "steps_rank3.jsonl"
    with timer.StepTimer(rank=3, world_size=4, path=path) as steps:
        for _ in steps.steps(range(3)):
            time.sleep(0.01)
            steps.mark("forward")
    header, *records = [json.loads(line) for line in path.read_text().splitlines()]
    assert header["kind"] == "header"
    assert header["schema_version"] == 1
    assert (header["rank"], header["world_size"], header["pid"]) == (3, 4, os.getpid())
    assert header["clock"] == "host"
    assert header["parts_every"] == 1
    assert header["torch"] == str(torch.__version__)
    assert [record["index"] for record in records] == [0, 1, 2]
    assert all(record["forward_ms"] >= 10.0 for record in records)
    assert all(record["step_ms"] == pytest.approx(record["host_ms"], abs=0.5) for record in records)
    assert "memory_allocated_bytes" not in records[0]


def test_failed_step_is_left_out_and_the_rest_kept(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"

    def train() -> None:
        with timer.StepTimer(rank=0, path=path) as steps:
            for number in steps.steps(range(5)):
                1 / (2 - number)

    with pytest.raises(ZeroDivisionError):
        train()
    assert len(path.read_text().splitlines()) == 1 + 2


def test_exclusive_file_is_not_shared(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    timer.StepTimer(rank=0, path=path, exclusive=True).close()
    with pytest.raises(FileExistsError):
        timer.StepTimer(rank=0, path=path, exclusive=True)


def test_full_disk_is_said_once_and_training_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    lines = LineFile(Path("/dev/full"))
    for number in range(200):
        lines.write({"index": number})
    lines.close()
    assert lines.problem == "/dev/full: No space left on device"
    assert capfd.readouterr().err.splitlines() == [
        "trace-analyzer: /dev/full: No space left on device; lines are kept until there is space",
        "trace-analyzer: /dev/full: No space left on device; 200 lines are lost",
    ]


def test_lines_are_whole_once_there_is_space_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, free = os.write, [20]

    def nearly_full(descriptor: int, data: bytes) -> int:
        if not free[0]:
            raise OSError(28, "No space left on device")
        free[0] -= (took := min(free[0], len(data)))
        return write(descriptor, data[:took])

    path = tmp_path / "lines.jsonl"
    lines = LineFile(path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", nearly_full)
        for number in range(70):
            lines.write({"index": number})
        lines.flush()
        assert path.stat().st_size == 20
    lines.close()
    assert [json.loads(line)["index"] for line in path.read_text().splitlines()] == list(range(70))


def test_what_cannot_be_kept_is_given_up(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("trace_analyzer.collectors.lines.MOST_UNWRITTEN_BYTES", 1000)
    lines = LineFile(Path("/dev/full"))
    for number in range(1000):
        lines.write({"index": number})
    lines.close()
    assert capfd.readouterr().err.splitlines()[-1].endswith("; 128 lines are lost")


def test_forked_child_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    lines = LineFile(path)
    lines.write({"from": "parent"})
    child = os.fork()
    if child == 0:
        lines.close()
        os._exit(0)
    os.waitpid(child, 0)
    lines.close()
    assert path.read_text() == '{"from":"parent"}\n'


def test_asking_for_cuda_without_cuda_is_said() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(RuntimeError, match="finds no CUDA device"):
        timer.StepTimer(rank=0, device="cuda").begin_step()
    with pytest.raises(ValueError, match="auto, cuda or cpu"):
        timer.StepTimer(rank=0, device="tpu").begin_step()


def test_scalars_for_tensorboard(
    tmp_path: Path, clock: ScriptedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[str, float, int]] = []

    class Writer:
        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.append((name, value, step))

        def close(self) -> None:
            written.append(("closed", 0.0, 0))

    monkeypatch.setattr(scalars, "_writer", lambda folder: Writer())
    with timer.StepTimer(rank=2, tensorboard=tmp_path) as steps:
        run_step(steps, clock)
    assert ("step_ms/rank2", 15.0, 0) in written
    assert ("memory_peak_bytes/rank2", 200, 0) in written
    assert written[-1][0] == "closed"


def test_long_runs_are_read_a_few_steps_behind(clock: ScriptedClock) -> None:
    steps = timer.StepTimer(rank=0)
    for _ in range(timer.UNREAD_STEPS + 10):
        clock.device_ms = clock.now_ms
        run_step(steps, clock)
    assert len(steps._queue.waiting) <= timer.UNREAD_STEPS
    assert len(steps._queue.take()) >= 8
    assert clock.waited == 0


def test_the_allocator_is_asked_seldom_but_at_every_break(clock: ScriptedClock) -> None:
    clock.memory_s = 0.01  # so that it may be asked again after forty seconds
    steps = timer.StepTimer(rank=0)
    for _ in range(5):
        run_step(steps, clock)
    assert clock.asked == 1
    records = steps.drain(final=True)
    assert clock.asked == 2
    has_memory = ["memory_peak_bytes" in record for record in records]
    assert has_memory == [True, False, False, False, True]


def test_marks_are_made_before_the_first_step(clock: ScriptedClock) -> None:
    steps = timer.StepTimer(rank=0, unread_steps=1000)
    steps.prepare(100)
    assert clock.prepared == 0  # no clock yet
    steps.begin_step()
    assert clock.prepared == timer.UNREAD_STEPS * timer.MARKS_A_STEP
    steps.prepare(200)
    assert clock.prepared == 200 * timer.MARKS_A_STEP
