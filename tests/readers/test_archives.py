"""Archives from strangers: unpacked whole, or refused in one line."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.readers.archives import Limits, Unpacked, unpack

FILES = {"run/rank0.json": b"zero" * 1000, "run/deep/rank1.json": b"one"}


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def tar_bytes() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in FILES.items():
            add(archive, name, content)
    return buffer.getvalue()


def zip_bytes() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run/", b"")
        for name, content in FILES.items():
            archive.writestr(name, content)
    return buffer.getvalue()


PACKED: dict[str, Callable[[], bytes]] = {
    "a.zip": zip_bytes,
    "a.tar": tar_bytes,
    "a.tar.gz": lambda: gzip.compress(tar_bytes()),
    "a.tar.bz2": lambda: bz2.compress(tar_bytes()),
    "a.tar.xz": lambda: lzma.compress(tar_bytes()),
    "a.tar.zst": lambda: zstandard.ZstdCompressor().compress(tar_bytes()),
    "no_ending": lambda: gzip.compress(tar_bytes()),
}


def folder(tmp_path: Path) -> Path:
    into = tmp_path / "into"
    into.mkdir()
    return into


def refused(path: Path, into: Path, problem: str, **limits: int) -> None:
    with pytest.raises(UnreadableInputError, match=problem) as caught:
        unpack(path, into, limits=Limits(**limits))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("name", PACKED)
def test_every_kind_comes_out_whole(tmp_path: Path, name: str) -> None:
    path, into = tmp_path / name, folder(tmp_path)
    path.write_bytes(PACKED[name]())
    assert unpack(path, into) == Unpacked(files=2, skipped=0)
    found = {p.relative_to(into).as_posix(): p.read_bytes() for p in into.rglob("*.json")}
    assert found == FILES


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/evil", "a/../../evil", "..\\evil", "C:\\evil", ".", "c:/evil"]
)
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, name: str, kind: str) -> None:
    path, into = tmp_path / "a", folder(tmp_path)
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(zipfile.ZipInfo(name), b"x")
    else:
        with tarfile.open(path, "w") as tar:
            add(tar, name, b"x")
    refused(path, into, "leaves its folder")
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["a"]


def test_links_and_devices_are_left_out_and_counted(tmp_path: Path) -> None:
    path, into = tmp_path / "a.tar", folder(tmp_path)
    with tarfile.open(path, "w") as tar:
        for name, kind in (
            ("soft", tarfile.SYMTYPE),
            ("hard", tarfile.LNKTYPE),
            ("pipe", tarfile.FIFOTYPE),
            ("disk", tarfile.BLKTYPE),
        ):
            member = tarfile.TarInfo(name)
            member.type = kind
            member.linkname = "/etc/passwd"
            tar.addfile(member)
        add(tar, "rank0.json", b"x")
    assert unpack(path, into) == Unpacked(files=1, skipped=4)
    assert [p.name for p in into.iterdir()] == ["rank0.json"]


def test_a_link_inside_a_zip_is_left_out(tmp_path: Path) -> None:
    path, into = tmp_path / "a.zip", folder(tmp_path)
    with zipfile.ZipFile(path, "w") as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("rank0.json", b"x")
    assert unpack(path, into) == Unpacked(files=1, skipped=1)


def test_a_file_cannot_be_written_through_a_file(tmp_path: Path) -> None:
    path, into = tmp_path / "a.tar", folder(tmp_path)
    with tarfile.open(path, "w") as tar:
        add(tar, "a", b"x")
        add(tar, "a/b", b"x")
    refused(path, into, "cannot be unpacked")


@pytest.mark.parametrize("kind", ["zip", "gz", "zst"])
def test_bombs_are_refused_before_they_fill_the_disk(tmp_path: Path, kind: str) -> None:
    zeros = b"\0" * (20 << 20)
    path, into = tmp_path / "a", folder(tmp_path)
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("rank0.json", zeros)
    else:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            add(tar, "rank0.json", zeros)
        plain = buffer.getvalue()
        path.write_bytes(
            gzip.compress(plain) if kind == "gz" else zstandard.ZstdCompressor().compress(plain)
        )
    refused(path, into, "more than 150 times its size", free_bytes=4 << 20)
    assert sum(p.stat().st_size for p in into.rglob("*") if p.is_file()) <= 4 << 20


def test_limits_on_members_bytes_and_room(tmp_path: Path) -> None:
    path, into = tmp_path / "a.tar", folder(tmp_path)
    path.write_bytes(tar_bytes())
    refused(path, into, "more than 1 files", members=1)
    refused(path, into, "holds more than", total_bytes=100)
    refused(path, into, "not enough room", disk_reserve_bytes=1 << 60)


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    path, into = tmp_path / "a.zip", folder(tmp_path)
    content = bytearray(zip_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        position = content.find(signature)
        while position >= 0:
            content[position + offset] |= 1
            position = content.find(signature, position + 4)
    path.write_bytes(content)
    refused(path, into, "encrypted")


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.tar.bz2", "a.tar.xz", "a.tar.zst"])
def test_cut_archives_are_refused(tmp_path: Path, name: str) -> None:
    path, into = tmp_path / name, folder(tmp_path)
    content = PACKED[name]()
    path.write_bytes(content[: len(content) * 2 // 3])
    refused(path, into, "damaged archive")


def test_a_tar_without_its_end_is_said_to_be_cut(tmp_path: Path) -> None:
    path, into = tmp_path / "a.tar", folder(tmp_path)
    path.write_bytes(tar_bytes()[: 512 + 4096])  # header and content of the first member
    assert unpack(path, into) == Unpacked(files=1, skipped=0, cut=True)


def test_a_tar_with_a_broken_second_header_is_said_to_be_cut(tmp_path: Path) -> None:
    path, into = tmp_path / "a.tar", folder(tmp_path)
    content = bytearray(tar_bytes())
    content[512 + 4096 : 512 + 4096 + 512] = b"x" * 512
    path.write_bytes(content[: 512 + 4096 + 1024])
    assert unpack(path, into).cut


def test_a_header_that_would_fill_memory_is_refused(tmp_path: Path) -> None:
    path, into = tmp_path / "a.tar", folder(tmp_path)
    member = tarfile.TarInfo("././@LongLink")
    member.type = tarfile.GNUTYPE_LONGNAME
    member.size = 1 << 40
    path.write_bytes(member.tobuf(format=tarfile.GNU_FORMAT) + b"\0" * 10240)
    refused(path, into, "header is too long")


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    path, into = tmp_path / "a.tar", folder(tmp_path)
    path.write_bytes(b"hello " * 1000)
    refused(path, into, "damaged archive")
