"""What a trace says of itself beside its events: devices, groups, versions, how it was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from trace_analyzer.model import Capture, Device, ProcessGroup
from trace_analyzer.rank_facts import MOST_RANKS, RankFacts
from trace_analyzer.readers.kineto_anomalies import Anomalies
from trace_analyzer.readers.kineto_collectives import group_description
from trace_analyzer.readers.kineto_json import DECODE_ERRORS
from trace_analyzer.readers.kineto_repair import mend
from trace_analyzer.readers.kineto_values import whole

# Header key → name in Rank.versions. Numbers are CUDA's: 1000 · major + 10 · minor.
_CUDA_VERSIONS: Final[dict[str, str]] = {
    "cuda_runtime_version": "cuda",
    "cuda_driver_version": "cuda_driver",
}
_PLAIN_VERSIONS: Final[dict[str, str]] = {
    "cupti_version": "cupti",
    "hip_runtime_version": "hip",
    "hip_driver_version": "hip_driver",
    "rocm_version": "rocm",
    "roctracer_version": "roctracer",
    "rocprofiler_version": "rocprofiler",
    "pytorch_version": "torch",
    "torch_version": "torch",
    "nccl_version": "nccl",
    "python_version": "python",
    "kineto_version": "kineto",
}
_HOST_KEYS: Final = ("host_name", "hostname", "host")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The header in the model's terms; None where the file does not tell."""

    rank: int | None = None
    world_size: int | None = None
    host: str | None = None
    clock_base_ns: int | None = None
    devices: tuple[Device, ...] = ()
    groups: tuple[ProcessGroup, ...] = ()
    group_names: dict[int, str] = field(default_factory=dict)  # older numeric group id → name
    versions: dict[str, str] = field(default_factory=dict)
    record_shapes: bool | None = None
    with_stack: bool | None = None
    profile_memory: bool | None = None


def parse(raw: Mapping[str, bytes], anomalies: Anomalies) -> Header:
    """Interpret the top-level values of a trace; values that are not JSON count as absent."""
    values = {key: _value(text, anomalies) for key, text in raw.items()}
    distributed = _mapping(values.get("distributedInfo"))
    groups = [_mapping(group) for group in _sequence(distributed.get("pg_config"))]
    return Header(
        rank=_rank_number(distributed.get("rank")),
        world_size=_rank_number(distributed.get("world_size")) or None,
        host=next((str(values[key]) for key in _HOST_KEYS if values.get(key)), None),
        clock_base_ns=whole(values.get("baseTimeNanoseconds")),
        devices=_devices(values.get("deviceProperties")),
        groups=tuple(_group(group) for group in groups if group.get("pg_name") is not None),
        group_names=_group_names(groups),
        versions=_versions(values, distributed),
        record_shapes=_flag(values.get("record_shapes")),
        with_stack=_flag(values.get("with_stack")),
        profile_memory=_flag(values.get("profile_memory")),
    )


def exported(header: Header, facts: RankFacts) -> Header:
    """Return what an exported trace says of one of its ranks; the clock is that of all."""
    return Header(
        rank=facts.rank,
        world_size=facts.world_size,
        host=facts.host,
        clock_base_ns=header.clock_base_ns,
        devices=facts.devices,
        groups=facts.groups,
        versions=dict(facts.versions),
    )


def capture(header: Header, *, python_events: int, memory_events: int, sync_events: int) -> Capture:
    """Return how the trace was recorded, from its header and from what it holds."""
    return Capture(
        record_shapes=header.record_shapes,
        with_stack=True if python_events else header.with_stack,
        profile_memory=True if memory_events else header.profile_memory,
        sync_events=True if sync_events else None,
        python_events=python_events,
    )


def _value(text: bytes, anomalies: Anomalies) -> Any:  # noqa: ANN401
    try:
        return msgspec.json.decode(text)
    except DECODE_ERRORS:
        try:
            return msgspec.json.decode(mend(text, anomalies))
        except DECODE_ERRORS:
            return None


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _sequence(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _natural(value: object) -> int | None:
    number = whole(value)
    return number if number is not None and number >= 0 else None


def _rank_number(value: object) -> int | None:
    """Return a rank, or a number of ranks; None where no job is that large."""
    number = _natural(value)
    return number if number is not None and number <= MOST_RANKS else None


def _flag(value: object) -> bool | None:
    number = whole(value)
    return None if number is None else bool(number)


def _devices(given: object) -> tuple[Device, ...]:
    devices = [_device(_mapping(properties)) for properties in _sequence(given)]
    return tuple(device for device in devices if device is not None)


def _device(properties: dict[str, Any]) -> Device | None:
    ordinal = _natural(properties.get("id"))
    if ordinal is None:
        return None
    major, minor = (_natural(properties.get(f"compute{part}")) for part in ("Major", "Minor"))
    shared = properties.get("sharedMemPerMultiprocessor")
    if shared is None:
        shared = properties.get("maxSharedMemoryPerMultiProcessor")  # ROCm
    return Device(
        ordinal=ordinal,
        name=str(properties.get("name") or ""),
        uuid=str(properties.get("uuid") or ""),
        bus_id=str(properties.get("pciBusId") or ""),
        sm_count=_natural(properties.get("numSms")),
        memory_bytes=_natural(properties.get("totalGlobalMem")),
        compute_capability=None if major is None or minor is None else (major, minor),
        max_threads_per_sm=_natural(properties.get("maxThreadsPerMultiprocessor")),
        registers_per_sm=_natural(properties.get("regsPerMultiprocessor")),
        shared_bytes_per_sm=_natural(shared),
        l2_bytes=_natural(properties.get("l2CacheSize")),
    )


def _group(given: dict[str, Any]) -> ProcessGroup:
    ranks = [_natural(rank) for rank in _sequence(given.get("ranks"))]
    size = _natural(given.get("pg_size"))
    known = tuple(rank for rank in ranks if rank is not None)
    return ProcessGroup(
        name=str(given["pg_name"]),
        description=group_description(given.get("pg_desc")),
        backend=str(given.get("backend_config") or ""),
        size=size if size is not None else (len(known) or None),
        ranks=known if size is None or len(known) == size else (),
    )


def _group_names(groups: list[dict[str, Any]]) -> dict[int, str]:
    names: dict[int, str] = {}
    for group in groups:
        number = whole(group.get("uid"))
        if number is not None and group.get("pg_name") is not None:
            names[number] = str(group["pg_name"])
    return names


def _versions(values: dict[str, Any], distributed: dict[str, Any]) -> dict[str, str]:
    versions: dict[str, str] = {}
    for key, name in _CUDA_VERSIONS.items():
        number = _natural(values.get(key))
        if number:
            versions[name] = f"{number // 1000}.{number % 1000 // 10}"
    for key, name in _PLAIN_VERSIONS.items():
        value = distributed.get(key, values.get(key))
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            versions[name] = str(value).strip()
    return versions
