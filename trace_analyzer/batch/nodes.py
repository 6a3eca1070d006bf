"""Bundles beside each other that the nodes of one job left: their manifests name the same job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath

import msgspec

from trace_analyzer.bundle import MANIFEST_NAME

ReadFiles = Callable[[Sequence[str]], Mapping[str, bytes]]


class _Job(msgspec.Struct):
    id: str = ""


class _Manifest(msgspec.Struct):
    job: _Job = msgspec.field(default_factory=_Job)
    world_size: int | None = None


def unit_folders(
    bundles: Iterable[PurePosixPath], read: ReadFiles
) -> dict[PurePosixPath, PurePosixPath]:
    """Return, for every folder of a bundle, the folder of its unit.

    That is its own, or the one above where another bundle in there is of the same job. Only
    manifests that have others beside them are read.
    """
    beside: dict[PurePosixPath, list[PurePosixPath]] = defaultdict(list)
    units = {folder: folder for folder in bundles}
    for folder in units:
        if folder != PurePosixPath():
            beside[folder.parent].append(folder)
    wanted = {
        (folder / MANIFEST_NAME).as_posix(): folder
        for folders in beside.values()
        if len(folders) > 1
        for folder in folders
    }
    jobs: dict[tuple[PurePosixPath, str, int], list[PurePosixPath]] = defaultdict(list)
    for name, content in read(sorted(wanted)).items() if wanted else ():
        manifest = _decoded(content)
        if manifest is not None and manifest.job.id and manifest.world_size:
            folder = wanted[name]
            jobs[folder.parent, manifest.job.id, manifest.world_size].append(folder)
    for (parent, _, _), folders in jobs.items():
        if len(folders) > 1:
            units |= dict.fromkeys(folders, parent)
    return units


def _decoded(content: bytes) -> _Manifest | None:
    try:
        return msgspec.json.decode(content, type=_Manifest)
    except msgspec.DecodeError:
        return None  # the process that opens the bundle says what is wrong with it


__all__ = ["ReadFiles", "unit_folders"]
