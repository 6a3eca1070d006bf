"""NCCL's log (NCCL_DEBUG=INFO): communicators, transports, channels and the tuner's choices.

The forms of lines are in `nccl_log_lines`, what they say in `nccl_log_facts`. A file may hold several processes and other programs'
output; lines that were cut or written into each other are counted, and give no facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.model import Rank
from trace_analyzer.nccl_facts import NcclLog
from trace_analyzer.readers.nccl_log_facts import take_fact
from trace_analyzer.readers.nccl_log_lines import BARE_VERSION, Message, messages
from trace_analyzer.readers.nccl_process import Process

_MAX_LINE_BYTES = 1 << 20
_MAX_PROCESSES = 100_000


def read(path: Path, *, display: str | None = None) -> list[NcclLog]:
    """Return what each process of a log said, in order of first mention.

    Raises `UnreadableInputError` where the file cannot be read or holds no line of NCCL's.
    """
    shown = display or str(path)
    processes: dict[tuple[str, int], Process] = {}
    bare: set[tuple[str, str]] = set()
    try:
        with path.open("rb") as stream:
            for line, ended in _lines(stream.readline):
                if "NCCL" in line:
                    _take(line, processes, bare, ended=ended)
    except OSError as error:
        raise UnreadableInputError(shown, (error.strerror or str(error)).lower()) from error
    if not processes:
        raise UnreadableInputError(
            shown, "no line of NCCL's log in it", "record it with NCCL_DEBUG=INFO"
        )
    kept = _without_glued(processes)
    if len(bare) == 1:  # printed once, without saying by whom
        version, cuda = next(iter(bare))
        for process in kept:
            process.version = process.version or version
            process.cuda = process.cuda or cuda
    return [process.finish(shown) for process in kept]


def _lines(readline: Callable[[int], bytes]) -> Iterator[tuple[str, bool]]:
    """Yield lines, and whether they have an end: one without was not written, or read, to it."""
    while raw := readline(_MAX_LINE_BYTES):
        ended = raw.endswith(b"\n")
        yield raw.decode("utf-8", "replace").rstrip("\r\n"), ended
        while not ended and (raw := readline(_MAX_LINE_BYTES)):
            ended = raw.endswith(b"\n")


def _take(
    line: str,
    processes: dict[tuple[str, int], Process],
    bare: set[tuple[str, str]],
    *,
    ended: bool,
) -> None:
    found = False
    for message in messages(line):
        found = True
        process = _process(message, processes)
        if process is None:
            continue
        if message.level == "WARN":
            process.warnings += 1
        elif message.interrupted or not ended:
            process.interleaved += 1
        else:
            fact = take_fact(process, message) if message.level == "INFO" else None
            process.used += fact is True
            process.malformed += fact is False
            process.unused += fact is None
    if not found and (version := BARE_VERSION.search(line)):
        bare.add((version["v"], version["cuda"] or ""))


def _process(message: Message, processes: dict[tuple[str, int], Process]) -> Process | None:
    host, pid = message.host, message.pid
    if not message.first and (host, pid) not in processes:
        # The interrupted message has no space at its end: its last word stands before the host.
        glued = [known for known, number in processes if number == pid and host.endswith(known)]
        if glued:
            host = max(glued, key=len)
        else:
            return None  # counted where it interrupts
    if (host, pid) not in processes:
        if len(processes) >= _MAX_PROCESSES:
            return None
        processes[host, pid] = Process(host=host, pid=pid)
    return processes[host, pid]


def _without_glued(processes: dict[tuple[str, int], Process]) -> list[Process]:
    """Drop hosts that are another's name with the end of a broken line before it."""
    by_pid: dict[int, list[Process]] = {}
    for process in processes.values():
        by_pid.setdefault(process.pid, []).append(process)
    kept = []
    for process in processes.values():
        real = [
            other
            for other in by_pid[process.pid]
            if other is not process
            and process.host.endswith(other.host)
            and other.messages > process.messages
        ]
        if real and not process.communicators:
            real[0].interleaved += process.messages
        else:
            kept.append(process)
    return kept


def with_ranks(
    logs: Iterable[NcclLog], ranks: Sequence[Rank], world_size: int | None
) -> tuple[NcclLog, ...]:
    """Return the logs in order of rank, with the global rank of their process where it can be told.

    The process id joins, with the host where several ranks have the same one; without a match,
    the rank in a communicator of the whole world does.
    """
    ranked = [replace(log, rank=_rank_of(log, ranks, world_size)) for log in logs]
    return tuple(sorted(ranked, key=lambda log: (log.rank is None, log.rank or 0)))


def _rank_of(log: NcclLog, ranks: Sequence[Rank], world_size: int | None) -> int | None:
    same = [
        rank
        for rank in ranks
        if rank.pid == log.pid and (rank.host is None or _short(rank.host) == _short(log.host))
    ]
    if len({rank.rank for rank in same}) == 1:
        return same[0].rank
    world = {
        item.rank
        for item in log.communicators
        if world_size is not None and item.size == world_size and not item.is_split
    }
    return next(iter(world)) if len(world) == 1 else None


def _short(host: str) -> str:
    return host.split(".", 1)[0].lower()


__all__ = ["read", "with_ranks"]
