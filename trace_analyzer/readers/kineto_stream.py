"""The text of a trace in blocks: plain, gzip or zstd, told by the first bytes and not by the name."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import zstandard
from isal import igzip_lib, isal_zlib

from trace_analyzer.errors import UnreadableInputError

BLOCK_BYTES = 256 << 10

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_GZIP_WBITS = 31
_ZSTD_MAX_WINDOW_BYTES = 128 << 20  # what the zstd tool itself accepts without --long
_COMPRESSED_BYTES = 64 << 10
_SALVAGE_BYTES = 4 << 10
# Traces shrink 10 to 40 times. Only data made to explode shrink this much over a whole gigabyte.
_BOMB_RATIO = 400
_BOMB_FROM_BYTES = 1 << 30


class TextStream:
    """Reads a file's text once, in blocks of about `block_bytes`.

    After the last block, `damage` says what stopped the decompression early ("" if nothing),
    and `text_bytes` is the size of what was read.
    """

    def __init__(self, path: Path, display: str, block_bytes: int = BLOCK_BYTES) -> None:
        self.path = path
        self.display = display
        self.block_bytes = block_bytes
        self.damage = ""
        self.text_bytes = 0
        self._compressed_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb", buffering=0) as file:
                head = file.read(len(_ZSTD))
                file.seek(0)
                for block in self._blocks(file, head):
                    self.text_bytes += len(block)
                    self._refuse_bomb()
                    yield block
        except OSError as error:
            problem = (error.strerror or str(error)).lower()
            raise UnreadableInputError(self.display, f"cannot be read: {problem}") from error

    def _blocks(self, file: io.FileIO, head: bytes) -> Iterator[bytes]:
        if head.startswith(_GZIP):
            return self._gzip(file)
        if head.startswith(_ZSTD):
            return self._zstd(file)
        return self._plain(file)

    def _plain(self, file: io.FileIO) -> Iterator[bytes]:
        while block := file.read(self.block_bytes):
            yield block

    def _read_compressed(self, file: io.FileIO) -> bytes:
        raw = file.read(_COMPRESSED_BYTES)
        self._compressed_bytes += len(raw)
        return raw

    def _gzip(self, file: io.FileIO) -> Iterator[bytes]:
        pending = b""
        while True:
            pending = (pending or self._read_compressed(file)).lstrip(
                b"\0"
            )  # members may be padded
            if not pending:
                return
            if len(pending) == 1:
                pending += self._read_compressed(file)
            if not pending.startswith(_GZIP):
                self.damage = "data follow the end of the gzip stream"
                return
            begins, given = self._compressed_bytes - len(pending), 0
            member = isal_zlib.decompressobj(wbits=_GZIP_WBITS)
            while not member.eof:
                if not pending and not (pending := self._read_compressed(file)):
                    self.damage = "the gzip stream ends early"
                    return
                try:
                    block = member.decompress(pending, self.block_bytes)
                except igzip_lib.IsalError as error:  # type: ignore[misc]  # typed as an instance
                    self.damage = f"the gzip stream is damaged ({error})"
                    yield from _salvaged(file, begins, given, _gzip_member, zlib.error)
                    return
                pending = member.unconsumed_tail
                given += len(block)
                if block:
                    yield block
            pending = member.unused_data

    def _zstd(self, file: io.FileIO) -> Iterator[bytes]:
        given = 0
        with _zstd_decompressor().stream_reader(
            file, read_size=_COMPRESSED_BYTES, read_across_frames=True, closefd=False
        ) as reader:
            while True:
                try:
                    block = reader.read1(self.block_bytes)
                except zstandard.ZstdError as error:
                    self.damage = f"the zstd stream is damaged ({error})"
                    break
                self._compressed_bytes = file.tell()
                if not block:
                    return
                given += len(block)
                yield block
        yield from _salvaged(file, 0, given, _zstd_frames, zstandard.ZstdError)

    def _refuse_bomb(self) -> None:
        if (
            self._compressed_bytes
            and self.text_bytes > _BOMB_FROM_BYTES
            and self.text_bytes > _BOMB_RATIO * self._compressed_bytes
        ):
            raise UnreadableInputError(
                self.display,
                f"expands to more than {_BOMB_RATIO} times its size, as no trace does",
                "decompress it yourself if you trust it",
            )


class _Decompressor(Protocol):
    def decompress(self, data: bytes, /) -> bytes: ...


def _gzip_member() -> _Decompressor:
    return zlib.decompressobj(wbits=_GZIP_WBITS)


def _zstd_decompressor() -> zstandard.ZstdDecompressor:
    return zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)


def _zstd_frames() -> _Decompressor:
    return _zstd_decompressor().decompressobj(read_across_frames=True)


def _salvaged(
    file: io.FileIO,
    begins: int,
    given: int,
    new: Callable[[], _Decompressor],
    error: type[Exception],
) -> Iterator[bytes]:
    """Yield what damaged data from `begins` on hold before their damage, after `given` bytes.

    A decompressor keeps the output of the call that fails to itself. Here it is asked again in
    small pieces, and byte by byte in the piece that fails.
    """
    pieces = _pieces(file, begins)
    decompressor = new()
    good = begins
    with suppress(error):
        for piece in pieces:
            block = decompressor.decompress(piece)
            yield from _remaining(block, given)
            given = max(given - len(block), 0)
            good += len(piece)
    again = new()
    with suppress(error):
        for piece in _pieces(file, begins):
            if begins < good:
                again.decompress(piece)
                begins += len(piece)
                continue
            for at in range(len(piece)):
                block = again.decompress(piece[at : at + 1])
                yield from _remaining(block, given)
                given = max(given - len(block), 0)


def _pieces(file: io.FileIO, begins: int) -> Iterator[bytes]:
    file.seek(begins)
    while piece := file.read(_SALVAGE_BYTES):
        yield piece


def _remaining(block: bytes, given: int) -> Iterator[bytes]:
    if len(block) > given:
        yield block[given:]
