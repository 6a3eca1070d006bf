"""Cost, memory and scaling of batches.

Run by hand, on a machine that has nothing else to do:

    python tests/benchmarks/bench_batch.py many [--runs 10000] [--jobs 2] [--folder F]
    python tests/benchmarks/bench_batch.py client [--runs 10000]
    python tests/benchmarks/bench_batch.py jobs [--runs 40] [--repeat 3]

`client` is `many` with results made up on the spot instead of analyses: what is left is the work
of the client, which does not depend on what else the machine does. `many` makes an archive of small synthetic runs, analyses it, and prints the memory of the client,
what a run costs from the first hundred to the last, and what questions to the index take. The
bars: less than 300 MB, a cost that does not grow, less than 100 ms a question. `jobs` compares one
job with two, in turn; the bar is 1.7 times.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.batch.archives import command, old, trace, write_bundle, write_run, write_trace
from tests.batch.instant import Instantly, model_of, units
from trace_analyzer.batch.driver import Batch, Settings, Tally
from trace_analyzer.batch.executors import Pool
from trace_analyzer.batch.index import Index
from trace_analyzer.batch.output import opened_output
from trace_analyzer.batch.pages import pages
from trace_analyzer.batch.schema import VIEWS
from trace_analyzer.batch.storage import place
from trace_analyzer.reports import archive_html

BAR_MB = 300
BAR_MS = 100
BAR_SPEEDUP = 1.7
_TICKS = 100  # of /proc/PID/stat, a second

QUESTIONS = {
    "one run by name": "SELECT * FROM runs WHERE name = (SELECT name FROM runs LIMIT 1 OFFSET 500)",
    "the 50 largest gains": "SELECT * FROM runs_by_gain LIMIT 50",
    "runs of a job in order": "SELECT * FROM runs WHERE job = 'job7' ORDER BY started",
    "slower than before": 'SELECT * FROM step_changes WHERE "change" > 0.05 LIMIT 100',
    "full text": "SELECT * FROM runs WHERE rowid IN "
    "(SELECT rowid FROM runs_fts WHERE runs_fts MATCH 'job7') LIMIT 100",
    "kernels of a run": "SELECT * FROM kernels_by_name WHERE run_id = (SELECT MAX(id) FROM runs)",
    "runs with a kernel": "SELECT run_id FROM kernels WHERE name_id = "
    "(SELECT id FROM kernel_names WHERE name = 'gemm_1') LIMIT 100",
    "a file by its hash": "SELECT * FROM files WHERE sha256 = (SELECT MAX(sha256) FROM files)",
}


@dataclass
class Client:
    """What a batch looked like from outside; memory in MB, processor time in s."""

    memory_mb: list[tuple[int, float]] = field(default_factory=list)
    processor_s: list[tuple[int, float]] = field(default_factory=list)
    seconds: float = 0.0


def main() -> int:
    """Measure and print; return 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=["many", "client", "jobs"])
    parser.add_argument("--runs", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="keep archive and output there")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="bench-batch-"))
    try:
        if given.what == "many":
            return many(folder, given.runs or 10_000, given.jobs)
        if given.what == "client":
            return client_alone(folder, given.runs or 10_000)
        return jobs(folder, given.runs or 40, given.repeat)
    finally:
        if given.folder is None:
            shutil.rmtree(folder)


