"""What one process may use, and what it is said to have died of."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.batch.archives import write_run
from trace_analyzer.batch.confine import machine_memory, memory_of, with_memory
from trace_analyzer.batch.isolate import run_task
from trace_analyzer.batch.tasks import Limits, RunResult, Sealed, Task, TaskFile, UnitResult, opened
from trace_analyzer.batch.units import UnitKind

FILE = "run/rank0.pt.trace.json.gz"
MIB = 1 << 20


def _run(folder: Path, limits: Limits, steps: int = 4) -> RunResult:
    write_run(folder / "archive" / "run", 1, world=1, steps=steps)
    task = Task(
        archive=str(folder / "archive"),
        out=str(folder / "out"),
        unit="run",
        kind=UnitKind.FOLDER,
        files=[TaskFile(FILE, 1)],
        limits=limits,
    )
    (result,) = opened(run_task(Sealed.of(task)), UnitResult).runs
    return result


def test_a_run_within_its_limits_says_what_it_took(tmp_path: Path) -> None:
    result = _run(tmp_path, Limits(time_s=120, memory_bytes=2048 * MIB))
    assert result.rows is not None
    assert result.rows.run.state != "failed"
    assert 20 * MIB < result.peak_bytes < 1024 * MIB
    assert result.attempts == 1


def test_a_run_that_needs_more_memory_fails_with_this_reason(tmp_path: Path) -> None:
    # Its steps take seconds, and the process alone holds more than this.
    result = _run(tmp_path, Limits(memory_bytes=32 * MIB), steps=4000)
    assert result.rows is not None
    run = result.rows.run
    assert (run.state, run.failure) == ("failed", "memory")
    assert run.reason == "needs more memory than 0.0312 GiB; raise --memory-limit"
    assert not list((tmp_path / "out").rglob("report.html"))


def test_the_share_of_memory_is_fair() -> None:
    assert with_memory(Limits(memory_bytes=5)).memory_bytes == 5
    whole = with_memory(Limits(share=1)).memory_bytes
    half = with_memory(Limits(share=2)).memory_bytes
    assert whole is not None
    assert half is not None
    assert abs(whole - 2 * half) <= 2
    assert 0.7 * machine_memory() < whole < 0.9 * machine_memory()


def test_memory_of_a_process_is_what_it_holds() -> None:
    program = "import sys; held = bytearray(64 << 20); print('holds', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        assert 64 * MIB < memory_of(process.pid) < 128 * MIB
        process.stdin.close()
    assert memory_of(process.pid) == 0


@pytest.mark.parametrize("secret", ["s3://key:secret@bucket/x", "https://host/x?token=secret"])
def test_tasks_under_way_show_nothing(secret: str) -> None:
    task = Task(
        archive=secret, out=secret, unit="", kind=UnitKind.FOLDER, files=[], limits=Limits()
    )
    sealed = Sealed.of(task)
    assert "secret" not in repr(sealed)
    assert "secret" not in str(sealed)
    assert opened(sealed, Task) == task
