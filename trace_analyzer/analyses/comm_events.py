"""Communication operations of all ranks in one table, ready to be matched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.flight_sequence import flight_sequences
from trace_analyzer.analyses.host_steps import launch_times
from trace_analyzer.analyses.steps import DeviceSteps
from trace_analyzer.model import ProcessGroup, Rank
from trace_analyzer.nccl_facts import FlightRecording
from trace_analyzer.nccl_names import operation_of
from trace_analyzer.schema import (
    NA_INT32,
    NA_INT64,
    AnyArray,
    Int32Array,
    Int64Array,
    is_na,
    widened,
)
from trace_analyzer.tables import WorkClass

ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
PEER = frozenset({"send", "recv", "sendrecv"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommGroup:
    """Ranks that communicate together: a process group, a pair of it, or all recorded ranks.

    `ranks` are the members that take part; `recorded` those of them that the run holds.
    `known` is False where the trace names no group and all ranks are taken to be in one.
    """

    name: str
    ranks: tuple[int, ...]
    recorded: tuple[int, ...]
    size: int | None
    pair: tuple[int, int] | None = None  # (source, destination) of send and receive
    known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommEvents:
    """Communication operations ordered by (group, rank, issue); arrays have one entry an operation.

    `signature` codes what must be equal on all ranks: operation, size, elements and type, or the
    kernel and its launch shape where the trace tells no more. `step` is a step number, NA outside
    steps and where numbers are not comparable over ranks.
    """

    groups: tuple[CommGroup, ...]
    operations: tuple[str, ...]  # texts of `operation`
    types: tuple[str, ...]  # texts of `dtype`
    rank: Int32Array
    row: Int64Array  # in the rank's GPU operations
    start_ns: Int64Array
    end_ns: Int64Array
    group: Int32Array
    operation: Int32Array
    dtype: Int32Array  # NA where unknown
    signature: Int64Array
    sequence: Int64Array
    step: Int64Array
    message_bytes: Int64Array
    root: Int64Array

    def __len__(self) -> int:
        return len(self.row)

    @property
    def duration_ns(self) -> Int64Array:
        """Duration of every operation."""
        return self.end_ns - self.start_ns


class _Codes:
    """Numbers for values that ranks have in common."""

    def __init__(self) -> None:
        self.of: dict[object, int] = {}

    def __call__(self, value: object) -> int:
        return self.of.setdefault(value, len(self.of))


def comm_events(
    ranks: Mapping[int, Rank],
    steps: Mapping[int, DeviceSteps],
    flight: Sequence[FlightRecording] = (),
) -> CommEvents:
    """Return the communication operations of the ranks, which are those with GPU operations.

    Flight Recorder dumps give sequence numbers where the traces carry none and steps cannot be
    compared.
    """
    groups: dict[tuple[object, ...], CommGroup] = {}
    codes = (_Codes(), _Codes(), _Codes())
    comparable = all(not item.inferred for item in steps.values())
    parts = [
        _of_rank(rank, steps[number], groups, codes, tuple(sorted(ranks)), comparable, flight)
        for number, rank in sorted(ranks.items())
    ]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.lexsort((joined["issue"], joined["rank"], joined["group"]))
    issue = joined.pop("issue")
    del issue
    columns = {name: values[order] for name, values in joined.items()}
    return CommEvents(
        groups=tuple(groups.values()),
        operations=tuple(str(text) for text in codes[0].of),
        types=tuple(str(text) for text in codes[1].of),
        **columns,
    )


def _of_rank(
    rank: Rank,
    steps: DeviceSteps,
    groups: dict[tuple[object, ...], CommGroup],
    codes: tuple[_Codes, _Codes, _Codes],
    recorded: tuple[int, ...],
    comparable: bool,
    flight: Sequence[FlightRecording],
) -> dict[str, Int64Array]:
    operations, table = rank.operations, rank.collectives
    rows = np.flatnonzero(operations.work == WorkClass.COMM)
    known = ~is_na(operations.collective[rows])
    collective = np.where(known, operations.collective[rows], 0)

    def of(values: AnyArray) -> Int64Array:
        if len(table) == 0:
            return np.full(len(rows), NA_INT64, dtype=np.int64)
        return np.where(known, widened(values)[collective], NA_INT64)

    launch = launch_times(rank)[rows]
    # The host step counts, not the device's: an excluded first step has its order all the same.
    step = steps.operation_host_step[rows]
    if not comparable:
        step = np.full(len(rows), NA_INT64, dtype=np.int64)
    sequence = of(table.sequence)
    if not comparable and bool(np.all(is_na(sequence))):
        elements = of(table.in_elements)
        sequence = flight_sequences(rank, launch, of(table.group), elements, flight)
    facts = np.stack(
        [
            of(table.operation),
            operations.name[rows].astype(np.int64),
            widened(operations.launch_config[rows]),
            of(table.group),
            of(table.dtype),
            of(table.message_bytes),
            of(table.in_elements),
            of(table.source_rank),
            of(table.destination_rank),
        ]
    )
    distinct, inverse = np.unique(facts, axis=1, return_inverse=True)
    coded = np.array(
        [_code(rank, distinct[:, i], groups, codes, recorded) for i in range(distinct.shape[1])],
        dtype=np.int64,
    ).reshape(-1, 4)[inverse.reshape(-1)]
    return {
        "rank": np.full(len(rows), rank.rank, dtype=np.int32),
        "row": rows.astype(np.int64),
        "start_ns": operations.start_ns[rows],
        "end_ns": operations.end_ns[rows],
        "group": coded[:, 0].astype(np.int32),
        "operation": coded[:, 1].astype(np.int32),
        "dtype": coded[:, 2].astype(np.int32),
        "signature": coded[:, 3],
        "sequence": sequence,
        "step": step,
        "message_bytes": of(table.message_bytes),
        "root": of(table.root),
        "issue": np.where(is_na(launch), operations.start_ns[rows], launch),
    }


def _code(
    rank: Rank,
    facts: Int64Array,
    groups: dict[tuple[object, ...], CommGroup],
    codes: tuple[_Codes, _Codes, _Codes],
    recorded: tuple[int, ...],
) -> tuple[int, int, int, int]:
    """Return numbers of group, operation, type and signature for one combination of facts."""
    operation_id, name_id, config, group_id, type_id, size, elements, source, target = (
        None if value == NA_INT64 else value for value in facts.tolist()
    )
    kernel = rank.names[name_id] if name_id is not None else ""
    operation = None if operation_id is None else rank.names[operation_id]
    operation = operation or operation_of(kernel) or "unknown"
    dtype = None if type_id is None else rank.names[type_id]
    group = None if group_id is None else rank.groups[group_id]
    pair = _pair(rank.rank, operation, source, target)
    described: tuple[object, ...]
    if size is None and elements is None:
        shape = (
            None if config is None else (rank.configs.grid_x[config], rank.configs.block_x[config])
        )
        described = (operation, kernel, None if shape is None else (int(shape[0]), int(shape[1])))
    else:
        described = (operation if pair is None else "peer", size, elements, dtype)
    return (
        _group_number(groups, group, pair, recorded, rank),
        codes[0](operation),
        NA_INT32 if dtype is None else codes[1](dtype),
        codes[2](described),
    )


def _pair(
    rank: int, operation: str, source: int | None, target: int | None
) -> tuple[int, int] | None:
    if operation == "send" and target is not None:
        return (rank, target)
    if operation == "recv" and source is not None:
        return (source, rank)
    return None


def _group_number(
    groups: dict[tuple[object, ...], CommGroup],
    group: ProcessGroup | None,
    pair: tuple[int, int] | None,
    recorded: tuple[int, ...],
    rank: Rank,
) -> int:
    key = (None, (), pair) if group is None else (group.name, group.ranks, pair)
    if key not in groups:
        members = pair or (group.ranks if group else ()) or recorded
        size = 2 if pair else (group.size if group else None) or len(members)
        if group is None and rank.world_size is not None and pair is None:
            size = rank.world_size
        label = "all ranks" if group is None else group.description or group.name
        if pair is not None:
            label = f"{label}: {pair[0]} → {pair[1]}"
        groups[key] = CommGroup(
            name=label,
            ranks=tuple(members),
            recorded=tuple(r for r in recorded if r in set(members)),
            size=size,
            pair=pair,
            known=group is not None,
        )
    return list(groups).index(key)
