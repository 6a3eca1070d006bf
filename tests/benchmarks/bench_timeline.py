"""How fast the timeline of a report is in Chromium: time until it can be used, time of its frames.

Run by hand, or by .ci/extra: `python -m tests.benchmarks.bench_timeline [--slices 600000]`. Needs
Chromium and Node.js (tests/browser). The page holds eight ranks and twenty steps grown from the
shipped sample. The bars, which make the exit code 1: loaded in under 1.5 s, the best of five loads;
a median frame of at most 50 ms in every kind of use. On a screen of 60 Hz no frame is shorter than
16.7 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.reports import builder
from tests.reports.grown import grown
from trace_analyzer.reports import html

SCRIPT = Path(__file__).resolve().parent.parent / "browser" / "pace.mjs"
BAR_LOADED_MS, BAR_FRAME_MS = 1500, 50
RANKS, TIMES = 8, 4


def main() -> int:
    """Print the figures; return 1 where one is above its bar."""
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("--slices", type=int, default=600_000)
    options.add_argument("--loads", type=int, default=5)
    asked = options.parse_args()
    chromium = os.environ.get("TRACE_ANALYZER_CHROMIUM") or shutil.which("chromium")
    node = shutil.which("node")
    if not chromium or not node or not (SCRIPT.parent / "node_modules").is_dir():
        print("not run: needs Chromium, Node.js and npm ci --prefix tests/browser")
        return 0
    timeline = grown(RANKS, TIMES, slices=asked.slices)
    report = builder.world(RANKS)
    begun = time.perf_counter()
    page = html.render(report, timeline=timeline)
    written_s = time.perf_counter() - begun
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_text(page, encoding="utf-8")
        command = [node, str(SCRIPT), chromium, str(path), str(asked.loads)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    found = json.loads(done.stdout)
    loaded = min(found["ready_ms"])
    print(
        f"{asked.slices:,} slices, {len(page.encode()) / 1e6:.2f} MB, written in {written_s:.2f} s"
    )
    print(
        f"usable after {loaded:.0f} ms (loads: "
        f"{', '.join(f'{ms:.0f}' for ms in found['ready_ms'])}; bar {BAR_LOADED_MS})"
    )
    worst = 0.0
    for use, times in found["frames_ms"].items():
        ordered = sorted(times)
        middle = statistics.median(ordered)
        worst = max(worst, middle)
        late = ordered[int(0.95 * (len(ordered) - 1))]
        print(f"frame, {use}: median {middle:.1f} ms, p95 {late:.1f} ms (n = {len(ordered)})")
    print(f"frame bar: median of {BAR_FRAME_MS} ms")
    return int(loaded >= BAR_LOADED_MS or worst > BAR_FRAME_MS)


if __name__ == "__main__":
    sys.exit(main())
