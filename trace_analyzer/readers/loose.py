"""Runs of files without a manifest: grouped by content, and what lies beside them by folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from trace_analyzer.model import SourceKind
from trace_analyzer.readers.content import Content
from trace_analyzer.readers.entries import Entry, Opened
from trace_analyzer.readers.grouping import Group, TraceFile, common_folder, group_traces
from trace_analyzer.readers.run_files import Damaged, RunFiles, sidecar_file, trace_file
from trace_analyzer.readers.sidecars import SidecarFile


def loose_runs(entries: Sequence[Entry], opened: Opened) -> list[RunFiles]:
    """Return the runs among `entries`; a damaged file that belongs to none is one by itself."""
    traces = [
        trace_file(entry)
        for entry in entries
        if entry.examined.content in {Content.KINETO, Content.NSYS}
    ]
    runs = [
        RunFiles(
            name=group.folder.as_posix(),
            title=group.folder.name or opened.title,
            opened=opened,
            processes=tuple(group.processes),
            cross_check=tuple(other.processes if other is not None else ()),
            warnings=opened.warnings,
        )
        for group, other in _paired(group_traces(traces))
    ]
    runs += _report_runs(entries, traces, opened)
    damaged = [
        Damaged(name=entry.name, problem=entry.examined.problem)
        for entry in entries
        if entry.examined.content is Content.DAMAGED
    ]
    sidecars = [found for entry in entries if (found := sidecar_file(entry)) is not None]
    return _attached(runs, damaged, sidecars, opened)


def _paired(groups: Sequence[Group]) -> list[tuple[Group, Group | None]]:
    """Put an nsys recording beside the Kineto recording of the innermost folder that holds both.

    Only where that folder holds one of each: whether they are the same job is told after reading.
    """
    below: dict[PurePosixPath, list[Group]] = defaultdict(list)
    for group in groups:
        for folder in (group.folder, *group.folder.parents):
            below[folder].append(group)
    partner: dict[int, Group] = {}
    paired: set[int] = set()
    for nsys in groups:
        if nsys.kind is not SourceKind.NSYS:
            continue
        for folder in (nsys.folder, *nsys.folder.parents):
            inside = below[folder]
            if len(inside) == 2 and inside[0].kind is not inside[1].kind:
                kineto = inside[0] if inside[1] is nsys else inside[1]
                partner[id(kineto)] = nsys
                paired.add(id(nsys))
            if len(inside) > 1:
                break
    return [(group, partner.get(id(group))) for group in groups if id(group) not in paired]


def _report_runs(
    entries: Sequence[Entry], traces: Sequence[TraceFile], opened: Opened
) -> list[RunFiles]:
    """Return nsys reports that stand alone, by folder: one with its export beside it is read there."""
    exported = {_stem(file.name) for file in traces if file.kind is SourceKind.NSYS}
    by_folder: dict[PurePosixPath, list[Entry]] = {}
    with_traces = {file.folder for file in traces}
    for entry in entries:
        folder = PurePosixPath(entry.name).parent
        alone = _stem(entry.name) not in exported and folder not in with_traces
        if entry.examined.content is Content.NSYS_REPORT and alone:
            by_folder.setdefault(folder, []).append(entry)
    return [
        RunFiles(
            name=folder.as_posix(),
            title=folder.name or opened.title,
            opened=opened,
            reports=tuple(reports),
            warnings=opened.warnings,
        )
        for folder, reports in by_folder.items()
    ]


def _stem(name: str) -> str:
    return name.rsplit(".", 1)[0]


class _Places:
    """Finds the run that a folder belongs to."""

    def __init__(self, runs: Sequence[RunFiles]) -> None:
        self._same: dict[PurePosixPath, set[int]] = defaultdict(set)
        self._below: dict[PurePosixPath, set[int]] = defaultdict(set)
        self._roots: dict[PurePosixPath, set[int]] = defaultdict(set)
        for position, run in enumerate(runs):
            folders = _folders(run)
            self._roots[common_folder(folders)].add(position)
            for folder in folders:
                self._same[folder].add(position)
                for above in (folder, *folder.parents):
                    self._below[above].add(position)

    def owner(self, folder: PurePosixPath) -> int | None:
        """Return the only run with files in this folder, else below it, else above it."""
        candidates = self._same.get(folder) or self._below.get(folder) or set()
        for above in folder.parents:
            candidates = candidates or self._roots.get(above, set())
        return next(iter(candidates)) if len(candidates) == 1 else None


def _folders(run: RunFiles) -> set[PurePosixPath]:
    names = [file.name for file in run.files]
    names += [window.name for process in run.cross_check for window in process.windows]
    names += [entry.name for entry in run.reports]
    return {PurePosixPath(name).parent for name in names}


def _attached(
    runs: Sequence[RunFiles],
    damaged: Sequence[Damaged],
    sidecars: Sequence[SidecarFile],
    opened: Opened,
) -> list[RunFiles]:
    places = _Places(runs)
    of_process: dict[int, set[int]] = defaultdict(set)
    for position, run in enumerate(runs):
        for process in run.processes:
            for pid in process.identity.pids:
                of_process[pid].add(position)
    damaged_of: dict[int, list[Damaged]] = defaultdict(list)
    sidecars_of: dict[int, list[SidecarFile]] = defaultdict(list)
    alone: list[Damaged] = []
    for item in damaged:
        owner = places.owner(PurePosixPath(item.name).parent)
        (alone if owner is None else damaged_of[owner]).append(item)
    for sidecar in sidecars:
        owner = places.owner(PurePosixPath(sidecar.name).parent)
        processes = of_process.get(sidecar.pid, set()) if sidecar.pid is not None else set()
        if owner is None and len(processes) == 1:
            owner = next(iter(processes))
        if owner is not None:
            sidecars_of[owner].append(sidecar)
    return [
        replace(run, damaged=tuple(damaged_of[position]), sidecars=tuple(sidecars_of[position]))
        for position, run in enumerate(runs)
    ] + [*_damaged_runs(alone, opened)]


def _damaged_runs(damaged: Iterable[Damaged], opened: Opened) -> Iterable[RunFiles]:
    by_folder: dict[PurePosixPath, list[Damaged]] = defaultdict(list)
    for item in damaged:
        by_folder[PurePosixPath(item.name).parent].append(item)
    for folder, items in by_folder.items():
        yield RunFiles(
            name=folder.as_posix(),
            title=folder.name or opened.title,
            opened=opened,
            damaged=tuple(items),
            warnings=opened.warnings,
        )
