"""The events of a torch.profiler trace as typed structs, and what each category is.

Only phase "X" (complete events) carries what the model needs; other phases are recognised so
that they are skipped cheaply and counted. Types are as strict as the writers of the last years
allow: what does not fit fails the decoding of its chunk, which is then read leniently
(`kineto_repair`). Numbers that may be missing default to NA, so that columns need no test.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final, Union

import msgspec
from msgspec import Raw, Struct

from trace_analyzer.rank_facts import (
    ANALYSIS_CATEGORY,
    CALLS_ARGUMENT,
    MESSAGE_BYTES_ARGUMENT,
    OS_CATEGORY,
    OTHER_CATEGORY,
)
from trace_analyzer.schema import NA_INT64
from trace_analyzer.tables import HostCategory, OperationKind

NO_TIME: Final = Raw(b"null")
NO_DURATION: Final = float("nan")

Triple = tuple[int, int, int]


class Args(Struct, frozen=True, gc=False):
    """The arguments that most events have. Names in quotes are the writers' own.

    Every field costs time on every event, so that the many arguments of the few events which
    communicate or synchronise are decoded apart (`Details`).
    """

    external_id: int = msgspec.field(default=NA_INT64, name="External id")
    device: int = NA_INT64
    context: int = NA_INT64
    stream: int | str | float = NA_INT64  # ROCm writes addresses as text
    correlation: int = NA_INT64
    registers: int = msgspec.field(default=NA_INT64, name="registers per thread")
    shared_bytes: int = msgspec.field(default=NA_INT64, name="shared memory")
    grid: Triple | str | None = None  # Triton's operators write text
    block: Triple | str | None = None
    occupancy_pct: float | None = msgspec.field(default=None, name="est. achieved occupancy %")
    graph_node: int = msgspec.field(default=NA_INT64, name="graph node id")
    bytes: int | str = NA_INT64  # ROCm writes text
    collective: str | None = msgspec.field(default=None, name="Collective name")
    sequence: int = msgspec.field(default=NA_INT64, name="Sequence number")
    external_id_2021: int = msgspec.field(default=NA_INT64, name="external id")


NO_ARGS: Final = Args()


class Details(Struct, frozen=True, gc=False):
    """The arguments of events that communicate or synchronise."""

    external_id: int = msgspec.field(default=NA_INT64, name="External id")
    correlation: int = NA_INT64
    collective: str | None = msgspec.field(default=None, name="Collective name")
    in_elements: int = msgspec.field(default=NA_INT64, name="In msg nelems")
    out_elements: int = msgspec.field(default=NA_INT64, name="Out msg nelems")
    group_size: int = msgspec.field(default=NA_INT64, name="Group size")
    dtype: str | None = None
    group_name: str | int | None = msgspec.field(default=None, name="Process Group Name")
    group_description: str | None = msgspec.field(default=None, name="Process Group Description")
    group_ranks: str | list[int] | None = msgspec.field(default=None, name="Process Group Ranks")
    group_id: int = msgspec.field(default=NA_INT64, name="Process Group ID")
    group_sequence: int = msgspec.field(default=NA_INT64, name="Seq")
    source_rank: int = msgspec.field(default=NA_INT64, name="Src Rank")
    destination_rank: int = msgspec.field(default=NA_INT64, name="Dst Rank")
    root_rank: int = msgspec.field(default=NA_INT64, name="Root Rank")
    is_async: bool | int | str | None = msgspec.field(default=None, name="Is asynchronized op")
    device: int = NA_INT64
    stream: int | str | float = NA_INT64
    sync_kind: str | None = msgspec.field(default=None, name="cuda_sync_kind")
    wait_on_stream: int = NA_INT64
    wait_on_record: int = msgspec.field(default=NA_INT64, name="wait_on_cuda_event_record_corr_id")
    wait_on_event: int = msgspec.field(default=NA_INT64, name="wait_on_cuda_event_id")
    event_id: int = NA_INT64
    # What our own export adds; None where the size is to be computed from elements and type.
    message_bytes: int | str | None = msgspec.field(default=None, name=MESSAGE_BYTES_ARGUMENT)
    calls: int = msgspec.field(default=1, name=CALLS_ARGUMENT)


class Complete(Struct, gc=False, tag_field="ph", tag="X"):
    """A range with start and duration: all that the tables are made of."""

    cat: str | None = None
    name: str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: Raw = NO_TIME  # the token itself: see kineto_time
    dur: float = NO_DURATION  # exact to the nanosecond below 26 days
    args: Args = NO_ARGS


class MetadataArgs(Struct, gc=False):
    """What a metadata event says."""

    name: str | None = None


class Metadata(Struct, gc=False, tag_field="ph", tag="M"):
    """Names of processes and threads."""

    name: str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    args: MetadataArgs | None = None


class Instant(Struct, gc=False, tag_field="ph", tag="i"):
    """A point in time, such as an allocation."""

    name: str | None = None


class _Skipped(Struct, gc=False, tag_field="ph"):
    """A phase that the model does not use."""


class InstantOld(_Skipped, tag="I"):
    """The older spelling of an instant event."""


class FlowStart(_Skipped, tag="s"):
    """The launching end of an arrow."""


class FlowStep(_Skipped, tag="t"):
    """An arrow's stopover."""


