"""Small archives that tests make, and what an output holds, as far as it must always be the same."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from trace_analyzer.bundle import Manifest, Role, describe_file, write_manifest

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
BASE_NS = 1_790_857_026_000_000_000
HOUR_NS = 3600 * 10**9
_STEP_US = 20_000


def trace(seed: int, rank: int = 0, world: int = 2, steps: int = 4) -> dict[str, Any]:
    """A torch.profiler trace of a few steps; another seed is another run, an hour later."""
    dice = random.Random(f"{seed} {rank}")
    pid = 1000 + rank
    events: list[dict[str, Any]] = []
    correlation = 0

    def add(category: str, name: str, ts: float, dur: float, **rest: Any) -> None:
        made = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": pid}
        events.append(made | {"ts": round(ts, 3), "dur": round(dur, 3)} | rest)

    for step in range(steps):
        start = 5_000_000 + step * _STEP_US
        add("user_annotation", f"ProfilerStep#{step}", start, _STEP_US - 5)
        at = start + 300.0
        for number in range(6):
            correlation += 1
            last = number == 5
            length = 900 + dice.random() * 40 if last else 2500 + dice.random() * 200
            add("cuda_runtime", "cudaLaunchKernel", at - 60, 9, args={"correlation": correlation})
            args: dict[str, Any] = {
                "device": rank,
                "context": 1,
                "stream": 7,
                "correlation": correlation,
            }
            args |= {"grid": [24, 1, 1], "block": [544, 1, 1]}
            name = NCCL if last else f"gemm_{number % 2}"
            add("kernel", name, at, length, pid=rank, tid=7, args=args)
            at += length + 20
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": rank, "name": "NVIDIA H200"}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
        "baseTimeNanoseconds": BASE_NS + seed * HOUR_NS,
        "traceEvents": events,
    }


def write_trace(path: Path, document: dict[str, Any]) -> Path:
    """Write a trace; `.gz` in the name compresses it. The same trace gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps(document).encode()
    path.write_bytes(gzip.compress(data, 1, mtime=0) if path.suffix == ".gz" else data)
    return path


def write_run(folder: Path, seed: int, world: int = 2, steps: int = 4) -> Path:
    """Write a run of `world` ranks into a folder."""
    for rank in range(world):
        document = trace(seed, rank, world, steps)
        write_trace(folder / f"rank{rank}.pt.trace.json.gz", document)
    return folder


def write_bundle(folder: Path, seed: int, job: str, commit: str, started: str) -> Path:
    """Write a run of one rank with a manifest."""
    file = write_trace(folder / "rank0.pt.trace.json.gz", trace(seed, 0, 1))
    manifest = Manifest(
        job_name=job,
        job_id=f"{job}-{seed}",
        started=started,
        files=(describe_file(folder, file, Role.KINETO, rank=0),),
        world_size=1,
        commit=commit,
    )
    write_manifest(folder, manifest)
    return folder


def write_nodes(folder: Path, seed: int, job_id: str, hosts: Sequence[str]) -> Path:
    """Write a run of one rank a node, each with a bundle of its own."""
    for rank, host in enumerate(hosts):
        document = trace(seed, rank, len(hosts))
        file = write_trace(folder / host / f"rank{rank}.pt.trace.json.gz", document)
        manifest = Manifest(
            job_name="nodes",
            job_id=job_id,
            started="2026-11-01T00:00:00Z",
            files=(describe_file(folder / host, file, Role.KINETO, rank=rank),),
            world_size=len(hosts),
        )
        write_manifest(folder / host, manifest)
    return folder


def old(archive: Path) -> None:
    """Make all files old enough that their time stamps are trusted."""
    for path in archive.rglob("*"):
        if path.is_file():
            moment_ns = path.stat().st_mtime_ns - 10**12
            os.utime(path, ns=(moment_ns, moment_ns))


def command(*arguments: str | Path) -> list[str]:
    """The command line of this checkout."""
    return [sys.executable, "-m", "trace_analyzer", *(str(item) for item in arguments)]


_SUMMARY = re.compile(
    r"(?P<runs>[\d,]+) runs: (?P<now>[\d,]+) analyzed now, (?P<unchanged>[\d,]+) unchanged, "
    r"[\d,]+ with a cause, (?P<failed>[\d,]+) failed(?:, (?P<gone>[\d,]+) no longer in the archive)?; "
)


@dataclass(frozen=True)
class Counts:
    """What the summary line of a batch says. Causes are not for these tests to judge."""

    runs: int
    now: int
    unchanged: int
    failed: int = 0
    gone: int = 0


def batch(
    archive: str | Path, out: str | Path, *arguments: str, code: int = 0, **options: Any
) -> Counts:
    """Run a batch to its end and return what its summary line says."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command("batch", archive, "-o", out, "--jobs", "2", *arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        **options,
    )
    assert done.returncode == code, done.stderr + done.stdout
    match = _SUMMARY.match(done.stdout)
    assert match, done.stdout
    assert done.stdout.count("\n") == 1
    return Counts(**{key: int((n or "0").replace(",", "")) for key, n in match.groupdict().items()})


def rows(out: Path, query: str, *arguments: object) -> list[tuple[Any, ...]]:
    """What the index answers."""
    with closing(sqlite3.connect(f"{(out / 'index.db').as_uri()}?mode=ro", uri=True)) as base:
        return base.execute(query, arguments).fetchall()


def states(out: Path) -> dict[str, str]:
    """Whether every run was judged ("done") or failed, by its name."""
    return {
        name: "failed" if state == "failed" else "done"
        for name, state in rows(out, "SELECT name, state FROM runs")
    }


_TABLES = (
    "runs", "findings", "ranks", "collectives", "kernels", "kernel_names", "warnings", "files",
    "units",
)  # fmt: skip


def contents(out: Path, tables: Sequence[str] = _TABLES) -> dict[str, Any]:
    """All that is the same for the same archive: every file but the log, every row but its work."""
    found: dict[str, Any] = dict(_files(out))
    for table in tables:
        found[table] = sorted(map(repr, rows(out, f"SELECT * FROM {table}")))
    for table in ("runs", "findings", "warnings"):  # what is found by searching
        query = f"SELECT COUNT(*) FROM {table}_fts WHERE {table}_fts MATCH 'a* OR h* OR t*'"
        found[f"{table} found"] = rows(out, query)
    found["check"] = rows(out, "PRAGMA integrity_check")
    return found


def _files(out: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(out.rglob("*")):
        name = path.relative_to(out).as_posix()
        if path.is_file() and name != "index.db" and not name.startswith("logs/"):
            yield name, sha256(path.read_bytes()).hexdigest()
