"""The table of NCCL calls: size, group, root and peers from payloads, types from kernel names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trace_analyzer.model import ProcessGroup
from trace_analyzer.names import NameTable
from trace_analyzer.readers.nsys_nccl import NONE, TYPED_OPERATIONS, Calls, Units
from trace_analyzer.readers.nsys_payload import Payload, range_operation
from trace_analyzer.readers.nsys_world import World
from trace_analyzer.schema import NA_INT32, NA_INT64, Int32Array, Int64Array
from trace_analyzer.tables import Collectives

# NCCL's message size is the part of one rank; nccl-tests' S of these is the whole.
_TIMES_RANKS = frozenset({"allgather", "reducescatter", "alltoall", "gather", "scatter"})
_SENT_AND_RECEIVED = "sendrecv"


class Communicators:
    """Communicators of one process, in order of first use."""

    def __init__(self, payloads: Sequence[Payload]) -> None:
        ids: dict[str, int] = {}
        self.of_call = np.array(
            [
                NONE
                if payload.communicator is None
                else ids.setdefault(payload.communicator, len(ids))
                for payload in payloads
            ],
            dtype=np.int64,
        )
        self.names = list(ids)

    def groups(self, world: World) -> tuple[ProcessGroup, ...]:
        return tuple(
            ProcessGroup(
                name=name,
                description="NCCL communicator",
                backend="nccl",
                size=world.sizes.get(name),
                ranks=world.members.get(name, ()),
            )
            for name in self.names
        )


class CollectiveWriter:
    """Fills the columns of the collectives: one row for each unit, then the lone kernels."""

    def __init__(
        self,
        units: Units,
        lone: int,
        world: World,
        communicators: Communicators,
        names: NameTable,
    ) -> None:
        self._units = units
        self._world = world
        self._communicators = communicators
        self._names = names
        self._rows = units.count + lone
        self._operation: list[str] = [""] * self._rows
        self._columns: dict[str, Int64Array] = {
            name: np.full(self._rows, NA_INT64, dtype=np.int64)
            for name in ("part", "message", "root", "source", "target", "dtype", "width")
        }
        self._group = np.full(self._rows, NONE, dtype=np.int64)
        self._calls = np.ones(self._rows, dtype=np.int64)
        self.unmapped_peers = 0

    def describe_calls(self, calls: Calls, payloads: Sequence[Payload]) -> None:
        """Write what ranges and payloads tell; one pass over NCCL's calls."""
        operations = [range_operation(text) for text in calls.labels]
        label, communicator = calls.label.tolist(), calls.communicator.tolist()
        assigned = np.flatnonzero(self._units.of_range != NONE)
        by_unit = assigned[np.argsort(self._units.of_range[assigned], kind="stable")]
        unit = self._units.of_range[by_unit]
        bounds = np.flatnonzero(np.diff(unit, prepend=-1, append=-1))
        for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            members = by_unit[first:last].tolist()
            self._describe(
                int(unit[first]),
                [operations[label[row]] for row in members],
                [payloads[row] for row in members],
                {communicator[row] for row in members},
            )

    def _describe(
        self, row: int, operations: list[str], payloads: list[Payload], communicators: set[int]
    ) -> None:
        group = communicators.pop() if len(communicators) == 1 else NONE
        name = self._communicators.names[group] if group != NONE else ""
        size = self._world.sizes.get(name)
        operation = _operation_of(operations, payloads, size)
        self._operation[row] = operation
        self._calls[row] = len(operations)
        self._group[row] = group
        columns = self._columns
        parts = [payload.part_bytes for payload in payloads]
        sizes = [
            _message_bytes(called, part, size)
            for called, part in zip(operations, parts, strict=True)
        ]
        known = [value for value in sizes if value is not None]
        alike = len(set(operations)) == 1 or set(operations) == {"send", "recv"}
        if alike and len(known) == len(sizes):
            columns["message"][row] = _total(operations, known)
        if len(set(operations)) == 1 and None not in parts:
            columns["part"][row] = sum(part for part in parts if part is not None)
        roots = {payload.root for payload in payloads}
        if len(roots) == 1 and (root := roots.pop()) is not None:
            columns["root"][row] = root
        for column, kind in (("source", "recv"), ("target", "send")):
            peers = {
                payload.peer
                for called, payload in zip(operations, payloads, strict=True)
                if called == kind
            }
            if len(peers) == 1 and (peer := peers.pop()) is not None:
                mapped = self._world.global_rank(name, peer)
                if mapped is None:
                    self.unmapped_peers += 1
                else:
                    columns[column][row] = mapped

    def name_lone(self, operations: Sequence[str]) -> None:
        """Write the operations of kernels that no range explains."""
        self._operation[self._units.count :] = operations

    def describe_types(
        self,
        of_operation: Int64Array,
        types: Sequence[tuple[str, int] | None],
        kernel: Int64Array,
    ) -> None:
        """Write the element types that the kernels' names tell."""
        known = [
            (NA_INT64, NA_INT64) if t is None else (self._names.intern(t[0]), t[1]) for t in types
        ]
        table = np.array(known, dtype=np.int64).reshape(-1, 2)
        rows = np.flatnonzero(of_operation != NONE)
        unit, label = of_operation[rows], kernel.reshape(-1)[rows]
        self._columns["dtype"][unit] = table[label, 0]
        self._columns["width"][unit] = table[label, 1]
        named = np.array([name in TYPED_OPERATIONS for name in self._operation], dtype=np.bool_)
        for column in ("dtype", "width"):
            self._columns[column][~named] = NA_INT64

    def table(self) -> Collectives:
        """Return the finished table."""
        columns = self._columns
        part, width = columns["part"], columns["width"]
        sized = (part != NA_INT64) & (width != NA_INT64)
        elements = np.full(self._rows, NA_INT64, dtype=np.int64)
        elements[sized] = part[sized] // width[sized]
        scattered = np.array([name == "reducescatter" for name in self._operation], dtype=np.bool_)
        sent = np.where(scattered, NA_INT64, elements)
        whole = scattered & sized & (columns["message"] != NA_INT64)
        sent[whole] = columns["message"][whole] // width[whole]
        return Collectives.from_columns(
            self._rows,
            operation=np.array(
                [self._names.intern(name) for name in self._operation], dtype=np.int32
            ),
            group=_or_na(self._group, NONE),
            dtype=_or_na(columns["dtype"], NA_INT64),
            in_elements=sent,
            out_elements=elements,
            message_bytes=columns["message"],
            root=_or_na(columns["root"], NA_INT64),
            source_rank=_or_na(columns["source"], NA_INT64),
            destination_rank=_or_na(columns["target"], NA_INT64),
            calls=self._calls,
        )


