"""Check recording on a machine with GPUs: the acceptance of `collect`, in under four minutes.

    python -m tests.gpu.capture_check OUT [--minutes 4] [--parts ddp-torch,…]
    python -m tests.gpu.capture_check OUT --analyze

The first form records the same unmodified script (`train_gpt.py`) by torch.profiler and by nsys,
trained by DDP, by FSDP2, and compiled, and measures what the step timer costs. It needs torch,
numpy and click, two GPUs (or none: then a tiny model on the CPU), and nsys for some parts
(`TRACE_ANALYZER_NSYS`, `TRACE_ANALYZER_NSYS_LIBRARIES`). Parts begin in the order of `PARTS` as
long as there is time left for them; what was not run is listed, and a further call with `--parts`
adds to the same file. `OUT/capture_check.json` receives all numbers, `OUT/bundle_PART.tar.gz` each
bundle without nsys's own report, `OUT/PART.log` what was printed.

The second form runs where trace-analyzer is installed in full: it analyzes every bundle in OUT and
adds what came of it.

The step time of a bundle has to be within 1 % of the script's own timing of the same steps, and
the timer below 0.5 % of the launch-bound step.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trace_analyzer.before_after import unlike
from trace_analyzer.capture_marks import CALIBRATION_MARK, read_rank_mark

ROOT = Path(__file__).parents[2]
RESULT = "capture_check.json"
BAR_PCT = 1.0
TIMER_BAR_PCT = 0.5
PATIENCE = 3  # times a part's own seconds; then it is ended
REPORTS = (".nsys-rep", ".qdstrm")  # large, and what the export was made from


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Something to record; `seconds` is what it takes on two H200, with some to spare."""

    seconds: float
    recorder: str = ""  # "torch" or "nsys"; "" for the timer's cost
    options: tuple[str, ...] = ()
    training: tuple[str, ...] = ()
    steps: int = 0


LATER = ("--no-timing-run", "--stop-when-done", "--no-sampler")
PARTS = {
    "timer-cost": Part(seconds=55),
    "ddp-torch": Part(seconds=35, recorder="torch", steps=150),
    "ddp-nsys": Part(seconds=65, recorder="nsys", steps=110, options=("--stop-when-done",)),
    "fsdp-torch": Part(
        seconds=30,
        recorder="torch",
        steps=400,
        options=("--sample-seconds", "0.5", "--no-calibration", "--stop-when-done"),
        training=("--parallel", "fsdp"),
    ),
    "compiled-torch": Part(
        seconds=35,
        recorder="torch",
        steps=400,
        options=("--no-calibration", "--stop-when-done"),
        training=("--compile",),
    ),
    "fsdp-nsys": Part(
        seconds=35, recorder="nsys", steps=110, options=LATER, training=("--parallel", "fsdp")
    ),
    "compiled-nsys": Part(
        seconds=40, recorder="nsys", steps=110, options=LATER, training=("--compile",)
    ),
}
TINY = [
    "--layers",
    "1",
    "--width",
    "64",
    "--length",
    "16",
    "--batch",
    "2",
    "--vocabulary",
    "64",
]  # without a GPU


def run_part(name: str, part: Part, out: Path, work: Path) -> dict[str, Any]:
    """Run one part and return its numbers."""
    command, times = _command(name, part, out, work)
    began = time.monotonic()
    with (out / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=_environment(), stdout=log, stderr=log, start_new_session=True
        )
        try:
            code = process.wait(PATIENCE * part.seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)  # what is recorded is kept
            code = process.wait()
    found: dict[str, Any] = {
        "exit_code": code,
        "seconds": round(time.monotonic() - began, 1),
        "command": " ".join(command[1:]),
    }
    if not part.recorder:
        target = out / "timer_cost.json"
        found |= json.loads(target.read_text()) if target.exists() else {}
        return found
    bundle = work / name
    if bundle.exists():
        found |= bundle_facts(bundle, times)
        with tarfile.open(out / f"bundle_{name}.tar.gz", "w:gz") as archive:
            for path in sorted(bundle.iterdir()):
                if path.suffix not in REPORTS:
                    archive.add(path, f"{name}/{path.name}")
    return found


def _command(name: str, part: Part, out: Path, work: Path) -> tuple[list[str], Path]:
    times = work / f"times_{name}"
    times.mkdir(exist_ok=True)
    if not part.recorder:
        seconds = "40" if on_gpu() else "1"
        module = ["-m", "trace_analyzer.collectors.timer_cost", "--seconds", seconds]
        return [sys.executable, *module, "-o", str(out / "timer_cost.json")], times
    collect = ["-m", "trace_analyzer", "collect", part.recorder, "-o", str(work / name), "--force"]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = [str(Path(__file__).with_name("train_gpt.py")), "--times", str(times)]
    script += ["--steps", str(part.steps), *part.training, *(() if on_gpu() else TINY)]
    train = [sys.executable, *torchrun, *script]
    return [sys.executable, *collect, *part.options, "--", *train], times


