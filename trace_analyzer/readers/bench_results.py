"""`bench_allreduce.json` and `bench_links.json`, as references for what a run's links deliver.

The schema is `trace_analyzer/data/schemas/bench.schema.json`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from trace_analyzer.allowlist import shown_value
from trace_analyzer.bench_facts import BenchLink, BenchResult, BenchSize, Interval
from trace_analyzer.bundle import read_json_object
from trace_analyzer.errors import UnreadableInputError

_SCHEMA_VERSION = 1
_HINT = "run `trace-analyzer bench` again"
KINDS = frozenset({"allreduce", "links"})  # the other kinds bound no link

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Positive = Annotated[float, msgspec.Meta(gt=0)]


class _Limit(msgspec.Struct):
    gbs: Positive
    basis: str


class _Fit(msgspec.Struct):
    latency_us: float
    busbw_gbs: float


class _Size(msgspec.Struct):
    bytes: Count
    time_us: Positive
    time_interval_us: Interval
    busbw_gbs: Positive
    busbw_interval_gbs: Interval


class _Link(msgspec.Struct):
    src: Count
    dst: Count
    bytes: Count
    latency_us: float
    latency_interval_us: Interval
    bandwidth_gbs: Positive
    bandwidth_interval_gbs: Interval
    limit_gbs: Positive | None
    limit_basis: str | None


class _Head(msgspec.Struct):
    kind: str
    device: str
    backend: str
    ranks: Count
    gpus: list[str]


class _AllReduce(_Head):
    dtype: str
    limit: _Limit | None
    fit: _Fit
    rows: list[_Size]


class _Links(_Head):
    rows: list[_Link]


_Document = TypeVar("_Document", bound=_Head)


def read(path: Path, *, display: str | None = None) -> BenchResult | None:
    """Return a benchmark, or None for a kind that bounds no link (`step`, `nccl-env`).

    Raises `UnreadableInputError` where it cannot be read, is of another schema, or holds values
    that no measurement can have.
    """
    shown = display or str(path)
    document = read_json_object(path, display=shown)
    if document.get("schema_version") != _SCHEMA_VERSION:
        raise UnreadableInputError(
            shown,
            f"benchmark schema {document.get('schema_version')!r} is not {_SCHEMA_VERSION}",
            "update trace-analyzer",
        )
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        return None
    return _allreduce(document, shown) if kind == "allreduce" else _links(document, shown)


def _allreduce(document: dict[str, object], shown: str) -> BenchResult:
    found = _converted(document, _AllReduce, shown)
    limit = found.limit
    return BenchResult(
        path=shown,
        kind=found.kind,
        device=found.device,
        backend=found.backend,
        ranks=found.ranks,
        gpus=tuple(shown_value(name) for name in found.gpus),
        dtype=found.dtype,
        latency_us=found.fit.latency_us,
        busbw_gbs=found.fit.busbw_gbs,
        limit_gbs=None if limit is None else limit.gbs,
        limit_basis="" if limit is None else limit.basis,
        sizes=tuple(
            BenchSize(
                bytes=row.bytes,
                time_us=row.time_us,
                time_interval_us=row.time_interval_us,
                busbw_gbs=row.busbw_gbs,
                busbw_interval_gbs=row.busbw_interval_gbs,
            )
            for row in sorted(found.rows, key=lambda row: row.bytes)
        ),
    )


def _links(document: dict[str, object], shown: str) -> BenchResult:
    found = _converted(document, _Links, shown)
    return BenchResult(
        path=shown,
        kind=found.kind,
        device=found.device,
        backend=found.backend,
        ranks=found.ranks,
        gpus=tuple(shown_value(name) for name in found.gpus),
        links=tuple(
            BenchLink(
                source=row.src,
                destination=row.dst,
                bytes=row.bytes,
                latency_us=row.latency_us,
                latency_interval_us=row.latency_interval_us,
                bandwidth_gbs=row.bandwidth_gbs,
                bandwidth_interval_gbs=row.bandwidth_interval_gbs,
                limit_gbs=row.limit_gbs,
                limit_basis=row.limit_basis or "",
            )
            for row in sorted(found.rows, key=lambda row: (row.src, row.dst))
        ),
    )


def _converted(document: dict[str, object], form: type[_Document], shown: str) -> _Document:
    try:
        found = msgspec.convert(document, form)
    except msgspec.ValidationError as error:
        raise UnreadableInputError(shown, str(error).lower(), _HINT) from error
    numbers = _numbers(document.get("rows")) + _numbers([document.get("fit")])
    if not all(math.isfinite(number) for number in numbers):
        raise UnreadableInputError(shown, "a measured value is not finite", _HINT)
    return found


def _float(number: float) -> float:
    """Return a number as a float; infinite where none is that large."""
    try:
        return float(number)
    except OverflowError:
        return float("inf")


def _numbers(rows: object) -> list[float]:
    """Return the numbers in a list of objects, those in their intervals included."""
    found: list[float] = []
    for row in rows if isinstance(rows, list) else []:
        for value in row.values() if isinstance(row, dict) else []:
            inside = value if isinstance(value, list) else [value]
            found += [_float(number) for number in inside if isinstance(number, int | float)]
    return found


__all__ = ["KINDS", "read"]
