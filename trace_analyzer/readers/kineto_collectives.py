"""Communication calls as torch records them, in the model's words.

torch writes the same arguments on the host event (`record_param_comms`) and on the kernel that
executes the call, joined by their External id; both refer to one row.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from trace_analyzer.model import ProcessGroup
from trace_analyzer.names import NameTable
from trace_analyzer.rank_facts import UNKNOWN_SIZE
from trace_analyzer.readers.kineto_events import Details
from trace_analyzer.schema import NA_INT8, NA_INT32, NA_INT64
from trace_analyzer.tables import Collectives

# torch's names without underscores and without what only tells the shape of its interface.
_INTERFACE = re.compile(r"(coalesced|intotensor|tensor|base|oop|single)$")
_OPERATIONS: Final[dict[str, str]] = {
    "allreduce": "allreduce",
    "allgather": "allgather",
    "reducescatter": "reducescatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "alltoall",
    "alltoallv": "alltoall",
    "send": "send",
    "isend": "send",
    "recv": "recv",
    "irecv": "recv",
    "recvanysource": "recv",
    "barrier": "barrier",
    "gather": "gather",
    "scatter": "scatter",
}
# Recorded like a collective, but nothing is sent.
_NO_COMMUNICATION: Final = frozenset(
    {"wait", "init", "startcoalescing", "endcoalescing", "monitoredbarrier"}
)

# Bytes of torch's element types, which keep torch's names.
_TYPE_BYTES: Final[dict[str, int]] = {
    "Byte": 1,
    "Char": 1,
    "Bool": 1,
    "Short": 2,
    "Int": 4,
    "Long": 8,
    "UInt16": 2,
    "UInt32": 4,
    "UInt64": 8,
    "Half": 2,
    "BFloat16": 2,
    "Float": 4,
    "Double": 8,
    "ComplexHalf": 4,
    "ComplexFloat": 8,
    "ComplexDouble": 16,
    "Float8_e4m3fn": 1,
    "Float8_e4m3fnuz": 1,
    "Float8_e5m2": 1,
    "Float8_e5m2fnuz": 1,
    "Float8_e8m0fnu": 1,
    "Float4_e2m1fn_x2": 1,
    "QInt8": 1,
    "QUInt8": 1,
    "QInt32": 4,
}

_RANK_LIST = re.compile(r"-?\d+")


class CollectiveRow(NamedTuple):
    """One communication call; NA and "" where the file does not tell."""

    operation: str
    group: str
    description: str
    group_id: int
    group_size: int
    ranks: tuple[int, ...]
    dtype: str
    in_elements: int
    out_elements: int
    sequence: int
    root: int
    source_rank: int
    destination_rank: int
    is_async: int
    message_bytes: int | None = None  # as stated, NA where that is unknown; None: to be computed
    calls: int = 1


@lru_cache(maxsize=1024)
def operation_name(recorded: str) -> str:
    """Return the model's name of a communication call: `_allgather_base` → `allgather`.

    A name that is not known is returned in lower case without underscores.
    """
    bare = recorded.lower().replace("_", "")
    while bare not in _OPERATIONS and (shorter := _INTERFACE.sub("", bare)) not in {bare, ""}:
        bare = shorter
    return _OPERATIONS.get(bare, bare)


# More than this no message has; a count that says so is damaged.
MOST_BYTES = 1 << 50


def message_bytes(
    operation: str, in_elements: int, out_elements: int, element_bytes: int, group_size: int
) -> int:
    """Return the size S of a call as nccl-tests defines it, NA where it cannot be known.

    The larger of what the rank sends and receives: all-gather and reduce-scatter record the whole
    on one of the sides; of gather and scatter only the root does, for others it is the part times
    the group's size (nccl-tests, doc/PERFORMANCE.md).
    """
    elements = max(in_elements, out_elements)
    if elements < 0:
        return NA_INT64
    part_only = operation in {"gather", "scatter"} and min(in_elements, out_elements) <= 0
    size = elements * element_bytes * (group_size if part_only and group_size > 0 else 1)
    return size if size <= MOST_BYTES else NA_INT64


def group_ranks(written: str | list[int] | None, size: int) -> tuple[int, ...]:
    """Return the global ranks of a group from torch's list; empty where it is not known whole.

    Long lists are written with their first members and "...": the others follow from the group's
    size where the members are evenly spaced.
    """
    if written is None:
        return ()
    return tuple(written) if isinstance(written, list) else _written_ranks(written, size)


@lru_cache(maxsize=1024)
def _written_ranks(written: str, size: int) -> tuple[int, ...]:
    ranks = tuple(int(rank) for rank in _RANK_LIST.findall(written.partition("...")[0]))
    if "..." not in written:
        return ranks
    strides = {after - before for before, after in itertools.pairwise(ranks)}
    if len(strides) != 1 or size < len(ranks):
        return ()
    return tuple(ranks[0] + strides.copy().pop() * place for place in range(size))


class CollectiveRows:
    """Collects calls; a kernel and its host event share a row."""

    def __init__(self) -> None:
        self.rows: list[CollectiveRow] = []
        self._by_call: dict[tuple[int, CollectiveRow], int] = {}

    def row(self, given: Details) -> int:
        """Return the row of a call, NA where nothing is communicated."""
        call = _call(given)
        if call is None:
            return NA_INT32
        external_id = given.external_id
        position = self._by_call.get((external_id, call))
        if position is None or external_id == NA_INT64:
            position = len(self.rows)
            self.rows.append(call)
            self._by_call[external_id, call] = position
        return position

    def table(
        self,
        used: Iterable[int],
        names: NameTable,
        known: Iterable[ProcessGroup],
        group_names: dict[int, str],
    ) -> tuple[Collectives, tuple[ProcessGroup, ...]]:
        """Return the used rows as a table, and all process groups.

        `known` groups come from the header; `group_names` maps the older numeric ids to names.
        Groups that only calls tell of are added, and what the header leaves out is filled in.
        """
        groups = {group.name: group for group in known}
        rows = [self.rows[row] for row in used]
        labels = [row.group or _by_id(row.group_id, group_names) for row in rows]
        for label, row in zip(labels, rows, strict=True):
            if label:
                groups[label] = _completed(groups.get(label), label, row)
        positions = {name: position for position, name in enumerate(groups)}
        in_groups = [positions.get(label, NA_INT32) for label in labels]
        return _table(rows, in_groups, names), tuple(groups.values())


def _table(rows: list[CollectiveRow], groups: list[int], names: NameTable) -> Collectives:
    return Collectives.from_columns(
        len(rows),
        operation=_int32([names.intern(row.operation) for row in rows]),
        group=_int32(groups),
        sequence=_int64([row.sequence for row in rows]),
        dtype=_int32([names.intern(row.dtype) if row.dtype else NA_INT32 for row in rows]),
        in_elements=_int64([row.in_elements for row in rows]),
        out_elements=_int64([row.out_elements for row in rows]),
        message_bytes=_int64([_message_bytes(row) for row in rows]),
        root=_int32([_narrow(row.root) for row in rows]),
        source_rank=_int32([_narrow(row.source_rank) for row in rows]),
        destination_rank=_int32([_narrow(row.destination_rank) for row in rows]),
        is_async=np.array([row.is_async for row in rows], dtype=np.int8),
        calls=_int32([row.calls for row in rows]),
    )


def _call(given: Details) -> CollectiveRow | None:
    operation = operation_name(given.collective or "")
    if operation in _NO_COMMUNICATION or not operation:
        return None
    return CollectiveRow(
        operation=operation,
        group="" if given.group_name is None else str(given.group_name),
        description=group_description(given.group_description),
        group_id=given.group_id,
        group_size=given.group_size,
        ranks=group_ranks(given.group_ranks, given.group_size),
        dtype=given.dtype or "",
        in_elements=given.in_elements,
        out_elements=given.out_elements,
        sequence=_not_negative(given.group_sequence),
        root=_not_negative(given.root_rank),
        source_rank=_not_negative(given.source_rank),
        destination_rank=_not_negative(given.destination_rank),
        is_async=_flag(given.is_async),
        message_bytes=_stated_bytes(given.message_bytes),
        calls=given.calls if 0 < given.calls <= np.iinfo(np.int32).max else 1,
    )


def _stated_bytes(stated: int | str | None) -> int | None:
    """Return a size as our own export states it."""
    if isinstance(stated, int):
        return _not_negative(stated)
    return NA_INT64 if stated == UNKNOWN_SIZE else None


def _message_bytes(row: CollectiveRow) -> int:
    if row.message_bytes is not None:
        return row.message_bytes
    size = _TYPE_BYTES.get(row.dtype)
    if size is None or row.operation == "barrier":
        return NA_INT64
    return message_bytes(row.operation, row.in_elements, row.out_elements, size, row.group_size)


def group_description(written: object) -> str:
    """Return a group's description, "" for the word that torch writes for none."""
    text = "" if written is None else str(written)
    return "" if text == "undefined" else text


def _completed(group: ProcessGroup | None, name: str, row: CollectiveRow) -> ProcessGroup:
    size = row.group_size if row.group_size > 0 else None
    if group is None:
        return ProcessGroup(name=name, description=row.description, size=size, ranks=row.ranks)
    return ProcessGroup(
        name=name,
        description=group.description or row.description,
        backend=group.backend,
        size=group.size if group.size is not None else size,
        ranks=group.ranks or row.ranks,
    )


def _by_id(group_id: int, group_names: dict[int, str]) -> str:
    return "" if group_id == NA_INT64 else group_names.get(group_id, str(group_id))


def _not_negative(value: int) -> int:
    return value if value >= 0 else NA_INT64


def _narrow(value: int) -> int:
    return NA_INT32 if value == NA_INT64 else value


def _flag(value: bool | int | str | None) -> int:
    if value is None:
        return NA_INT8
    if isinstance(value, str):
        return int(value.strip().lower() in {"1", "true"})
    return int(bool(value))


def _int32(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, dtype=np.int32)


def _int64(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)
