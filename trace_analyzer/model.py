"""A training run as the readers hand it to the analyses: ranks, tables, provenance, warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from trace_analyzer.bench_facts import BenchResult
from trace_analyzer.calibration_facts import Calibration
from trace_analyzer.gpu_facts import GpuSamples
from trace_analyzer.nccl_facts import FlightRecording, NcclLog
from trace_analyzer.tables import (
    Collectives,
    GpuOperations,
    HostCalls,
    HostEvents,
    LaunchConfigs,
    Synchronizations,
    Threads,
)


class SourceKind(StrEnum):
    """What a file is."""

    KINETO = "kineto"
    NSYS = "nsys"
    TIMER = "timer"
    ENVIRONMENT = "environment"
    CALIBRATION = "calibration"
    SAMPLER = "sampler"
    BENCH = "bench"
    NCCL_LOG = "nccl-log"
    FLIGHT_RECORDER = "flight-recorder"
    MANIFEST = "manifest"


class Severity(StrEnum):
    """How much a data warning takes away from the answer."""

    ERROR = "error"  # part of the answer is missing or cannot be trusted
    WARNING = "warning"  # the answer holds with a stated correction or limit
    NOTE = "note"  # good to know


@dataclass(frozen=True, slots=True, kw_only=True)
class DataWarning:
    """Something about the data that the reader must know before believing a number.

    `code` is a TRC code of the catalogue; `effect` says what changed in the report because of it.
    """

    code: str
    message: str
    effect: str = ""
    severity: Severity = Severity.WARNING
    count: int = 1
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file that was read."""

    path: str
    kind: SourceKind
    bytes: int
    sha256: str
    ranks: tuple[int, ...] = ()
    gpu_operations: int = 0
    tool: str = ""  # what wrote it: "torch 2.11.0", "Nsight Systems 2025.3.2"
    schema: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU as the trace describes it."""

    ordinal: int  # CUDA ordinal inside the process
    name: str = ""
    gpu: int | None = None  # physical GPU of the host, where known
    bus_id: str = ""
    uuid: str = ""
    sm_count: int | None = None
    memory_bytes: int | None = None
    memory_bandwidth_bytes_per_s: int | None = None
    compute_capability: tuple[int, int] | None = None
    max_threads_per_sm: int | None = None
    registers_per_sm: int | None = None
    shared_bytes_per_sm: int | None = None
    l2_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGroup:
    """A communicator. `ranks` are global ranks; empty where the trace does not tell."""

    name: str
    description: str = ""
    backend: str = ""
    size: int | None = None
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """How the trace was recorded; None where the file does not tell."""

    record_shapes: bool | None = None
    with_stack: bool | None = None
    profile_memory: bool | None = None
    sync_events: bool | None = None
    graph_mode: str | None = (
        None  # nsys: "graph" hides kernels inside CUDA graphs, "node" shows them
    )
    python_events: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rank:
    """One process of the run and everything that was recorded of it.

    `rank` is the global rank; where the files do not tell, discovery numbers the processes and
    `rank_basis` says so ("content", "name", "payload", "order").
    """

    rank: int
    rank_basis: str
    source: SourceKind
    path: str
    names: Sequence[str]
    operations: GpuOperations
    configs: LaunchConfigs
    calls: HostCalls
    events: HostEvents
    syncs: Synchronizations
    collectives: Collectives
    threads: Threads
    groups: tuple[ProcessGroup, ...] = ()
    devices: tuple[Device, ...] = ()
    world_size: int | None = None
    host: str | None = None
    pid: int | None = None
    clock_base_ns: int | None = None  # Unix time of the trace clock's zero; None where unknown
    clock_name: str = ""  # what ranks with one clock have in common; "": their path
    capture: Capture = field(default_factory=Capture)
    versions: Mapping[str, str] = field(default_factory=dict)  # torch, cuda, driver, nccl, cupti, …
    settings: Mapping[str, str] = field(default_factory=dict)  # allow-listed environment
    counts: Mapping[str, int] = field(default_factory=dict)  # events by kind, read and left out
    truncated: bool = False
    warnings: tuple[DataWarning, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnprofiledSteps:
    """Step times of one rank without a profiler attached, in the order they were taken.

    `memory_peak_bytes` is the most that the caching allocator handed out in any step; None where
    it was not asked.
    """

    rank: int
    step_ms: tuple[float, ...]
    basis: str = "measured"
    path: str = ""
    memory_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """The ranks of one run, with what lay beside the traces.

    All ranks come from the same kind of recording; `cross_check` holds the ranks of the other
    kind, where both were recorded.
    """

    name: str
    ranks: tuple[Rank, ...]
    sources: tuple[Source, ...]
    world_size: int | None = None
    unprofiled: tuple[UnprofiledSteps, ...] = ()
    environment: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    sidecars: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # role → paths
    nccl_logs: tuple[NcclLog, ...] = ()  # one a process, by rank
    flight: tuple[FlightRecording, ...] = ()  # by rank
    bench: tuple[BenchResult, ...] = ()
    calibration: tuple[Calibration, ...] = ()  # what the recorder cost, by rank
    gpu_samples: tuple[GpuSamples, ...] = ()  # by GPU
    cross_check: tuple[Rank, ...] = ()
    command: str = ""
    started: str = ""  # ISO 8601 UTC, from the recording; "" where unknown
    warnings: tuple[DataWarning, ...] = ()

    @property
    def missing_ranks(self) -> tuple[int, ...]:
        """Global ranks of the world that no file covers; empty where the world size is unknown."""
        if self.world_size is None:
            return ()
        have = {rank.rank for rank in self.ranks}
        return tuple(rank for rank in range(self.world_size) if rank not in have)

    def all_warnings(self) -> tuple[DataWarning, ...]:
        """Warnings of the run and of its ranks."""
        return self.warnings + tuple(w for rank in self.ranks for w in rank.warnings)
