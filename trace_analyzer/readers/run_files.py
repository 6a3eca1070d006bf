"""The files of a run before they are read, and how an entry becomes one of them."""

from __future__ import annotations

from dataclasses import dataclass

from trace_analyzer.bundle import Manifest
from trace_analyzer.model import DataWarning, SourceKind
from trace_analyzer.readers.content import Content
from trace_analyzer.readers.entries import Entry, Opened
from trace_analyzer.readers.grouping import Process, TraceFile
from trace_analyzer.readers.identity import Identity, identify_kineto, identify_nsys
from trace_analyzer.readers.rank_names import rank_from_name
from trace_analyzer.readers.sidecars import SidecarFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """A file that should be a trace and cannot be read."""

    name: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """The files of one run, not read yet.

    `name` tells the run apart inside its target; `processes` are of one kind, `cross_check` of
    the other. `reports` are nsys reports that have to be exported first.
    """

    name: str
    title: str
    opened: Opened
    processes: tuple[Process, ...] = ()
    cross_check: tuple[Process, ...] = ()
    reports: tuple[Entry, ...] = ()
    sidecars: tuple[SidecarFile, ...] = ()
    damaged: tuple[Damaged, ...] = ()
    manifest: Manifest | None = None
    manifest_entry: Entry | None = None
    more_manifests: tuple[Entry, ...] = ()  # of the job's other nodes
    warnings: tuple[DataWarning, ...] = ()

    @property
    def files(self) -> tuple[TraceFile, ...]:
        """Every trace of the analysed kind, all windows."""
        return tuple(window for process in self.processes for window in process.windows)


def trace_file(entry: Entry, *, named_rank: int | None = None, basis: str = "name") -> TraceFile:
    """Return the trace that an entry holds; `named_rank` is the manifest's word, if any."""
    kind = SourceKind.NSYS if entry.examined.content is Content.NSYS else SourceKind.KINETO
    if named_rank is None:
        named_rank, basis = rank_from_name(entry.name), "name"
    try:
        size = entry.path.stat().st_size
        identify = identify_nsys if kind is SourceKind.NSYS else identify_kineto
        identity = identify(entry.path)
    except OSError:
        size, identity = 0, Identity()  # gone meanwhile: reading it says so
    return TraceFile(
        path=entry.path,
        name=entry.name,
        kind=kind,
        bytes=size,
        identity=identity,
        named_rank=named_rank,
        named_basis=basis,
    )


def sidecar_file(entry: Entry) -> SidecarFile | None:
    """Return the sidecar that an entry is by its usual name, or None."""
    loose = entry.examined.loose
    if entry.examined.content is not Content.SIDECAR or loose is None:
        return None
    return SidecarFile(
        path=entry.path, name=entry.name, role=loose.role, rank=loose.rank, pid=loose.pid
    )


__all__ = ["Damaged", "RunFiles", "sidecar_file", "trace_file"]
