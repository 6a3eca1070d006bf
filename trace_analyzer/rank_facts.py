"""What an exported trace says of its ranks beside their events.

`export --to perfetto` writes a Chrome trace of all ranks on one clock. The facts of every rank
that such a trace has no place for stand under `EXPORT_KEY`, before the events, so that the reader
gets back the ranks it was made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from trace_analyzer.model import Capture, DataWarning, Device, ProcessGroup, SourceKind

EXPORT_KEY: Final = "traceAnalyzer"
FORMAT_VERSION: Final = 1
# No job has more ranks; a larger number is damaged, and a list of its ranks would fill the memory.
MOST_RANKS: Final = 1_000_000

# Categories of events that torch's traces do not have.
ANALYSIS_CATEGORY: Final = "trace_analyzer"  # what was computed: steps, partition, waits
OS_CATEGORY: Final = "os_call"
OTHER_CATEGORY: Final = "host_other"

# Arguments of communication that torch's traces do not have.
MESSAGE_BYTES_ARGUMENT: Final = "Message bytes"
CALLS_ARGUMENT: Final = "NCCL calls"
UNKNOWN_SIZE: Final = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFacts:
    """The host thread behind a track, whose ids are unique in the file; None where unknown."""

    pid: int  # of the track
    tid: int
    process: int | None
    thread: int | None
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    """One rank. `pid` is the process id of all its tracks, derived ones included."""

    rank: int
    pid: int
    source: SourceKind = SourceKind.KINETO  # what recorded it
    clock: int = 0  # ranks of one recording share a clock
    threads: tuple[ThreadFacts, ...] = ()
    groups: tuple[ProcessGroup, ...] = ()
    devices: tuple[Device, ...] = ()
    world_size: int | None = None
    host: str | None = None
    process: int | None = None  # the recorded process id
    capture: Capture = field(default_factory=Capture)
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    truncated: bool = False
    warnings: tuple[DataWarning, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFacts:
    """All ranks of a file, in the order of their events."""

    version: int
    ranks: tuple[RankFacts, ...]


def encode(facts: ExportFacts) -> bytes:
    """Return the facts as JSON."""
    return msgspec.json.encode(facts)


def decode(text: bytes) -> ExportFacts:
    """Return the facts from JSON.

    Raises `ValueError` with a sentence where they are damaged or of a later version.
    """
    try:
        facts = msgspec.json.decode(text, type=ExportFacts)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"what it says of its ranks is damaged ({error})") from error
    if facts.version > FORMAT_VERSION:
        raise ValueError(f"it was exported in format {facts.version}, later than {FORMAT_VERSION}")
    if not facts.ranks:
        raise ValueError("it says that it holds no rank")
    return facts


__all__ = [
    "ANALYSIS_CATEGORY",
    "CALLS_ARGUMENT",
    "EXPORT_KEY",
    "FORMAT_VERSION",
    "MESSAGE_BYTES_ARGUMENT",
    "OS_CATEGORY",
    "OTHER_CATEGORY",
    "UNKNOWN_SIZE",
    "ExportFacts",
    "RankFacts",
    "ThreadFacts",
    "decode",
    "encode",
]
