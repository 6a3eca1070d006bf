"""Small tables, row by row: the run, its files, ranks, devices, groups, warnings and findings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import msgspec

from trace_analyzer import __version__, tables
from trace_analyzer.analyses.study import Study
from trace_analyzer.export import table_declarations as declared
from trace_analyzer.export.clock import CommonClock
from trace_analyzer.export.finding_ranges import ranges_of
from trace_analyzer.findings import Report
from trace_analyzer.model import Rank

Rows = Iterator[tuple[Any, ...]]

_ENUMS: tuple[type[IntEnum], ...] = (
    tables.OperationKind,
    tables.WorkClass,
    tables.HostCategory,
    tables.CallKind,
    tables.SyncKind,
)


def run_rows(report: Report, clock: CommonClock) -> Rows:
    run, verdict = report.run, report.verdict
    yield "trace_analyzer_version", __version__
    for key in ("name", "started", "gpu", "parallelism", "command"):
        yield key, getattr(run, key)
    yield "world_size", None if run.world_size is None else str(run.world_size)
    yield "steps_cut_at", report.steps.boundary
    yield "common_clock_zero_unix_ns", None if clock.base_ns is None else str(clock.base_ns)
    yield "verdict_state", verdict.state
    yield "verdict", verdict.headline
    yield "step_ms", None if verdict.step_ms is None else str(verdict.step_ms)


def source_rows(report: Report) -> Rows:
    for number, item in enumerate(report.run.sources):
        yield number, item.path, item.kind, item.bytes, item.sha256, item.tool


def rank_row(rank: Rank, study: Study, report: Report, clock: CommonClock) -> tuple[Any, ...]:
    gpu = next((item.gpu for item in report.ranks if item.rank == rank.rank), None)
    item = study.ranks.get(rank.rank)
    window: tuple[int | None, ...] = (None,) * 7
    if item is not None:
        parts = item.window
        window = (
            item.steps.window_start_ns,
            item.steps.window_end_ns,
            *(
                int(values[0])
                for values in (
                    parts.compute_ns,
                    parts.comm_ns,
                    parts.comm_exposed_ns,
                    parts.copy_exposed_ns,
                    parts.idle_ns,
                )
            ),
        )
    return (
        rank.rank,
        rank.rank_basis,
        rank.source.value,
        rank.path,
        rank.host,
        rank.pid,
        gpu,
        rank.clock_base_ns,
        clock.shift_ns[rank.rank],
        *window,
    )


def device_rows(study: Study) -> Rows:
    for rank in study.run.ranks:
        for item in rank.devices:
            yield (
                rank.rank,
                item.ordinal,
                item.name,
                item.bus_id,
                item.uuid,
                item.sm_count,
                item.memory_bytes,
            )


def group_rows(study: Study) -> Rows:
    for rank in study.run.ranks:
        for number, group in enumerate(rank.groups):
            members = json.dumps(list(group.ranks)) if group.ranks else ""
            yield (
                rank.rank,
                number,
                group.name,
                group.description,
                group.backend,
                group.size,
                members,
            )


def warning_rows(report: Report) -> Rows:
    for number, item in enumerate(report.warnings):
        ranks = json.dumps(item.ranks)
        yield number, item.code, item.severity, item.message, item.effect, item.count, ranks


def finding_rows(report: Report) -> Rows:
    for number, item in enumerate(report.findings):
        low, high = item.recoverable_interval_ms or (None, None)
        evidence = [msgspec.to_builtins(part) for part in item.evidence]
        yield (
            number,
            item.code,
            item.name,
            item.kind,
            item.status,
            item.title,
            item.severity,
            json.dumps(item.ranks),
            item.recoverable_ms,
            low,
            high,
            item.ceiling_ms,
            item.basis,
            item.confidence,
            item.proof,
            json.dumps(item.actions, ensure_ascii=False),
            json.dumps(evidence, ensure_ascii=False),
        )


def range_rows(study: Study, report: Report) -> Rows:
    for number, finding in enumerate(report.findings):
        for position, one in enumerate(ranges_of(finding)):
            item = study.ranks.get(one.rank)
            window = 0 if item is None else item.steps.window_start_ns
            yield number, position, one.rank, one.start_ns + window, one.end_ns + window, one.label


def code_rows() -> Rows:
    for enum in _ENUMS:
        for member in enum:
            yield enum.__name__, member.value, member.name


def column_rows() -> Rows:
    for table in declared.ALL:
        for spec in table.columns:
            yield table.name, spec.name, spec.dtype, spec.unit, spec.nullable, spec.meaning
