"""Whose recording a file is, told from a small part of it.

Files have to be grouped into runs before they are read: a folder may hold thousands. What a
profiler writes first (and last) names the rank, the process and the time; it is searched by
pattern, because these parts are no whole JSON document. What a pattern cannot find is unknown,
and the full read afterwards has the last word.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, cast

import zstandard

from trace_analyzer.readers.content import expand_head, is_compressed

_HEAD_BYTES = (256 << 10, 8 << 20)  # the second where a long header fills the first
_TAIL_BYTES = 64 << 10
_READ_BYTES = 1 << 20
_TAIL_LIMIT_BYTES = 2 << 30  # beyond this and _TAIL_RATIO, the end is not looked for
_TAIL_RATIO = 200
_UNIX_US = 10**15  # a time stamp in µs above this counts from 1970, not from a trace's own base

_RANK = re.compile(rb'"distributedInfo"[^}]{0,400}?"rank"\s*:\s*(\d+)')
_WORLD = re.compile(rb'"distributedInfo"[^}]{0,400}?"world_size"\s*:\s*(\d+)')
_BASE_NS = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d+)')
_HOST = re.compile(rb'"host_name"\s*:\s*"([^"\\]{1,255})"')
_SIGNATURE = re.compile(rb'"(cuda_runtime_version|cuda_driver_version|cupti_version)"\s*:\s*(\d+)')
_TIME = re.compile(rb'"ts"\s*:\s*"?(\d+)(?:\.(\d{1,9}))?(?=[",}\s])')
_WINDOW_END = re.compile(rb'"Record Window End"[^{}]{0,200}"ts"\s*:\s*"?(\d+)')
_HOST_EVENT_PID = re.compile(
    rb'"cat"\s*:\s*"(?:cpu_op|Operator|user_annotation|python_function|cuda_runtime|Runtime)"'
    rb'[^{}]{0,4000}?"pid"\s*:\s*"?(\d+)'
)
_STEP = re.compile(rb"ProfilerStep#(\d+)")
_SEQUENCE = re.compile(rb'"Sequence number"\s*:\s*(\d+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a file says about itself; None and empty where that is not known.

    `start_ns` and `end_ns` count from 1970 where `base_ns`, the Unix time of the trace's zero, is
    known; else from a zero that all traces of one job share. `first_step` and `sequence` grow in one process and start anew in another.
    """

    pids: tuple[int, ...] = ()
    rank: int | None = None
    world_size: int | None = None
    host: str | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    base_ns: int | None = None
    first_step: int | None = None
    sequence: int | None = None
    versions: tuple[tuple[str, str], ...] = ()


def identify_kineto(path: Path) -> Identity:
    """Return what the beginning of a Kineto trace tells. Never raises for what the file holds."""
    identity = Identity()
    for size in _HEAD_BYTES:
        with path.open("rb") as stream:
            raw = stream.read(size)
        head, _ = expand_head(raw, size)
        tail = b"" if is_compressed(raw) else _plain_tail(path)
        identity = _kineto(head, tail)
        if identity.start_ns is not None or len(raw) < size:
            break
    return identity


def with_end(path: Path, identity: Identity) -> Identity:
    """Return a Kineto identity with `end_ns`: a compressed file is decompressed to its end."""
    if identity.end_ns is not None or identity.start_ns is None:
        return identity
    status = path.stat()
    tail = _tail(path, status.st_size, status.st_mtime_ns)
    return replace(identity, end_ns=_end_ns(tail, identity.start_ns, identity.base_ns))


def _kineto(head: bytes, tail: bytes) -> Identity:
    start_ns = min(_times_ns(head), default=None)
    base_ns = _number(_BASE_NS, head, tail)
    if start_ns is not None and start_ns > _UNIX_US * 1000:
        base_ns = 0
    if start_ns is not None:
        start_ns += base_ns or 0
    pids = Counter(int(match) for match in _HOST_EVENT_PID.findall(head))
    return Identity(
        pids=(pids.most_common(1)[0][0],) if pids else (),
        rank=_number(_RANK, head, tail),
        world_size=_number(_WORLD, head, tail),
        host=_host(head) or _host(tail),
        start_ns=start_ns,
        end_ns=None if start_ns is None else _end_ns(tail, start_ns, base_ns),
        base_ns=base_ns,
        first_step=_number(_STEP, head),
        sequence=_number(_SEQUENCE, head),
        versions=tuple(
            sorted((name.decode(), value.decode()) for name, value in set(_SIGNATURE.findall(head)))
        ),
    )


