"""`index.db`: every run of the archive, its findings and numbers, in one SQLite file.

One process writes it, one transaction a result: whoever reads it, and whenever it is killed, sees
whole runs. What it holds can be made again from what every run keeps beside its report.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

import msgspec
from sqlite_utils import Database

from trace_analyzer.batch.rows import TABLES, KernelRow, Row, RunRows, values
from trace_analyzer.batch.schema import SCHEMA_VERSION, create
from trace_analyzer.batch.tasks import PASSING, Known, RunResult, run_id, shown
from trace_analyzer.errors import UnreadableInputError

_PASSING = tuple(str(failure) for failure in PASSING)
_MARKS = ",".join("?" for _ in _PASSING)


@dataclass(frozen=True, slots=True)
class FinishedUnit:
    """A unit of which nothing is left to be done: the ids of its runs, or why it has none."""

    name: str
    fingerprint: str
    runs: tuple[str, ...]
    nothing: str = ""


class Index:
    """The open index. Use it as a context manager."""

    def __init__(self, path: Path, shown_path: str) -> None:
        if not path.exists():
            _create(path)
        self.base = Database(path)
        self._conn: sqlite3.Connection = self.base.conn
        try:
            version = self._conn.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.DatabaseError as error:
            self._refuse(shown_path, f"cannot be used ({error})")
        if version != SCHEMA_VERSION:
            self._refuse(shown_path, f"is no index of schema {SCHEMA_VERSION}")

    def _refuse(self, shown_path: str, problem: str) -> NoReturn:
        self._conn.close()
        raise UnreadableInputError(
            shown_path, problem, "remove it: it is made again from the reports beside it"
        )

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection, for reading."""
        return self._conn

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._conn.close()

    # -- what is known ------------------------------------------------------------------------

    def fingerprints(self) -> dict[str, str]:
        """Return unit id → fingerprint of all units that are done."""
        return dict(self._conn.execute("SELECT id, fingerprint FROM units"))

    def unfinished_units(self, *, retry: bool, version: str | None) -> set[str]:
        """Return the ids of units with runs that are to be tried again.

        Those are runs whose failure was passing, with `retry` all that failed, and with `version`
        all that another version analysed.
        """
        wanted = f"failure IN ({_MARKS})"
        if retry:
            wanted += " OR state = 'failed'"
        arguments: list[object] = [*_PASSING]
        if version is not None:
            wanted += " OR tool_version != ?"
            arguments.append(version)
        rows = self._conn.execute(f"SELECT DISTINCT unit FROM runs WHERE {wanted}", arguments)  # noqa: S608 (built above)
        return {run_id(unit) for (unit,) in rows}

    def known(self, unit: str, *, retry: bool, version: str | None) -> dict[str, Known]:
        """Return, by run id, the runs of a unit that need no work while they are the same."""
        query = (
            "SELECT r.id, a.fingerprint, r.digest FROM runs r JOIN analyses a ON a.run_id = r.id "  # noqa: S608
            f"WHERE r.unit = ? AND r.failure NOT IN ({_MARKS})"
        )
        arguments: list[object] = [shown(unit), *_PASSING]
        if retry:
            query += " AND r.state != 'failed'"
        if version is not None:
            query += " AND r.tool_version = ?"
            arguments.append(version)
        rows = self._conn.execute(query, arguments)
        return {key: Known(*hashes) for key, *hashes in rows if any(hashes)}

    # -- what is written ----------------------------------------------------------------------

    def write(self, results: Sequence[RunResult], units: Sequence[FinishedUnit]) -> None:
        """Put runs in, in place of what was there for them, and note units that are done.

        Of results without rows, runs that are known already, only the fingerprint is noted.

        A unit that is done holds the runs that it names, and none that it held before. All is
        written, or nothing.
        """
        finished = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        with self._transaction():
            for result in results:
                if result.rows is None:
                    self._conn.execute(
                        "UPDATE analyses SET fingerprint = ? WHERE run_id = ?",
                        (result.found.fingerprint, result.found.id),
                    )
                    continue
                self._remove(result.rows.run.id)
                self._insert(result.rows)
                work = (round(result.seconds, 3), result.peak_bytes, result.attempts)
                self._conn.execute(
                    "INSERT INTO analyses VALUES (?, ?, ?, ?, ?, ?)",
                    (result.rows.run.id, result.found.fingerprint, finished, *work),
                )
            for unit in units:
                self._finish(unit)

    def _finish(self, unit: FinishedUnit) -> None:
        name = shown(unit.name)
        held = [(key,) for key in unit.runs]
        self._conn.execute("UPDATE runs SET present = 0 WHERE unit = ?", (name,))
        self._conn.executemany("UPDATE runs SET present = 1 WHERE id = ?", held)
        self._conn.execute(
            "INSERT OR REPLACE INTO units VALUES (?, ?, ?, ?, ?)",
            (run_id(name), name, unit.fingerprint, len(held), unit.nothing),
        )

    def settle(self, units: Iterable[str]) -> list[str]:
        """Mark the runs that the archive does not hold any more; `units` are the ids that it holds.

        Return the names of runs that were removed: those that are elsewhere now, with the same
        content, and those that had failed.
        """
        held = set(units)
        stored = self._conn.execute("SELECT id, name FROM units").fetchall()
        with self._transaction():
            for key, name in stored:
                if key not in held:
                    self._conn.execute("UPDATE runs SET present = 0 WHERE unit = ?", (name,))
                    self._conn.execute("DELETE FROM units WHERE id = ?", (key,))
            gone = self._conn.execute(
                "SELECT id, name FROM runs WHERE NOT present AND (state = 'failed' OR EXISTS "
                "(SELECT 1 FROM runs here WHERE here.digest = runs.digest AND here.present))"
            ).fetchall()
            for key, _ in gone:
                self._remove(key)
        return [name for _, name in gone]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._conn.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._conn.rollback()
            raise
        self._conn.commit()

    def _remove(self, key: str) -> None:
        # Names of kernels stay: other runs have them too.
        for table in (*TABLES, "analyses"):
            self._conn.execute(f"DELETE FROM {table} WHERE run_id = ?", (key,))  # noqa: S608 (ours)
        self._conn.execute("DELETE FROM runs WHERE id = ?", (key,))

    def _insert(self, rows: RunRows) -> None:
        self._insert_all("runs", [rows.run], {})
        for table in TABLES:
            found: Sequence[Row] = getattr(rows, table)
            if table == "kernels":
                found = [_with_name_id(row) for row in found if isinstance(row, KernelRow)]
                self._conn.executemany(
                    "INSERT OR IGNORE INTO kernel_names VALUES (?, ?)",
                    [(_name_id(row.name), row.name) for row in rows.kernels],
                )
            self._insert_all(table, found, {"run_id": rows.run.id})

    def _insert_all(self, table: str, rows: Sequence[Row], first: Mapping[str, str]) -> None:
        if not rows:
            return
        stored = [{**first, **values(row)} for row in rows]
        names = ", ".join(f'"{name}"' for name in stored[0])
        marks = ", ".join("?" for _ in stored[0])
        self._conn.executemany(
            f"INSERT INTO {table} ({names}) VALUES ({marks})",  # noqa: S608 (names of our own)
            [tuple(row.values()) for row in stored],
        )


def _create(path: Path) -> None:
    """Create an empty index in one step."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    base = Database(unfinished)
    create(base)
    base.conn.close()
    unfinished.replace(path)


class _NamedKernelRow(Row, frozen=True, kw_only=True):
    """A kernel whose name is a key of the table kernel_names."""

    name_id: int
    category: str
    count: int
    count_per_step: float | None
    total_ms: float
    mean_us: float
    grid: list[int] | None
    block: list[int] | None


def _with_name_id(row: KernelRow) -> _NamedKernelRow:
    fields = {key: value for key, value in msgspec.structs.asdict(row).items() if key != "name"}
    return _NamedKernelRow(name_id=_name_id(row.name), **fields)


def _name_id(name: str) -> int:
    """Return the key of a name: the same whichever run comes first."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")


__all__ = ["FinishedUnit", "Index"]
