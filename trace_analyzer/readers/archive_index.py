"""The runs of an archive's `index.db` that another run can be compared with."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from trace_analyzer.errors import UnreadableInputError

_MAGIC = b"SQLite format 3\0"
_SCHEMA_VERSION = 1
_NOT_COMPUTE = ("communication", "memcpy", "memset")
# Parts of a rank's mean step that the index holds.
PARTS = (
    "step_ms",
    "compute_ms",
    "comm_exposed_ms",
    "comm_exposed_transfer_ms",
    "comm_exposed_wait_ms",
    "copy_exposed_ms",
    "idle_ms",
    "idle_launch_ms",
)

Shape = tuple[int, ...] | None
KernelKey = tuple[str, Shape, Shape]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFinding:
    """A finding as the index holds it."""

    name: str
    kind: str
    title: str
    recoverable_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRun:
    """A run of the archive. `unprofiled_ms` is None where it was not timed without a profiler.

    `ranks` maps a rank to parts of its step, `kernels` a name and launch shape to (ms a step, calls
    a step) and family.
    """

    name: str
    started: str
    unprofiled_ms: float | None
    profiled_ms: float | None
    ranks: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    kernels: Mapping[KernelKey, tuple[float, float, str]] = field(default_factory=dict)
    findings: Mapping[str, ArchivedFinding] = field(default_factory=dict)

    @property
    def compute_names(self) -> set[str]:
        """Names of its computing kernels."""
        return {key[0] for key, row in self.kernels.items() if row[2] not in _NOT_COMPUTE}


def is_index(path: Path) -> bool:
    """Tell whether a file is the index of an archive."""
    try:
        with path.open("rb") as stream:
            if stream.read(len(_MAGIC)) != _MAGIC:
                return False
        with closing(_opened(path)) as base:
            tables = {row[0] for row in base.execute("SELECT name FROM sqlite_master")}
    except (OSError, sqlite3.DatabaseError):
        return False
    return {"runs", "findings", "kernel_names", "units"} <= tables


def archived_runs(
    path: Path, *, world_size: int | None, gpu: str | None, before: str | None, without: set[str]
) -> Iterator[ArchivedRun]:
    """Yield the analysed runs of this size and GPU, newest first, those with a start first.

    `before` leaves out what began later (ISO 8601), `without` runs that hold a file of these
    SHA-256. Raises `UnreadableInputError` for an index of another schema.
    """
    with closing(_opened(path)) as base:
        version = base.execute("PRAGMA user_version").fetchone()[0]
        if version != _SCHEMA_VERSION:
            raise UnreadableInputError(
                str(path),
                f"index schema {version} is not {_SCHEMA_VERSION}",
                "make it again with trace-analyzer batch --refresh",
            )
        query = (
            "SELECT id, name, started, step_ms, step_basis, profiled_ms FROM runs "
            "WHERE present AND state != 'failed' AND step_ms IS NOT NULL "
            "AND world_size IS ? AND gpu IS ? AND (? IS NULL OR started IS NULL OR started < ?) "
            "ORDER BY started IS NULL, started DESC, name"
        )
        for row in base.execute(query, (world_size, gpu, before, before)).fetchall():
            number, name, started, step_ms, basis, profiled_ms = row
            files = base.execute("SELECT sha256 FROM files WHERE run_id = ?", (number,))
            if without & {digest for (digest,) in files}:
                continue
            yield ArchivedRun(
                name=name,
                started=started or "",
                unprofiled_ms=step_ms if basis in {"measured", "given"} else None,
                profiled_ms=profiled_ms,
                ranks=_ranks(base, number),
                kernels=_kernels(base, number),
                findings=_findings(base, number),
            )


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _ranks(base: sqlite3.Connection, run: str) -> dict[int, dict[str, float]]:
    columns = ", ".join(PARTS)
    rows = base.execute(
        f"SELECT rank, {columns} FROM ranks WHERE run_id = ?",  # noqa: S608 - our own names
        (run,),
    )
    return {
        row[0]: {
            name: value for name, value in zip(PARTS, row[1:], strict=True) if value is not None
        }
        for row in rows
        if row[1] is not None
    }


def _kernels(base: sqlite3.Connection, run: str) -> dict[KernelKey, tuple[float, float, str]]:
    rows = base.execute(
        "SELECT n.name, k.grid, k.block, k.mean_us, k.count_per_step, k.category "
        "FROM kernels k JOIN kernel_names n ON n.id = k.name_id WHERE k.run_id = ?",
        (run,),
    )
    return {
        (name, _shape(grid), _shape(block)): (mean_us * calls / 1e3, calls, category)
        for name, grid, block, mean_us, calls, category in rows
        if calls
    }


def _shape(text: Any) -> Shape:  # noqa: ANN401
    return tuple(msgspec.json.decode(text, type=list[int])) if text else None


def _findings(base: sqlite3.Connection, run: str) -> dict[str, ArchivedFinding]:
    rows = base.execute(
        "SELECT code, name, kind, title, recoverable_ms FROM findings WHERE run_id = ? "
        "ORDER BY position DESC",
        (run,),
    )
    return {
        code: ArchivedFinding(name=name, kind=kind, title=title, recoverable_ms=gain)
        for code, name, kind, title, gain in rows
    }


__all__ = ["PARTS", "ArchivedFinding", "ArchivedRun", "KernelKey", "archived_runs", "is_index"]
