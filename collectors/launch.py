"""Starts the user's training command, passes signals on, and returns its exit code."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

import trace_analyzer.collectors.bootstrap
from trace_analyzer.collectors.options import ENVIRONMENT_VARIABLE, Options
from trace_analyzer.errors import TraceAnalyzerError

EXIT_INTERRUPTED = 130


class CommandError(TraceAnalyzerError):
    """The command cannot be started."""


def check(command: Sequence[str]) -> None:
    """Raise `CommandError` for a command that cannot be found."""
    if not command:
        raise CommandError("no command: put the training command after --")
    if shutil.which(command[0]) is None:
        hint = "give the training command after --"
        if Path(command[0]).name == "torchrun":
            hint = "it comes with torch: install that (pip install torch), or put its bin on PATH"
        raise CommandError(f"{command[0]}: no such program; {hint}")


def environment(options: Options, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which Python processes watch themselves."""
    found = {**os.environ, **extra}
    bootstrap = str(Path(trace_analyzer.collectors.bootstrap.__file__).parent)
    found["PYTHONPATH"] = os.pathsep.join(
        part for part in (bootstrap, os.environ.get("PYTHONPATH", "")) if part
    )
    found[ENVIRONMENT_VARIABLE] = options.to_json()
    return found


def run(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run a command to its end and return its exit code; 128 + n for signal n.

    Ctrl-C in a terminal reaches training by itself; sent to this process alone it is passed on,
    and so is SIGTERM. A second Ctrl-C ends training at once. Raises `CommandError` where the
    command cannot be started.
    """
    try:
        process = subprocess.Popen(list(command), env=dict(variables))  # noqa: S603  # the user's own
    except OSError as error:
        raise CommandError(f"{command[0]}: {error.strerror}") from error
    interrupts = 0

    def on_interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        nonlocal interrupts
        interrupts += 1
        if interrupts > 1:
            process.terminate()
        elif not _in_foreground():
            process.send_signal(number)

    def on_termination(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        process.send_signal(number)

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, on_interrupt),
        signal.SIGTERM: signal.signal(signal.SIGTERM, on_termination),
    }
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if interrupts:
        return EXIT_INTERRUPTED
    return code if code >= 0 else 128 - code


def _in_foreground() -> bool:
    """Whether a terminal sends its Ctrl-C to this process and its children alike."""
    try:
        return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False
