"""Which GPU a CUDA ordinal of a process is.

`deviceId` counts the devices that one process sees, so with CUDA_VISIBLE_DEVICES every rank may
use device 0. `TARGET_INFO_CUDA_DEVICE` maps (process id, ordinal) to the GPU; exports of 2024 and
older lack it, and then only a host with one GPU is certain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from trace_analyzer.model import Device
from trace_analyzer.readers.nsys_schema import Export

_GPU_COLUMNS = (
    "id",
    "name",
    "busLocation",
    "uuid",
    "smCount",
    "totalMemory",
    "memoryBandwidth",
    "computeMajor",
    "computeMinor",
    "maxWarpsPerSm",
    "threadsPerWarp",
    "maxRegistersPerSm",
    "maxShmemPerSm",
    "l2CacheSize",
    "cuDevice",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMap:
    """The GPUs of an export, and how processes see them."""

    gpus: Mapping[int, Device]  # by GPU id; the ordinal in them is the one without renumbering
    gpu_of: Mapping[tuple[int, int], int]  # (process id, ordinal) → GPU id

    def devices(self, pid: int | None, ordinals: Iterable[int]) -> tuple[Device, ...]:
        """Return the devices that a process used."""
        return tuple(self._device(pid, ordinal) for ordinal in sorted(set(ordinals)))

    def is_certain(self, pid: int | None, ordinals: Iterable[int]) -> bool:
        """Tell whether every ordinal that is described at all is described for sure."""
        return all(
            not self.gpus
            or len(self.gpus) == 1
            or (pid is not None and (pid, ordinal) in self.gpu_of)
            for ordinal in ordinals
        )

    def _device(self, pid: int | None, ordinal: int) -> Device:
        if pid is not None and (pid, ordinal) in self.gpu_of:
            gpu = self.gpu_of[pid, ordinal]
            return replace(self.gpus.get(gpu, Device(ordinal=ordinal, gpu=gpu)), ordinal=ordinal)
        if len(self.gpus) == 1:
            return replace(next(iter(self.gpus.values())), ordinal=ordinal)
        # Which of several GPUs it is cannot be told; what all of them share holds all the same.
        kinds = {
            replace(gpu, ordinal=ordinal, gpu=None, bus_id="", uuid="")
            for gpu in self.gpus.values()
        }
        return kinds.pop() if len(kinds) == 1 else Device(ordinal=ordinal)


def read_devices(export: Export) -> DeviceMap:
    """Return the GPUs of an export; empty where it does not describe them."""
    gpus: dict[int, Device] = {}
    for row in export.texts("TARGET_INFO_GPU", *_GPU_COLUMNS):
        values = dict(zip(_GPU_COLUMNS, row, strict=True))
        gpu = _int(values["id"])
        if gpu is None:
            continue
        warps, lanes = _int(values["maxWarpsPerSm"]), _int(values["threadsPerWarp"])
        major, minor = _int(values["computeMajor"]), _int(values["computeMinor"])
        ordinal = _int(values["cuDevice"])
        gpus[gpu] = Device(
            ordinal=gpu if ordinal is None else ordinal,
            name=str(values["name"] or ""),
            gpu=gpu,
            bus_id=str(values["busLocation"] or ""),
            uuid=str(values["uuid"] or ""),
            sm_count=_int(values["smCount"]),
            memory_bytes=_int(values["totalMemory"]),
            memory_bandwidth_bytes_per_s=_int(values["memoryBandwidth"]),
            compute_capability=None if major is None or minor is None else (major, minor),
            max_threads_per_sm=None if warps is None or lanes is None else warps * lanes,
            registers_per_sm=_int(values["maxRegistersPerSm"]),
            shared_bytes_per_sm=_int(values["maxShmemPerSm"]),
            l2_bytes=_int(values["l2CacheSize"]),
        )
    gpu_of: dict[tuple[int, int], int] = {}
    for gpu_id, ordinal_id, pid in export.texts(
        "TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid"
    ):
        if isinstance(gpu_id, int) and isinstance(ordinal_id, int) and isinstance(pid, int):
            gpu_of[pid, ordinal_id] = gpu_id
    return DeviceMap(gpus=gpus, gpu_of=gpu_of)


def _int(value: object) -> int | None:
    return value if isinstance(value, int) else None
