"""What is the same for every rank of a host: GPUs, how they are linked, the driver.

Read through NVML where nvidia-ml-py is installed, else through nvidia-smi; without either the
facts are empty. Needs no torch.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

SMI_TIMEOUT_SECONDS = 30
_DEVICE = re.compile(r"(?:GPU|NIC|mlx)\S*")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_MAX_NVLINKS = 18

# The lowest driver that runs a CUDA runtime of this major version, whatever its minor version
# (CUDA compatibility guide, "minor version compatibility"). A newer minor version than the
# driver's own only lacks just-in-time compilation of PTX and the newest features.
MINIMUM_DRIVER = {11: 450, 12: 525, 13: 580}

_SMI_FIELDS = {
    "index": "index",
    "name": "name",
    "uuid": "uuid",
    "pci.bus_id": "bus_id",
    "memory.total": "memory_mib",
    "pcie.link.gen.current": "pcie_generation",
    "pcie.link.gen.max": "pcie_generation_max",
    "pcie.link.width.current": "pcie_width",
    "pcie.link.width.max": "pcie_width_max",
    "driver_version": "driver",
}


def gather() -> dict[str, Any]:
    """Return `driver`, `driver_cuda`, `gpus` and `topology` of this host, as far as known."""
    facts = read_gpus()
    table = _smi("topo", "-m")
    if table:
        facts["topology"] = parse_topology(table)
    return facts


def read_facts(path: str) -> dict[str, Any]:
    """Return facts that `gather` left in a file; gather them where it is not on this host."""
    if not path or not Path(path).exists():
        return gather()
    facts: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    return facts


def read_gpus() -> dict[str, Any]:
    """Return driver and GPUs as they are now: link widths under load differ from idle ones."""
    try:
        import pynvml
    except ImportError:
        return _gpus_by_smi()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    try:
        return {
            "driver": _text(pynvml.nvmlSystemGetDriverVersion()),
            "driver_cuda": _dotted(pynvml.nvmlSystemGetCudaDriverVersion_v2()),
            "gpus": [_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())],
        }
    finally:
        pynvml.nvmlShutdown()


def compatibility(cuda: str, driver: str, driver_cuda: str) -> dict[str, Any]:
    """Return whether a driver runs a CUDA runtime; versions as text, empty where unknown.

    A driver of an older *minor* CUDA version than the runtime's is fine: `fits` says so.
    """
    major = int(cuda.split(".", maxsplit=1)[0]) if cuda else 0
    needed = MINIMUM_DRIVER.get(major)
    have = int(driver.split(".", maxsplit=1)[0]) if driver[:1].isdigit() else None
    return {
        "cuda": cuda,
        "driver": driver,
        "driver_cuda": driver_cuda,
        "driver_needed": None if needed is None else str(needed),
        "fits": None if needed is None or have is None else have >= needed,
    }


def parse_topology(table: str) -> dict[str, Any]:
    """Return the matrix of `nvidia-smi topo -m`.

    `devices` names rows and columns, `links` holds one row a device ("X", "NV18", "PIX", …),
    `cpu_affinity` and `numa` the cores and the memory node next to a device.
    """
    lines = [_ESCAPE.sub("", line) for line in table.splitlines()]
    header: list[str] = []
    devices: list[str] = []
    links: dict[str, list[str]] = {}
    near: dict[str, dict[str, str]] = {"cpu_affinity": {}, "numa": {}}
    for line in lines:
        cells = [cell.strip() for cell in line.split("\t")]
        if not header:
            if any(_DEVICE.fullmatch(cell) for cell in cells[1:]):
                header = cells[1:]
                devices = [cell for cell in header if _DEVICE.fullmatch(cell)]
            continue
        if cells[0] not in devices:
            break  # the legend follows
        row = dict(zip(header, cells[1:], strict=False))
        links[cells[0]] = [row.get(device, "") for device in devices]
        for key, title in (("cpu_affinity", "CPU Affinity"), ("numa", "NUMA Affinity")):
            if row.get(title):
                near[key][cells[0]] = row[title]
    rows = [device for device in devices if device in links]
    return {"devices": rows, "links": [links[device] for device in rows], **near}


def _gpu(nvml: Any, index: int) -> dict[str, Any]:  # noqa: ANN401
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(question: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
        try:
            return question(handle, *arguments)
        except nvml.NVMLError:
            return None

    memory = ask(nvml.nvmlDeviceGetMemoryInfo)
    bus = ask(nvml.nvmlDeviceGetPciInfo)
    limit = ask(nvml.nvmlDeviceGetEnforcedPowerLimit)
    states = [ask(nvml.nvmlDeviceGetNvLinkState, link) for link in range(_MAX_NVLINKS)]
    known = [state for state in states if state is not None]
    return {
        "index": index,
        "name": _text(ask(nvml.nvmlDeviceGetName)),
        "uuid": _text(ask(nvml.nvmlDeviceGetUUID)),
        "bus_id": "" if bus is None else _text(bus.busId),
        "memory_bytes": None if memory is None else int(memory.total),
        "pcie_generation": ask(nvml.nvmlDeviceGetCurrPcieLinkGeneration),
        "pcie_generation_max": ask(nvml.nvmlDeviceGetMaxPcieLinkGeneration),
        "pcie_width": ask(nvml.nvmlDeviceGetCurrPcieLinkWidth),
        "pcie_width_max": ask(nvml.nvmlDeviceGetMaxPcieLinkWidth),
        "nvlinks": len(known),
        "nvlinks_active": sum(1 for state in known if state),
        "power_limit_w": None if limit is None else limit / 1000.0,
        "sm_clock_max_mhz": ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
        "memory_clock_max_mhz": ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM),
    }


def _gpus_by_smi() -> dict[str, Any]:
    table = _smi(f"--query-gpu={','.join(_SMI_FIELDS)}", "--format=csv,noheader,nounits")
    gpus = []
    driver = ""
    for row in csv.reader(table.splitlines(), skipinitialspace=True):
        values = dict(zip(_SMI_FIELDS.values(), row, strict=False))
        driver = values.pop("driver", "")
        memory = values.pop("memory_mib", "")
        gpu: dict[str, Any] = {
            key: int(value) if value.isdecimal() else value for key, value in values.items()
        }
        gpu["memory_bytes"] = int(memory) << 20 if memory.isdecimal() else None
        gpus.append(gpu)
    return {"driver": driver, "gpus": gpus} if gpus else {}


def _smi(*arguments: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603  # fixed arguments
            ["nvidia-smi", *arguments],  # noqa: S607  # where it lies differs from host to host
            capture_output=True,
            text=True,
            timeout=SMI_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return "" if value is None else str(value)


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
