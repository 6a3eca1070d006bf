"""Several ranks' training loop on paper: they compute on one stream and communicate on another.

Hosts run ahead. A kernel starts 5 µs after its launch began, or when its stream is free. A
collective starts on a rank when that is so and what was computed before it has ended; it moves data
from its last start on. `join` lets the computing stream wait for all collectives, as the optimizer
does. Times are in µs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.builder import RankBuilder, run_of
from trace_analyzer.model import Device, ProcessGroup, Run
from trace_analyzer.nccl_names import bus_factor
from trace_analyzer.tables import HostCategory, OperationKind

LATENCY = 5_000
COMPUTE, COMM = 7, 17
KERNELS = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "allgather": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "reducescatter": "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "broadcast": "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "sendrecv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}


@dataclass
class Ranks:
    """`now[r]` is a host's time and `free[r, stream]` a stream's, ns."""

    world: int = 2
    gpu: str = "NVIDIA H200"
    now: list[int] = field(init=False)
    free: dict[tuple[int, int], int] = field(default_factory=dict)
    marks: list[list[int]] = field(init=False)
    pending: int = 0
    builders: list[RankBuilder] = field(init=False)

    def __post_init__(self) -> None:
        group = ProcessGroup(name="0", size=self.world, ranks=tuple(range(self.world)))
        self.builders = [
            RankBuilder(rank=rank, world=self.world, group=group) for rank in range(self.world)
        ]
        self.now = [1_000_000] * self.world
        self.marks = [[] for _ in range(self.world)]

    def of(self, rank: int | None) -> Iterable[int]:
        """Return one rank, or all."""
        return range(self.world) if rank is None else (rank,)

    def step(self) -> None:
        """Begin a step on every rank."""
        for rank in range(self.world):
            self.marks[rank].append(self.now[rank])

    def silent(self, us: float, rank: int | None = None) -> None:
        """Let hosts do what no trace shows."""
        for one in self.of(rank):
            self.now[one] += round(us * 1_000)

    def event(
        self,
        name: str,
        us: float,
        rank: int | None = None,
        category: HostCategory = HostCategory.OPERATOR,
    ) -> None:
        """Let hosts spend time inside a range."""
        for one in self.of(rank):
            begin = self.now[one]
            self.now[one] += round(us * 1_000)
            self.builders[one].event(name, begin, self.now[one], category=category)

    def kernels(
        self,
        count: int,
        us: float,
        name: str = "gemm",
        rank: int | None = None,
        host_us: float = 10.0,
        grid: int = 64,
    ) -> None:
        """Launch computing kernels."""
        for one in self.of(rank):
            for _ in range(count):
                start = max(self.now[one] + LATENCY, self.free.get((one, COMPUTE), 0))
                self.launch(one, name, start, start + round(us * 1_000), COMPUTE, host_us, grid)

    def launch(
        self,
        rank: int,
        name: str,
        start: int,
        end: int,
        stream: int,
        host_us: float = 10.0,
        grid: int = 1,
        block: int = 128,
        kind: OperationKind = OperationKind.KERNEL,
        **collective: Any,
    ) -> None:
        begin = self.now[rank]
        self.now[rank] += round(host_us * 1_000)
        self.builders[rank].operation(
            name,
            start,
            end,
            launch=(begin, self.now[rank]),
            stream=stream,
            grid=grid,
            block=block,
            kind=kind,
            **collective,
        )
        self.free[rank, stream] = end

    def collective(
        self,
        size: int,
        gbs: float = 300.0,
        *,
        operation: str = "allreduce",
        channels: int = 24,
        block: int = 544,
        stream: int = COMM,
        latency_us: float = 5.0,
        sized: bool = True,
        after_compute: bool = True,
    ) -> None:
        """Launch a collective of `size` bytes that moves `gbs` of bus bandwidth."""
        factor = bus_factor(operation, self.world) or 1.0
        transfer = round(latency_us * 1_000 + size * factor / gbs)
        starts = [
            max(
                self.now[rank] + LATENCY,
                self.free.get((rank, stream), 0),
                self.free.get((rank, COMPUTE), 0) if after_compute else 0,
            )
            for rank in range(self.world)
        ]
        end = max(starts) + transfer
        facts: dict[str, Any] = {}
        if sized:
            facts = {
                "operation": operation,
                "group": 0,
                "dtype": "Float",
                "elements": size // 4,
                "message_bytes": size,
            }
        for rank in range(self.world):
            self.launch(
                rank,
                KERNELS[operation],
                starts[rank],
                end,
                stream,
                grid=channels,
                block=block,
                **facts,
            )
        self.pending += 1

    def join(self) -> None:
        """Let the computing stream wait for every collective since the last join."""
        for rank in range(self.world):
            for _ in range(self.pending):
                begin = self.now[rank]
                self.now[rank] += 1_000
                self.builders[rank].call("cudaStreamWaitEvent", begin, self.now[rank])
            behind = max(self.free.get((rank, COMM), 0), self.free.get((rank, COMPUTE), 0))
            self.free[rank, COMPUTE] = behind
        self.pending = 0

    def read(self, size: int = 4, rank: int | None = None) -> None:
        """Copy a value to the host and wait for it."""
        for one in self.of(rank):
            start = max(self.now[one] + LATENCY, self.free.get((one, COMPUTE), 0))
            self.launch(
                one,
                "Memcpy DtoH (Device -> Pageable)",
                start,
                start + 2_000,
                COMPUTE,
                kind=OperationKind.MEMCPY,
                size=size,
            )
            self.wait(one)

    def wait(self, rank: int | None = None, call: str = "cudaStreamSynchronize") -> None:
        """Let hosts wait until their computing stream is through."""
        for one in self.of(rank):
            begin = self.now[one]
            self.now[one] = max(begin + 2_000, self.free.get((one, COMPUTE), 0) + 2_000)
            self.builders[one].call(call, begin, self.now[one])

    def run(self, **extra: Any) -> Run:
        """Return the run."""
        ranks = []
        for number, builder in enumerate(self.builders):
            builder.profiler_steps(self.marks[number], self.now[number])
            rank = builder.build()
            operations = replace(
                rank.operations, device=np.full(len(rank.operations), number, dtype=np.int16)
            )
            devices = (Device(ordinal=number, name=self.gpu, sm_count=132),)
            ranks.append(replace(rank, operations=operations, devices=devices, clock_base_ns=0))
        return run_of(*ranks, world_size=self.world, **extra)