def _or_na(values: Int64Array, none: int) -> Int32Array:
    return np.where(values == none, NA_INT32, values).astype(np.int32)


def _operation_of(operations: list[str], payloads: list[Payload], size: int | None) -> str:
    """Return the one operation that these calls make together."""
    if set(operations) != {"send", "recv"}:
        return operations[0]
    sent = [p.peer for name, p in zip(operations, payloads, strict=True) if name == "send"]
    received = [p.peer for name, p in zip(operations, payloads, strict=True) if name == "recv"]
    everyone = None if size is None else set(range(size))
    if (
        everyone is not None
        and len(everyone) == len(sent) == len(received)
        and (set(sent) == set(received) == everyone)
    ):
        return "alltoall"
    return _SENT_AND_RECEIVED


def _message_bytes(operation: str, part: int | None, size: int | None) -> int | None:
    if part is None or (operation in _TIMES_RANKS and size is None):
        return None
    return part * (size or 1) if operation in _TIMES_RANKS else part


def _total(operations: list[str], sizes: list[int]) -> int:
    """Return S of calls made together: what is sent and what is received run at the same time."""
    received = sum(n for name, n in zip(operations, sizes, strict=True) if name == "recv")
    sent = sum(n for name, n in zip(operations, sizes, strict=True) if name == "send")
    rest = sum(sizes) - received - sent
    return rest + max(received, sent)
