"""Where archives and results lie: folders of this machine, shared ones, object stores.

Everything beyond local folders goes through fsspec. Credentials come from where the store's own
client looks for them (environment, profile, role of the machine), on every machine that works;
they are never passed on and never shown.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from trace_analyzer.batch.units import ListedFile, is_hidden
from trace_analyzer.errors import TraceAnalyzerError, UnreadableInputError
from trace_analyzer.readers.archives import Budget, Limits
from trace_analyzer.readers.remote import is_url, local_path, one_line, without_credentials

TEMPORARY = ".unfinished"  # folder for files that are not whole yet, inside the output
# A file younger than this may change again within the resolution of its time stamp.
_YOUNG_NS = 2 * 10**9
_READERS = 32  # small files that are read at once
_STAMPS = ("ETag", "etag", "md5Hash", "LastModified", "updated", "mtime", "created")


class StorageError(TraceAnalyzerError):
    """A store that does not do what is asked; one line without credentials."""

    def __init__(self, shown: str, problem: str) -> None:
        super().__init__(f"{shown}: {problem}; check the URL and your access rights")


@dataclass(frozen=True, slots=True)
class Place:
    """A folder, local or remote. `url` may hold credentials; `shown` does not."""

    url: str
    shown: str
    path: Path | None  # where it is local

    @property
    def is_local(self) -> bool:
        """Whether plain paths reach it."""
        return self.path is not None

    # -- what an archive is asked for ---------------------------------------------------------

    def listing(
        self, *, without: Path | None = None, closed: list[str] | None = None
    ) -> Iterator[ListedFile]:
        """Yield the files below, those of the folder `without` left out.

        Folders that cannot be opened are added to `closed`. Raises `UnreadableInputError` where there is no such folder, `StorageError` where the
        store refuses.
        """
        if self.path is not None:
            yield from _local_listing(self.path, self.shown, without, closed)
        else:
            yield from self._remote_listing()

    def as_file(self) -> tuple[Place, ListedFile] | None:
        """Return the folder that this lies in and itself in it, None where it is no file.

        Raises `StorageError`.
        """
        parent, _, name = self.url.rpartition("/")
        if self.path is not None:
            status = _status(self.path)
            if status is None or not stat.S_ISREG(status.st_mode):
                return None
            return place(parent or "/"), ListedFile(name, status.st_size, _stamp(status))
        system, base = self._system()
        try:
            details = system.info(base) if system.isfile(base) else None
        except Exception as error:
            problem = f"cannot be reached: {one_line(error, self.url)}"
            raise StorageError(self.shown, problem) from error
        return None if details is None else (place(parent), _listed(name, details))

    def fetch(self, files: Iterable[ListedFile], into: Path) -> None:
        """Copy files into a local folder, under the same names.

        Raises `UnreadableInputError` where they do not fit or cannot be had.
        """
        wanted = list(files)
        budget = Budget(self.shown, None, into, Limits())
        budget.check(sum(file.bytes for file in wanted))
        system, base = self._system()
        for file in wanted:
            parts = PurePosixPath(file.name).parts
            if ".." in parts or PurePosixPath(file.name).is_absolute():
                raise UnreadableInputError(self.shown, f"a name leaves its folder: {file.name!r}")
            target = into.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                system.get_file(f"{base}/{file.name}", str(target))
            except Exception as error:  # back ends raise types of their own
                where = f"{self.shown}/{file.name}"
                problem = f"cannot be fetched: {one_line(error, self.url)}"
                raise UnreadableInputError(where, problem) from error

    def read_all(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the content of small files, those that can be had, by name."""
        with ThreadPoolExecutor(_READERS) as readers:
            contents = readers.map(self._read_if_there, names)
            pairs = zip(names, contents, strict=True)
            return {name: content for name, content in pairs if content is not None}

    def _read_if_there(self, name: str) -> bytes | None:
        try:
            return self.read(name)
        except StorageError:
            return None

    def head(self, name: str, count: int) -> bytes:
        """Return the first bytes of a file, all where it is shorter."""
        if self.path is not None:
            with (self.path / name).open("rb") as stream:
                return stream.read(count)
        system, base = self._system()
        try:
            data: bytes = system.cat_file(f"{base}/{name}", start=0, end=count)
        except Exception as error:
            problem = f"cannot be fetched: {one_line(error, self.url)}"
            raise UnreadableInputError(f"{self.shown}/{name}", problem) from error
        return data

    # -- what an output is asked for ----------------------------------------------------------

    def read(self, name: str) -> bytes | None:
        """Return a whole file, None where there is none. Raises `StorageError`."""
        try:
            if self.path is not None:
                return (self.path / name).read_bytes()
            system, base = self._system()
            data: bytes = system.cat_file(f"{base}/{name}")
        except FileNotFoundError:
            return None
        except Exception as error:
            raise StorageError(
                self.shown, f"{name} cannot be read: {one_line(error, self.url)}"
            ) from error
        return data

    def write(self, name: str, data: bytes) -> None:
        """Write a file in one step: it is whole or not there. Raises `StorageError`."""
        try:
            if self.path is not None:
                _write_local(self.path, name, data)
                return
            system, base = self._system()
            system.pipe_file(f"{base}/{name}", data)  # an object appears when it is complete
        except Exception as error:
            problem = f"{name} cannot be written: {one_line(error, self.url)}"
            raise StorageError(self.shown, problem) from error

    def upload(self, source: Path, name: str) -> None:
        """Write a local file to a remote place. Raises `StorageError`."""
        system, base = self._system()
        try:
            system.put_file(str(source), f"{base}/{name}")
        except Exception as error:
            problem = f"{name} cannot be written: {one_line(error, self.url)}"
            raise StorageError(self.shown, problem) from error

    def remove(self, name: str) -> None:
        """Remove a file, if it is there. Raises `StorageError`."""
        try:
            if self.path is not None:
                (self.path / name).unlink(missing_ok=True)
                return
            system, base = self._system()
            system.rm_file(f"{base}/{name}")
        except FileNotFoundError:
            return
        except Exception as error:
            raise StorageError(
                self.shown, f"{name} cannot be removed: {one_line(error, self.url)}"
            ) from error

    def sweep(self) -> None:
        """Remove what writers that were killed left behind."""
        if self.path is not None:
            shutil.rmtree(self.path / TEMPORARY, ignore_errors=True)

    # -- remote ---------------------------------------------------------------------------------

    def _system(self) -> tuple[Any, str]:
        """Return fsspec's file system and the path of this place on it."""
        import fsspec

        try:
            system, base = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        except ImportError as error:
            problem = f"this kind of URL needs another package ({one_line(error, self.url)})"
            raise UnreadableInputError(self.shown, problem, "install it") from error
        except Exception as error:
            raise StorageError(self.shown, one_line(error, self.url)) from error
        return system, str(base).rstrip("/")

    def _remote_listing(self) -> Iterator[ListedFile]:
        system, base = self._system()
        try:
            found: Mapping[str, Mapping[str, Any]] = system.find(base, detail=True)
        except Exception as error:
            raise StorageError(
                self.shown, f"cannot be listed: {one_line(error, self.url)}"
            ) from error
        root = str(system._strip_protocol(base)).rstrip("/")  # noqa: SLF001 (fsspec's own way)
        if not found:
            raise UnreadableInputError(self.shown, "no such folder, or nothing in it")
        for full, details in found.items():
            name = full.removeprefix(root).lstrip("/") or PurePosixPath(full).name
            if not is_hidden(name):
                yield _listed(name, details)


