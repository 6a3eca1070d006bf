"""One task: the processes that carry it out, started, watched and ended.

This runs wherever the executor runs it. A process that is ended from outside is started again: that
says nothing of the run. One that is too slow is ended here; one that dies by itself is the run's
fault.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

import trace_analyzer
from trace_analyzer import __version__
from trace_analyzer.batch.confine import memory_of, with_memory
from trace_analyzer.batch.contents import UNPACKED
from trace_analyzer.batch.failed import failed_unit, lacks_memory, no_memory, too_slow
from trace_analyzer.batch.scratch import Scratch, sweep
from trace_analyzer.batch.tasks import (
    Failure,
    RunResult,
    Sealed,
    Task,
    TaskFile,
    UnitResult,
    opened,
)
from trace_analyzer.batch.units import UnitKind

_ATTEMPTS = 3
_POLL_S = 0.1
_NEAR = 0.8  # of the memory limit: a process that crashes there has crashed for want of it
_DETAIL_BYTES = 4000
# The process runs the code of this one, wherever that lies and whatever else is installed.
_PROGRAM = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("trace_analyzer", {trace_analyzer.__file__!r})
sys.modules["trace_analyzer"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["trace_analyzer"])
from trace_analyzer.batch.child import main
main(sys.argv[1])
"""
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_MAX_THREADS"), "1"
)
_FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}

_stop = threading.Event()
_swept = threading.Event()


class StoppedError(Exception):
    """The batch ends before this task did."""


@dataclass(frozen=True, slots=True)
class _Death:
    """How a process ended without a result."""

    failure: Failure
    reason: str
    detail: str = ""


def stop_all() -> None:
    """End every process that this one has started; tasks under way raise `StoppedError`."""
    _stop.set()


def ready() -> None:
    """Take up work again after `stop_all`."""
    _stop.clear()


def run_task(sealed: Sealed) -> Sealed:
    """Carry out a task and return its `UnitResult`. Raises nothing but `StoppedError`."""
    if not _swept.is_set():
        _swept.set()
        sweep()
    task = opened(sealed, Task)
    task = msgspec.structs.replace(task, limits=with_memory(task.limits))
    try:
        with Scratch() as scratch:
            return Sealed.of(_carried_out(task, scratch.path))
    except OSError as error:
        reason = f"there is no room to work: {error.strerror or error}"
        result = failed_unit(task, Failure.UNREACHABLE, reason)
        return Sealed.of(UnitResult(version=__version__, runs=[result]))


def _carried_out(task: Task, scratch: Path) -> UnitResult:
    done = _in_process(task, scratch)
    left = [run for run in done.runs if run.rows is None and not run.known]
    if task.kind is not UnitKind.ARCHIVE or task.list_only or not left:
        return done
    # The members of an archive lie here now, and only here.
    finished = [run for run in done.runs if run not in left]
    for run in left:
        one = msgspec.structs.replace(
            task,
            only=run.found.name,
            files=[TaskFile(name, 0) for name in run.found.files],
            unpacked=str(scratch / UNPACKED),
        )
        finished += _in_process(one, scratch).runs
    return msgspec.structs.replace(done, runs=finished)


def _in_process(task: Task, scratch: Path) -> UnitResult:
    started_s = time.monotonic()
    attempt = 0
    while True:
        attempt += 1
        ended = _attempt(task, scratch)
        if isinstance(ended, UnitResult):
            runs = [_with_attempts(run, attempt) for run in ended.runs]
            return msgspec.structs.replace(ended, runs=runs)
        if ended.failure is not Failure.KILLED or attempt == _ATTEMPTS:
            break
    result = failed_unit(
        task,
        ended.failure,
        ended.reason,
        detail=ended.detail,
        seconds=time.monotonic() - started_s,
    )
    return UnitResult(version=__version__, runs=[_with_attempts(result, attempt)])


def _with_attempts(run: RunResult, attempts: int) -> RunResult:
    return msgspec.structs.replace(run, attempts=attempts) if attempts > 1 else run


def _attempt(task: Task, scratch: Path) -> UnitResult | _Death:
    work = scratch / f"work{len(list(scratch.glob('work*')))}"
    work.mkdir()
    folder = scratch if task.unpacked is None else work
    if task.unpacked is None:  # of an attempt before
        for name in (UNPACKED, "fetched"):
            shutil.rmtree(scratch / name, ignore_errors=True)
    result, said = folder / "result.json", work / "said"
    environment = {**os.environ, **_ONE_THREAD, "TMPDIR": str(work)}
    with (
        said.open("wb") as output,
        subprocess.Popen(  # noqa: S603 (our own program)
            [sys.executable, "-P", "-c", _PROGRAM, str(result)],  # -P: nothing from this folder
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # what it starts ends with it, and Ctrl-C is for the batch alone
        ) as process,
    ):
        try:
            ended = _watched(process, task)
        finally:
            _end(process)
    if result.exists():
        return opened(result.read_bytes(), UnitResult)
    return ended if isinstance(ended, _Death) else _death(ended, task, _tail(said))


@dataclass(frozen=True, slots=True)
class _End:
    """The exit code of a process, and the most memory that it was seen to hold."""

    code: int
    memory_bytes: int


def _watched(process: subprocess.Popen[bytes], task: Task) -> _End | _Death:
    """Hand the task over and wait, until the process ends or goes beyond a limit."""
    assert process.stdin is not None
    # The pipe stays open: its end tells the process that we are gone.
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(Sealed.of(task) + b"\n")
        process.stdin.flush()
    limits = task.limits
    deadline_s = None if limits.time_s is None else time.monotonic() + limits.time_s
    most_bytes = 0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return _End(process.wait(_POLL_S), most_bytes)
        if _stop.is_set():
            raise StoppedError
        if deadline_s is not None and time.monotonic() > deadline_s:
            return _Death(Failure.TIME, too_slow(limits))
        most_bytes = max(most_bytes, memory_of(process.pid))
        if limits.memory_bytes is not None and most_bytes > limits.memory_bytes:
            return _Death(Failure.MEMORY, no_memory(limits))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and everything that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.wait()


def _death(end: _End, task: Task, said: str) -> _Death:
    limits, code = task.limits, end.code
    if code == -signal.SIGXCPU:
        return _Death(Failure.TIME, too_slow(limits), said)
    if -code in _FROM_OUTSIDE:
        number = signal.Signals(-code)
        reason = f"its process was ended {_ATTEMPTS} times by {number.name}"
        if number is signal.SIGKILL:
            reason += ", most likely because the machine ran out of memory"
        return _Death(Failure.KILLED, f"{reason}; use fewer --jobs", said)
    near_bytes = _NEAR * (limits.memory_bytes or math.inf)
    if lacks_memory(said) or end.memory_bytes > near_bytes:
        return _Death(Failure.MEMORY, no_memory(limits), said)
    if code < 0:
        name = signal.Signals(-code).name
        return _Death(Failure.CRASHED, f"its process crashed with {name}", said)
    last = said.strip().rpartition("\n")[2]
    return _Death(Failure.CRASHED, f"its process ended with code {code}: {last}"[:300], said)


def _tail(path: Path) -> str:
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - _DETAIL_BYTES))
        return stream.read().decode(errors="replace")


__all__ = ["StoppedError", "ready", "run_task", "stop_all"]
