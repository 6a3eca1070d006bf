"""What an export says about itself: versions, host, clock and the allowed part of the environment.

Exports hold the whole environment of the launched program, user names, command lines and what it
printed. Only what is named here, and the allowed variables, leave the reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trace_analyzer.allowlist import allowed
from trace_analyzer.readers.nsys_events import GRAPH, KERNEL
from trace_analyzer.readers.nsys_schema import Export

_ENVIRONMENT = re.compile(r"(?:^|:)ENVIRONMENT_VARIABLE$")
_GRAPH_MODE = re.compile(r"(?:^|:)CUDA_GRAPH_TRACE_OPTIONS:MODE$")
# A shifted clock is recognised by this distance of its events from the start of the session.
_DAY_NS = 86_400 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The export as a whole."""

    exporter: str  # version of the nsys that exported, "" where unknown
    schema: str
    host: str | None
    versions: Mapping[str, str]
    settings: Mapping[str, str]
    graph_mode: str | None
    session_start_ns: int | None  # Unix time of the session's zero
    normalized: bool  # times were shifted to Unix time at export
    shifted: bool  # times were shifted by a constant at export

    def clock_base_ns(self, first_ns: int) -> int | None:
        """Return the Unix time of the trace clock's zero, or None where an export shifted it.

        `first_ns` is the time of some event: an export that claims Unix time must show it.
        """
        if self.session_start_ns is None or self.shifted:
            return None
        if not self.normalized:
            return self.session_start_ns
        return 0 if abs(first_ns - self.session_start_ns) < _DAY_NS else None


def read_facts(export: Export) -> Facts:
    """Return the facts of an export."""
    meta = dict(_pairs(export, "EXPORT_META_DATA")) | dict(_pairs(export, "META_DATA_EXPORT"))
    capture = list(_pairs(export, "META_DATA_CAPTURE"))
    system = dict(_pairs(export, "TARGET_INFO_SYSTEM_ENV"))
    exporter = meta.get("EXPORT_PRODUCT_VERSION", "")
    schema = meta.get("EXPORT_SCHEMA_VERSION", "")
    versions = {
        "nsys": exporter,
        "nsys_schema": schema,
        "driver": system.get("NvDriverVersion", ""),
        "cuda": _cuda_version(system.get("CudaDriverVersion", "")),
    }
    starts = export.texts("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
    start = starts[0][0] if starts else None
    shift = (meta.get("EXPORT_PARAM_TIME_SHIFT", "0"), meta.get("EXPORT_CONFIG_TIME_SHIFT", "0"))
    normalized = meta.get("EXPORT_PARAM_TIME_NORMALIZE", "false").lower() == "true"
    return Facts(
        exporter=exporter,
        schema=schema,
        host=system.get("Hostname") or None,
        versions={name: text for name, text in versions.items() if text},
        settings=_settings(capture, system.get("DeviceEnvironment", "")),
        graph_mode=_graph_mode(export, capture),
        session_start_ns=start if isinstance(start, int) else None,
        normalized=normalized,
        shifted=not normalized and any(text not in {"", "0"} for text in shift),
    )


def _pairs(export: Export, table: str) -> Iterator[tuple[str, str]]:
    for name, value in export.texts(table, "name", "value"):
        if isinstance(name, str) and isinstance(value, str | int):
            yield name, str(value)


def _cuda_version(number: str) -> str:
    """Return 13020 as "13.2"."""
    if not number.isdecimal():
        return ""
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}"


def _graph_mode(export: Export, capture: list[tuple[str, str]]) -> str | None:
    """Return how CUDA graphs were recorded: what the tables show, else what was asked for."""
    if export.count(GRAPH):
        return "graph"
    if export.has(KERNEL, "graphNodeId") and export.rows(
        f"select 1 from {KERNEL} where graphNodeId > 0 limit 1"  # noqa: S608 -- constant
    ):
        return "node"
    modes = [value.lower() for name, value in capture if _GRAPH_MODE.search(name)]
    return modes[0] if modes and modes[0] in {"graph", "node"} else None


def _settings(capture: list[tuple[str, str]], device_environment: str) -> dict[str, str]:
    """Return the allowed variables: of the machine, overruled by the launched program's."""
    lines = device_environment.split(";")
    lines += [value for name, value in capture if _ENVIRONMENT.search(name)]
    found: dict[str, str] = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if equals:
            found[name] = value.removeprefix('"').removesuffix('"')
    return allowed(found)
