"""What NCCL's log and torch's Flight Recorder say about a run, as the readers hand it on.

Ranks inside a communicator are its own (0 … size - 1); `NcclLog.rank` and `FlightRecording.rank`
are global. None, or NA in a column, where the file does not tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from trace_analyzer.schema import Int8Array, Int32Array, Int64Array, Table, column


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclTransport:
    """How one rank's data reaches another, for the channels that go the same way.

    `kind` is P2P, SHM, NET or DIRECT; `detail` what follows it in the log ("CUMEM", "CUMEM/read",
    "direct pointer"). The last five fields are of NET only. `connection` 0 carries collectives,
    1 send and receive; logs before 2.8 do not tell them apart.
    """

    communicator: int | None  # position in NcclLog.communicators
    source: int
    destination: int
    kind: str
    detail: str
    channels: tuple[int, ...]
    connection: int | None = None
    direction: str = ""  # "send" or "receive": which end this process is
    plugin: str = ""  # "IB", "Socket", "IBext_v8"
    device: int | None = None  # NIC, as the plugin counts them
    proxy: int | None = None  # rank whose GPU hands the data to the NIC (PXN)
    gdrdma: bool | None = None  # the NIC reads GPU memory; otherwise data goes through the host


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclGraph:
    """A way through the machine that the graph search found; bandwidths are of one channel."""

    pattern: int
    name: str  # "ring", "balanced-tree", …; "" for a number that is not known
    channels: int
    intra_gbs: float
    inter_gbs: float
    intra_type: str  # worst path inside a node: NVL, PIX, PXB, PHB, SYS, …
    inter_type: str
    cross_nic: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclRing:
    """The order of ranks in a channel's ring."""

    channel: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclTree:
    """Where this rank stands in a channel's tree."""

    channel: int
    parent: int | None
    children: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclCommunicator:
    """One communicator of a process, as its initialisation was logged.

    `id` is the number that NVTX payloads call communicator id; split communicators print none.
    Bandwidths are NCCL's model of the machine in GB/s (decimal), not measurements.
    """

    id: int | None
    rank: int
    size: int
    cuda_device: int | None = None
    nvml_device: int | None = None
    bus_id: str = ""  # "0000:18:00.0"
    nodes: int | None = None
    local_ranks: int | None = None
    local_rank: int | None = None
    mnnvl: bool | None = None
    parent: int | None = None  # position in NcclLog.communicators of the one that was split
    color: int | None = None
    key: int | None = None
    is_split: bool = False
    complete: bool = False  # initialisation ended
    coll_channels: int | None = None
    nvls_channels: int | None = None
    p2p_channels: int | None = None
    p2p_channels_per_peer: int | None = None
    nvls_available: bool | None = None
    system_max_gbs: float | None = None
    system_total_gbs: float | None = None
    graphs: tuple[NcclGraph, ...] = ()
    rings: tuple[NcclRing, ...] = ()  # printed by rank 0 only
    trees: tuple[NcclTree, ...] = ()
    rings_connected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclChoice:
    """What the tuner chose for calls of one size.

    `algorithm` is NCCL's name (RING, TREE, NVLS, …), or SYMMETRIC with the kernel's name, or
    COPY_ENGINE. `count` is the number of lines: collectors may keep only the first of each choice.
    """

    communicator: int | None
    operation: str
    bytes: int
    algorithm: str
    protocol: str = ""
    channels: int | None = None
    kernel: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclCall:
    """Calls of one kind and size, where the log has a line for every call."""

    communicator: int | None
    operation: str
    elements: int
    dtype: str
    size: int  # ranks of the communicator
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclDevice:
    """A network device that a plugin offers."""

    plugin: str
    index: int
    name: str
    port: int | None = None
    link: str = ""  # "IB", "RoCE"


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclLines:
    """What became of the lines of a log.

    `used` gave a fact, `unused` are NCCL's but say nothing that is kept, `malformed` begin like a
    known form and do not end like it, `interleaved` were written into each other and cannot be
    told apart.
    """

    used: int = 0
    unused: int = 0
    malformed: int = 0
    interleaved: int = 0
    warnings: int = 0  # level WARN
    beyond_limit: int = 0  # facts left out because the log holds too many different ones

    @property
    def not_understood(self) -> int:
        """Lines that may have held a fact."""
        return self.malformed + self.interleaved


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclLog:
    """What one process wrote with NCCL_DEBUG=INFO."""

    path: str
    host: str
    pid: int
    rank: int | None = None
    version: str = ""
    cuda: str = ""
    communicators: tuple[NcclCommunicator, ...] = ()
    transports: tuple[NcclTransport, ...] = ()
    choices: tuple[NcclChoice, ...] = ()
    calls: tuple[NcclCall, ...] = ()
    networks: tuple[str, ...] = ()  # plugins in use, in order of first mention
    devices: tuple[NcclDevice, ...] = ()
    no_ib_device: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)  # NCCL_* read from the environment
    lines: NcclLines = field(default_factory=NcclLines)


