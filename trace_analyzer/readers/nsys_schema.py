"""An nsys SQLite export as tables and columns: opened read-only, probed, and read into arrays.

Every table and most columns are optional in some version or with some option, so nothing here
asks for a version: `pragma table_info` decides.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import numpy as np

from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.readers.nsys_columns import distinct
from trace_analyzer.readers.nsys_database import explain, open_database
from trace_analyzer.schema import NA_INT64, Int64Array

_BATCH_ROWS = 20_000
_LOOKUP_IDS = 500  # below SQLite's limit of variables in every build
_SCAN_SHARE = 4  # all texts are read where at least one in so many is wanted
_MARK_TABLES = (
    "CUPTI_ACTIVITY_KIND_",
    "EXPORT_META_DATA",
    "META_DATA_CAPTURE",
    "META_DATA_EXPORT",
    "NVTX_EVENTS",
    "TARGET_INFO_SESSION_START_TIME",
)

Result = TypeVar("Result")


def is_nsys(tables: Iterable[str]) -> bool:
    """Tell whether these tables are those of an nsys export (nvprof's have other string tables)."""
    names = set(tables)
    return any(name.startswith(_MARK_TABLES) for name in names) and "StringTable" not in names


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Export:
    """One export, open for reading. Use it in a `with` block.

    `tables` maps every table to its columns (name → whether it may hold NULL). `odd_values` counts
    what stood in a numeric column and was no number; it is read as missing. Any error of the
    database turns into `UnreadableInputError`.
    """

    def __init__(self, path: Path, display: str | None = None) -> None:
        self.path = path
        self.display = display or str(path)
        self.odd_values = 0
        self._stack = ExitStack()
        try:
            with self._errors():
                self._connection = open_database(path, self.display, self._stack)
                self.tables = self._probe()
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _probe(self) -> dict[str, dict[str, bool]]:
        names = self._connection.execute(
            "select name from sqlite_master where type = 'table'"
        ).fetchall()
        return {
            name: {
                row[1]: not row[3]
                for row in self._connection.execute(f"pragma table_info({_quoted(name)})")
            }
            for (name,) in names
        }

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            # The message of a damaged schema quotes it, and may be no text at all.
            problem, hint = explain(str(error))
            raise UnreadableInputError(self.display, problem, hint) from error

    def has(self, table: str, *columns: str) -> bool:
        """Tell whether the table is there with all these columns."""
        return table in self.tables and all(name in self.tables[table] for name in columns)

    def count(self, table: str) -> int:
        """Return the number of rows, as told by the largest row id: exact in any fresh export."""
        if table not in self.tables:
            return 0
        (last,) = self.rows(f"select max(rowid) from {_quoted(table)}")[0]  # noqa: S608 -- quoted
        return last if isinstance(last, int) else 0

    def rows(self, query: str, parameters: Sequence[int] = ()) -> list[tuple[object, ...]]:
        """Return all rows of a query: for small tables and for text."""
        with self._errors():
            return self._lenient(lambda: self._connection.execute(query, parameters).fetchall())

    def _lenient(self, fetch: Callable[[], Result]) -> Result:
        """Fetch text; where it is no UTF-8, once more with replacement characters."""
        try:
            return fetch()
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise
            self._connection.text_factory = _text
            return fetch()

    def texts(self, table: str, *columns: str) -> list[tuple[object, ...]]:
        """Return these columns of a small table, None for a column or table that is absent."""
        if table not in self.tables:
            return []
        wanted = ", ".join(
            _quoted(name) if name in self.tables[table] else "null" for name in columns
        )
        return self.rows(f"select {wanted} from {_quoted(table)}")  # noqa: S608 -- quoted

    def integers(
        self, table: str, columns: Sequence[str], *, row_ids: bool = False
    ) -> dict[str, Int64Array]:
        """Return integer columns as int64 arrays of equal length, in the order of the file.

        NULL is NA; so is every value of a column that the table does not have. With `row_ids`,
        the key "rowid" is added. An absent table has no rows.
        """
        if table not in self.tables:
            return {name: np.empty(0, dtype=np.int64) for name in (*columns, "rowid")}
        nullable = self.tables[table]
        present = [name for name in columns if name in nullable]
        plain = [
            f"coalesce({_quoted(name)}, ?1)" if nullable[name] else _quoted(name)
            for name in present
        ]
        if row_ids:
            present = [*present, "rowid"]
            plain = [*plain, "rowid"]
        if not plain:
            raise UnreadableInputError(
                self.display, f"table {table} has none of the columns of an nsys export"
            )
        try:
            parts = self._parts(table, plain)
        except (TypeError, ValueError, OverflowError):
            parts = self._parts(table, self._checked(table, present))
        length = sum(map(len, parts[0]))
        # Popped one by one, so that a column's parts are freed before the next is joined.
        result = {name: _joined(parts.pop(0)) for name in present}
        for name in columns:
            if name not in result:
                result[name] = np.full(length, NA_INT64, dtype=np.int64)
        return result

    def _parts(self, table: str, expressions: Sequence[str]) -> list[list[Int64Array]]:
        """Read in batches; return the parts of each column."""
        width = len(expressions)
        query = f"select {', '.join(expressions)} from {_quoted(table)}"  # noqa: S608 -- quoted
        parameters = (NA_INT64,) if "?1" in query else ()
        parts: list[list[Int64Array]] = [[] for _ in expressions]
        with self._errors():
            count = f"select count(*) from {_quoted(table)}"  # noqa: S608 -- quoted
            (left,) = self._connection.execute(count).fetchone()
            values = chain.from_iterable(self._connection.execute(query, parameters))
            while left > 0:
                batch = min(left, _BATCH_ROWS)
                flat = np.fromiter(values, dtype=np.int64, count=batch * width)
                left -= batch
                for position, part in enumerate(parts):
                    part.append(flat[position::width].copy())
        return parts

    def _checked(self, table: str, columns: Sequence[str]) -> list[str]:
        """Return expressions that read text and blobs in numeric columns as missing, and count."""
        expressions: list[str] = []
        for name in columns:
            column = _quoted(name)
            query = (
                f"select count(*) from {_quoted(table)} "  # noqa: S608 -- quoted
                f"where typeof({column}) not in ('integer', 'null')"
            )
            self.odd_values += int(str(self.rows(query)[0][0]))
            expressions.append(f"case typeof({column}) when 'integer' then {column} else ?1 end")
        return expressions

    def strings(self, ids: Int64Array) -> dict[int, str]:
        """Return the texts of these `StringIds`; ids without a text are left out."""
        if not self.has("StringIds", "id", "value"):
            return {}
        wanted = distinct(ids[ids >= 0])[0].tolist()
        query = "select id, value from StringIds where value is not null"
        with self._errors():
            if len(wanted) * _SCAN_SHARE > self.count("StringIds"):
                return self._lenient(lambda: dict(self._connection.execute(query)))
        found: dict[int, str] = {}
        for first in range(0, len(wanted), _LOOKUP_IDS):
            part = wanted[first : first + _LOOKUP_IDS]
            marks = ",".join("?" * len(part))
            rows = self.rows(f"{query} and id in ({marks})", part)
            found.update(
                (key, text) for key, text in rows if isinstance(key, int) and isinstance(text, str)
            )
        return found


def _joined(parts: Sequence[Int64Array]) -> Int64Array:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
