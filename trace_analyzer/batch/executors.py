"""Where tasks run: threads of this process, or the workers of a Dask cluster.

Both are `concurrent.futures.Executor`. A thread only watches the process that does the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from trace_analyzer.batch import isolate
from trace_analyzer.batch.tasks import Limits, Sealed, Task, opened
from trace_analyzer.errors import TraceAnalyzerError

_CONNECT_S = 10
# Enough waiting tasks that an adaptive cluster sees the work, few enough that they need no memory.
_CLUSTER_WINDOW = 256


@dataclass(frozen=True, slots=True)
class Pool:
    """An executor with the number of tasks that it is given at once.

    `share` is the number of processes that work beside each other on one machine.
    """

    executor: Executor
    window: int
    share: int
    is_cluster: bool = False

    def submit(self, task: Task) -> Future[Sealed]:
        """Hand a task over."""
        run = run_on_worker if self.is_cluster else isolate.run_task
        return self.executor.submit(run, Sealed.of(task))


@contextmanager
def local_pool(jobs: int) -> Iterator[Pool]:
    """Run tasks on this machine, `jobs` at a time; an exception in the block ends them."""
    isolate.ready()
    executor = ThreadPoolExecutor(jobs, thread_name_prefix="batch")
    try:
        yield Pool(executor, window=jobs + 1, share=jobs)
    except BaseException:
        isolate.stop_all()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


@contextmanager
def cluster_pool(address: str, in_flight: int | None) -> Iterator[Pool]:
    """Run tasks on the Dask cluster whose scheduler answers at `address`.

    Raises `TraceAnalyzerError` where there is none, or where Dask is not installed.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise TraceAnalyzerError(
            "--scheduler needs Dask; install it with: pip install 'trace-analyzer[cluster]'"
        ) from error
    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise TraceAnalyzerError(
            f"--scheduler {address}: no Dask scheduler answers ({str(error) or 'timed out'}); "
            "check the address, and that the versions of Dask agree"
        ) from error
    with client:
        # Nothing is cached by content: a task that is given twice is to be done twice.
        executor: Executor = client.get_executor(pure=False)
        try:
            yield Pool(executor, window=in_flight or _CLUSTER_WINDOW, share=1, is_cluster=True)
        finally:
            executor.shutdown(wait=False)


def run_on_worker(sealed: Sealed) -> Sealed:
    """Carry out a task on a Dask worker, within the worker's own memory."""
    from distributed import get_worker

    task = opened(sealed, Task)
    if task.limits.memory_bytes is None:
        worker = get_worker()
        threads = max(worker.state.nthreads, 1)
        limit = worker.memory_manager.memory_limit
        limits = (
            Limits(time_s=task.limits.time_s, memory_bytes=int(limit) // threads)
            if limit
            else Limits(time_s=task.limits.time_s, share=threads)
        )
        sealed = Sealed.of(msgspec.structs.replace(task, limits=limits))
    return isolate.run_task(sealed)


def is_lost_worker(error: BaseException) -> bool:
    """Tell whether Dask gave a task up because the workers that had it died."""
    return type(error).__name__ == "KilledWorker"


__all__ = ["Pool", "cluster_pool", "is_lost_worker", "local_pool", "run_on_worker"]
