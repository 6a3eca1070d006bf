"""Stands for pynvml where there is no GPU: two GPUs, of which one does not tell its power."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 138, 139
NVML_SUCCESS = 0


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):  # noqa: N801, N818
    pass


processes: list[int] = [os.getpid(), 1]
asked: list[tuple[str, int]] = []


def nvmlInit() -> None: ...  # noqa: N802


def nvmlShutdown() -> None: ...  # noqa: N802


def nvmlDeviceGetCount() -> int:  # noqa: N802
    return 2


def nvmlDeviceGetHandleByIndex(index: int) -> int:  # noqa: N802
    return index


def nvmlSystemGetDriverVersion() -> str:  # noqa: N802
    return "580.159.04"


def nvmlSystemGetCudaDriverVersion_v2() -> int:  # noqa: N802
    return 13000


def nvmlDeviceGetPowerUsage(handle: int) -> int:  # noqa: N802
    asked.append(("power", handle))
    if handle == 1:
        raise NVMLError_NotSupported
    return 412_500


def nvmlDeviceGetNvLinkState(handle: int, link: int) -> int:  # noqa: N802
    if link >= 4:
        raise NVMLError
    return int(link != 3)


def nvmlDeviceGetPcieThroughput(handle: int, counter: int) -> int:  # noqa: N802
    return 1000 + counter


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[Any]:  # noqa: N802
    return [SimpleNamespace(pid=pid, usedGpuMemory=7 << 20) for pid in processes]


def nvmlDeviceGetFieldValues(handle: int, fields: Any) -> list[Any]:  # noqa: N802
    value = SimpleNamespace(ullVal=5)
    return [SimpleNamespace(value=value, nvmlReturn=NVML_SUCCESS) for _ in fields]


def nvmlDeviceGetMemoryInfo(handle: int) -> Any:  # noqa: N802
    return SimpleNamespace(total=80 << 30, used=3 << 30)


def nvmlDeviceGetUtilizationRates(handle: int) -> Any:  # noqa: N802
    return SimpleNamespace(gpu=97, memory=41)


def nvmlDeviceGetPciInfo(handle: int) -> Any:  # noqa: N802
    return SimpleNamespace(busId=b"00000000:00:06.0")


def __getattr__(name: str) -> Any:
    answers = {
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetUUID": "GPU-1",
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetCurrPcieLinkGeneration": 4,
        "nvmlDeviceGetMaxPcieLinkGeneration": 5,
        "nvmlDeviceGetCurrPcieLinkWidth": 8,
        "nvmlDeviceGetMaxPcieLinkWidth": 16,
        "nvmlDeviceGetMaxClockInfo": 1980,
        "nvmlDeviceGetClockInfo": 1755,
        "nvmlDeviceGetTemperature": 61,
        "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4,
    }
    if name not in answers:
        raise AttributeError(name)
    return lambda *_: answers[name]
