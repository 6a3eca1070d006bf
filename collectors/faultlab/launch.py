"""How the ranks of one host are started."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping


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


def run_ranks(size: int, address: str) -> int:
    """Start all ranks of a group and wait for them: what a profiler is put around."""
    port = int(os.environ["MASTER_PORT"])
    processes = [
        subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "trace_analyzer.collectors.faultlab", "worker", address],
            env=rank_environment(rank, size, port),
        )
        for rank in range(size)
    ]
    return max(process.wait() for process in processes)
