"""Step times without a trace: a step timer's file, or a folder that holds nothing else to analyse."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from trace_analyzer.bundle import Role, loose_role, sha256_of
from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.model import DataWarning, Source, SourceKind, UnprofiledSteps
from trace_analyzer.readers.content import Content
from trace_analyzer.readers.entries import Entry, open_target
from trace_analyzer.readers.remote import is_url
from trace_analyzer.readers.run_files import sidecar_file
from trace_analyzer.readers.sidecars import SidecarFile, read_sidecars
from trace_analyzer.readers.workspace import Workspace

_LONGEST_HEADER_BYTES = 1 << 16
_TRACES = {Content.KINETO, Content.NSYS, Content.NSYS_REPORT, Content.DAMAGED}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRun:
    """Step times of the ranks of a run; `world_size` is None where no file tells."""

    name: str
    world_size: int | None
    unprofiled: tuple[UnprofiledSteps, ...]
    versions: dict[str, str]
    sources: tuple[Source, ...]
    warnings: tuple[DataWarning, ...]


class _Header(msgspec.Struct):
    kind: str = ""
    world_size: int | None = None
    torch: str | None = None


def read_timers(target: str, workspace: Workspace) -> TimedRun | None:
    """Return the step times of a target that holds no trace; None where it holds traces, or no times.

    A single file may have any name that ends in .jsonl. Raises `UnreadableInputError` for one that
    is a step timer's by its name, and cannot be read or holds no unprofiled step.
    """
    path = Path(target)
    if not is_url(target) and path.is_file():
        files = _single(path)
        name = path.name.removesuffix(".jsonl")
    else:
        opened = open_target(target, workspace)
        files, name = _beside(opened.entries), opened.title
    if not files:
        return None
    found = read_sidecars(files)
    if not found.unprofiled:
        why = found.warnings[0].message if found.warnings else f"{target}: no unprofiled step"
        raise UnreadableInputError(
            target, why.removeprefix(f"{files[0].name}: "), "time steps without a profiler"
        )
    headers = [_header(file.path) for file in files]
    sizes = {header.world_size for header in headers if header.world_size}
    return TimedRun(
        name=name,
        world_size=max(sizes) if sizes else None,
        unprofiled=tuple(steps for _, steps in sorted(found.unprofiled.items())),
        versions=dict(_versions(headers)),
        sources=tuple(_source(file) for file in files),
        warnings=tuple(found.warnings),
    )


def _single(path: Path) -> list[SidecarFile]:
    loose = loose_role(path.name)
    if loose is not None and loose.role is not Role.TIMER:
        return []
    if loose is None and path.suffix != ".jsonl":
        return []
    # A header names the rank; without one a file alone is rank 0's.
    rank = 0 if loose is None else loose.rank
    return [SidecarFile(path=path, name=path.name, role=Role.TIMER, rank=rank)]


def _beside(entries: Iterable[Entry]) -> list[SidecarFile]:
    files = []
    for entry in entries:
        if entry.examined.content in _TRACES:
            return []
        found = sidecar_file(entry)
        if found is not None and found.role is Role.TIMER:
            files.append(found)
    return files


def _header(path: Path) -> _Header:
    try:
        with path.open("rb") as stream:
            return msgspec.json.decode(stream.readline(_LONGEST_HEADER_BYTES), type=_Header)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return _Header()  # not a header: what there is to say, the reader of the steps says


def _versions(headers: Iterable[_Header]) -> Iterable[tuple[str, str]]:
    for header in headers:
        if header.torch:
            yield "torch", header.torch


def _source(file: SidecarFile) -> Source:
    return Source(
        path=file.name,
        kind=SourceKind.TIMER,
        bytes=file.path.stat().st_size,
        sha256=sha256_of(file.path),
        ranks=() if file.rank is None else (file.rank,),
    )


__all__ = ["TimedRun", "read_timers"]