class FlowEnd(_Skipped, tag="f"):
    """The launched end of an arrow."""


class Begin(_Skipped, tag="B"):
    """The opening half of a range."""


class End(_Skipped, tag="E"):
    """The closing half of a range."""


class Counter(_Skipped, tag="C"):
    """Values over time."""


class AsyncBegin(_Skipped, tag="b"):
    """The opening half of an asynchronous range."""


class AsyncEnd(_Skipped, tag="e"):
    """The closing half of an asynchronous range."""


class AsyncInstant(_Skipped, tag="n"):
    """A point inside an asynchronous range."""


Event = Union[  # noqa: UP007 (msgspec reads the alias at run time)
    Complete,
    Metadata,
    Instant,
    InstantOld,
    FlowStart,
    FlowStep,
    FlowEnd,
    Begin,
    End,
    Counter,
    AsyncBegin,
    AsyncEnd,
    AsyncInstant,
]

# How left-out phases are counted.
LEFT_OUT_PHASES: Final[dict[type[Event], str]] = {
    Metadata: "metadata",
    Instant: "instant",
    InstantOld: "instant",
    FlowStart: "flow",
    FlowStep: "flow",
    FlowEnd: "flow",
    Begin: "begin-end",
    End: "begin-end",
    Counter: "counter",
    AsyncBegin: "async",
    AsyncEnd: "async",
    AsyncInstant: "async",
}

events_decoder: Final = msgspec.json.Decoder(list[Event])
event_decoder: Final = msgspec.json.Decoder(Event)


class Role(IntEnum):
    """Which table a complete event belongs to."""

    GPU = 0
    CALL = 1
    HOST = 2
    SYNC = 3
    LEFT_OUT = 4


# Category → operation kind. Capitals are the spelling of 2021.
GPU_KINDS: Final[dict[str, OperationKind]] = {
    "kernel": OperationKind.KERNEL,
    "Kernel": OperationKind.KERNEL,
    "concurrent_kernel": OperationKind.KERNEL,
    "gpu_memcpy": OperationKind.MEMCPY,
    "Memcpy": OperationKind.MEMCPY,
    "gpu_memset": OperationKind.MEMSET,
    "Memset": OperationKind.MEMSET,
}
HOST_KINDS: Final[dict[str, HostCategory]] = {
    "cpu_op": HostCategory.OPERATOR,
    "Operator": HostCategory.OPERATOR,
    "user_annotation": HostCategory.ANNOTATION,
    "UserAnnotation": HostCategory.ANNOTATION,
    "python_function": HostCategory.PYTHON,
    "PythonFunction": HostCategory.PYTHON,
    "overhead": HostCategory.OVERHEAD,
    "Overhead": HostCategory.OVERHEAD,
    OS_CATEGORY: HostCategory.OS,
    OTHER_CATEGORY: HostCategory.OTHER,
}
SYNC_CATEGORIES: Final = frozenset({"cuda_sync", "cuda_event"})
_LEFT_OUT_CATEGORIES = frozenset(
    {
        "gpu_user_annotation",
        "Trace",
        "cpu_instant_event",
        "external_correlation",
        "cuda_profiler_range",
        "collective_comm",
        "gpu_pm_counter",
        ANALYSIS_CATEGORY,
    }
)


_ROLES: Final[dict[str, Role]] = {
    **dict.fromkeys(GPU_KINDS, Role.GPU),
    **dict.fromkeys(HOST_KINDS, Role.HOST),
    **dict.fromkeys(SYNC_CATEGORIES, Role.SYNC),
}
_CALL_CATEGORY = re.compile(r"(?i)^(?:runtime|driver|hip.*|\w+_(?:runtime|driver))$")


def role_of(category: str | None) -> Role:
    """Return which table the complete events of a category belong to."""
    if category in _ROLES:
        return _ROLES[category]
    return Role.CALL if _CALL_CATEGORY.search(category or "") else Role.LEFT_OUT


def is_known(category: str | None) -> bool:
    """Tell whether a left-out category is one of those that are left out on purpose."""
    return category in _LEFT_OUT_CATEGORIES
