"""Runs behind a URL, through fsspec's own memory and file systems."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.readers.archives import Limits
from trace_analyzer.readers.remote import fetch, is_url, local_path, without_credentials


@pytest.fixture
def bucket() -> Iterator[str]:
    system = fsspec.filesystem("memory")
    system.pipe({"/bucket/run/rank0.json": b"zero", "/bucket/run/deep/rank1.json": b"one"})
    yield "memory://bucket/run"
    system.rm("/bucket", recursive=True)


def test_a_folder_and_a_file(bucket: str, tmp_path: Path) -> None:
    assert fetch(bucket, tmp_path) == tmp_path
    assert (tmp_path / "rank0.json").read_bytes() == b"zero"
    assert (tmp_path / "deep" / "rank1.json").read_bytes() == b"one"
    into = tmp_path / "one"
    into.mkdir()
    assert fetch(f"{bucket}/rank0.json", into) == into / "rank0.json"


def test_limits(bucket: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableInputError, match="more than 1 files"):
        fetch(bucket, tmp_path, limits=Limits(members=1))
    with pytest.raises(UnreadableInputError, match="holds more than"):
        fetch(bucket, tmp_path, limits=Limits(total_bytes=3))


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("memory://nowhere/at/all", "no such file or folder"),
        ("nosuchprotocol://x/y", "cannot be fetched"),
        ("s3://me:secret@bucket/run?token=secret", "needs another package|cannot be fetched"),
    ],
)
def test_failures_are_one_line_without_credentials(
    tmp_path: Path, url: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "s3fs", None)
    with pytest.raises(UnreadableInputError, match=problem) as caught:
        fetch(url, tmp_path)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_what_is_a_url() -> None:
    assert is_url("s3://bucket/x")
    assert is_url("simplecache::s3://bucket/x")
    assert not is_url("runs/healthy")
    assert not is_url("a:b")
    assert local_path("file:///tmp/x") == Path("/tmp/x")
    assert local_path("s3://x") is None
    assert without_credentials("https://me:pw@host/x?sig=1") == "https://host/x"
