"""What a file is, from its first bytes."""

from __future__ import annotations

import re
import stat
import zlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import zstandard

from trace_analyzer.bundle import MANIFEST_NAME, LooseName, loose_role

HEAD_BYTES = 64 << 10

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_SQLITE = b"SQLite format 3\0"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_OTHER_TAR_COMPRESSIONS = (b"BZh", b"\xfd7zXZ\x00")
_ZSTD_MAX_WINDOW_BYTES = 128 << 20  # what the zstd tool itself accepts without --long

# Only for saying that a rank's file is damaged: what is read is never decided by its name.
_SURELY_TRACE = re.compile(
    r"\.pt\.trace\.json(\.gz|\.zst)?$|(rank|worker|trace)[^/]*\.json\.(gz|zst)$", re.IGNORECASE
)
_MAYBE_TRACE = re.compile(r"(rank|worker|trace)[^/]*\.json$|\.sqlite$", re.IGNORECASE)
_REPORT_NAME = re.compile(r"\.(nsys-rep|qdrep|qdstrm)$", re.IGNORECASE)
_TAR_NAME = re.compile(r"\.(tar|tgz|tbz2?|txz|tar\.\w+)$", re.IGNORECASE)


class Content(StrEnum):
    """What a file holds."""

    KINETO = "kineto"
    NSYS = "nsys"
    NSYS_REPORT = "nsys-report"  # needs an export before it can be read
    ARCHIVE = "archive"
    MANIFEST = "manifest"
    SIDECAR = "sidecar"
    DAMAGED = "damaged"  # named like a trace, but without a readable one inside
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The verdict on one file; `problem` says what is wrong with a damaged or other one."""

    content: Content
    problem: str = ""
    loose: LooseName | None = None


def examine(path: Path, *, name: str | None = None) -> Examined:
    """Return what the file at `path` holds.

    `name` is the file's own name where `path` is a temporary copy. Never raises for what the
    file holds; a file that cannot be opened is `DAMAGED` if its name is a trace's, else `OTHER`.
    """
    name = name or path.name
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return Examined(content=Content.OTHER, problem="not a regular file")
        with path.open("rb") as stream:
            raw = stream.read(HEAD_BYTES)
    except OSError as error:
        return _no_trace(name, (error.strerror or str(error)).lower(), broken=True)
    if name == MANIFEST_NAME:
        return Examined(content=Content.MANIFEST)
    loose = loose_role(name)
    if loose is not None:
        return Examined(content=Content.SIDECAR, loose=loose)
    if _REPORT_NAME.search(name) and raw:
        return Examined(content=Content.NSYS_REPORT)
    return _by_bytes(path, name, raw)


def _by_bytes(path: Path, name: str, raw: bytes) -> Examined:
    if not raw:
        return _no_trace(name, "the file is empty", broken=True)
    if raw.startswith(_SQLITE):
        return _sqlite(path, name)
    if raw.startswith(_ZIP) or (raw.startswith(_OTHER_TAR_COMPRESSIONS) and _TAR_NAME.search(name)):
        return Examined(content=Content.ARCHIVE)
    head, problem = expand_head(raw)
    if head[257:262] == b"ustar":
        return Examined(content=Content.ARCHIVE)
    if head and kineto_sniff(head):
        return Examined(content=Content.KINETO)
    problem = problem or "neither a torch.profiler trace nor an nsys SQLite export"
    return _no_trace(name, problem, broken=problem.startswith("damaged"))


def kineto_sniff(head: bytes) -> bool:
    """Tell whether decompressed bytes begin a Kineto trace."""
    from trace_analyzer.readers import kineto

    return kineto.sniff(head)


def _sqlite(path: Path, name: str) -> Examined:
    from trace_analyzer.readers import nsys

    if nsys.sniff(path):
        return Examined(content=Content.NSYS)
    return _no_trace(name, "an SQLite file, but not an export of Nsight Systems")


def _no_trace(name: str, problem: str, *, broken: bool = False) -> Examined:
    """Call a file damaged if its name is a trace's; `broken` if its content is surely not whole."""
    damaged = _SURELY_TRACE.search(name) or (broken and _MAYBE_TRACE.search(name))
    return Examined(content=Content.DAMAGED if damaged else Content.OTHER, problem=problem)


def is_compressed(raw: bytes) -> bool:
    """Tell whether the bytes begin a gzip or zstd stream."""
    return raw.startswith((_GZIP, _ZSTD))


def expand_head(raw: bytes, limit: int = HEAD_BYTES) -> tuple[bytes, str]:
    """Return up to `limit` first bytes of what `raw` holds, decompressed, and what went wrong.

    `raw` is the beginning of a file: plain, gzip or zstd. Memory is bounded by `limit` whatever
    the file claims.
    """
    if raw.startswith(_GZIP):
        return _expand_gzip(raw, limit)
    if raw.startswith(_ZSTD):
        return _expand_zstd(raw, limit)
    return raw[:limit], ""


def _expand_gzip(raw: bytes, limit: int) -> tuple[bytes, str]:
    parts: list[bytes] = []
    size = 0
    while raw.startswith(_GZIP) and size < limit:
        member = zlib.decompressobj(wbits=31)
        try:
            parts.append(member.decompress(raw, limit - size))
        except zlib.error as error:
            return b"".join(parts), f"damaged gzip data ({error})"
        size += len(parts[-1])
        raw = member.unused_data
    return b"".join(parts), ""


def _expand_zstd(raw: bytes, limit: int) -> tuple[bytes, str]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)
    parts: list[bytes] = []
    size = 0
    try:
        with decompressor.stream_reader(raw, read_across_frames=True) as reader:
            while size < limit and (part := reader.read(limit - size)):
                parts.append(part)
                size += len(part)
    except zstandard.ZstdError as error:
        return b"".join(parts), f"damaged zstd data ({error})"
    return b"".join(parts), ""