def place(url: str) -> Place:
    """Return the place that a path or URL names. Paths become absolute."""
    path = local_path(url) if is_url(url) else Path(url)
    if path is not None:
        absolute = path.absolute()
        return Place(str(absolute), url, absolute)
    clean = url.rstrip("/")
    return Place(clean, without_credentials(clean), None)


def _local_listing(
    root: Path, shown: str, without: Path | None, closed: list[str] | None
) -> Iterator[ListedFile]:
    try:
        next(os.scandir(root), None)
    except FileNotFoundError as error:
        raise UnreadableInputError(shown, "no such file or folder", "check the path") from error
    except OSError as error:
        raise UnreadableInputError(shown, (error.strerror or str(error)).lower()) from error

    def note(error: OSError) -> None:
        if closed is not None:
            closed.append(os.path.relpath(error.filename, root))

    for folder, folders, names in os.walk(root, onerror=note):
        inside = Path(folder)
        folders[:] = sorted(n for n in folders if not is_hidden(n) and inside / n != without)
        for name in sorted(names):
            path = inside / name
            status = None if is_hidden(name) else _status(path)
            if status is not None and stat.S_ISREG(status.st_mode):
                inside_root = path.relative_to(root).as_posix()
                yield ListedFile(inside_root, status.st_size, _stamp(status))


def _stamp(status: os.stat_result) -> str:
    young = status.st_mtime_ns > time.time_ns() - _YOUNG_NS
    return "" if young else str(status.st_mtime_ns)


def _listed(name: str, details: Mapping[str, Any]) -> ListedFile:
    """Return a file as a store describes it."""
    size = details.get("size")
    stamp = next((str(details[key]) for key in _STAMPS if details.get(key)), "")
    return ListedFile(name, size if isinstance(size, int) else 0, stamp)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None  # a link to nothing, or gone since the folder was read


def _write_local(root: Path, name: str, data: bytes) -> None:
    target = root / name
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = root / TEMPORARY
    unfinished.mkdir(exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=unfinished)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


__all__ = ["TEMPORARY", "Place", "StorageError", "place"]
