"""Which files of an archive can belong to one run, told from their names alone.

An archive may hold millions of files on a store where opening one takes a request. So names split
it into units first; what a unit holds is then told from the content of its files, by the process
that analyses it.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath

from trace_analyzer.batch.nodes import ReadFiles, unit_folders
from trace_analyzer.bundle import MANIFEST_NAME, loose_role

RULES = (
    (
        "A folder with a bundle.json is one run, with everything below it. Such folders beside each "
        "other whose manifests name the same job (one a node) are one run together."
    ),
    (
        "Any other folder whose files are named like traces (*.json, *.json.gz, *.json.zst, *.trace, "
        "*.sqlite, *.nsys-rep) is searched by content: ranks, processes, versions and times say which "
        "of its files are one run, as for analyze."
    ),
    (
        "Folders named like a part of a run (node0, host-3, rank1, worker_2, gpu0, …, or kineto, nsys, "
        "traces, profiler, logs, nccl, …) belong to the folder above them; so do archives named so "
        "(node0.tar.gz). Any other folder stands for itself."
    ),
    (
        "A .zip or .tar (plain, gzip, bzip2, xz, zstd) whose members are named like traces is searched "
        "like a folder of its own."
    ),
    (
        "Step times, environments, NCCL logs and Flight Recorder dumps with their usual names go with "
        "the traces beside or above them."
    ),
    "Names that begin with a dot and linked folders are left out.",
)

_TRACE = re.compile(
    r"\.(?:json|trace)(?:\.(?:gz|zst))?$|\.sqlite$|\.(?:nsys-rep|qdrep|qdstrm)$", re.IGNORECASE
)
_ARCHIVE = re.compile(r"\.(?:zip|tgz|tbz2?|txz|tar|tar\.\w+)$", re.IGNORECASE)
_NUMBERED = re.compile(
    r"(?:node|host|machine|server|pod|worker|trainer|rank|gpu|task|proc|process"
    r"|(?:local|global)[-_]rank)s?[-_. ]?\d+",
    re.IGNORECASE,
)
_KIND = re.compile(
    r"kineto|nsys|traces?|profil(?:e|es|er|ing)|torch[-_]profiler|logs?|nccl(?:[-_]logs?)?"
    r"|flight(?:[-_]recorder)?|meta(?:data)?|env(?:ironment)?|sidecars?|steps",
    re.IGNORECASE,
)
_SKIPPED_FOLDERS = frozenset({"__pycache__", "__MACOSX", "node_modules"})
_ROOT = PurePosixPath()


class UnitKind(StrEnum):
    """What a unit is in the archive."""

    FOLDER = "folder"
    ARCHIVE = "archive"  # a zip or tar


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of the archive as its store lists it.

    `name` is its path inside the archive. `stamp` changes when the content does (a time in ns, an
    ETag); it is empty where the store has none, or where it is too young to be trusted.
    """

    name: str
    bytes: int
    stamp: str


@dataclass(frozen=True, slots=True)
class Unit:
    """Files that are looked at together. `name` is the folder or file; empty for the top folder."""

    name: str
    kind: UnitKind
    files: tuple[ListedFile, ...]

    @property
    def bytes(self) -> int:
        """The size of all its files."""
        return sum(file.bytes for file in self.files)

    @property
    def fingerprint(self) -> str:
        """A hash of names, sizes and stamps; empty where a change could go unnoticed."""
        if not all(file.stamp for file in self.files):
            return ""
        digest = hashlib.sha256(self.kind.encode())
        for file in self.files:
            digest.update(
                f"\0{file.name}\0{file.bytes}\0{file.stamp}".encode(errors="surrogatepass")
            )
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Plan:
    """An archive split into units, in order of name; `ignored` files belong to none."""

    units: tuple[Unit, ...]
    ignored: int


def is_hidden(name: str) -> bool:
    """Tell whether a path inside an archive is left out: dot files, caches."""
    parts = PurePosixPath(name).parts
    return any(part.startswith(".") or part in _SKIPPED_FOLDERS for part in parts)


@dataclass(slots=True)
class _Folders:
    """Files by the folder that they count to."""

    traces: dict[PurePosixPath, list[ListedFile]] = field(default_factory=lambda: defaultdict(list))
    beside: dict[PurePosixPath, list[ListedFile]] = field(default_factory=lambda: defaultdict(list))
    archives: list[ListedFile] = field(default_factory=list)
    ignored: int = 0


def split(files: Iterable[ListedFile], read: ReadFiles = lambda _: {}) -> Plan:
    """Return the units of an archive with these files.

    `read` returns the content of files by name, as far as it can be had: the manifests of bundles
    that lie beside each other, and may be of one job.
    """
    listed = list(files)
    manifests = [path for f in listed if (path := PurePosixPath(f.name)).name == MANIFEST_NAME]
    bundles = unit_folders(_outermost({path.parent for path in manifests}), read)
    found = _Folders()
    homes: dict[PurePosixPath, PurePosixPath] = {}
    for file in listed:
        path = PurePosixPath(file.name)
        owner = next((above for above in path.parents if above in bundles), None)
        if owner is not None:
            found.traces[bundles[owner]].append(file)
        else:
            _sort(file, path, found, homes)
    _attach_sidecars(found)
    units = [_folder_unit(folder, inside) for folder, inside in found.traces.items()]
    units += [Unit(file.name, UnitKind.ARCHIVE, (file,)) for file in found.archives]
    return Plan(tuple(sorted(units, key=lambda unit: (unit.name, unit.kind))), found.ignored)


def _outermost(folders: set[PurePosixPath]) -> set[PurePosixPath]:
    return {folder for folder in folders if not any(above in folders for above in folder.parents)}


def _sort(
    file: ListedFile,
    path: PurePosixPath,
    found: _Folders,
    homes: dict[PurePosixPath, PurePosixPath],
) -> None:
    folder = path.parent
    if folder not in homes:
        homes[folder] = _home(folder)
    home = homes[folder]
    if _ARCHIVE.search(path.name):
        if _NUMBERED.fullmatch(_ARCHIVE.sub("", path.name)):
            found.traces[home].append(file)
        else:
            found.archives.append(file)
    elif loose_role(path.name) is not None:
        found.beside[home].append(file)
    elif _TRACE.search(path.name):
        found.traces[home].append(file)
    else:
        found.ignored += 1


def _home(folder: PurePosixPath) -> PurePosixPath:
    """Return the folder that a folder is a part of: itself, unless its name says otherwise."""
    while folder != _ROOT and (_NUMBERED.fullmatch(folder.name) or _KIND.fullmatch(folder.name)):
        folder = folder.parent
    return folder


def _attach_sidecars(found: _Folders) -> None:
    for folder, files in found.beside.items():
        owner = next((place for place in (folder, *folder.parents) if place in found.traces), None)
        if owner is None:
            found.ignored += len(files)
        else:
            found.traces[owner].extend(files)


def _folder_unit(folder: PurePosixPath, files: Iterable[ListedFile]) -> Unit:
    name = "" if folder == _ROOT else folder.as_posix()
    return Unit(name, UnitKind.FOLDER, tuple(sorted(files, key=lambda file: file.name)))