class FlightState(IntEnum):
    """How far a recorded operation got, as the recorder wrote it."""

    SCHEDULED = 0
    STARTED = 1
    COMPLETED = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class FlightEntries(Table):
    """The Flight Recorder's list, in order of recording. Times are Unix nanoseconds."""

    record_id: Int64Array = column("int64", "", "number of the entry", nullable=True)
    operation: Int32Array = column(
        "int32", "", "position in names: allreduce, … as in collectives, or coalesced"
    )
    title: Int32Array = column("int32", "", "position in names of the recorded text")
    group: Int32Array = column("int32", "", "position in FlightRecording.groups")
    collective_sequence: Int64Array = column(
        "int64", "", "number of the collective in its group, equal on all ranks", nullable=True
    )
    p2p_sequence: Int64Array = column(
        "int64", "", "number of the send or receive in its group", nullable=True
    )
    op_id: Int64Array = column("int64", "", "number of the operation in its group", nullable=True)
    is_p2p: Int8Array = column("int8", "", "1 for send and receive")
    source: Int32Array = column("int32", "", "sender, rank in the group", nullable=True)
    destination: Int32Array = column("int32", "", "receiver, rank in the group", nullable=True)
    state: Int8Array = column("int8", "", "FlightState", nullable=True)
    retired: Int8Array = column(
        "int8", "", "1 if the process saw the operation end, also without its times"
    )
    created_ns: Int64Array = column("int64", "ns", "the host issued it", nullable=True)
    started_ns: Int64Array = column("int64", "ns", "the start was noticed", nullable=True)
    completed_ns: Int64Array = column("int64", "ns", "the end was noticed", nullable=True)
    dtype: Int32Array = column(
        "int32", "", "position in names of the element types, joined by +", nullable=True
    )
    in_elements: Int64Array = column("int64", "elements", "sum over inputs", nullable=True)
    out_elements: Int64Array = column("int64", "elements", "sum over outputs", nullable=True)
    timeout_ms: Int64Array = column("int64", "ms", "timeout of the group", nullable=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightGroup:
    """A process group as a dump describes it; the last three count in the group's own numbers."""

    name: str
    description: str = ""
    ranks: tuple[int, ...] = ()  # global ranks; empty where the dump does not tell
    last_enqueued: int | None = None
    last_started: int | None = None
    last_completed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlightRecording:
    """One rank's Flight Recorder dump.

    `malformed` counts entries, and values of entries, that could not be read. `has_status` tells
    whether the dump lists how far each group got: a group without entries is then known to be idle.
    """

    path: str
    rank: int | None
    version: str
    names: tuple[str, ...]
    groups: tuple[FlightGroup, ...]
    entries: FlightEntries
    nccl_version: str = ""
    has_status: bool = False
    malformed: int = 0


__all__ = [
    "FlightEntries",
    "FlightGroup",
    "FlightRecording",
    "FlightState",
    "NcclCall",
    "NcclChoice",
    "NcclCommunicator",
    "NcclDevice",
    "NcclGraph",
    "NcclLines",
    "NcclLog",
    "NcclRing",
    "NcclTransport",
    "NcclTree",
]
