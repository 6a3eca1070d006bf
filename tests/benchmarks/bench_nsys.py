"""Speed of the nsys reader against a bare scan of the same columns with Python's sqlite3.

Run by hand: `python tests/benchmarks/bench_nsys.py [--kernels N] [--shuffle]`. It writes a synthetic
export with the proportions of a real one, then times in turn a loop that only fetches the rows
and the whole reader (columns, joins, tables). The bar is a ratio of at most 2.
"""

from __future__ import annotations

import argparse
import random
import resource
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from trace_analyzer.readers import nsys

_PROCESS = 0x1000000000000 | 924 << 24
_THREAD = _PROCESS | 924
_KERNEL = (
    "start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName, "
    "registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ, staticSharedMemory, "
    "dynamicSharedMemory, graphNodeId"
)
_RUNTIME = "start, end, globalTid, correlationId, nameId"
_NVTX = "start, end, eventType, globalTid, textId, domainId"
_NULLABLE = {"correlationId", "globalPid", "globalTid", "graphNodeId", "textId", "domainId"}
# What the reader reads: the columns of the large tables and the texts of the ranges.
_SCANS = (
    f"select {_KERNEL} from CUPTI_ACTIVITY_KIND_KERNEL",
    f"select {_RUNTIME} from CUPTI_ACTIVITY_KIND_RUNTIME",
    f"select {_NVTX} from NVTX_EVENTS",
    "select id, value from StringIds",
)


def _limit(column: str) -> str:
    """Return what exports declare of a column."""
    return "" if column in _NULLABLE else "NOT NULL"


def write_export(path: Path, kernels: int, *, shuffle: bool) -> int:
    """Write an export with 3 calls and 1.5 NVTX ranges a kernel; return the number of rows."""
    dice = random.Random(1)
    base = sqlite3.connect(path)
    base.execute("pragma journal_mode=off")
    for table, columns in (
        ("CUPTI_ACTIVITY_KIND_KERNEL", _KERNEL),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", _RUNTIME),
        ("NVTX_EVENTS", _NVTX),
    ):
        typed = ", ".join(f'"{name}" INTEGER {_limit(name)}' for name in columns.split(", "))
        base.execute(f"create table {table} ({typed})")
    base.execute("create table StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
    base.execute("create table META_DATA_EXPORT (name TEXT, value TEXT)")
    base.execute("insert into META_DATA_EXPORT values ('EXPORT_SCHEMA_VERSION', '3.27.0')")
    texts = [(number, f"void kernel_{number}<float, 4>(float*)") for number in range(1, 200)]
    texts += [(200, "cudaLaunchKernel_v7000"), (201, "cudaEventRecord_v3020")]
    texts += [
        (1000 + number, f"aten::op{number % 60}, seq = {number}, op_id = {number * 3}")
        for number in range(kernels * 3 // 2)
    ]
    base.executemany("insert into StringIds values (?, ?)", texts)
    order = list(range(kernels))
    if shuffle:
        dice.shuffle(order)

    def kernel(i: int) -> tuple[int | None, ...]:
        start, name = i * 10_000, dice.randrange(1, 200)
        grid, shared = 1 + name * 7, 1024 * (name % 5)
        stop = start + dice.randrange(2_000, 12_000)
        place = (start, stop, 0, 1, 7 + i % 3, 4 * i + 2, _PROCESS)
        return (*place, name, 32 + name % 90, grid, 1, 1, 256, 1, 1, 0, shared, None)

    def calls(i: int) -> list[tuple[int, ...]]:
        start = i * 10_000 - 5_000_000
        return [
            (
                start + 2_500 * at,
                start + 2_500 * at + 1_800,
                _THREAD,
                4 * i + 1 + at,
                200 + (at != 1),
            )
            for at in range(3)
        ]

    def ranges(i: int) -> tuple[int, ...]:
        start = i * 6_667 - 5_000_000
        return (start, start + 4_000, 59, _THREAD, 1000 + i, 0)

    marks = ", ".join("?" * 18)
    base.executemany(
        f"insert into CUPTI_ACTIVITY_KIND_KERNEL values ({marks})", (kernel(i) for i in order)
    )
    base.executemany(
        "insert into CUPTI_ACTIVITY_KIND_RUNTIME values (?, ?, ?, ?, ?)",
        (row for i in order for row in calls(i)),
    )
    base.executemany(
        "insert into NVTX_EVENTS values (?, ?, ?, ?, ?, ?)",
        (ranges(i) for i in range(kernels * 3 // 2)),
    )
    base.commit()
    base.close()
    return kernels * 4 + kernels * 3 // 2


def scan(path: Path) -> None:
    """Fetch every row that the reader uses, and do nothing with it."""
    base = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    for query in _SCANS:
        for _row in base.execute(query.replace(" end,", ' "end",')):
            pass
    base.close()


def timed(work: Callable[[], object]) -> float:
    """Return the processor seconds of a call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--shuffle", action="store_true", help="rows in no order, as since 2025.6")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "synthetic.sqlite"
        rows = write_export(path, chosen.kernels, shuffle=chosen.shuffle)
        megabytes = path.stat().st_size / 1e6
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        pairs = [
            (timed(lambda: scan(path)), timed(lambda: nsys.read(path)))
            for _ in range(chosen.repeat)
        ]
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    bare, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratios = [second / first for first, second in pairs]
    spread = f"min {min(ratios):.2f}, max {max(ratios):.2f}"
    sys.stdout.write(
        f"{rows} rows, {megabytes:.0f} MB, {chosen.repeat} repetitions, median processor time\n"
        f"bare scan {bare:.2f} s ({rows / bare / 1e6:.2f} M rows/s)\n"
        f"reader    {ours:.2f} s ({rows / ours / 1e6:.2f} M rows/s)\n"
        f"ratio     {statistics.median(ratios):.2f} ({spread})\n"
        f"peak memory grew by {(after - before) / 1024:.0f} MB\n"
    )


if __name__ == "__main__":
    main()
