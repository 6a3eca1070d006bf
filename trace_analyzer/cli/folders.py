"""A folder as an output: complete files are moved into it at the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from trace_analyzer.cli.group import InputError


def check_folder(path: Path, names: Sequence[str], *, force: bool) -> None:
    """Refuse a folder that cannot be filled with files of these names, before any work is done.

    Raises `InputError` for a file in its place, for files of these names without `force`, for a
    folder that holds anything else, and for one that cannot be made.
    """
    if path.is_dir():
        have = sorted(item.name for item in path.iterdir())
        foreign = [name for name in have if name not in names]
        if foreign:
            raise InputError(
                f"{path}: holds other files ({foreign[0]}); name a new or an empty folder"
            )
        if have and not force:
            raise InputError(
                f"{path}: is filled already; give another name, or --force to replace its files"
            )
    elif path.exists():
        raise InputError(f"{path}: is a file; name a folder")
    elif not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}; create it first")
    place = path if path.is_dir() else path.parent
    if not os.access(place, os.W_OK):
        raise InputError(f"{path}: the folder {place} cannot be written to")


@contextmanager
def filled_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder whose files end up in `path`; none does where an error is raised.

    Raises `InputError` where it cannot be written.
    """
    try:
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
        try:
            yield temporary
            path.mkdir(exist_ok=True)
            for item in sorted(temporary.iterdir()):
                item.replace(path / item.name)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
