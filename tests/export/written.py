"""Exports made for tests, and traces taken apart as trace viewers do."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from trace_analyzer.analyses.study import Study
from trace_analyzer.assembly import Options
from trace_analyzer.assembly.peers import contention_docs, late_rank_docs, lateness_doc
from trace_analyzer.assembly.ranks import rank_docs
from trace_analyzer.assembly.report import analyse
from trace_analyzer.assembly.tables import collective_docs, kernel_docs
from trace_analyzer.export import perfetto
from trace_analyzer.findings import Finding
from trace_analyzer.model import Run
from trace_analyzer.readers.discovery import open_run


def studied(run: Run) -> Study:
    """Return the results of a run."""
    return analyse(run, Options())


def exported(study: Study, path: Path, findings: Sequence[Finding] = ()) -> Path:
    """Write the trace for Perfetto."""
    path.write_bytes(gzip.compress(b"".join(perfetto.trace(study, findings)), 1))
    return path


def read_back(study: Study, folder: Path) -> Study:
    """Export a run, and analyse what our own reader makes of the file."""
    return studied(open_run(str(exported(study, folder / "run.json.gz"))))


def numbers(study: Study) -> dict[str, Any]:
    """Return everything that a report says of the events, without what lies beside a recording."""
    collectives = [msgspec.to_builtins(row) for row in collective_docs(study)]
    for row in collectives:
        del row["expected_channels"]  # NCCL's settings are not in the trace
    return {
        "ranks": [
            msgspec.to_builtins(msgspec.structs.replace(rank, rank_basis=""))
            for rank in rank_docs(study)
        ],
        "collectives": collectives,
        "kernels": kernel_docs(study),
        "lateness": lateness_doc(study),
        "late_ranks": late_rank_docs(study),
        "contention": contention_docs(study),
        "steps": (study.steady.used, study.steady.excluded, study.step_ns, study.step_mean_ns),
    }


def events(path: Path) -> list[dict[str, Any]]:
    """Return the events of an exported trace."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    listed: list[dict[str, Any]] = document["traceEvents"]
    return listed


def ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def tracks(listed: list[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the slices of every track, by the names of process and thread."""
    names: dict[str, dict[Any, str]] = {"process_name": {}, "thread_name": {}}
    for event in listed:
        if event["ph"] == "M" and event["name"] in names:
            key = event["pid"] if event["name"] == "process_name" else event["tid"]
            names[event["name"]][key] = event["args"]["name"]
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for event in listed:
        if event["ph"] == "X":
            thread = names["thread_name"].get(event["tid"], str(event["tid"]))
            found[names["process_name"][event["pid"]], thread].append(event)
    return found


def check_opens(listed: list[dict[str, Any]]) -> None:
    """Check what Perfetto demands of a trace: unique threads, and slices that nest.

    It takes events of one time in the order of the file, closes what has ended, and drops a slice
    that begins inside another one and ends after it. An arrow belongs to the slice that is open.
    """
    owner: dict[Any, Any] = {}
    for event in listed:
        assert owner.setdefault(event["tid"], event["pid"]) == event["pid"]
    ordered = sorted((e for e in listed if e["ph"] != "M"), key=lambda e: ns(e["ts"]))
    stacks: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    begun: dict[int, str] = {}
    for event in ordered:
        at = ns(event["ts"])
        assert at > 0
        stack = stacks[event["tid"]]
        while stack and (stack[-1][1] < at or (stack[-1][1] == at and stack[-1][0] < at)):
            stack.pop()
        if event["ph"] == "X":
            end = at + ns(event["dur"])
            while stack and stack[-1][1] == at and end > at:
                stack.pop()
            assert not stack or end <= stack[-1][1], event
            stack.append((at, end))
        elif event["ph"] == "s":
            assert stack, event
            assert event["id"] not in begun
            begun[event["id"]] = event["tid"]
        else:
            assert event["ph"] == "f", event
            assert event["bp"] == "e"
    ends = [event["id"] for event in listed if event["ph"] == "f"]
    assert set(ends) == set(begun)
