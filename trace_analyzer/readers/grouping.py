"""Which files are one run.

Files of one process at disjoint times are windows of it. Processes are one run where their ranks
differ and job identity (world size, versions) and time agree. Folders are searched from the
leaves up, so that what lies together is put together first. Kineto and nsys are kept apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trace_analyzer.model import SourceKind
from trace_analyzer.readers.identity import Identity, with_end

SAME_TIME_NS = 10**9  # starts this close are one recording: ranks start in lockstep
FAR_APART_NS = 600 * 10**9  # starts this far apart are not, whatever the clocks
# Containers give all runs of an archive the same process id: look back at this many only.
_PROCESSES_TRIED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """A trace that was found. `name` is its path inside RUN, `named_rank` what that says."""

    path: Path
    name: str
    kind: SourceKind
    bytes: int
    identity: Identity
    named_rank: int | None = None
    named_basis: str = "name"  # or "manifest"

    @property
    def rank(self) -> int | None:
        """The rank by content, else by name."""
        return self.named_rank if self.identity.rank is None else self.identity.rank

    @property
    def folder(self) -> PurePosixPath:
        """The folder inside RUN."""
        return PurePosixPath(self.name).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """The windows of one process, in order of time."""

    windows: tuple[TraceFile, ...]

    @property
    def rank(self) -> int | None:
        """The rank by content, else by name."""
        return self.windows[0].rank

    @property
    def identity(self) -> Identity:
        """What the first window says."""
        return self.windows[0].identity


class Group:
    """The processes of one run."""

    def __init__(self, kind: SourceKind, processes: Sequence[Process]) -> None:
        self.kind = kind
        self.processes: list[Process] = []
        self.ranks: frozenset[int] = frozenset()
        self.world_size: int | None = None
        self.starts_ns: tuple[int, int] | None = None  # of the first and of the last window
        self.unix_time = False
        self.named = True  # every process has a rank
        self.folders: set[PurePosixPath] = set()
        self.add(processes)

    def add(self, processes: Sequence[Process]) -> None:
        """Take in more processes."""
        self.processes += processes
        self.ranks |= {process.rank for process in processes if process.rank is not None}
        for process in processes:
            self.world_size = self.world_size or process.identity.world_size
            self.unix_time |= process.identity.base_ns is not None
            self.named &= process.rank is not None
            self.folders |= {window.folder for window in process.windows}
        starts = [f.identity.start_ns for f in self.files if f.identity.start_ns is not None]
        self.starts_ns = (min(starts), max(starts)) if starts else None

    @property
    def files(self) -> list[TraceFile]:
        """Every window of every process."""
        return [window for process in self.processes for window in process.windows]

    @property
    def complete(self) -> bool:
        """Whether no other process can belong to it."""
        return self.world_size is not None and len(self.ranks) >= self.world_size

    @property
    def start_ns(self) -> int:
        """Start of the first window, 0 where no file tells."""
        return self.starts_ns[0] if self.starts_ns else 0

    @property
    def folder(self) -> PurePosixPath:
        """The innermost folder that holds all files."""
        return common_folder(self.folders)


def common_folder(folders: Iterable[PurePosixPath]) -> PurePosixPath:
    """Return the innermost folder that contains all of `folders`."""
    common: tuple[str, ...] | None = None
    for folder in folders:
        parts = folder.parts
        if common is None:
            common = parts
            continue
        length = 0
        while length < min(len(common), len(parts)) and common[length] == parts[length]:
            length += 1
        common = common[:length]
    return PurePosixPath(*(common or ()))


def group_traces(files: Sequence[TraceFile]) -> list[Group]:
    """Return the runs that these files are, in order of folder and time."""
    groups: list[Group] = []
    for kind in (SourceKind.KINETO, SourceKind.NSYS):
        singles = [
            Group(kind, [process])
            for process in processes_of([file for file in files if file.kind is kind])
        ]
        groups += _merge_upwards(singles)
    return sorted(groups, key=lambda group: (group.folder.parts, group.start_ns))


def processes_of(files: Sequence[TraceFile]) -> list[Process]:
    """Return the processes that these files of one kind are windows of."""
    buckets: dict[object, list[TraceFile]] = defaultdict(list)
    for position, file in enumerate(files):
        identity = file.identity
        known = identity.pids and identity.start_ns is not None
        key = (
            (file.rank, identity.host, identity.pids, identity.world_size, identity.versions)
            if known
            else position
        )
        buckets[key].append(file)
    return [
        Process(windows=tuple(chain)) for bucket in buckets.values() for chain in _chains(bucket)
    ]


def _chains(files: list[TraceFile]) -> list[list[TraceFile]]:
    """Split files of one rank and process id into processes with disjoint windows."""
    chains: list[list[TraceFile]] = []
    for file in sorted(files, key=lambda item: (item.identity.start_ns or 0, item.name)):
        for chain in reversed(chains[-_PROCESSES_TRIED:]):
            if _follows(chain[-1], file):
                chain.append(file)
                break
        else:
            chains.append([file])
    return chains


def _follows(earlier: TraceFile, later: TraceFile) -> bool:
    """Tell whether two files are windows of one process, the second after the first.

    Containers give the same process id to every run, so counters that grow within a process must
    have grown.
    """
    first, second = earlier.identity, later.identity
    if (first.base_ns is None) != (second.base_ns is None):
        return False
    for before, after in (
        (first.first_step, second.first_step),
        (first.sequence, second.sequence),
    ):
        if before is not None and after is not None:
            if after <= before:
                return False
            break
    if first.start_ns == second.start_ns:
        return False
    end_ns = _end_ns(earlier)
    return end_ns is not None and second.start_ns is not None and end_ns <= second.start_ns


def _end_ns(file: TraceFile) -> int | None:
    if file.kind is SourceKind.KINETO:
        return with_end(file.path, file.identity).end_ns
    return file.identity.end_ns


def window_ns(file: TraceFile) -> int | None:
    """Return the length of a file's window in ns, None where it is not known."""
    end_ns = _end_ns(file)
    if end_ns is None or file.identity.start_ns is None:
        return None
    return end_ns - file.identity.start_ns


