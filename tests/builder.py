"""Small ranks made by hand: what analyses are tested on when no real trace tells the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trace_analyzer import kernels
from trace_analyzer.calls import call_kinds
from trace_analyzer.model import ProcessGroup, Rank, Run, SourceKind
from trace_analyzer.names import NameTable
from trace_analyzer.schema import NA_INT32, NA_INT64
from trace_analyzer.tables import (
    Collectives,
    GpuOperations,
    HostCalls,
    HostCategory,
    HostEvents,
    LaunchConfigs,
    OperationKind,
    Synchronizations,
    Threads,
)

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass
class RankBuilder:
    """Collects events of one rank; times in ns. `launch=None` leaves an operation unlinked."""

    rank: int = 0
    world: int | None = None
    group: ProcessGroup | None = None
    names: NameTable = field(default_factory=NameTable)
    operations: list[dict[str, Any]] = field(default_factory=list)
    calls: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    events: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    collectives: list[dict[str, Any]] = field(default_factory=list)
    configs: list[tuple[int, int]] = field(default_factory=list)
    next_correlation: int = 1

    def call(
        self, name: str, start: int, end: int, *, thread: int = 0, correlation: int = 0
    ) -> int:
        """Add a host call and return its correlation."""
        if not correlation:
            correlation = self.next_correlation
            self.next_correlation += 1
        self.calls.append((start, end, self.names.intern(name), thread, correlation))
        return correlation

    def operation(
        self,
        name: str,
        start: int,
        end: int,
        *,
        launch: tuple[int, int] | None = None,
        stream: int = 7,
        kind: OperationKind = OperationKind.KERNEL,
        grid: int = 1,
        block: int = 128,
        thread: int = 0,
        size: int | None = None,
        **collective: Any,
    ) -> None:
        """Add a GPU operation, with its launch call and its collective where given."""
        correlation = NA_INT64
        if launch is not None:
            api = "cudaLaunchKernel" if kind == OperationKind.KERNEL else "cudaMemcpyAsync"
            correlation = self.call(api, *launch, thread=thread)
        if (grid, block) not in self.configs:
            self.configs.append((grid, block))
        row = NA_INT32
        if collective:
            row = len(self.collectives)
            self.collectives.append(collective)
        self.operations.append(
            {
                "start": start,
                "end": end,
                "kind": int(kind),
                "name": self.names.intern(name),
                "stream": stream,
                "correlation": correlation,
                "config": self.configs.index((grid, block))
                if kind == OperationKind.KERNEL
                else NA_INT32,
                "collective": row,
                "bytes": NA_INT64 if size is None else size,
            }
        )

    def event(
        self,
        name: str,
        start: int,
        end: int,
        *,
        category: HostCategory = HostCategory.ANNOTATION,
        thread: int = 0,
        sequence: int = NA_INT64,
    ) -> None:
        """Add a host event."""
        number = self.names.intern(name)
        self.events.append((start, end, int(category), number, thread, sequence))

    def profiler_steps(self, starts: Sequence[int], end: int, first: int = 0) -> None:
        """Add ProfilerStep marks that follow each other."""
        for number, (start, stop) in enumerate(zip(starts, [*starts[1:], end], strict=True)):
            self.event(f"ProfilerStep#{first + number}", start, stop)

    def build(self) -> Rank:
        """Return the rank."""
        names = self.names
        operation_names = [names.intern(str(row["operation"])) for row in self.collectives]
        types = [
            names.intern(str(row["dtype"])) if "dtype" in row else NA_INT32
            for row in self.collectives
        ]
        operations = sorted(self.operations, key=lambda row: (row["start"], row["end"]))
        calls = sorted(self.calls, key=lambda row: (row[0], -row[1]))
        events = sorted(self.events, key=lambda row: (row[0], -row[1]))
        first_call: dict[int, int] = {}
        for position, call in enumerate(calls):
            first_call.setdefault(call[4], position)
        texts = list(names.texts)

        def of(key: str) -> np.ndarray[Any, np.dtype[np.int64]]:
            return np.array([row[key] for row in operations], dtype=np.int64)

        def part(rows: list[tuple[int, ...]], item: int) -> np.ndarray[Any, np.dtype[np.int64]]:
            return np.array([row[item] for row in rows], dtype=np.int64)

        kind = of("kind").astype(np.int8)
        comm = kernels.communication_names(texts)[of("name")] & (kind == OperationKind.KERNEL)
        threads = 1 + max([row[3] for row in calls] + [row[4] for row in events], default=0)
        kinds = call_kinds(texts)

        def meta(key: str, missing: int) -> np.ndarray[Any, np.dtype[np.int64]]:
            return np.array([row.get(key, missing) for row in self.collectives], dtype=np.int64)

        count = len(self.collectives)
        return Rank(
            rank=self.rank,
            rank_basis="content",
            source=SourceKind.KINETO,
            path=f"rank{self.rank}.json",
            names=texts,
            operations=GpuOperations.from_columns(
                len(operations),
                start_ns=of("start"),
                end_ns=of("end"),
                kind=kind,
                work=kernels.work_classes(kind, comm),
                name=of("name"),
                device=np.zeros(len(operations)),
                stream=of("stream"),
                correlation=of("correlation"),
                launch=np.array(
                    [first_call.get(row["correlation"], NA_INT32) for row in operations],
                    dtype=np.int32,
                ),
                launch_config=of("config"),
                bytes=of("bytes"),
                collective=of("collective"),
            ),
            configs=LaunchConfigs.from_columns(
                len(self.configs),
                grid_x=np.array([grid for grid, _ in self.configs]),
                grid_y=np.ones(len(self.configs)),
                grid_z=np.ones(len(self.configs)),
                block_x=np.array([block for _, block in self.configs]),
                block_y=np.ones(len(self.configs)),
                block_z=np.ones(len(self.configs)),
            ),
            calls=HostCalls.from_columns(
                len(calls),
                start_ns=part(list(calls), 0),
                end_ns=part(list(calls), 1),
                kind=kinds[part(list(calls), 2)] if calls else np.empty(0),
                name=part(list(calls), 2),
                thread=part(list(calls), 3),
                correlation=part(list(calls), 4),
            ),
            events=HostEvents.from_columns(
                len(events),
                start_ns=part(list(events), 0),
                end_ns=part(list(events), 1),
                category=part(list(events), 2),
                name=part(list(events), 3),
                thread=part(list(events), 4),
                sequence=part(list(events), 5),
            ),
            syncs=Synchronizations.empty(),
            collectives=Collectives.from_columns(
                count,
                operation=np.array(operation_names, dtype=np.int32),
                dtype=np.array(types, dtype=np.int32),
                group=meta("group", NA_INT32),
                sequence=meta("sequence", NA_INT64),
                in_elements=meta("elements", NA_INT64),
                message_bytes=meta("message_bytes", NA_INT64),
                root=meta("root", NA_INT32),
                source_rank=meta("source", NA_INT32),
                destination_rank=meta("destination", NA_INT32),
                calls=np.ones(count),
            ),
            threads=Threads.from_columns(threads),
            groups=() if self.group is None else (self.group,),
            world_size=self.world,
        )


def run_of(*ranks: Rank, name: str = "made", **extra: Any) -> Run:
    """Return a run of these ranks."""
    return replace(Run(name=name, ranks=tuple(ranks), sources=()), **extra)
