"""Speed and memory of exports.

Run by hand: `python tests/benchmarks/bench_export.py [--mb 100] [--repeat 3] [FILE…]`. A synthetic trace
of this size (see bench_kineto), and real ones repeated up to it, are read and analysed in a fresh
process; what is measured is the export alone, which of several processes takes the fastest by CPU
time. Memory is what the export adds to the peak: the tables of the run are held by then, and the
bar is that a file is written in a bounded part of what it will be.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.bench_kineto import MB, repeated, synthetic

KINDS = ("perfetto", "sqlite", "parquet")
BAR_ADDED_MB = {"perfetto": 60, "sqlite": 60, "parquet": 120}  # for a file of any size

_CHILD = """
import sys, time
from pathlib import Path
from trace_analyzer.assembly import Options, build_report
from trace_analyzer.assembly.report import analyse
from trace_analyzer.cli import export
from trace_analyzer.cli.outputs import Output
from trace_analyzer.cli.progress import ProgressLine
from trace_analyzer.readers.discovery import open_run

def kib(field):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if field in line)

source, kind, target = sys.argv[1:]
run = open_run(source)
study = analyse(run, Options())
report = build_report(run, Options(), studied=study)
if kind == "parquet":
    import pyarrow.parquet
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
held_kib = kib("VmRSS")
cpu_s = time.process_time()
export._WRITERS[kind](Output("-o", target), study, report, ProgressLine(quiet=True))
cpu_s = time.process_time() - cpu_s
events = sum(len(t) for r in run.ranks for t in (r.operations, r.calls, r.events, r.syncs))
print(cpu_s, held_kib, kib("VmHWM") - held_kib, events)
"""


def measure(source: Path, kind: str, repeat: int) -> tuple[float, float, float, int, int]:
    """Return CPU s, MB held before, MB added at peak, events, and bytes written."""
    runs = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder, "run.json.gz")
            out = subprocess.run(
                [sys.executable, "-c", _CHILD, str(source), kind, str(target)],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            files = [target] if target.is_file() else list(target.iterdir())
            size = sum(path.stat().st_size for path in files)
        cpu_s, held_kib, added_kib, events = out.split()
        runs.append(
            (float(cpu_s), int(held_kib) * 1024 / MB, int(added_kib) * 1024 / MB, int(events), size)
        )
    return min(runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="*", type=Path, help="real traces to repeat")
    parser.add_argument("--mb", type=int, default=100, help="MB of JSON a trace")
    parser.add_argument("--repeat", type=int, default=3, help="processes an export")
    options = parser.parse_args()
    print(f"{'trace':36} {'export':9} {'events':>8} {'CPU s':>6} {'µs/event':>8} "
          f"{'MB/s':>6} {'held MB':>8} {'added MB':>8} {'bar':>4} {'written MB':>10}")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "synthetic.json")
        with path.open("w", encoding="utf-8") as stream:
            stream.writelines(synthetic(options.mb * MB))
        _print_rows("synthetic", path, options.repeat)
        for source in options.files:
            with path.open("wb") as binary:
                binary.writelines(repeated(source, options.mb * MB))
            _print_rows(f"{source.parent.name}/{source.name}"[-36:], path, options.repeat)


def _print_rows(label: str, path: Path, repeat: int) -> None:
    json_mb = path.stat().st_size / MB
    for kind in KINDS:
        cpu_s, held_mb, added_mb, events, size = measure(path, kind, repeat)
        print(f"{label:36} {kind:9} {events:8} {cpu_s:6.2f} {cpu_s / events * 1e6:8.2f} "
              f"{json_mb / cpu_s:6.0f} {held_mb:8.0f} {added_mb:8.0f} {BAR_ADDED_MB[kind]:4} "
              f"{size / MB:10.1f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
