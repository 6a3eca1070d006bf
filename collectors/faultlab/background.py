"""Work for the moments when nothing is measured: pruning and exports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


class Background:
    """Runs subcommands of the fault lab, some at a time; failures are kept, not raised.

    Nothing runs until `resume`; `pause` stops what runs where it stands.
    """

    def __init__(self, log: Path) -> None:
        self.failures: list[str] = []
        self._log = log.open("ab")
        self._waiting: list[Sequence[str]] = []
        self._running: list[tuple[Sequence[str], subprocess.Popen[bytes]]] = []
        self.at_once = max(2, len(os.sched_getaffinity(0)) * 3 // 4)
        self._paused = True

    def add(self, *arguments: str) -> None:
        """Queue `python -m trace_analyzer.collectors.faultlab ARGUMENTS`."""
        self._waiting.append(arguments)

    def resume(self) -> None:
        """Go on, until `pause`."""
        self._paused = False
        self._signal(signal.SIGCONT)
        self.advance()

    def pause(self) -> None:
        """Stand still, so that a measurement has the machine for itself."""
        self._paused = True
        self._signal(signal.SIGSTOP)

    def advance(self) -> None:
        """Note what has ended and start what waits."""
        for entry in list(self._running):
            code = entry[1].poll()
            if code is not None:
                self._running.remove(entry)
                if code:
                    self.failures.append(f"{' '.join(entry[0])}: exit {code}")
        while self._waiting and len(self._running) < self.at_once and not self._paused:
            arguments = self._waiting.pop(0)
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "trace_analyzer.collectors.faultlab", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
            )
            self._running.append((arguments, process))

    def finish(self, timeout_s: float) -> None:
        """Wait for everything; what does not end in time is ended and noted."""
        self.resume()
        deadline = time.monotonic() + timeout_s
        while self._waiting or self._running:
            self.advance()
            if time.monotonic() > deadline:
                for arguments, process in self._running:
                    process.kill()
                    process.wait()
                    self.failures.append(f"{' '.join(arguments)}: not done in time")
                self._running.clear()
                self.failures += [f"{' '.join(item)}: not begun in time" for item in self._waiting]
                self._waiting.clear()
            time.sleep(0.05)
        self._log.close()

    def _signal(self, number: signal.Signals) -> None:
        for _, process in self._running:
            if process.poll() is None:
                process.send_signal(number)