def _environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    threads = "4" if on_gpu() else "1"
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": threads, "PYTHONUNBUFFERED": "1"}


def on_gpu() -> bool:
    """Whether this machine shows an NVIDIA GPU (torch is not asked: it would hold a context)."""
    return Path("/dev/nvidiactl").exists()


def bundle_facts(bundle: Path, times: Path) -> dict[str, Any]:
    """Return what a bundle holds, and its step times beside those that the script took."""
    found: dict[str, Any] = {
        "files": {path.name: path.stat().st_size for path in sorted(bundle.iterdir())}
    }
    rows = [Steps(path) for path in sorted(bundle.glob("steps_rank*.jsonl"))]
    found["ranks"] = sorted({row.rank for row in rows})
    found["notes"] = sorted({note for row in rows for note in row.notes})
    found["complete"] = all(row.complete for row in rows)
    found["clocks"] = sorted({row.clock for row in rows})
    timed = [row for row in rows if row.of("unprofiled")]
    if timed:
        found["unprofiled"] = unprofiled_facts(timed[0], times)
        profiled = [ms for row in rows for ms in row.times("profiled")]
        if profiled:
            found["perturbation_pct"] = round(
                100 * (statistics.median(profiled) / found["unprofiled"]["bundle_ms"] - 1), 2
            )
    for path in sorted(bundle.glob("calibration_rank*.json")):
        document = json.loads(path.read_text())
        found.setdefault("calibration", {})[path.stem] = {
            "recorder": document["recorder"],
            **{item["name"]: item["delta_us"] for item in document["classes"]},
        }
    for path in sorted(bundle.glob("*.sqlite")):
        found.setdefault("nsys", {})[path.name] = nsys_facts(path)
    return found


class Steps:
    """A step file of a bundle."""

    def __init__(self, path: Path) -> None:
        records = [json.loads(line) for line in path.read_text().splitlines()]
        self.rank = int(records[0]["rank"])
        self.clock = str(records[0]["clock"])
        self.steps = [item for item in records if item["kind"] == "step"]
        self.notes = [item["message"] for item in records if item["kind"] == "note"]
        self.complete = records[-1] == {"kind": "end", "complete": True}

    def of(self, phase: str) -> list[list[dict[str, Any]]]:
        """Return the rows of consecutive steps of a phase."""
        rows = itertools.groupby(self.steps, key=lambda item: item["phase"])
        return [list(row) for found, row in rows if found == phase]

    def times(self, phase: str) -> list[float]:
        """Return the steps of a phase in ms."""
        return [float(item["step_ms"]) for row in self.of(phase) for item in row]


def unprofiled_facts(timed: Steps, times: Path) -> dict[str, Any]:
    """Compare the unprofiled steps of a bundle with what the script measured meanwhile."""
    rows = timed.of("unprofiled")
    row_ms = [[float(step["step_ms"]) for step in row] for row in rows]
    differ = unlike(row_ms[0], row_ms[1]) if len(rows) == 2 else None
    kept = rows[:1] if differ else rows
    bundle_ms = [ms for row in row_ms[: len(kept)] for ms in row]
    # The script's steps begin elsewhere than the bundle's, so a row begins and ends in one of
    # them: without those at the edges both cover the same time.
    inner_ms = [ms for row in row_ms[: len(kept)] for ms in row[1:-1]]
    script_ms = [ms for row in kept for ms in _script_steps(row, times)]
    found: dict[str, Any] = {
        "steps": len(bundle_ms),
        "bundle_ms": statistics.median(bundle_ms),
        "bundle_mean_ms": statistics.fmean(bundle_ms),
        "rows_ms": [statistics.median(row) for row in row_ms],
        "later_steps_left_out": differ is not None,
    }
    if script_ms and inner_ms:
        found |= {
            "script_steps": len(script_ms),
            "script_ms": statistics.median(script_ms),
            "script_mean_ms": statistics.fmean(script_ms),
        }
        off = 100 * (statistics.median(inner_ms) / found["script_ms"] - 1)
        of_means = 100 * (statistics.fmean(inner_ms) / found["script_mean_ms"] - 1)
        found |= {
            "difference_pct": round(off, 4),
            "difference_of_means_pct": round(of_means, 4),
            "within_bar": abs(off) <= BAR_PCT,
        }
    return found


