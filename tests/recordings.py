"""Small synthetic recordings for tests of discovery and of the command line."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BASE_NS = 1_790_857_026_000_000_000
START_US = 5_131_672_000_000
STEP_US = 1000
KERNELS = ("gemm", "relu", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)")


@dataclass(frozen=True, kw_only=True)
class Kineto:
    """One rank's trace: every step launches every kernel once, back to back."""

    rank: int | None = 0
    world_size: int = 2
    pid: int = 100
    start_us: int = START_US
    steps: int = 4
    first_step: int = 3
    sequence: int = 10
    base_ns: int | None = BASE_NS
    kernels: Sequence[str] = KERNELS
    host: str | None = None
    cuda: int = 13000
    step_us: int = STEP_US

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}],
            "cuda_runtime_version": self.cuda,
        }
        if self.rank is not None:
            document["distributedInfo"] = {
                "backend": "nccl",
                "rank": self.rank,
                "world_size": self.world_size,
            }
        if self.host:
            document["host_name"] = self.host
        if self.base_ns is not None:
            document["baseTimeNanoseconds"] = self.base_ns
        document["traceEvents"] = list(self._events())
        return document

    def _events(self) -> Iterable[dict[str, Any]]:
        correlation = 0
        for step in range(self.steps):
            begin = self.start_us + step * self.step_us
            yield self._host(
                "user_annotation", f"ProfilerStep#{self.first_step + step}", begin, self.step_us
            )
            yield self._host(
                "cpu_op",
                "aten::mm",
                begin + 1,
                self.step_us // 2,
                {"Sequence number": self.sequence + step},
            )
            part = self.step_us // (2 * max(1, len(self.kernels)))
            for position, name in enumerate(self.kernels):
                correlation += 1
                shared = {"correlation": correlation}
                yield self._host(
                    "cuda_runtime", "cudaLaunchKernel", begin + 2 + position, 1, shared
                )
                yield {
                    "ph": "X",
                    "cat": "kernel",
                    "name": name,
                    "pid": 0,
                    "tid": 7,
                    "ts": begin + 20 + position * part,
                    "dur": part,
                    "args": {
                        **shared,
                        "device": 0,
                        "stream": 7,
                        "grid": [24, 1, 1],
                        "block": [544, 1, 1],
                    },
                }

    def _host(
        self, category: str, name: str, ts: int, dur: int, args: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        return {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": self.pid,
            "tid": self.pid,
            "ts": ts,
            "dur": dur,
            "args": args or {},
        }

    def text(self) -> str:
        return json.dumps(self.document())

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        data = self.text().encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path


def job(folder: Path, *, ranks: int = 2, gz: bool = False, **changes: Any) -> Path:
    """Write `rank{r}.pt.trace.json` of one job into a folder; return the folder."""
    pid = changes.pop("pid", 100)
    for rank in range(ranks):
        trace = Kineto(rank=rank, world_size=ranks, pid=pid + rank, **changes)
        trace.write(folder / f"rank{rank}.pt.trace.json{'.gz' if gz else ''}")
    return folder


def nsys(
    path: Path,
    *,
    pids: Sequence[int] = (200, 201),
    kernels: Sequence[str] = KERNELS,
    start_ns: int = 1_795_988_184_000_000_000,
    host: str = "node0",
    steps: int = 4,
) -> Path:
    """Write a minimal nsys export: every process launches every kernel once a step."""
    with closing(sqlite3.connect(path)) as base:
        base.executescript(
            """
            CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
            INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.20.3');
            CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
            CREATE TABLE TARGET_INFO_SESSION_START_TIME
                (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
            CREATE TABLE TARGET_INFO_SYSTEM_ENV
                (globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
                contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
                demangledName INTEGER, shortName INTEGER, gridX INTEGER, gridY INTEGER,
                gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER,
                staticSharedMemory INTEGER, dynamicSharedMemory INTEGER,
                registersPerThread INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER,
                globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
            """
        )
        base.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, '', '')", (start_ns,))
        base.execute(
            "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, '', 'Hostname', 619, ?)", (host,)
        )
        base.executemany(
            "INSERT INTO StringIds VALUES (?, ?)",
            enumerate(["cudaLaunchKernel_v7000", *kernels]),
        )
        for pid in pids:
            for number in range(steps * len(kernels)):
                start = number * 100_000
                name = 1 + number % len(kernels)
                base.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES "
                    "(?, ?, 0, 1, 7, ?, ?, ?, ?, 24, 1, 1, 544, 1, 1, 0, 0, 32)",
                    (start + 5000, start + 85_000, number, pid << 24, name, name),
                )
                base.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, 0, 0)",
                    (start, start + 2000, (pid << 24) | pid, number),
                )
        base.commit()
    return path
