"""Start all ranks of a group under one parent: what a profiler is put around."""

from __future__ import annotations

import os
import subprocess
import sys

from trace_analyzer.collectors.local_ranks import rank_environment


def run_ranks(size: int, address: str) -> int:
    """Start the ranks that answer at `address`, wait for them, return the worst exit code."""
    port = int(os.environ["MASTER_PORT"])
    processes = [
        subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "trace_analyzer.collectors.faultlab", "worker", address],
            env=rank_environment(rank, size, port),
        )
        for rank in range(size)
    ]
    return max(process.wait() for process in processes)