def many(folder: Path, count: int, at_once: int) -> int:
    """Analyse many small runs."""
    archive, out = folder / "archive", folder / "out"
    if not archive.exists():
        make_archive(archive, count)
    client = watch(command("batch", archive, "-o", out, "--jobs", str(at_once), "-q"), out)
    print(f"{count:,} runs, {at_once} jobs: {client.seconds:.0f} s")
    peak = max(mb for _, mb in client.memory_mb)
    for at in sorted({100, min(1000, count), count // 2, count}):
        near = [mb for done, mb in client.memory_mb if done <= at]
        print(f"client memory after {at:>6,} runs: {near[-1]:6.1f} MB")
    costs = costs_of(out, client)
    good = peak < BAR_MB
    print(f"client memory at most: {peak:.1f} MB (bar {BAR_MB})")
    for label, wall_ms, client_ms in costs:
        print(f"{label:>16}: {wall_ms:7.1f} ms a run, of it {client_ms:5.2f} ms in the client")
    worst = questions(out)
    again = watch(command("batch", archive, "-o", out, "-q"), out)
    print(f"again, nothing to do: {again.seconds:.1f} s, {again.memory_mb[-1][1]:.1f} MB")
    return 0 if good and worst < BAR_MS else 1


def questions(out: Path) -> float:
    """Ask the index and print how long each answer takes; return the longest, in ms."""
    worst = 0.0
    with closing(sqlite3.connect(out / "index.db")) as base:
        for name, query in [*QUESTIONS.items(), *((v, f"SELECT * FROM {v}") for v in VIEWS)]:
            took_ms, rows = timed(base, query)
            worst = max(worst, took_ms)
            print(f"  {took_ms:7.1f} ms  {rows:>7,} rows  {name}")
    print(f"slowest question: {worst:.1f} ms (bar {BAR_MS})")
    print(f"index.db: {(out / 'index.db').stat().st_size / 1e6:.1f} MB")
    return worst


def client_alone(folder: Path, count: int) -> int:
    """Do what the client of `many` does, with made-up results."""
    write_run(folder / "model" / "run", 1, world=2)
    old(folder / "model")
    subprocess.run(
        command("batch", folder / "model", "-o", folder / "model-out", "-q"),
        check=True,
        stdout=subprocess.DEVNULL,
    )
    model = model_of(folder / "model-out")
    planned = units(count)
    seen: list[tuple[int, float, float, float]] = []

    def progress(tally: Tally) -> None:
        if tally.tasks_done >= len(seen) * count // 100:
            status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
            held = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
            moment = (time.monotonic(), time.process_time())
            seen.append((tally.tasks_done, held * 1024 / 1e6, *moment))

    settings = Settings(archive=str(folder), out=str(folder / "out"))
    with opened_output(place(settings.out)) as output, Index(output.index, "") as index:
        pool = Pool(Instantly(model), window=3, share=1)
        Batch(settings, index, output, pool, Tally()).run(planned, count, progress)
        begun_s = time.monotonic()
        for name, page in pages(index.connection, "archive"):
            output.place.write(name, archive_html.render(page).encode())
        print(f"index pages: {time.monotonic() - begun_s:.1f} s")
    for first, last in ((1, 10), (45, 55), (len(seen) - 11, len(seen) - 1)):
        runs = seen[last][0] - seen[first][0]
        wall, spent = (1000 * (seen[last][i] - seen[first][i]) / runs for i in (2, 3))
        print(
            f"{seen[first][0]:>6,}–{seen[last][0]:>6,} runs: {wall:.2f} ms a run, {spent:.2f} ms of "
            f"processor, {seen[last][1]:.1f} MB"
        )
    return 0 if questions(folder / "out") < BAR_MS and seen[-1][1] < BAR_MB else 1


def make_archive(archive: Path, count: int) -> None:
    """Write small runs of one rank; every tenth is a bundle of one of twenty jobs."""
    for number in range(count):
        place = archive / f"day{number // 100:03}" / f"run{number:05}"
        if number % 10 == 0:
            day = f"2026-{1 + number // 1000 % 12:02}-{1 + number // 40 % 28:02}T00:00:00Z"
            write_bundle(place, number, f"job{number // 10 % 20}", f"v{number}", day)
        else:
            write_trace(place / "rank0.pt.trace.json.gz", trace(number, 0, 1, steps=3))
    old(archive)


def watch(program: list[str], out: Path) -> Client:
    """Run a batch and look at its client twice a second."""
    client = Client()
    begun_s = time.monotonic()
    with subprocess.Popen(program, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            look(process.pid, out, client)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
    client.seconds = time.monotonic() - begun_s
    assert process.returncode == 0
    return client


def look(pid: int, out: Path, client: Client) -> None:
    """Note memory and processor time of the client, with the number of runs that are done."""
    log = max((out / "logs").glob("*"), default=None) if (out / "logs").exists() else None
    done = 0 if log is None else log.read_bytes().count(b"\n")
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        times = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return
    held = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]
    if held:
        client.memory_mb.append((done, int(held[0]) * 1024 / 1e6))
        client.processor_s.append((done, (int(times[11]) + int(times[12])) / _TICKS))


def costs_of(out: Path, client: Client) -> list[tuple[str, float, float]]:
    """Return, for stretches of the batch, wall time and client time a run, in ms."""
    log = max((out / "logs").glob("*"), key=lambda path: path.stat().st_size)
    lines = [json.loads(line) for line in log.read_text(encoding="ascii").splitlines()]
    moments = [datetime.fromisoformat(line["time"]).timestamp() for line in lines]
    count = len(moments)
    width = max(min(900, count // 4), 1)
    found = []
    for first in sorted({100, count // 2 - width // 2, count - width - 2}):
        last = min(first + width, count - 1)
        wall_ms = (moments[last] - moments[first]) / (last - first) * 1000
        inside = [(done, s) for done, s in client.processor_s if first <= done <= last]
        spent = (inside[-1][1] - inside[0][1]) / max(inside[-1][0] - inside[0][0], 1) * 1000
        found.append((f"{first:,}–{last:,}", wall_ms, spent))
    return found


def timed(base: sqlite3.Connection, query: str) -> tuple[float, int]:
    """Return the median time of a query in ms, all its rows read, and their number."""
    took, rows = [], 0
    for _ in range(5):
        begun_s = time.perf_counter()
        rows = len(base.execute(query).fetchmany(1000))
        took.append((time.perf_counter() - begun_s) * 1000)
    return statistics.median(took), rows


def jobs(folder: Path, count: int, repeat: int) -> int:
    """Compare one job with two, in turn."""
    archive = folder / "archive"
    for seed in range(count):
        write_run(archive / f"run{seed:03}", seed, world=2, steps=100)
    old(archive)
    took: dict[int, list[float]] = {1: [], 2: []}
    for number in range(repeat):
        for at_once in (1, 2):
            out = folder / f"out{number}-{at_once}"
            program = command("batch", archive, "-o", out, "--jobs", str(at_once), "-q")
            took[at_once].append(watch(program, out).seconds)
            print(f"{at_once} job{'s' if at_once > 1 else ' '}: {took[at_once][-1]:.1f} s")
    ratios = [one / two for one, two in zip(took[1], took[2], strict=True)]
    ratio = statistics.median(ratios)
    print(f"two jobs are {ratio:.2f} times as fast as one (bar {BAR_SPEEDUP})")
    return 0 if ratio >= BAR_SPEEDUP else 1


if __name__ == "__main__":
    sys.exit(main())
