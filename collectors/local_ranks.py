"""Start one process a rank on this host, and gather what each returns."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trace_analyzer.errors import TraceAnalyzerError

POLL_S = 0.05
_RANK_PREFIX = re.compile(r"^\[rank\d+\]:")


class RanksError(TraceAnalyzerError):
    """A rank failed or did not end in time."""


def free_port() -> int:
    """Return a TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def rank_environment(
    rank: int, size: int, port: int, extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment of one rank of `size` on this host."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "4"),
        **(extra or {}),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def run_ranks(
    module: str,
    size: int,
    task: Mapping[str, Any],
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 600.0,
) -> list[dict[str, Any]]:
    """Run `python -m MODULE TASK.json RESULT.json` once a rank; return the results by rank.

    Raises `RanksError` with the last line of the first rank that failed, or where a rank is not
    done in time; all are ended then.
    """
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="trace-analyzer-") as name:
        folder = Path(name)
        (folder / "task.json").write_text(json.dumps(task))
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(size):
                command = [sys.executable, "-m", module, str(folder / "task.json")]
                with (folder / f"rank{rank}.log").open("wb") as log:
                    process = subprocess.Popen(  # noqa: S603
                        [*command, str(folder / f"rank{rank}.json")],
                        env=rank_environment(rank, size, port, environment),
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                processes.append(process)
            _wait(processes, folder, timeout_s)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                process.wait()
        return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(size)]


def _wait(processes: list[subprocess.Popen[bytes]], folder: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while any(process.poll() is None for process in processes):
        for rank, process in enumerate(processes):
            if process.poll():
                raise RanksError(f"rank {rank}: {_last_line(folder / f'rank{rank}.log')}")
        if time.monotonic() > deadline:
            raise RanksError(f"the ranks were not done in {timeout_s:.0f} s")
        time.sleep(POLL_S)
    for rank, process in enumerate(processes):
        if process.returncode:
            raise RanksError(f"rank {rank}: {_last_line(folder / f'rank{rank}.log')}")


def _last_line(log: Path) -> str:
    text = log.read_text(errors="replace")
    lines = [_RANK_PREFIX.sub("", line).strip() for line in text.splitlines()]
    return next((line for line in reversed(lines) if line), "ended without a word")
