"""A run's tables as batches: those of the model rank by rank, then what was computed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trace_analyzer import tables
from trace_analyzer.analyses.study import RankStudy, Study
from trace_analyzer.export import describe
from trace_analyzer.export import table_declarations as declared
from trace_analyzer.export.batches import Batch, Column, Texts, batch_of_rows
from trace_analyzer.export.clock import CommonClock, common_clock
from trace_analyzer.export.derived_tables import SPLIT_COLUMNS
from trace_analyzer.export.export_table import NAME
from trace_analyzer.findings import Report
from trace_analyzer.model import Rank
from trace_analyzer.schema import NA_INT64, Int64Array, Table


def contents(study: Study, report: Report) -> Iterator[Batch]:
    """Yield every table in batches, those of one table one after the other."""
    clock = common_clock(study)
    yield from _small_tables(study, report, clock)
    for table in tables.TABLES:
        for rank in study.run.ranks:
            yield _model_batch(table, rank, study.ranks.get(rank.rank))


def row_count(study: Study) -> int:
    """Return the rows of the model's tables, which are nearly all."""
    return sum(len(_of_rank(table, rank)) for table in tables.TABLES for rank in study.run.ranks)


def _small_tables(study: Study, report: Report, clock: CommonClock) -> Iterator[Batch]:
    """Yield what was computed, and what describes the run and the export."""
    yield batch_of_rows(declared.RUN, list(describe.run_rows(report, clock)))
    yield batch_of_rows(declared.SOURCES, list(describe.source_rows(report)))
    yield batch_of_rows(
        declared.RANKS, [describe.rank_row(rank, study, report, clock) for rank in study.run.ranks]
    )
    yield batch_of_rows(declared.DEVICES, list(describe.device_rows(study)))
    yield batch_of_rows(declared.GROUPS, list(describe.group_rows(study)))
    for item in study.ranks.values():
        yield _steps(item, study)
    yield from _matched(study)
    yield batch_of_rows(declared.WARNINGS, list(describe.warning_rows(report)))
    yield batch_of_rows(declared.FINDINGS, list(describe.finding_rows(report)))
    yield batch_of_rows(declared.FINDING_RANGES, list(describe.range_rows(study, report)))
    yield batch_of_rows(declared.CODES, list(describe.code_rows()))
    yield batch_of_rows(declared.COLUMNS, list(describe.column_rows()))


def _of_rank(table: type[Table], rank: Rank) -> Table:
    found: dict[type[Table], Table] = {
        tables.GpuOperations: rank.operations,
        tables.LaunchConfigs: rank.configs,
        tables.HostCalls: rank.calls,
        tables.HostEvents: rank.events,
        tables.Synchronizations: rank.syncs,
        tables.Collectives: rank.collectives,
        tables.Threads: rank.threads,
    }
    return found[table]


def _model_batch(table: type[Table], rank: Rank, item: RankStudy | None) -> Batch:
    """Return a table of one rank; `item` is what was computed of it."""
    given = _of_rank(table, rank)
    into = declared.MODEL[table]
    count = len(given)
    columns: dict[str, Column] = {
        "rank": np.full(count, rank.rank, dtype=np.int32),
        "id": np.arange(count, dtype=np.int64),
    }
    for spec in into.columns:
        if spec.dtype == NAME:
            columns[spec.name] = Texts(getattr(given, spec.name), rank.names)
        elif spec.name == "process_group":
            columns[spec.name] = rank.collectives.group
        elif spec.name == "step":
            columns[spec.name] = _step_of_operations(rank, item)
        elif spec.name not in columns:
            columns[spec.name] = getattr(given, spec.name)
    return Batch(into, columns)


def _step_of_operations(rank: Rank, item: RankStudy | None) -> Int64Array:
    found = np.full(len(rank.operations), NA_INT64, dtype=np.int64)
    if item is not None and len(item.steps):
        row = item.steps.operation_step
        inside = (row >= 0) & (row < len(item.steps))
        found[inside] = item.steps.index[row[inside]]
    return found


def _steps(item: RankStudy, study: Study) -> Batch:
    steps, parts, idle = item.steps, item.parts, item.idle
    count = len(steps)
    number = item.rank.rank
    reasons = dict(study.steady.excluded)
    excluded = [
        "" if steady else reasons.get(index, "")
        for index, steady in zip(steps.index.tolist(), item.steady.tolist(), strict=True)
    ]
    columns: dict[str, Column] = {
        "rank": np.full(count, number, dtype=np.int32),
        "step": steps.index,
        "steady": item.steady,
        "excluded": Texts(np.arange(count), excluded),
        "start_ns": steps.start_ns,
        "end_ns": steps.end_ns,
        "host_start_ns": steps.host_start_ns,
        "host_end_ns": steps.host_end_ns,
        "length_ns": parts.length_ns,
        "compute_ns": parts.compute_ns,
        "comm_ns": parts.comm_ns,
        "comm_exposed_ns": parts.comm_exposed_ns,
        "copy_exposed_ns": parts.copy_exposed_ns,
        "idle_ns": parts.idle_ns,
        "idle_launch_ns": idle.launch_ns,
        "idle_latency_ns": idle.latency_ns,
        "idle_other_ns": idle.other_ns,
        **{f"idle_launch_{name}_ns": values for name, values in idle.launch_by_host.items()},
        **_split(study, number, steps.index),
    }
    return Batch(declared.STEPS, columns)


def _split(study: Study, rank: int, index: Int64Array) -> dict[str, Column]:
    """Return wait and transfer of every step; missing where nothing was matched."""
    missing = np.full(len(index), NA_INT64, dtype=np.int64)
    found = None if study.cross is None else study.cross.ranks[rank]
    if study.cross is None or found is None or not found.matched:
        return dict.fromkeys(SPLIT_COLUMNS, missing)
    late = study.cross.lateness_ns.get(rank, {})
    lateness = [late.get(number, NA_INT64) for number in index.tolist()]
    return {
        "comm_transfer_ns": found.transfer_ns,
        "comm_wait_ns": found.wait_ns,
        "comm_exposed_transfer_ns": found.exposed_transfer_ns,
        "comm_exposed_wait_ns": found.exposed_wait_ns,
        "comm_exposed_unsplit_ns": found.exposed_unsplit_ns,
        "lateness_ns": np.array(lateness, dtype=np.int64),
    }


def _matched(study: Study) -> Iterator[Batch]:
    cross = study.cross
    if cross is None:
        yield batch_of_rows(declared.MATCHED, [])
        return
    events, matches, split = cross.events, cross.matches, cross.waits
    event, instance = matches.event, matches.instance
    start, end = events.start_ns[event], events.end_ns[event]
    change = np.minimum(start + split.wait_ns, end)
    late = np.where(cross.undecided, NA_INT64, split.late_rank)
    yield Batch(
        declared.MATCHED,
        {
            "collective": instance,
            "rank": events.rank[event],
            "operation_id": events.row[event],
            "operation": Texts(events.operation[event], events.operations),
            "group_name": Texts(events.group[event], [group.name for group in events.groups]),
            "message_bytes": events.message_bytes[event],
            "step": events.step[event],
            "start_ns": start,
            "transfer_start_ns": change,
            "end_ns": end,
            "wait_ns": change - start,
            "transfer_ns": end - change,
            "late_rank": late[instance],
            "lateness_ns": split.lateness_ns[instance],
            "complete": matches.complete[instance],
        },
    )


__all__ = ["contents", "row_count"]
