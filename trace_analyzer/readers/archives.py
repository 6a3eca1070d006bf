"""Unpacking zip and tar archives from other people's machines.

What is refused: names that leave the folder, more than `Limits` allow, encrypted members. What
is left out and counted: links, devices and other members that are no regular files.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Self, cast

import zstandard

from trace_analyzer.errors import UnreadableInputError

_COPY_BYTES = 1 << 20
_TAR_BLOCK_BYTES = 512
_MAX_HEADER_BYTES = 1 << 20
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    zstandard.ZstdError,
    EOFError,
    NotImplementedError,  # a compression method that zipfile does not know
    ValueError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much an archive or a remote folder may hold.

    A trace in JSON shrinks 10 to 40 times; beyond `ratio`, what unpacks to more than
    `free_bytes` is taken for a bomb.
    """

    members: int = 200_000
    total_bytes: int = 256 << 30
    ratio: int = 150
    free_bytes: int = 256 << 20
    disk_reserve_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpacked:
    """What came out: how many files, how many members were links or devices.

    `cut` is true where a tar ends without its end mark: members may be missing.
    """

    files: int
    skipped: int
    cut: bool = False


class Budget:
    """Counts what is written and refuses what exceeds the limits."""

    def __init__(self, shown: str, packed_bytes: int | None, into: Path, limits: Limits) -> None:
        self._shown = shown
        self._limits = limits
        self._members = 0
        self._bytes = 0
        room = shutil.disk_usage(into).free - limits.disk_reserve_bytes
        self._room = max(room, 0)
        self._bomb_bytes = (
            limits.total_bytes
            if packed_bytes is None
            else max(limits.free_bytes, limits.ratio * packed_bytes)
        )

    def add_member(self) -> None:
        """Count one member. Raises `UnreadableInputError` beyond the limit."""
        self._members += 1
        if self._members > self._limits.members:
            self._refuse(f"holds more than {self._limits.members:,} files")

    def add_bytes(self, count: int) -> None:
        """Count bytes before they are written. Raises `UnreadableInputError` beyond a limit."""
        self.check(self._bytes + count)
        self._bytes += count

    def check(self, total: int) -> None:
        """Refuse an archive that holds `total` bytes. Raises `UnreadableInputError`."""
        if total > self._limits.total_bytes:
            self._refuse(f"holds more than {self._limits.total_bytes >> 30} GiB")
        if total > self._bomb_bytes:
            self._refuse(f"unpacks to more than {self._limits.ratio} times its size")
        if total > self._room:
            raise UnreadableInputError(
                self._shown,
                "there is not enough room in the temporary folder to unpack it",
                "set TMPDIR to a larger disk, or unpack it by hand",
            )

    def _refuse(self, problem: str) -> None:
        raise UnreadableInputError(
            self._shown, problem, "unpack it by hand if it can be trusted, and give the folder"
        )


def unpack(
    path: Path, into: Path, *, display: str | None = None, limits: Limits | None = None
) -> Unpacked:
    """Unpack a zip or tar (plain, gzip, bzip2, xz or zstd) into an empty folder.

    Raises `UnreadableInputError`, one line, for a damaged or hostile archive.
    """
    shown = display or str(path)
    limits = limits or Limits()
    budget = Budget(shown, path.stat().st_size, into, limits)
    try:
        with path.open("rb") as stream:
            zipped = stream.read(2) == b"PK"
        if zipped:
            return _unpack_zip(path, into, shown, budget)
        return _unpack_tar(path, into, shown, budget)
    except _DAMAGE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnreadableInputError(
            shown, f"damaged archive ({reason})", "copy or download it again"
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnreadableInputError(shown, f"cannot be unpacked: {reason}") from error


def _unpack_zip(path: Path, into: Path, shown: str, budget: Budget) -> Unpacked:
    files = skipped = 0
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        budget.check(sum(member.file_size for member in members))
        for member in members:
            budget.add_member()
            if member.is_dir():
                continue
            if member.flag_bits & 0x1:
                raise UnreadableInputError(shown, "the archive is encrypted", "decrypt it first")
            mode = member.external_attr >> 16
            if mode and (mode & 0o170000) not in {0, 0o100000}:
                skipped += 1
                continue
            target = _target(into, member.filename, shown)
            with archive.open(member) as stream:
                _copy(stream, target, budget)
            files += 1
    return Unpacked(files=files, skipped=skipped)


def _unpack_tar(path: Path, into: Path, shown: str, budget: Budget) -> Unpacked:
    files = skipped = 0
    with _decompressed(path) as plain:
        source = _Ending(plain)
        # A stream: members are written as they come, nothing is sought back.
        with tarfile.open(fileobj=source, mode="r|", tarinfo=_BoundedHeader) as archive:
            for member in _members(archive):
                budget.add_member()
                if member.isdir():
                    continue
                stream = archive.extractfile(member) if member.isreg() else None
                if stream is None:
                    skipped += 1
                    continue
                with stream:
                    _copy(stream, _target(into, member.name, shown), budget)
                files += 1
    # tarfile takes a cut or broken header for the end; a whole archive ends in zeros.
    return Unpacked(files=files, skipped=skipped, cut=any(source.last))


class _BoundedHeader(tarfile.TarInfo):
    """Refuses extended headers that would be read into memory whole and are absurdly long."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        extended = member.type in {
            tarfile.XHDTYPE,
            tarfile.XGLTYPE,
            tarfile.SOLARIS_XHDTYPE,
            tarfile.GNUTYPE_LONGNAME,
            tarfile.GNUTYPE_LONGLINK,
        }
        if extended and member.size > _MAX_HEADER_BYTES:
            raise tarfile.ReadError("a header is too long")
        return member


class _Ending(io.RawIOBase):
    """Passes reads through and remembers the last block."""

    def __init__(self, source: IO[bytes]) -> None:
        super().__init__()
        self._source = source
        self.last = b""

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self.last = (self.last + data)[-_TAR_BLOCK_BYTES:]
        return data


def _decompressed(path: Path) -> IO[bytes]:
    with path.open("rb") as stream:
        magic = stream.read(6)
    if magic.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.open(path))
    if magic.startswith(b"BZh"):
        return cast("IO[bytes]", bz2.open(path))
    if magic.startswith(b"\xfd7zXZ"):
        return cast("IO[bytes]", lzma.open(path))
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        decompressor = zstandard.ZstdDecompressor(max_window_size=128 << 20)
        return cast(
            "IO[bytes]",
            decompressor.stream_reader(path.open("rb"), read_across_frames=True, closefd=True),
        )
    return path.open("rb")


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    # next() instead of iteration, and members forgotten: memory stays flat.
    while (member := archive.next()) is not None:
        yield member
        archive.members = []  # type: ignore[attr-defined]


def _target(into: Path, name: str, shown: str) -> Path:
    path = PurePosixPath(name.replace("\\", "/"))
    parts = [part for part in path.parts if part not in {".", ""}]
    drive = bool(parts) and parts[0].endswith(":")
    if path.is_absolute() or ".." in parts or drive or not parts or "\0" in name:
        raise UnreadableInputError(
            shown,
            f"holds a file name that leaves its folder: {name[:80]!r}",
            "do not unpack it; ask who made it",
        )
    target = into.joinpath(*parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _copy(source: IO[bytes], target: Path, budget: Budget) -> None:
    # A later member of the same name replaces the earlier one, as tar and unzip do.
    with target.open("wb") as sink:
        while chunk := source.read(_COPY_BYTES):
            budget.add_bytes(len(chunk))
            sink.write(chunk)


__all__ = ["Budget", "Limits", "Unpacked", "unpack"]
