"""Environment of a rank, by allow-list: what explains speed, and nothing that identifies a user."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trace_analyzer.allowlist import allowed
from trace_analyzer.bundle import Role, default_name
from trace_analyzer.collectors import host
from trace_analyzer.collectors.processes import descends_from, job_root
from trace_analyzer.collectors.ranks import local_rank_of_process

SCHEMA_VERSION = 1
# Set apart for every rank by the launcher: no difference worth a word.
_OWN_VARIABLES = frozenset(
    {"RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "CUDA_VISIBLE_DEVICES"}
)


def record(folder: Path, rank: int, facts: Mapping[str, Any]) -> Path:
    """Write `env_rank{r}.json` for this process and return its path.

    `facts` are the host's (`host.gather`); torch is asked where the process has imported it.
    """
    path = folder / default_name(Role.ENVIRONMENT, rank)
    document = read(rank, facts)
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return path


def read(rank: int, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of `environment.schema.json` for this process."""
    now = host.read_gpus() or facts
    versions = {"python": platform.python_version(), "kernel": platform.release()}
    settings: dict[str, Any] = {}
    device: dict[str, Any] = {}
    if "torch" in sys.modules:
        from trace_analyzer.collectors import settings as program
        from trace_analyzer.collectors import torch_facts

        versions.update(torch_facts.versions())
        device = torch_facts.device()
        settings.update(program.read_settings())
    driver = str(now.get("driver", ""))
    if driver:
        versions["driver"] = driver
        versions["driver_cuda"] = str(now.get("driver_cuda", ""))
    gpus = list(now.get("gpus", []))
    return {
        "schema_version": SCHEMA_VERSION,
        "rank": rank,
        "local_rank": local_rank_of_process(),
        "pid": os.getpid(),
        "host": platform.node(),
        "variables": allowed(os.environ),
        "versions": {key: value for key, value in versions.items() if value},
        "compatibility": host.compatibility(
            versions.get("cuda", ""), driver, str(now.get("driver_cuda", ""))
        ),
        "device": device,
        "gpus": gpus,
        "topology": facts.get("topology"),
        "affinity": affinity(),
        "cgroup": cgroup(Path("/sys/fs/cgroup")),
        "settings": settings,
        "processes": processes_on_gpus(),
    }


def affinity() -> dict[str, Any]:
    """Return the cores that this process may run on, and how many the host has."""
    cores = sorted(os.sched_getaffinity(0))
    return {"cores": _ranges(cores), "count": len(cores), "host_cores": os.cpu_count()}


def cgroup(root: Path) -> dict[str, Any]:
    """Return the limits of this process's control group: cores and bytes, None where unlimited.

    Reads the unified hierarchy (v2), else the older cpu and memory controllers.
    """
    quota = _words(root / "cpu.max")
    if len(quota) == 2:
        cores = None if quota[0] == "max" else int(quota[0]) / int(quota[1])
        memory = _words(root / "memory.max")
        throttled = _fields(root / "cpu.stat").get("nr_throttled")
    else:
        own = _words(root / "cpu" / "cpu.cfs_quota_us")
        period = _words(root / "cpu" / "cpu.cfs_period_us")
        limited = bool(own and period) and int(own[0]) > 0
        cores = int(own[0]) / int(period[0]) if limited else None
        memory = _words(root / "memory" / "memory.limit_in_bytes")
        throttled = _fields(root / "cpu" / "cpu.stat").get("nr_throttled")
    limit = int(memory[0]) if memory and memory[0].isdecimal() else None
    return {
        "cores": cores,
        # The older controller writes "no limit" as a number near 2^63.
        "memory_bytes": None if limit is None or limit > 1 << 60 else limit,
        "throttled_periods": throttled,
    }


def processes_on_gpus() -> list[dict[str, Any]]:
    """Return processes that hold memory of a GPU: `gpu`, `pid`, `memory_bytes`, `own`.

    `own`: whether the job started it; None where the driver counts processes in another name
    space than this process (containers), so that this process is not among them.
    """
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    found: list[dict[str, Any]] = []
    try:
        for gpu in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
            try:
                running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            except pynvml.NVMLError:
                continue
            found += [
                {"gpu": gpu, "pid": item.pid, "memory_bytes": item.usedGpuMemory, "own": None}
                for item in running
            ]
    finally:
        pynvml.nvmlShutdown()
    if any(item["pid"] == os.getpid() for item in found):
        for item in found:
            item["own"] = descends_from(item["pid"], job_root())
    return found


def differences(documents: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what differs between ranks, one line each: variables, versions, settings, GPUs.

    What a launcher sets apart for each rank is left out.
    """
    ranks = sorted(documents, key=lambda document: int(document["rank"]))
    lines = []
    for part in ("variables", "versions", "settings"):
        names = sorted({name for document in ranks for name in document.get(part, {})})
        for name in names:
            if name in _OWN_VARIABLES:
                continue
            lines += _difference(name, [(d["rank"], d.get(part, {}).get(name)) for d in ranks])
    lines += _difference("GPU", [(d["rank"], d.get("device", {}).get("name")) for d in ranks])
    lines += _difference("cores", [(d["rank"], d.get("affinity", {}).get("count")) for d in ranks])
    return lines


def _difference(name: str, values: list[tuple[int, Any]]) -> list[str]:
    by_value: dict[str, list[int]] = {}
    for rank, value in values:
        by_value.setdefault("unset" if value is None else str(value), []).append(rank)
    if len(by_value) < 2:
        return []
    shown = "; ".join(
        f"{value} on rank{'s' if len(ranks) > 1 else ''} {_ranges(ranks)}"
        for value, ranks in by_value.items()
    )
    return [f"{name} differs between ranks: {shown}"]


def _ranges(numbers: list[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in spans)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except OSError:
        return []


def _fields(path: Path) -> dict[str, int]:
    words = _words(path)
    return {key: int(value) for key, value in zip(words[::2], words[1::2], strict=False)}
