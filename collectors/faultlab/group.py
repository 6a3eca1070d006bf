"""The processes of one training program, as the driver starts, commands and ends them."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from trace_analyzer.collectors.local_ranks import free_port, rank_environment

START_TIMEOUT_S = 120.0


class GroupError(Exception):
    """A group that failed or did not answer; its processes have been ended."""


class Group:
    """One process a rank, all started at once, each with a connection of its own.

    `prefix` is put before the command that starts the ranks (a profiler); the ranks are then
    children of that command. Standard output and error of all ranks go to `log`.
    """

    def __init__(
        self,
        *,
        size: int,
        environment: Mapping[str, str],
        log: Path,
        prefix: Sequence[str] = (),
    ) -> None:
        self.size = size
        self.pids: list[int] = []
        self._prefix = tuple(prefix)
        self._folder = tempfile.TemporaryDirectory(prefix="faultlab-")
        address = Path(self._folder.name) / "control"
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(str(address))
        self._server.listen(size)
        self._streams: dict[int, Any] = {}
        self._connections: dict[int, socket.socket] = {}
        self._log = log.open("ab")
        command = [sys.executable, "-m", "trace_analyzer.collectors.faultlab"]
        port = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []
        if prefix:
            whole = {**os.environ, **environment, "MASTER_PORT": str(port)}
            spawn = [*prefix, *command, "ranks", str(size), str(address)]
            self._start(spawn, whole)
        else:
            for rank in range(size):
                own = rank_environment(rank, size, port, environment)
                self._start([*command, "worker", str(address)], own)

    def connect(self) -> None:
        """Wait until all ranks have started; does nothing a second time. Raises `GroupError`."""
        if len(self._streams) == self.size:
            return
        self._server.settimeout(1.0)
        deadline = time.monotonic() + START_TIMEOUT_S
        while len(self._streams) < self.size:
            if time.monotonic() > deadline:
                self._fail("the ranks did not start")
            if any(process.poll() is not None for process in self._processes):
                self._fail("a rank ended while it started")
            with contextlib.suppress(TimeoutError):
                connection, _ = self._server.accept()
                connection.settimeout(START_TIMEOUT_S)
                stream = connection.makefile("rwb")
                hello = json.loads(stream.readline())
                self._streams[hello["rank"]] = stream
                self._connections[hello["rank"]] = connection
        self._server.close()

    def ask(self, timeout_s: float, **command: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        """Send a command to all ranks and return their answers in order of rank.

        Raises `GroupError` where one fails or does not answer in time; the group is then ended.
        """
        self.connect()
        line = json.dumps(command).encode() + b"\n"
        deadline = time.monotonic() + timeout_s
        answers: dict[int, dict[str, Any]] = {}
        with selectors.DefaultSelector() as waiting:
            for rank, connection in self._connections.items():
                waiting.register(connection, selectors.EVENT_READ, rank)
            try:
                for rank in range(self.size):
                    self._streams[rank].write(line)
                    self._streams[rank].flush()
                while len(answers) < self.size:
                    ready = waiting.select(max(0.0, deadline - time.monotonic()))
                    if not ready:
                        silent = sorted(set(range(self.size)) - set(answers))
                        self._fail(f"{command['do']}: ranks {silent} silent for {timeout_s:.0f} s")
                    for entry, _ in ready:
                        # One failed rank leaves the others waiting for it: do not wait for them.
                        answers[entry.data] = self._answer(entry.data, command["do"])
                        waiting.unregister(entry.fileobj)
            except OSError as error:
                self._fail(f"{command['do']}: {error}")
        if command["do"] == "open":
            self.pids = [int(answers[rank]["pid"]) for rank in range(self.size)]
        return [answers[rank] for rank in range(self.size)]

    def _answer(self, rank: int, action: str) -> dict[str, Any]:
        text = self._streams[rank].readline()
        if not text:
            self._fail(f"{action}: rank {rank} ended")
        answer: dict[str, Any] = json.loads(text)
        if not answer["ok"]:
            self._fail(f"{action}: rank {rank}: {answer['error']}")
        return answer

    @property
    def process_ids(self) -> list[int]:
        """Processes that this group started directly."""
        return [process.pid for process in self._processes]

    def tell_exit(self) -> None:
        """Tell all ranks to end, without waiting."""
        for stream in self._streams.values():
            with contextlib.suppress(OSError):
                stream.write(b'{"do": "exit"}\n')
                stream.flush()

    def exit(self, timeout_s: float = 30.0) -> None:
        """Wait for ranks that were told to end, and end them where they do not."""
        deadline = time.monotonic() + timeout_s
        if self._streams:
            for process in self._processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.1, deadline - time.monotonic()))
        self.kill()

    def kill(self) -> None:
        """End the processes that this group started."""
        for process in self._processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for connection in self._connections.values():
            connection.close()
        self._server.close()
        self._log.close()
        self._folder.cleanup()

    def _start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        # A session of its own, so that what a rank starts (workers, tenants) ends with it.
        process = subprocess.Popen(  # noqa: S603
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._processes.append(process)

    def _fail(self, problem: str) -> NoReturn:
        self.kill()
        raise GroupError(problem)
