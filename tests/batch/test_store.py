"""Archives and outputs on an object store: a server that speaks S3, and fsspec's memory."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.batch.archives import (
    Counts,
    batch,
    command,
    contents,
    old,
    states,
    write_bundle,
    write_run,
)
from tests.batch.servers import SECRET, s3_server
from tests.heavy import heavy
from trace_analyzer.batch.storage import StorageError, place
from trace_analyzer.errors import UnreadableInputError

pytest.importorskip("moto")
s3fs = pytest.importorskip("s3fs")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with s3_server(tmp_path_factory.mktemp("store")) as environment:
        yield environment


@pytest.fixture
def bucket(store: dict[str, str], tmp_path: Path) -> Any:
    """The store, with an archive of four runs in a bucket; the same archive lies in a folder."""
    archive = tmp_path / "archive"
    for seed in range(3):
        write_run(archive / f"run{seed}", seed)
    write_bundle(archive / "bundle", 4, "nightly", "v1", "2026-11-01T00:00:00Z")
    bad = archive / "bad" / "rank0.pt.trace.json.gz"
    bad.parent.mkdir()
    bad.write_bytes(b"\x1f\x8b no")
    old(archive)
    system = s3fs.S3FileSystem(
        key=store["AWS_ACCESS_KEY_ID"],
        secret=store["AWS_SECRET_ACCESS_KEY"],
        endpoint_url=store["AWS_ENDPOINT_URL"],
        use_listings_cache=False,
        skip_instance_cache=True,
    )
    if system.exists("traces"):
        system.rm("traces", recursive=True)
    else:
        system.mkdir("traces")
    system.put(str(archive), "traces/archive", recursive=True)
    return system


def _same(here: dict[str, Any], there: dict[str, Any], archive: Path) -> None:
    """Compare but for what names the place: the text of failures, and what hashes hold of it."""
    for name in sorted(set(here) | set(there)):
        if name.startswith("runs/bad") or name in {"index.html", ".lock", "units"}:
            continue
        one, other = here[name], there[name]
        if isinstance(one, list):
            one = [str(row).replace(str(archive), "s3://traces/archive") for row in one]
        assert one == other or (isinstance(other, list) and one == [str(row) for row in other]), (
            name
        )


@heavy
def test_a_bucket_gives_what_a_folder_gives(
    bucket: Any, store: dict[str, str], tmp_path: Path
) -> None:
    environment = {**os.environ, **store}
    done = batch("s3://traces/archive", "s3://traces/out", "--debug", env=environment)
    assert done == Counts(5, 5, 0, failed=1)
    batch(tmp_path / "archive", tmp_path / "here")
    bucket.get("traces/out", str(tmp_path / "there"), recursive=True)
    _same(contents(tmp_path / "here"), contents(tmp_path / "there"), tmp_path / "archive")
    # Only what is new is fetched and analysed, and an index that is lost is made again.
    write_run(tmp_path / "more", 9)
    bucket.put(str(tmp_path / "more"), "traces/archive/run9", recursive=True)
    done = batch("s3://traces/archive", "s3://traces/out", env=environment)
    assert done == Counts(6, 1, 5, failed=1)
    bucket.rm("traces/out/index.db")
    done = batch("s3://traces/archive", "s3://traces/out", env=environment)
    assert done == Counts(6, 6, 0, failed=1)
    newest = max(bucket.ls("traces/out/logs", detail=False))
    events = [json.loads(line)["event"] for line in bucket.cat_file(newest).splitlines()]
    assert events.count("kept") == 6
    # A bucket and a folder go together.
    assert batch("s3://traces/archive", tmp_path / "mixed", env=environment).runs == 6
    assert set(states(tmp_path / "mixed").values()) == {"done", "failed"}


@heavy
def test_a_bucket_is_an_archive(bucket: Any, store: dict[str, str], tmp_path: Path) -> None:
    bucket.rm(["traces/archive/run1", "traces/archive/run2"], recursive=True)
    environment = {**os.environ, **store}
    assert batch("s3://traces/archive", "s3://traces/out", env=environment) == Counts(
        3, 3, 0, failed=1
    )
    assert batch("s3://traces/archive", "s3://traces/out", env=environment).now == 0
    bucket.get("traces/out", str(tmp_path / "there"), recursive=True)
    assert states(tmp_path / "there") == {"run0": "done", "bundle": "done", "bad": "failed"}
    with tarfile.open(tmp_path / "packed.tar", "w") as tar:
        tar.add(tmp_path / "archive" / "run1", arcname="inner")
    bucket.put(str(tmp_path / "packed.tar"), "traces/packed.tar")
    one = tmp_path / "one"
    assert batch("s3://traces/packed.tar", one, env=environment) == Counts(1, 1, 0)
    assert states(one) == {"packed.tar": "done"}


@heavy
def test_credentials_are_never_written(bucket: Any, store: dict[str, str], tmp_path: Path) -> None:
    """Neither on success nor on failure, in no output, not with --debug."""
    said = []
    for key, archive in ((store["AWS_SECRET_ACCESS_KEY"], "archive"), (f"wrong{SECRET}", "none")):
        environment = {**os.environ, **store, "AWS_SECRET_ACCESS_KEY": key}
        done = subprocess.run(
            command("batch", f"s3://traces/{archive}", "-o", tmp_path / "out", "--debug"),
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        said += [done.stdout, done.stderr]
    assert "no such folder" in said[-1]
    written = [path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(written) > 10
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"):
        assert not any(store[name] in text for text in said)
        assert not any(store[name].encode() in data for data in written)


@pytest.mark.parametrize(
    "url", ["s3://me:hush@nowhere/x", "https://me:hush@127.0.0.1:1/x?token=hush"]
)
def test_credentials_in_an_address_are_never_shown(
    url: str, store: dict[str, str], tmp_path: Path
) -> None:
    done = subprocess.run(
        command("batch", url, "-o", tmp_path / "out"),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **store},
    )
    assert done.returncode == 2
    assert done.stderr.startswith("Error: ")
    assert "hush" not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_files_of_any_store(tmp_path: Path) -> None:
    there = place("memory://bucket/out")
    assert there.read("a/b.txt") is None
    there.write("a/b.txt", b"one")
    there.write("a/b.txt", b"two")
    assert there.read("a/b.txt") == b"two"
    assert there.head("a/b.txt", 2) == b"tw"
    files = list(there.listing())
    assert [(file.name, file.bytes) for file in files] == [("a/b.txt", 3)]
    assert all(file.stamp for file in files)
    there.fetch(files, tmp_path)
    assert (tmp_path / "a" / "b.txt").read_bytes() == b"two"
    there.remove("a/b.txt")
    there.remove("a/b.txt")
    with pytest.raises(UnreadableInputError, match="cannot be fetched"):
        there.fetch(files, tmp_path)
    with pytest.raises(UnreadableInputError, match="nothing in it"):
        list(there.listing())


def test_local_files_are_whole_or_not_there(tmp_path: Path) -> None:
    here = place(f"file://{tmp_path}")
    assert here.path == tmp_path
    here.write("a/b.txt", b"one")
    assert here.read("a/b.txt") == b"one"
    assert (tmp_path / "a" / "b.txt").stat().st_mode & 0o777 == 0o644
    (tmp_path / "a" / "c").mkdir()
    with pytest.raises(StorageError, match="c cannot be written"):
        here.write("a/c", b"a folder is there")
    here.sweep()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert here.read("nothing") is None