def _end_ns(tail: bytes, start_ns: int, base_ns: int | None) -> int | None:
    match = _WINDOW_END.search(tail)
    end_ns = int(match.group(1)) * 1000 if match else max(_times_ns(tail), default=None)
    return None if end_ns is None else max(end_ns + (base_ns or 0), start_ns)


def _times_ns(text: bytes) -> list[int]:
    stamps = (
        int(whole) * 1000 + int((fraction + b"000")[:3]) for whole, fraction in _TIME.findall(text)
    )
    return [stamp for stamp in stamps if 0 < stamp < 1 << 62]


def _number(pattern: re.Pattern[bytes], *texts: bytes) -> int | None:
    for text in texts:
        match = pattern.search(text)
        if match and int(match.group(1)) < 1 << 62:
            return int(match.group(1))
    return None


def _host(text: bytes) -> str | None:
    match = _HOST.search(text)
    return match.group(1).decode(errors="replace") if match else None


def _plain_tail(path: Path) -> bytes:
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(0, size - _TAIL_BYTES))
        return stream.read(_TAIL_BYTES)


@lru_cache(maxsize=256)
def _tail(path: Path, size: int, _modified_ns: int) -> bytes:
    """Return the last bytes of a compressed trace, empty where they cannot be had."""
    tail = b""
    total = 0
    try:
        with _decompressed(path) as stream:
            while chunk := stream.read(_READ_BYTES):
                tail = (tail + chunk)[-_TAIL_BYTES:]
                total += len(chunk)
                if total > _TAIL_LIMIT_BYTES and total > _TAIL_RATIO * size:
                    return b""
    except (OSError, EOFError, ValueError, zstandard.ZstdError):
        return tail  # a cut file: the last that could be read is its end
    return tail


def _decompressed(path: Path) -> IO[bytes]:
    with path.open("rb") as stream:
        magic = stream.read(2)
    if magic == b"\x1f\x8b":
        from isal import igzip

        return cast("IO[bytes]", igzip.open(path, "rb"))  # type: ignore[no-untyped-call]
    decompressor = zstandard.ZstdDecompressor(max_window_size=128 << 20)
    return cast(
        "IO[bytes]",
        decompressor.stream_reader(path.open("rb"), read_across_frames=True, closefd=True),
    )


def identify_nsys(path: Path) -> Identity:
    """Return processes, host and time of an nsys export. Never raises for what the file holds."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
            return _nsys(base)
    except sqlite3.Error:
        return Identity()


def _nsys(base: sqlite3.Connection) -> Identity:
    session_ns = _scalar(base, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
    host = _scalar(base, "SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname'")
    rows = _rows(
        base,
        'SELECT (globalPid >> 24) & 0xFFFFFF, MIN(start), MAX("end") '
        "FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY 1",
    )
    zero_ns = session_ns if isinstance(session_ns, int) else None
    known = bool(rows) and zero_ns is not None
    return Identity(
        pids=tuple(sorted(int(row[0]) for row in rows)),
        host=host if isinstance(host, str) and host else None,
        start_ns=min(row[1] for row in rows) + (zero_ns or 0) if known else None,
        end_ns=max(row[2] for row in rows) + (zero_ns or 0) if known else None,
        base_ns=zero_ns,
    )


def _rows(base: sqlite3.Connection, query: str) -> list[tuple[int, int, int]]:
    try:
        return [
            row
            for row in base.execute(query).fetchall()
            if all(isinstance(value, int) for value in row)
        ]
    except sqlite3.OperationalError:  # an export of another version lacks the table or column
        return []


def _scalar(base: sqlite3.Connection, query: str) -> object:
    try:
        row = base.execute(query).fetchone()
    except sqlite3.OperationalError:
        return None
    return row[0] if row else None
