"""Reading the files of a run: hashes beside, in several processes where that pays."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trace_analyzer.bundle import sha256_of
from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.model import Rank, SourceKind
from trace_analyzer.readers.content import is_compressed
from trace_analyzer.readers.grouping import TraceFile

Progress = Callable[[str, int, int], None]

NO_MEMORY = "not enough memory to read it"

# A second process costs about 0.4 s of start-up and transfer: what one core reads in that time.
_PAYS_BYTES = 80 << 20
_COMPRESSION = 12  # JSON bytes a compressed byte stands for, roughly


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A file that was read, or the reason why it was not."""

    file: TraceFile
    ranks: tuple[Rank, ...] = ()
    sha256: str = ""
    problem: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    # Errors travel as values: exceptions with arguments of their own do not survive pickling.
    ranks: tuple[Rank, ...] = ()
    problem: str = ""
    hint: str = ""


def load(
    files: Sequence[TraceFile], *, jobs: int | None = 1, progress: Progress | None = None
) -> list[Loaded]:
    """Read traces, in order of `files`. A file that cannot be read has a `problem` and no ranks.

    `jobs` is the number of processes; None takes as many as there are cores, where the files are
    large enough to gain from it. With more than one, the main module of the program is imported
    by the others, as always with `multiprocessing`: it needs its `__name__ == "__main__"` guard. `progress` gets a file's name, the bytes done and all bytes.
    """
    workers = _workers(files, jobs)
    with ThreadPoolExecutor(max_workers=1) as hasher:  # hashing leaves the interpreter lock
        hashes = [hasher.submit(_hash, file.path) for file in files]
        outcomes = dict(_read_all(files, workers, progress))
        return [
            Loaded(
                file=file,
                ranks=outcomes[position].ranks,
                sha256=hashes[position].result(),
                problem=outcomes[position].problem,
                hint=outcomes[position].hint,
            )
            for position, file in enumerate(files)
        ]


def _hash(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError:
        return ""  # the reader says why


def _workers(files: Sequence[TraceFile], jobs: int | None) -> int:
    if multiprocessing.current_process().daemon or len(files) < 2:
        return 1  # a daemon may not have children
    if jobs is not None:
        return max(1, min(jobs, len(files)))
    sizes = [_json_bytes(file) for file in files]
    if sum(sizes) - max(sizes) < _PAYS_BYTES:
        return 1
    return min(_cores(), len(files))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _json_bytes(file: TraceFile) -> int:
    """Return about how much text a file holds, as a measure of the time to read it."""
    if file.kind is not SourceKind.KINETO:
        return file.bytes
    try:
        with file.path.open("rb") as stream:
            compressed = is_compressed(stream.read(4))
    except OSError:
        return file.bytes  # the reader says why
    return file.bytes * (_COMPRESSION if compressed else 1)


def _read_all(
    files: Sequence[TraceFile], workers: int, progress: Progress | None
) -> Iterator[tuple[int, _Outcome]]:
    total = sum(file.bytes for file in files)
    done = 0
    if progress and files:
        progress(files[0].name, 0, total)
    results = _in_turn(files) if workers == 1 else _in_pool(files, workers)
    for position, outcome in results:
        done += files[position].bytes
        if progress:
            progress(files[position].name, done, total)
        yield position, outcome


def _in_turn(files: Sequence[TraceFile]) -> Iterator[tuple[int, _Outcome]]:
    for position, file in enumerate(files):
        yield position, _read(file.kind, file.path, file.name)


def _in_pool(files: Sequence[TraceFile], workers: int) -> Iterator[tuple[int, _Outcome]]:
    left = set(range(len(files)))
    with _pool(workers) as pool:
        largest_first = sorted(left, key=lambda position: -files[position].bytes)
        waiting: dict[Future[_Outcome], int] = {}
        try:
            for position in largest_first:
                file = files[position]
                waiting[pool.submit(_read, file.kind, file.path, file.name)] = position
            for future in as_completed(waiting):
                outcome = future.result()
                left.remove(waiting[future])
                yield waiting[future], outcome
        except BrokenProcessPool:
            # A reader was killed (memory, most likely) or could not start: one after the other
            # takes the least memory and needs no other process.
            pool.shutdown(wait=False, cancel_futures=True)
    for position in sorted(left):
        file = files[position]
        yield position, _read(file.kind, file.path, file.name)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    # "spawn": a fork of a process with threads may hang.
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        max_workers=workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_ignore_interrupts,
    )
    try:
        yield pool
    except BaseException:
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its children


def _read(kind: SourceKind, path: Path, name: str) -> _Outcome:
    try:
        if kind is SourceKind.NSYS:
            from trace_analyzer.readers import nsys

            return _Outcome(ranks=tuple(nsys.read(path, display=name)))
        from trace_analyzer.readers import kineto

        return _Outcome(ranks=kineto.read_ranks(path, display=name))
    except UnreadableInputError as error:
        return _Outcome(problem=error.problem, hint=error.hint)
    except OSError as error:
        return _Outcome(problem=(error.strerror or str(error)).lower())
    except MemoryError:
        return _Outcome(problem=NO_MEMORY)


__all__ = ["NO_MEMORY", "Loaded", "Progress", "load"]