def _merge_upwards(groups: list[Group]) -> list[Group]:
    """Join compatible groups folder by folder, leaves first."""
    by_folder: dict[tuple[str, ...], list[Group]] = defaultdict(list)
    for group in groups:
        by_folder[group.folder.parts].append(group)
    while True:
        depth = max((len(folder) for folder in by_folder), default=0)
        for folder in [folder for folder in by_folder if len(folder) == depth]:
            merged = _merge(by_folder.pop(folder), PurePosixPath(*folder))
            if depth == 0:
                return merged
            by_folder[folder[:-1]] += merged
        if depth == 0:
            return []


def _merge(groups: list[Group], folder: PurePosixPath) -> list[Group]:
    merged: list[Group] = []
    # Candidates by their ranks: whole families that cannot fit are passed over at once.
    open_groups: dict[frozenset[int], list[Group]] = defaultdict(list)
    for group in sorted(groups, key=lambda item: (item.start_ns, item.files[0].name)):
        if not group.named and group.folders != {folder}:
            merged.append(group)  # without a rank, two jobs side by side look the same
            continue
        best = _best(group, open_groups, folder)
        if best is None:
            merged.append(group)
            best = group
        else:
            open_groups[best.ranks].remove(best)
            best.add(group.processes)
        if not best.complete:
            open_groups[best.ranks].append(best)
    return merged


def _best(
    group: Group, open_groups: dict[frozenset[int], list[Group]], folder: PurePosixPath
) -> Group | None:
    if group.complete:
        return None
    candidates: list[Group] = []
    for ranks, family in open_groups.items():
        if ranks & group.ranks:
            continue
        # Groups come in order of start: what is too old for this one is too old for the rest.
        family[:] = [other for other in family if not _too_old(other, group)]
        candidates += [other for other in family if _fits(group, other, folder)]
    return min(candidates, key=lambda other: abs(other.start_ns - group.start_ns), default=None)


def _too_old(other: Group, group: Group) -> bool:
    if other.starts_ns is None or group.starts_ns is None or other.unix_time != group.unix_time:
        return False
    return group.starts_ns[0] - other.starts_ns[1] > FAR_APART_NS


def _fits(group: Group, other: Group, folder: PurePosixPath) -> bool:
    sizes = {size for size in (group.world_size, other.world_size) if size is not None}
    ranks = group.ranks | other.ranks
    if len(sizes) > 1 or (sizes and max(ranks, default=0) >= min(sizes)):
        return False
    if not _same_versions(group.processes[0].identity, other.processes[0].identity):
        return False
    together = group.folders == other.folders == {folder}
    if not together and not (group.named and other.named):
        return False
    if any(_same_process(a.identity, b.identity) for a in group.processes for b in other.processes):
        return False
    return any(
        _times_agree(a, b, together=together)
        for process in other.processes[:1]
        for a in process.windows
        for b in group.processes[0].windows
    )


def _same_versions(one: Identity, other: Identity) -> bool:
    known = dict(one.versions)
    return all(known.get(name, value) == value for name, value in other.versions)


def _same_process(one: Identity, other: Identity) -> bool:
    """Tell whether two recordings are of the same process at the same time: copies of each other."""
    if not set(one.pids) & set(other.pids):
        return False
    return one.host == other.host and one.start_ns == other.start_ns


def _times_agree(one: TraceFile, other: TraceFile, *, together: bool) -> bool:
    first, second = one.identity, other.identity
    # Without a common clock only ranks that are named, side by side, speak for one run.
    named = together and one.rank is not None and other.rank is not None
    if first.start_ns is None or second.start_ns is None:
        return named
    if (first.base_ns is None) != (second.base_ns is None):
        return named
    apart_ns = abs(first.start_ns - second.start_ns)
    if apart_ns <= SAME_TIME_NS:
        return True
    if apart_ns > FAR_APART_NS:
        return False
    if first.host and second.host and first.host != second.host:
        return True  # the clocks of two hosts may differ
    length_ns = window_ns(one if first.start_ns < second.start_ns else other)
    return length_ns is not None and apart_ns <= length_ns + SAME_TIME_NS
