"""Small nsys exports, made row by row.

A table has the columns that its rows name, so leaving a field out makes an export without it.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from trace_analyzer.model import Rank
from trace_analyzer.readers import nsys
from trace_analyzer.schema import is_na

MACHINE = 1 << 48
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
RECORD = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
ALL_REDUCE = (
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
)
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)"
GENERIC = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<(unsigned long)4096>)"


def global_pid(pid: int) -> int:
    return MACHINE | pid << 24


def global_tid(pid: int, tid: int | None = None) -> int:
    return global_pid(pid) | (pid if tid is None else tid)


class Nsys:
    """Rows of an export. Every method takes fields of the real table to add or replace."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {}
        self._strings: dict[str, int] = {}
        self._correlation = 0

    def text(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings) + 1)

    def add(self, table: str, **fields: Any) -> None:
        self.tables.setdefault(table, []).append(fields)

    def kernel(
        self,
        start: int,
        end: int,
        name: str = "gemm",
        *,
        pid: int = 10,
        correlation: int | None = None,
        **fields: Any,
    ) -> None:
        base = {
            "start": start,
            "end": end,
            "deviceId": 0,
            "contextId": 1,
            "streamId": 7,
            "correlationId": correlation,
            "globalPid": global_pid(pid),
            "demangledName": self.text(name),
            "gridX": 8,
            "gridY": 1,
            "gridZ": 1,
            "blockX": 128,
            "blockY": 1,
            "blockZ": 1,
            "registersPerThread": 40,
            "staticSharedMemory": 100,
            "dynamicSharedMemory": 24,
            "graphNodeId": None,
        }
        self.add(KERNEL, **(base | fields))

    def copy(
        self, start: int, end: int, kinds: tuple[int, int, int] = (1, 1, 2), **fields: Any
    ) -> None:
        pid = fields.pop("pid", 10)
        base = {
            "start": start,
            "end": end,
            "deviceId": 0,
            "contextId": 1,
            "streamId": 7,
            "correlationId": fields.pop("correlation", None),
            "globalPid": global_pid(pid),
            "bytes": 4096,
            "copyKind": kinds[0],
            "srcKind": kinds[1],
            "dstKind": kinds[2],
        }
        self.add(MEMCPY, **(base | fields))

    def call(
        self,
        start: int,
        end: int,
        name: str = "cudaLaunchKernel_v7000",
        *,
        pid: int = 10,
        tid: int | None = None,
        correlation: int | None = None,
        **fields: Any,
    ) -> None:
        base = {
            "start": start,
            "end": end,
            "globalTid": global_tid(pid, tid),
            "correlationId": correlation,
            "nameId": self.text(name),
        }
        self.add(RUNTIME, **(base | fields))

    def launched(
        self, call: int, start: int, end: int, name: str = "gemm", *, pid: int = 10, **fields: Any
    ) -> int:
        """Add a kernel with its launch call of 5 ns at `call`; return the correlation id."""
        self._correlation += 1
        tid = fields.pop("tid", None)
        self.call(call, call + 5, pid=pid, tid=tid, correlation=self._correlation)
        self.kernel(start, end, name, pid=pid, correlation=self._correlation, **fields)
        return self._correlation

    def range(
        self,
        start: int,
        end: int | None,
        text: str,
        /,
        *,
        pid: int = 10,
        tid: int | None = None,
        domain: int = 0,
        kind: int = 59,
        payload: dict[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        base = {
            "start": start,
            "end": end,
            "eventType": kind,
            "text": None,
            "globalTid": global_tid(pid, tid),
            "textId": self.text(text),
            "domainId": domain,
            "jsonText": json.dumps(payload) if payload is not None else None,
        }
        self.add("NVTX_EVENTS", **(base | fields))

    def nccl_domain(self, pid: int = 10, domain: int = 1) -> None:
        self.range(-1_000, None, "NCCL", pid=pid, domain=domain, kind=75)

    def meta(self, table: str, **values: Any) -> None:
        for name, value in values.items():
            self.add(table, name=name, value=str(value))

    def write(self, path: Path, *, wal: bool = False) -> Path:
        with closing(sqlite3.connect(path)) as base:
            if wal:
                base.execute("pragma journal_mode=wal")
            base.execute("create table StringIds (id INTEGER PRIMARY KEY, value TEXT)")
            base.executemany(
                "insert into StringIds values (?, ?)",
                [(number, text) for text, number in self._strings.items()],
            )
            for table, rows in self.tables.items():
                columns = list(dict.fromkeys(name for row in rows for name in row))
                quoted = ", ".join(f'"{name}"' for name in columns)
                base.execute(f"create table {table} ({quoted})")
                base.executemany(
                    f"insert into {table} values ({', '.join('?' * len(columns))})",
                    [[row.get(name) for name in columns] for row in rows],
                )
            base.commit()
        return path

    def read(self, folder: Path) -> list[Rank]:
        return nsys.read(self.write(folder / "trace.sqlite"))

    def read_one(self, folder: Path) -> Rank:
        (rank,) = self.read(folder)
        return rank


def names_of(rank: Rank, positions: Any) -> list[str]:
    return [rank.names[position] for position in positions.tolist()]


def values(column: Any) -> list[int | None]:
    """Return a column with None for NA."""
    return [
        None if missing else value
        for value, missing in zip(column.tolist(), is_na(column).tolist(), strict=True)
    ]
