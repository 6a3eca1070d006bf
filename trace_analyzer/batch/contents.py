"""What a unit holds: its files brought here, and the runs that they are."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import msgspec

from trace_analyzer.batch.rows import FileRow
from trace_analyzer.batch.storage import place
from trace_analyzer.batch.tasks import RunFound, Task, run_id, shown
from trace_analyzer.batch.units import ListedFile, UnitKind
from trace_analyzer.bundle import sha256_of
from trace_analyzer.errors import TraceAnalyzerError
from trace_analyzer.model import DataWarning
from trace_analyzer.readers.discovery import RunFiles, described, runs_among
from trace_analyzer.readers.entries import (
    Opened,
    open_listed,
    promises_traces,
    title_of,
    unpack_listed,
)
from trace_analyzer.readers.workspace import Workspace

UNPACKED = "unpacked"  # folder inside the scratch folder
_PEEK_BYTES = 1 << 20


class NothingInsideError(Exception):
    """A unit without a trace; the text says what it holds."""


class ChangedMeanwhileError(TraceAnalyzerError):
    """A run whose files are not what they were when the unit was listed."""


@dataclass(frozen=True, slots=True)
class Contents:
    """A run with its files, not read. `rows` are its files with their hashes, once they have them."""

    found: RunFound
    run: RunFiles
    rows: list[FileRow]


def open_unit(task: Task, scratch: Path, workspace: Workspace) -> Opened:
    """Bring the files of a task's unit here and look at their beginnings.

    Raises `NothingInsideError` for an archive without traces, `UnreadableInputError` for what
    cannot be fetched or unpacked.
    """
    archive = place(task.archive)
    where = f"{archive.shown.rstrip('/')}/{task.unit}".rstrip("/")
    title = title_of(PurePosixPath(task.unit or archive.shown).name) or "run"
    if task.unpacked is not None:
        folder, names = Path(task.unpacked), [file.name for file in task.files]
        return open_listed(folder, names, workspace, shown=shown(where), title=shown(title))
    local = archive.path
    if local is None:
        if task.kind is UnitKind.ARCHIVE:
            _refuse_other_archives(task)
        local = scratch / "fetched"
        local.mkdir()
        archive.fetch([ListedFile(file.name, file.bytes, "") for file in task.files], local)
    warnings: list[DataWarning] = []
    if task.kind is UnitKind.ARCHIVE:
        packed = local / task.unit
        if not promises_traces(packed):
            raise NothingInsideError("an archive without traces")
        folder = scratch / UNPACKED
        folder.mkdir()
        names, warnings = unpack_listed(packed, folder, where)
    else:
        folder = local / task.unit
        names = [inside(task.unit, file.name) for file in task.files]
    return open_listed(
        folder, names, workspace, shown=shown(where), title=shown(title), warnings=warnings
    )


def _refuse_other_archives(task: Task) -> None:
    """Look at the beginning of a remote tar before all of it is fetched; a zip lists at its end."""
    head = place(task.archive).head(task.files[0].name, _PEEK_BYTES)
    if head.startswith(b"PK"):
        return
    with tempfile.NamedTemporaryFile() as beginning:
        beginning.write(head)
        beginning.flush()
        if not promises_traces(Path(beginning.name)):
            raise NothingInsideError("an archive without traces")


def inside(unit: str, name: str) -> str:
    """Return a path inside the archive as one inside the unit."""
    return name[len(unit) + 1 :] if unit else name


def find(task: Task, opened: Opened) -> list[Contents]:
    """Return the runs among the files of a task, in order of name.

    Raises `NothingInsideError` where there is none, `ChangedMeanwhileError` where the files of one
    run are not one run any more.
    """
    runs = runs_among(opened)
    if not runs:
        count = len(opened.entries)
        raise NothingInsideError(f"none of {count} file{'' if count == 1 else 's'} is a trace")
    if task.only is not None:
        if len(runs) > 1:
            raise ChangedMeanwhileError(f"{task.only}: its files changed meanwhile; run it again")
        return [_contents(task, task.only, runs[0])]
    if len(runs) == 1:
        return [_contents(task, task.unit, runs[0])]
    names = _names(task.unit, runs)
    return [_contents(task, name, run) for name, run in zip(names, runs, strict=True)]


def _names(unit: str, runs: Iterable[RunFiles]) -> list[str]:
    names: list[str] = []
    for run in runs:
        inner = "" if run.name == "." else run.name
        name = f"{unit}/{inner}".strip("/") if inner else unit
        number = 2
        unique = name
        while unique in names:
            unique = f"{name} ({number})"
            number += 1
        names.append(unique)
    return names


def _contents(task: Task, name: str, run: RunFiles) -> Contents:
    files = sorted(set(_files(run)))
    paths = _paths(run)
    found = RunFound(
        id=run_id(name),
        name=name,
        fingerprint=_fingerprint(task, files),
        digest="",
        bytes=sum(_size(paths.get(file)) for file in files),
        files=files,
        described=described(run) if run.processes or run.reports else "damaged",
    )
    title = run.manifest.job_name if run.manifest else ""
    title = title or title_of(PurePosixPath(name).name) or run.title
    return Contents(found, replace(run, title=shown(title)), [])


def hashed(contents: Contents) -> Contents:
    """Return a run with the hashes of its files, and the digest over them."""
    paths = _paths(contents.run)
    rows = [_file_row(name, paths.get(name)) for name in contents.found.files]
    digest = hashlib.sha256()
    for row in rows:
        digest.update(f"{row.path}\0{row.sha256}\n".encode())
    found = msgspec.structs.replace(contents.found, digest=digest.hexdigest())
    return replace(contents, found=found, rows=rows)


def _paths(run: RunFiles) -> dict[str, Path]:
    return {entry.name: entry.path for entry in run.opened.entries}


def _size(path: Path | None) -> int:
    try:
        return 0 if path is None else path.stat().st_size
    except OSError:
        return 0  # gone meanwhile: reading it says so


def _fingerprint(task: Task, files: Iterable[str]) -> str:
    """Return a hash of names, sizes and stamps, empty where a file has no stamp."""
    listed = {inside(task.unit, file.name): file for file in task.files}
    digest = hashlib.sha256()
    for name in files:
        # A member of an archive stands and falls with its archive.
        places = (name, *(above.as_posix() for above in PurePosixPath(name).parents))
        file = next((listed[place] for place in places if place in listed), None)
        if file is None or not file.stamp:
            return ""
        text = f"{name}\0{file.name}\0{file.bytes}\0{file.stamp}\n"
        digest.update(text.encode(errors="surrogatepass"))
    return digest.hexdigest()


def _files(run: RunFiles) -> Iterable[str]:
    """Yield every file that says something about the run, by its name in the unit."""
    for process in (*run.processes, *run.cross_check):
        yield from (window.name for window in process.windows)
    yield from (entry.name for entry in run.reports)
    yield from (sidecar.name for sidecar in run.sidecars)
    yield from (damaged.name for damaged in run.damaged)
    for entry in (run.manifest_entry, *run.more_manifests):
        if entry is not None:
            yield entry.name


def _file_row(name: str, path: Path | None) -> FileRow:
    try:
        if path is not None:
            size = path.stat().st_size
            return FileRow(sha256=sha256_of(path), path=shown(name), bytes=size)
    except OSError:
        pass  # what cannot be read has no hash; the reader says why
    return FileRow(sha256="", path=shown(name), bytes=0)


__all__ = [
    "UNPACKED",
    "ChangedMeanwhileError",
    "Contents",
    "NothingInsideError",
    "find",
    "hashed",
    "inside",
    "open_unit",
]
