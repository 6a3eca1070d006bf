"""What goes to a task and what comes back, as plain data.

Both travel as JSON in ASCII, because file names may hold bytes that are no text.
"""

from __future__ import annotations

import hashlib
import json
import re
from enum import StrEnum
from typing import Any, Self, TypeVar

import msgspec
from msgspec import Struct

from trace_analyzer.batch.rows import RunRows
from trace_analyzer.batch.units import UnitKind

_SLUG = re.compile(r"[^A-Za-z0-9._-]+")
_SLUG_CHARACTERS = 60
_ID_DIGITS = 12
_T = TypeVar("_T")


class Failure(StrEnum):
    """Why a run failed."""

    UNREADABLE = "unreadable"  # nothing in it can be analysed
    UNREACHABLE = "unreachable"  # a store or disk did not do its work: says nothing of the run
    MEMORY = "memory"  # it needs more than the limit
    TIME = "time"  # it takes longer than the limit
    CRASHED = "crashed"  # its process died by itself
    KILLED = "killed"  # somebody else ended its process, again and again: says nothing of the run
    DEFECT = "defect"  # of trace-analyzer


# Failures that say nothing of the run: it is tried again the next time, without being asked.
PASSING = frozenset({Failure.UNREACHABLE, Failure.KILLED})


class Limits(Struct, frozen=True, kw_only=True):
    """What one process may use; None is no limit of time, and a fair share of memory."""

    time_s: float | None = None
    memory_bytes: int | None = None
    share: int = 1  # processes that run beside it on its machine, itself included


class TaskFile(Struct, frozen=True):
    """A file of a unit: its path inside the archive, its size, and its stamp where it has one."""

    name: str
    bytes: int
    stamp: str = ""


class Known(Struct, frozen=True):
    """What the index holds of a run: hashes over the stamps and over the content of its files."""

    fingerprint: str
    digest: str


class Task(Struct, frozen=True, kw_only=True):
    """Open one unit and analyse the run in it; where there are several, name them.

    `only` is the name of one that was named before; `files` are then its own.
    """

    archive: str  # path or URL
    out: str
    unit: str
    kind: UnitKind
    files: list[TaskFile]
    limits: Limits
    only: str | None = None
    known: dict[str, Known] = {}  # by run id: runs that need no work while they are the same
    version: str | None = None  # of kept results that may be taken; None takes any
    retry: bool = False  # kept failures count for nothing
    list_only: bool = False
    unpacked: str | None = None  # folder of an archive's members, where they are unpacked already


class RunFound(Struct, frozen=True, kw_only=True):
    """A run that a unit holds. `files` are paths inside the unit.

    `fingerprint` is empty where a change could go unnoticed, `digest` where nothing was hashed.
    """

    id: str
    name: str
    fingerprint: str
    digest: str
    bytes: int
    files: list[str]
    described: str


class RunResult(Struct, frozen=True, kw_only=True):
    """What became of a run; `rows` is None for one that is known already or left for a task.

    `detail` is for the log: a traceback, the end of what a crashed process wrote.
    """

    found: RunFound
    rows: RunRows | None = None
    known: bool = False
    kept: bool = False  # an earlier process had finished it
    seconds: float = 0.0
    peak_bytes: int = 0
    attempts: int = 1
    detail: str = ""


class UnitResult(Struct, frozen=True, kw_only=True):
    """What a task found. `nothing` says why a unit holds no run."""

    version: str
    runs: list[RunResult] = []
    nothing: str = ""
    seconds: float = 0.0


class Sealed(bytes):
    """A task or a result under way; schedulers may print it, and it may hold credentials."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Say nothing of the content."""
        return f"<{len(self)} bytes>"

    __str__ = __repr__

    @classmethod
    def of(cls, message: Struct) -> Self:
        """Return a message as bytes."""
        return cls(json.dumps(msgspec.to_builtins(message)).encode("ascii"))


def opened(sealed: bytes, kind: type[_T]) -> _T:
    """Return the message that `Sealed.of` wrapped."""
    document: Any = json.loads(sealed)
    return msgspec.convert(document, kind)


def run_id(name: str) -> str:
    """Return the id of a run by its place in the archive."""
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_ID_DIGITS]


def run_folder(name: str) -> str:
    """Return the folder of a run's results inside the output, ready for every file system."""
    slug = _SLUG.sub("_", name).strip("._")[-_SLUG_CHARACTERS:].lstrip("._-")
    return f"runs/{slug}-{run_id(name)}" if slug else f"runs/{run_id(name)}"


def shown(name: str) -> str:
    """Return a file name as text: what is no valid Unicode becomes U+FFFD."""
    return name.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


__all__ = [
    "PASSING",
    "Failure",
    "Known",
    "Limits",
    "RunFound",
    "RunResult",
    "Sealed",
    "Task",
    "TaskFile",
    "UnitResult",
    "opened",
    "run_folder",
    "run_id",
    "shown",
]
