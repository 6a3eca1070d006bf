"""What lies in the folder of a run: label, timer and environment files, logs, manifest."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trace_analyzer.bundle import (
    BundleFile,
    Manifest,
    Role,
    default_name,
    describe_file,
    loose_role,
    write_manifest,
)
from trace_analyzer.collectors.faultlab.catalogue import codes_of, kind_of
from trace_analyzer.collectors.faultlab.fault import Fault
from trace_analyzer.collectors.faultlab.matrix import SET_RULE, RunSpec
from trace_analyzer.collectors.faultlab.statistics import Truth
from trace_analyzer.collectors.faultlab.workload import BuildOptions

LABEL_NAME = "label.json"
LOG_LIMIT_BYTES = 256 << 10


def label_document(
    spec: RunSpec,
    truth: Truth,
    *,
    options: tuple[BuildOptions, BuildOptions],
    world_size: int,
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """Return the label of a run, without what only its recording knows."""
    kinds = [dose.kind for dose in spec.doses]
    causes = tuple(dict.fromkeys(cause for kind in kinds for cause in kind.causes))
    codes = codes_of(causes)
    share = truth.cost_share
    return {
        "schema_version": 1,
        "key": spec.key,
        "faults": [
            _fault_document(kind, dose.magnitude, world_size, share)
            for kind, dose in zip(kinds, spec.doses, strict=True)
        ],
        "kind": kind_of(codes, share),
        "codes": list(codes),
        "causes": list(causes),
        "set": spec.set,
        "set_rule": SET_RULE,
        "workload": {
            "name": spec.workload.name,
            "model": spec.workload.model,
            "size": spec.workload.size,
            "parallel": spec.workload.parallel,
            "compiled": spec.workload.compiled,
            "batch_per_rank": spec.workload.scale.batch,
            "shape": asdict(spec.workload.scale.shape),
        },
        "built": {"healthy": options[0].document(), "faulty": options[1].document()},
        "environment_of_fault": dict(environment),
        "world_size": world_size,
        "seed": spec.seed,
        "statistic": "mean" if statistic_is_mean(spec) else "median",
        "cost_ms": round(truth.cost_ms, 5),
        "cost_interval_ms": [round(value, 5) for value in truth.interval_ms],
        "cost_share": round(share, 6),
        "half_width_ms": round(truth.half_width_ms, 5),
        "half_width_share": round(truth.half_width_share, 6),
        "healthy": truth.healthy.document(),
        "faulty": truth.faulty.document(),
        "definitions": {
            "step_ms": "maximum over ranks of the median (or mean, see statistic) step, CUDA "
            "events, completion to completion, no profiler, healthy and faulty segments in turn",
            "cost_ms": "faulty minus healthy step_ms: what removing the fault gives back",
            "interval_ms": "95 %, moving-block bootstrap inside the segments, within this run",
        },
    }


def statistic_is_mean(spec: RunSpec) -> bool:
    """Return whether the run's step time is a mean: where a fault comes and goes."""
    return any(dose.kind.comes_and_goes for dose in spec.doses)


def _fault_document(
    kind: type[Fault], magnitude: float, world_size: int, share: float
) -> dict[str, Any]:
    return {
        "name": kind.name,
        "about": (kind.__doc__ or "").strip().splitlines()[0],
        "causes": list(kind.causes),
        "codes": list(kind.codes()),
        "kind": kind_of(kind.codes(), share),
        "magnitude": magnitude,
        "unit": kind.unit,
        "ranks": list(kind(magnitude).ranks(world_size)),
    }


def write_label(folder: Path, document: Mapping[str, Any]) -> None:
    """Write `label.json`, one line a key, so that step times stay on one line each."""
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in document.items()]
    (folder / LABEL_NAME).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def write_steps(
    folder: Path,
    rank: int,
    phases: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    world_size: int,
    pid: int,
    clock: str,
) -> None:
    """Write `steps_rank{rank}.jsonl` from (phase, step times as `StepTimes.document`)."""
    header = {
        "schema_version": 1,
        "kind": "header",
        "rank": rank,
        "world_size": world_size,
        "pid": pid,
        "clock": clock,
    }
    lines = [json.dumps(header)]
    index = 0
    for phase, times in phases:
        rows = zip(times["step_ms"], times["host_ms"], times["start_unix_ns"], strict=True)
        for step_ms, host_ms, start_unix_ns in rows:
            row = {
                "kind": "step",
                "index": index,
                "phase": phase,
                "start_unix_ns": start_unix_ns,
                "step_ms": step_ms,
                "host_ms": host_ms,
            }
            lines.append(json.dumps(row))
            index += 1
    (folder / default_name(Role.TIMER, rank)).write_text("\n".join(lines) + "\n")


def log_sizes(logs: Path, pids: Sequence[int]) -> dict[int, int]:
    """Return the bytes that the NCCL logs of these processes hold now."""
    paths = {pid: logs / default_name(Role.NCCL_LOG, pid) for pid in pids}
    return {pid: path.stat().st_size for pid, path in paths.items() if path.exists()}


def copy_nccl_logs(
    logs: Path,
    pids: Sequence[int],
    folder: Path,
    parts: tuple[Mapping[int, int], Mapping[int, int]],
) -> None:
    """Copy the NCCL logs of these processes, without the host's name.

    `parts` are the logs' sizes when the group had opened and when this run began: what other
    runs of the same processes wrote between is not of this run.
    """
    for pid in pids:
        source = logs / default_name(Role.NCCL_LOG, pid)
        if source.exists():
            content = source.read_bytes()
            content = content[: parts[0].get(pid, 0)] + content[parts[1].get(pid, 0) :]
            text = content[:LOG_LIMIT_BYTES].decode(errors="replace")
            node = platform.node()
            target = folder / default_name(Role.NCCL_LOG, pid)
            target.write_text(text.replace(f"{node}:", "node0:") if node else text)


def write_bundle_manifest(folder: Path, spec: RunSpec, versions: Mapping[str, str]) -> None:
    """Write `bundle.json` over the files that lie in the folder (the label is not one of them)."""
    files: list[BundleFile] = []
    for path in sorted(folder.iterdir()):
        name = loose_role(path.name)
        if path.name.endswith(".pt.trace.json.gz"):
            rank = int(path.name.removeprefix("rank").split(".")[0])
            files.append(describe_file(folder, path, Role.KINETO, rank=rank))
        elif path.suffix == ".sqlite":
            files.append(describe_file(folder, path, Role.NSYS))
        elif name is not None:
            files.append(describe_file(folder, path, name.role, rank=name.rank, pid=name.pid))
    ranks = [item.rank for item in files if item.role is Role.TIMER and item.rank is not None]
    manifest = Manifest(
        job_name=spec.workload.name,
        job_id=folder.name,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        world_size=len(ranks),
        command="python -m trace_analyzer.collectors.faultlab",
        tool_versions=versions,
        files=tuple(files),
    )
    write_manifest(folder, manifest)
