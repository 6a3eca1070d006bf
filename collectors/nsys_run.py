"""Runs training under nsys, and leaves an SQLite export in the bundle."""

from __future__ import annotations

import json
import platform
import shlex
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from trace_analyzer.collectors import launch
from trace_analyzer.collectors.nsys_tool import Nsys, NsysError
from trace_analyzer.collectors.options import Options
from trace_analyzer.collectors.scrub import scrub

# Read by the bootstrap: what each rank puts before itself.
PREFIX_VARIABLE = "TRACE_ANALYZER_NSYS_PREFIX"


def run(
    nsys: Nsys,
    command: Sequence[str],
    options: Options,
    extra: dict[str, str],
    *,
    graph_nodes: bool,
    per_rank: bool,
) -> int:
    """Run a command under nsys and return the command's own exit code.

    One report for the node (one clock for all its ranks), or with `per_rank` one for every rank.
    """
    if per_rank:
        prefix = nsys.profile_command(f"{options.folder}/rank%q{{RANK}}", graph_nodes=graph_nodes)
        return launch.run(
            command, launch.environment(options, {**extra, PREFIX_VARIABLE: json.dumps(prefix)})
        )
    # nsys returns a code of its own where it cannot make its report.
    code_file = options.path / ".exit_code"
    code_file.unlink(missing_ok=True)
    script = f'"$@"; code=$?; echo $code > {shlex.quote(str(code_file))}; exit $code'
    prefix = nsys.profile_command(f"{options.folder}/{node_name()}", graph_nodes=graph_nodes)
    code = launch.run(
        [*prefix, "sh", "-c", script, "sh", *command], launch.environment(options, extra)
    )
    if code == launch.EXIT_INTERRUPTED or not code_file.exists():
        return code
    own = int(code_file.read_text(encoding="ascii"))
    code_file.unlink()
    return own


def node_name() -> str:
    """Return the host's name as a file name."""
    return platform.node().partition(".")[0] or "node"


def collect_reports(nsys: Nsys, folder: Path) -> list[str]:
    """Import and export what nsys left in a folder; return what went wrong, one line each."""
    problems: list[str] = []
    for stream in sorted(folder.glob("*.qdstrm")):
        try:
            if not stream.with_suffix(".nsys-rep").exists():
                nsys.import_stream(stream)
            stream.unlink()
        except NsysError as error:
            problems.append(str(error))
    for report in sorted(folder.glob("*.nsys-rep")):
        target = report.with_suffix(".sqlite")
        try:
            nsys.export(report, target)
            scrub(target)
        except NsysError as error:
            problems.append(str(error))
        except sqlite3.Error as error:
            # What cannot be searched for secrets must not stay where it is taken for safe.
            target.unlink(missing_ok=True)
            problems.append(f"{target}: not kept, it cannot be cleaned of private rows: {error}")
    if not problems and not list(folder.glob("*.sqlite")):
        problems.append(
            "nsys left no report: training did not reach the profiled steps, or never used CUDA"
        )
    return problems
