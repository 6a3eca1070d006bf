"""Pack run folders into archives of a limited size."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path

ARCHIVE_LIMIT_BYTES = 15 << 20  # a margin below 16 MB for headers
MAX_ARCHIVES = 8


def pack(folders: Sequence[Path], out: Path, stem: str) -> tuple[list[Path], list[Path]]:
    """Write `{stem}-{n}.tar.gz` files; return them, and the folders that found no place.

    A folder is never split. Sizes are judged by what the files take compressed: traces are
    compressed already, the rest counts a third.
    """
    bins: list[tuple[int, list[Path]]] = []
    left_over: list[Path] = []
    for folder in sorted(folders, key=_packed_bytes, reverse=True):
        size = _packed_bytes(folder)
        for position, (used, members) in enumerate(bins):
            if used + size <= ARCHIVE_LIMIT_BYTES:
                bins[position] = (used + size, [*members, folder])
                break
        else:
            if len(bins) < MAX_ARCHIVES and size <= ARCHIVE_LIMIT_BYTES:
                bins.append((size, [folder]))
            else:
                left_over.append(folder)
    written = []
    for number, (_, members) in enumerate(bins):
        path = out / f"{stem}-{number}.tar.gz"
        with tarfile.open(path, "w:gz", compresslevel=6) as archive:
            for folder in sorted(members):
                archive.add(folder, arcname=folder.name)
        written.append(path)
    return written, left_over


def _packed_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        if path.is_file():
            size = path.stat().st_size
            total += size + 512 if path.suffix == ".gz" else size // 3 + 512
    return total
