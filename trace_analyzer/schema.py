"""Typed columns: what a table of events is made of.

A table is a frozen dataclass whose fields are numpy arrays of equal length. Every field is
declared with `column(...)`, which states its dtype, unit, meaning and whether values may be
missing; the documentation of the data model is generated from these declarations.

Missing integers are NA: the smallest value of the column's type, as in numpy's NaT. It is never
-1, because -1 and 0 are values that profilers write. `is_na` tells, `to_pandas` shows `<NA>`.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from trace_analyzer.errors import SchemaError

if TYPE_CHECKING:
    import pandas as pd

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int16Array = npt.NDArray[np.int16]
Int8Array = npt.NDArray[np.int8]
Float64Array = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
AnyArray = npt.NDArray[Any]

NA_INT64 = int(np.iinfo(np.int64).min)
NA_INT32 = int(np.iinfo(np.int32).min)
NA_INT16 = int(np.iinfo(np.int16).min)
NA_INT8 = int(np.iinfo(np.int8).min)


def na_of(dtype: np.dtype[Any] | str) -> int | float:
    """Return the value that stands for "missing" in a column of this type.

    Raises `SchemaError` for a type that cannot hold a missing value (bool).
    """
    kind = np.dtype(dtype)
    if kind.kind == "i":
        return int(np.iinfo(kind).min)
    if kind.kind == "f":
        return float("nan")
    msg = f"a {kind} column has no missing value"
    raise SchemaError(msg)


def is_na(values: AnyArray) -> BoolArray:
    """Return a mask, shape of `values`, that is true where a value is missing."""
    if values.dtype.kind == "f":
        return np.asarray(np.isnan(values), dtype=np.bool_)
    if values.dtype.kind == "i":
        return np.asarray(values == np.iinfo(values.dtype).min, dtype=np.bool_)
    return np.zeros(values.shape, dtype=np.bool_)


def widened(values: AnyArray) -> Int64Array:
    """Return integers as int64, missing values as those of int64; shape of `values`."""
    wide = values.astype(np.int64)
    wide[is_na(values)] = NA_INT64
    return wide


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """The declaration of one column."""

    name: str
    dtype: str
    unit: str
    meaning: str
    nullable: bool


def column(dtype: str, unit: str, meaning: str, *, nullable: bool = False) -> Any:  # noqa: ANN401
    """Declare a column of a table. `unit` is "" for identifiers and codes."""
    return field(metadata={"dtype": dtype, "unit": unit, "meaning": meaning, "nullable": nullable})


def _spec(item: Field[Any]) -> ColumnSpec:
    meta = item.metadata
    return ColumnSpec(item.name, meta["dtype"], meta["unit"], meta["meaning"], meta["nullable"])


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Base of every table: checks its columns, then makes them read-only."""

    def __post_init__(self) -> None:
        specs = self.columns()
        length: int | None = None
        problems: list[str] = []
        for spec in specs:
            values = getattr(self, spec.name)
            if not isinstance(values, np.ndarray) or values.ndim != 1:
                problems.append(f"{spec.name} is not a one-dimensional array")
                continue
            if values.dtype != np.dtype(spec.dtype):
                problems.append(f"{spec.name} is {values.dtype}, not {spec.dtype}")
            length = len(values) if length is None else length
            if len(values) != length:
                problems.append(f"{spec.name} has {len(values)} rows, not {length}")
            values.flags.writeable = False
        if problems:
            raise SchemaError(f"{type(self).__name__}: " + "; ".join(problems))

    def __setstate__(self, state: dict[str, AnyArray]) -> None:
        # What comes from another process is as read-only as what was made here.
        self.__dict__.update(state)
        for spec in self.columns():
            state[spec.name].flags.writeable = False

    @classmethod
    def columns(cls) -> tuple[ColumnSpec, ...]:
        """Return the declared columns in order."""
        return tuple(_spec(item) for item in fields(cls) if item.metadata)

    @classmethod
    def from_columns(cls, count: int, **columns: AnyArray) -> Self:
        """Build a table of `count` rows; nullable columns that are not given are all missing.

        Values are cast to the declared type (a copy is made only where the type differs).
        """
        filled: dict[str, AnyArray] = {}
        for spec in cls.columns():
            if spec.name in columns:
                filled[spec.name] = np.ascontiguousarray(columns.pop(spec.name), dtype=spec.dtype)
            elif spec.nullable:
                filled[spec.name] = np.full(count, na_of(spec.dtype), dtype=spec.dtype)
            else:
                raise SchemaError(f"{cls.__name__}: column {spec.name} is missing")
        if columns:
            raise SchemaError(f"{cls.__name__}: no such column: {', '.join(sorted(columns))}")
        return cls(**filled)

    @classmethod
    def empty(cls) -> Self:
        """Return the table without rows."""
        return cls(**{spec.name: np.empty(0, dtype=spec.dtype) for spec in cls.columns()})

    def __len__(self) -> int:
        first: AnyArray = getattr(self, self.columns()[0].name)
        return len(first)

    def take(self, rows: AnyArray) -> Self:
        """Return the table of these rows: positions, or a mask of the table's length."""
        return type(self)(**{spec.name: getattr(self, spec.name)[rows] for spec in self.columns()})

    @property
    def nbytes(self) -> int:
        """Bytes held by the columns."""
        return sum(int(getattr(self, spec.name).nbytes) for spec in self.columns())

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas copy in which missing integers are `<NA>`."""
        import pandas as pd

        frame: dict[str, Any] = {}
        for spec in self.columns():
            values: AnyArray = getattr(self, spec.name)
            if spec.nullable and values.dtype.kind == "i":
                mask = is_na(values)
                frame[spec.name] = pd.arrays.IntegerArray(np.where(mask, 0, values), mask)
            else:
                frame[spec.name] = values.copy()
        return pd.DataFrame(frame)


__all__ = [
    "NA_INT8",
    "NA_INT16",
    "NA_INT32",
    "NA_INT64",
    "AnyArray",
    "BoolArray",
    "ColumnSpec",
    "Float64Array",
    "Int8Array",
    "Int16Array",
    "Int32Array",
    "Int64Array",
    "Table",
    "column",
    "is_na",
    "na_of",
    "widened",
]
