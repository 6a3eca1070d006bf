"""Servers that tests start on this machine: an S3 store, and a Dask cluster."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import urlopen

READY_S = 60
SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def _started(
    command: list[str], log: Path, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def s3_server(folder: Path) -> Iterator[dict[str, str]]:
    """A server that speaks S3; yields the environment that clients need."""
    port = _free_port()
    address = f"http://127.0.0.1:{port}"
    environment = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    program = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    with _started([sys.executable, "-c", program], folder / "s3.log") as server:
        _until_answers(address, server)
        yield environment


def _until_answers(address: str, server: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + READY_S
    while True:
        try:
            with urlopen(address, timeout=5):
                return
        except OSError:
            assert server.poll() is None
            assert time.monotonic() < until_s
            time.sleep(0.1)


class Cluster:
    """A scheduler and its workers."""

    def __init__(self, address: str, workers: list[subprocess.Popen[bytes]]) -> None:
        self.address = address
        self.workers = workers


@contextmanager
def dask_cluster(folder: Path, workers: int, environment: Mapping[str, str]) -> Iterator[Cluster]:
    """A Dask scheduler and workers of one thread, each a process, as on a cluster."""
    port = _free_port()
    address = f"tcp://127.0.0.1:{port}"
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    scheduler += ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard", "--no-jupyter"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", address]
    worker += ["--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1"]
    worker += ["--local-directory", str(folder)]
    with ExitStack() as stack:
        stack.enter_context(_started(scheduler, folder / "scheduler.log", **environment))
        started = [
            stack.enter_context(_started(worker, folder / f"worker{n}.log", **environment))
            for n in range(workers)
        ]
        yield Cluster(address, started)