def _script_steps(row: Sequence[dict[str, Any]], times: Path) -> Iterator[float]:
    """Yield the script's own times of steps that lie inside a row: they begin elsewhere in it."""
    begin = row[0]["start_unix_ns"]
    end = row[-1]["start_unix_ns"]
    for path in times.glob("times_*.json"):
        document = json.loads(path.read_text())
        starts = document["start_unix_ns"]
        for (start, stop), ms in zip(itertools.pairwise(starts), document["step_ms"], strict=True):
            if begin <= start and stop <= end:
                yield float(ms)


def nsys_facts(path: Path) -> dict[str, Any]:
    """Count what an export holds, and find our recorder's marks in it."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        tables = {name for (name,) in database.execute("select name from sqlite_master")}
        found: dict[str, Any] = {
            table.removeprefix("CUPTI_ACTIVITY_KIND_").lower(): database.execute(
                f"select count(*) from {table}"
            ).fetchone()[0]
            for table in sorted(tables)
            if table.startswith("CUPTI_ACTIVITY_KIND_") or table == "NVTX_EVENTS"
        }
        if "NVTX_EVENTS" in tables:
            texts = [
                text
                for (text,) in database.execute(
                    "select coalesce(text, value) from NVTX_EVENTS "
                    "left join StringIds on StringIds.id = NVTX_EVENTS.textId"
                )
                if text
            ]
            found["rank_marks"] = sorted(mark for text in texts if (mark := read_rank_mark(text)))
            found["calibration_marks"] = texts.count(CALIBRATION_MARK)
            found["step_ranges"] = sum(text.startswith("step ") for text in texts)
    return found


def judge(parts: dict[str, Any]) -> dict[str, Any]:
    """Return which bars hold, as far as they were measured."""
    held: dict[str, Any] = {}
    sizes = parts.get("timer-cost", {}).get("sizes", {})
    for name, size in sizes.items():
        if name in {"launch-bound", "gpu-bound"}:  # the others are there to resolve microseconds
            held[f"timer {name}: {size['inside_pct']} % inside"] = (
                size["inside_pct"] < TIMER_BAR_PCT
            )
    for name, part in parts.items():
        if part.get("exit_code"):
            held[f"{name}: exit code {part['exit_code']}"] = False
        compared = part.get("unprofiled", {})
        if "difference_pct" in compared:
            held[f"{name}: step {compared['difference_pct']} % off"] = compared["within_bar"]
        for export, facts in part.get("nsys", {}).items():
            marks = facts.get("rank_marks", [])
            held[f"{name}: {export} names {len(marks)} ranks"] = len(marks) == 2
    return held


def analyze(out: Path) -> dict[str, Any]:
    """Analyze every bundle in OUT with the command line; return verdicts and warnings."""
    found: dict[str, Any] = {}
    for archive in sorted(out.glob("bundle_*.tar.gz")):
        name = archive.name.removeprefix("bundle_").removesuffix(".tar.gz")
        command = [sys.executable, "-m", "trace_analyzer", "analyze", str(archive), "--json", "-"]
        done = subprocess.run(
            command, cwd=ROOT, env=_environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            found[name] = {"exit_code": done.returncode, "error": done.stderr[-500:]}
            continue
        report = json.loads(done.stdout)
        steps = report["steps"]
        found[name] = {
            "state": report["verdict"]["state"],
            "headline": report["verdict"]["headline"],
            "findings": [item["code"] for item in report["findings"]],
            "warnings": sorted({item["code"] for item in report["warnings"]}),
            "ranks": [item["rank"] for item in report["ranks"]],
            **{key: steps[key] for key in ("profiled_ms", "unprofiled_ms", "unprofiled_basis")},
        }
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="capture_check")
    parser.add_argument("out", type=Path, help="folder for the results")
    parser.add_argument("--minutes", type=float, default=4.0, help="begin no part that ends later")
    parser.add_argument("--parts", default=",".join(PARTS), help="which, separated by commas")
    parser.add_argument("--analyze", action="store_true", help="analyze the bundles in OUT instead")
    given = parser.parse_args()
    out: Path = given.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    target = out / RESULT
    result: dict[str, Any] = json.loads(target.read_text()) if target.exists() else {"parts": {}}
    if given.analyze:
        result["analysis"] = analyze(out)
    else:
        deadline = time.monotonic() + 60 * given.minutes
        work = Path(tempfile.mkdtemp(prefix="capture-check-"))
        result["not_run"] = []
        for name in given.parts.split(","):
            if time.monotonic() + PARTS[name].seconds > deadline:
                result["not_run"].append(name)
                continue
            result["parts"][name] = run_part(name, PARTS[name], out, work)
            result["held"] = judge(result["parts"])
            target.write_text(json.dumps(result, indent=1) + "\n")  # what there is, if it is cut
        shutil.rmtree(work)
    text = json.dumps(result, indent=1) + "\n"
    target.write_text(text)
    print(text, end="")
    return int(not all(result.get("held", {}).values()))


if __name__ == "__main__":
    sys.exit(main())
