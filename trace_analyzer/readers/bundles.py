"""Runs that a bundle manifest describes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from trace_analyzer.bundle import BundleFile, Manifest, Role, read_manifest
from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.model import DataWarning, Severity, SourceKind
from trace_analyzer.readers.content import Content
from trace_analyzer.readers.entries import Entry, Opened
from trace_analyzer.readers.grouping import TraceFile, processes_of
from trace_analyzer.readers.node_bundles import merge_nodes
from trace_analyzer.readers.run_files import Damaged, RunFiles, sidecar_file, trace_file
from trace_analyzer.readers.sidecars import SidecarFile

_TRACES = {Content.KINETO, Content.NSYS}


@dataclass(slots=True)
class _Sorted:
    """The files of one bundle by what they are."""

    traces: list[TraceFile] = field(default_factory=list)
    sidecars: list[SidecarFile] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)
    warnings: list[DataWarning] = field(default_factory=list)


def bundled_runs(opened: Opened) -> tuple[list[RunFiles], list[Entry], list[DataWarning]]:
    """Return the runs of all manifests, the entries outside any bundle, and warnings.

    A manifest speaks for its folder and everything below it. One that cannot be used is a
    warning, and its files are left to be grouped by content.
    """
    warnings: list[DataWarning] = []
    manifests: dict[PurePosixPath, tuple[Entry, Manifest]] = {}
    for entry in opened.entries:
        if entry.examined.content is Content.MANIFEST:
            try:
                manifest = read_manifest(entry.path, display=opened.shown_path(entry.name))
            except UnreadableInputError as error:
                warnings.append(_unusable(entry, error))
            else:
                manifests[PurePosixPath(entry.name).parent] = (entry, manifest)
    inside: dict[PurePosixPath, list[Entry]] = {folder: [] for folder in manifests}
    rest: list[Entry] = []
    for entry in opened.entries:
        owners = [parent for parent in PurePosixPath(entry.name).parents if parent in manifests]
        if owners:
            inside[owners[-1]].append(entry)  # the outermost one
        elif entry.examined.content is not Content.MANIFEST:
            rest.append(entry)
    runs = [
        _bundle(folder, *manifests[folder], inside=entries, opened=opened)
        for folder, entries in inside.items()
        if entries
    ]
    return merge_nodes(runs), rest, warnings


def _unusable(entry: Entry, error: UnreadableInputError) -> DataWarning:
    return DataWarning(
        code="TRC009",
        message=f"{entry.name}: {error.problem}",
        effect="the manifest is not used; files are grouped by content",
    )


def _bundle(
    folder: PurePosixPath,
    entry: Entry,
    manifest: Manifest,
    *,
    inside: Sequence[Entry],
    opened: Opened,
) -> RunFiles:
    by_name = {item.name: item for item in inside}
    listed = {(folder / item.path).as_posix(): item for item in manifest.files}
    found = _Sorted()
    for name, item in listed.items():
        _sort(name, item, by_name.get(name), found)
    loose = [item for item in inside if item.name not in listed]
    found.sidecars += [s for item in loose if (s := sidecar_file(item)) is not None]
    found.warnings += _not_listed(loose)
    kineto = processes_of([file for file in found.traces if file.kind is SourceKind.KINETO])
    nsys = processes_of([file for file in found.traces if file.kind is SourceKind.NSYS])
    reports = [item for item in inside if item.examined.content is Content.NSYS_REPORT]
    return RunFiles(
        name=folder.as_posix(),
        title=manifest.job_name or folder.name or opened.title,
        opened=opened,
        processes=tuple(kineto or nsys),
        cross_check=tuple(nsys if kineto else ()),
        reports=() if kineto or nsys else tuple(reports),
        sidecars=tuple(found.sidecars),
        damaged=tuple(found.damaged),
        manifest=manifest,
        manifest_entry=entry,
        warnings=(*opened.warnings, *found.warnings),
    )


def _sort(name: str, item: BundleFile, entry: Entry | None, found: _Sorted) -> None:
    if entry is None:
        found.damaged.append(Damaged(name=name, problem="listed in the manifest, but absent"))
        return
    found.warnings += _changed(entry, item)
    if item.role not in {Role.KINETO, Role.NSYS}:
        found.sidecars.append(
            SidecarFile(path=entry.path, name=name, role=item.role, rank=item.rank, pid=item.pid)
        )
    elif entry.examined.content in _TRACES:
        found.traces.append(trace_file(entry, named_rank=item.rank, basis="manifest"))
    elif entry.examined.content is not Content.NSYS_REPORT:
        problem = entry.examined.problem or "not a trace"
        found.damaged.append(Damaged(name=name, problem=problem))


def _changed(entry: Entry, item: BundleFile) -> Iterable[DataWarning]:
    size = entry.path.stat().st_size
    if item.bytes is not None and size != item.bytes:
        yield DataWarning(
            code="TRC001",
            message=f"{entry.name} has {size:,} bytes, {item.bytes:,} in the manifest",
            effect="it was cut or changed after it was recorded",
            ranks=() if item.rank is None else (item.rank,),
        )


def _not_listed(loose: Sequence[Entry]) -> Iterable[DataWarning]:
    traces = [e for e in loose if e.examined.content in _TRACES]
    if traces:
        yield DataWarning(
            code="TRC011",
            message=f"the manifest does not list {len(traces)} of the traces beside it "
            f"({traces[0].name}{', …' if len(traces) > 1 else ''})",
            effect="left out",
            severity=Severity.NOTE,
            count=len(traces),
        )
