"""The files inside a RUN: folders walked, archives unpacked, URLs fetched."""

from __future__ import annotations

import io
import os
import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.model import DataWarning
from trace_analyzer.readers.archives import Unpacked, unpack
from trace_analyzer.readers.content import Content, Examined, examine, expand_head
from trace_analyzer.readers.remote import fetch, is_url, local_path, without_credentials
from trace_analyzer.readers.workspace import Workspace

_SKIPPED_FOLDERS = frozenset({"__pycache__", "__MACOSX", "node_modules"})
_PEEK_BYTES = 1 << 20
# An archive inside a folder is opened only if its member names promise traces: checkpoints are
# zip files and data sets are tar files.
_PROMISING = re.compile(
    r"\.json\.(gz|zst)$|\.sqlite$|\.nsys-rep$|(^|/)bundle\.json$|(rank|worker|trace)[^/]*\.json$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file inside RUN: where it is now, and its path inside RUN."""

    path: Path
    name: str
    examined: Examined


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What a target holds. `shown` is the target as it may be printed."""

    shown: str
    title: str
    entries: tuple[Entry, ...]
    warnings: tuple[DataWarning, ...]
    single: bool  # the target is one file

    def shown_path(self, name: str) -> str:
        """Return the path of an entry as the user would type it."""
        return self.shown if self.single else f"{self.shown.rstrip('/')}/{name}"


def open_target(target: str, workspace: Workspace) -> Opened:
    """Return every file inside `target`: a file, folder, archive, or URL.

    Raises `UnreadableInputError` where there is no such thing, or it cannot be unpacked.
    """
    shown = without_credentials(target) if is_url(target) else target
    path = local_path(target) if is_url(target) else Path(target)
    if path is None:
        path = fetch(target, workspace.folder())
    try:
        is_folder = path.is_dir()
        if not is_folder and not path.exists():
            raise UnreadableInputError(shown, "no such file or folder", "check the path")
    except OSError as error:
        raise UnreadableInputError(shown, (error.strerror or str(error)).lower()) from error
    if is_folder:
        return _open_folder(path, shown, workspace)
    return _open_file(path, shown, workspace)


def open_listed(
    folder: Path,
    names: Iterable[str],
    workspace: Workspace,
    *,
    shown: str,
    title: str,
    warnings: Iterable[DataWarning] = (),
) -> Opened:
    """Return an `Opened` of these files below a folder and no others; `names` are paths inside it.

    Archives among them are unpacked. `warnings` are what is known before.
    """
    known = list(warnings)
    found = [(folder / name, name) for name in names]
    entries = tuple(_expanded(found, shown, workspace, known))
    return Opened(shown=shown, title=title, entries=entries, warnings=tuple(known), single=False)


def unpack_listed(path: Path, into: Path, shown: str) -> tuple[list[str], list[DataWarning]]:
    """Unpack an archive into an empty folder; return the names of what came out, and warnings.

    Raises `UnreadableInputError` for a damaged or hostile archive.
    """
    unpacked = unpack(path, into, display=shown)
    warnings = list(_unpack_warnings(unpacked, Path(shown).name))
    return [name for _, name in _walk(into, "", [])], warnings


def _open_file(path: Path, shown: str, workspace: Workspace) -> Opened:
    examined = examine(path)
    title = title_of(path.name)
    if examined.content is Content.ARCHIVE:
        warnings: list[DataWarning] = []
        entries = tuple(_unpacked(path, "", shown, workspace, warnings))
        return Opened(
            shown=shown, title=title, entries=entries, warnings=tuple(warnings), single=False
        )
    if examined.content is Content.MANIFEST:
        return _open_folder(path.parent, str(Path(shown).parent), workspace)
    if examined.content is Content.SIDECAR:
        raise UnreadableInputError(
            shown, "this file lies beside traces and holds none", "give the folder of the traces"
        )
    entry = Entry(path=path, name=path.name, examined=examined)
    return Opened(shown=shown, title=title, entries=(entry,), warnings=(), single=True)


def _open_folder(path: Path, shown: str, workspace: Workspace) -> Opened:
    warnings: list[DataWarning] = []
    closed: list[str] = []
    try:
        found = list(_walk(path, "", closed))
    except OSError as error:
        raise UnreadableInputError(shown, (error.strerror or str(error)).lower()) from error
    if closed:
        warnings.append(
            DataWarning(
                code="TRC002",
                message=f"{closed[0]} cannot be opened"
                + (f", nor {len(closed) - 1} more folders" if len(closed) > 1 else ""),
                effect="what they hold is not read",
                count=len(closed),
            )
        )
    entries = tuple(_expanded(found, shown, workspace, warnings))
    return Opened(
        shown=shown,
        title=path.resolve().name or "run",
        entries=entries,
        warnings=tuple(warnings),
        single=False,
    )


def _walk(folder: Path, prefix: str, closed: list[str]) -> Iterator[tuple[Path, str]]:
    """Yield the files below a folder, in order of name: no hidden ones, no linked folders.

    Folders inside it that cannot be opened are added to `closed`.
    """
    with os.scandir(folder) as listing:
        items = sorted(listing, key=lambda item: item.name)
    for item in items:
        if item.name.startswith("."):
            continue
        name = prefix + item.name
        if item.is_dir(follow_symlinks=False):
            if item.name not in _SKIPPED_FOLDERS:
                try:
                    yield from _walk(Path(item.path), name + "/", closed)
                except OSError:
                    closed.append(name)
        elif item.is_file():
            yield Path(item.path), name


def _expanded(
    found: Iterable[tuple[Path, str]], shown: str, workspace: Workspace, warnings: list[DataWarning]
) -> Iterator[Entry]:
    real_paths: set[Path] = set()
    for path, name in found:
        real = path.resolve()
        if real in real_paths:
            continue  # a link to a file that is here already
        real_paths.add(real)
        examined = examine(path)
        if examined.content is not Content.ARCHIVE:
            yield Entry(path=path, name=name, examined=examined)
        elif promises_traces(path):
            try:
                yield from _unpacked(path, name + "/", f"{shown}/{name}", workspace, warnings)
            except UnreadableInputError as error:
                damaged = Examined(content=Content.DAMAGED, problem=error.problem)
                yield Entry(path=path, name=name, examined=damaged)
        else:
            other = Examined(content=Content.OTHER, problem="an archive without traces")
            yield Entry(path=path, name=name, examined=other)


def _unpacked(
    path: Path, prefix: str, shown: str, workspace: Workspace, warnings: list[DataWarning]
) -> Iterator[Entry]:
    into = workspace.folder()
    unpacked = unpack(path, into, display=shown)
    warnings.extend(_unpack_warnings(unpacked, Path(shown).name))
    for file, name in _walk(into, "", []):
        yield Entry(path=file, name=prefix + name, examined=examine(file))


def _unpack_warnings(unpacked: Unpacked, name: str) -> Iterator[DataWarning]:
    if unpacked.skipped:
        yield DataWarning(
            code="TRC009",
            message=f"{name} holds {unpacked.skipped} links or special files",
            effect="left out",
            count=unpacked.skipped,
        )
    if unpacked.cut:
        yield DataWarning(
            code="TRC001",
            message=f"{name} ends without its end mark",
            effect="files may be missing",
        )


def promises_traces(path: Path) -> bool:
    """Tell from member names whether an archive may hold traces."""
    try:
        with path.open("rb") as stream:
            raw = stream.read(_PEEK_BYTES)
        if raw.startswith(b"PK"):
            with zipfile.ZipFile(path) as archive:
                return any(_PROMISING.search(name) for name in archive.namelist())
        head, _ = expand_head(raw, _PEEK_BYTES)
        if head[257:262] != b"ustar":
            return True  # a compression that only unpacking can look into
        return any(_PROMISING.search(name) for name in _tar_names(head))
    except (OSError, zipfile.BadZipFile, ValueError):
        return True  # damaged: unpacking says how


def _tar_names(head: bytes) -> Iterator[str]:
    try:
        with tarfile.open(fileobj=io.BytesIO(head), mode="r:") as archive:
            while (member := archive.next()) is not None:
                yield member.name
    except (tarfile.TarError, EOFError):
        return  # only the beginning is here


def title_of(name: str) -> str:
    """Return a file's name without the endings of traces and archives."""
    pattern = r"(\.pt)?(\.trace)?\.(json|sqlite|nsys-rep|qdstrm|zip|tar|tgz)(\.\w+)?$"
    return re.sub(pattern, "", name, flags=re.IGNORECASE) or name
