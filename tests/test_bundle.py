"""The manifest: what is written is read back, and hostile or wrong ones are refused."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from trace_analyzer.bundle import (
    MANIFEST_NAME,
    LooseName,
    Manifest,
    Role,
    default_name,
    describe_file,
    loose_role,
    read_manifest,
    sha256_of,
    write_manifest,
)
from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.model import SourceKind


def schema(name: str) -> Any:
    text = files("trace_analyzer.data").joinpath("schemas", f"{name}.schema.json").read_text()
    return json.loads(text)


def manifest_of(folder: Path) -> Manifest:
    trace = folder / "rank0.pt.trace.json.gz"
    trace.write_bytes(b"trace")
    log = folder / "logs" / "nccl_41.log"
    log.parent.mkdir()
    log.write_bytes(b"log")
    return Manifest(
        job_name="gpt",
        job_id="run-7",
        started="2026-11-29T21:36:24Z",
        world_size=2,
        command="torchrun train.py",
        commit="v1.2",
        tool_versions={"torch": "2.11.0", "nccl": "2.28.9"},
        files=(
            describe_file(folder, trace, Role.KINETO, rank=0, pid=41),
            describe_file(folder, log, Role.NCCL_LOG, pid=41),
        ),
    )


def test_written_manifest_is_read_back_and_meets_its_schema(tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path)
    path = write_manifest(tmp_path, manifest)
    assert read_manifest(path) == manifest
    assert read_manifest(tmp_path) == manifest
    jsonschema.validate(json.loads(path.read_text()), schema("bundle"))
    assert manifest.files[1].path == "logs/nccl_41.log"
    assert manifest.files[0].bytes == 5
    assert manifest.files[0].sha256 == hashlib.sha256(b"trace").hexdigest()
    assert [item.pid for item in manifest.of_role(Role.NCCL_LOG)] == [41]
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "bundle.json",
        "logs",
        "rank0.pt.trace.json.gz",
    ]


def test_roles_are_the_source_kinds_of_the_model() -> None:
    assert {role.value for role in Role} == {kind.value for kind in SourceKind} - {"manifest"}


@pytest.mark.parametrize("role", [role for role in Role if role not in {Role.KINETO, Role.NSYS}])
def test_default_names_are_recognised_without_a_manifest(role: Role) -> None:
    found = loose_role(default_name(role, 12))
    assert found is not None
    assert found.role is role


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("steps_rank3.jsonl", LooseName(role=Role.TIMER, rank=3)),
        ("meta_rank1.json", LooseName(role=Role.TIMER, rank=1)),
        ("nccl_2033.log", LooseName(role=Role.NCCL_LOG, pid=2033)),
        ("nccl.node7.2033.txt", LooseName(role=Role.NCCL_LOG, pid=2033)),
        ("nccl_trace_rank_5", LooseName(role=Role.FLIGHT_RECORDER, rank=5)),
        ("rank0.pt.trace.json.gz", None),
        ("labels.json", None),
        ("steps_rank3.jsonl.bak", None),
    ],
)
def test_loose_names(name: str, expected: LooseName | None) -> None:
    assert loose_role(name) == expected


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"schema_version": 2}, "schema 2 is not 1"),
        ({"files": None}, "lists no files"),
        ({"files": [{"role": "kineto"}]}, "without a path"),
        ({"files": [{"path": "/etc/passwd", "role": "kineto"}]}, "outside its folder"),
        ({"files": [{"path": "a/../../b", "role": "kineto"}]}, "outside its folder"),
        ({"files": [{"path": "", "role": "kineto"}]}, "outside its folder"),
        ({"files": [{"path": "..\\b", "role": "kineto"}]}, "outside its folder"),
        ({"files": [{"path": "a", "role": "kineto", "rank": -1}]}, "rank is -1"),
        ({"files": [{"path": "a", "role": "kineto", "rank": True}]}, "rank is True"),
        ({"files": [{"path": "a", "role": "nsys"}, {"path": "./a", "role": "nsys"}]}, "twice"),
        ({"world_size": "two"}, "world_size is 'two'"),
    ],
)
def test_a_wrong_manifest_is_refused_in_one_line(
    tmp_path: Path, change: dict[str, object], problem: str
) -> None:
    document = {"schema_version": 1, "files": [], **change}
    (tmp_path / MANIFEST_NAME).write_text(json.dumps(document))
    with pytest.raises(UnreadableInputError, match=problem) as caught:
        read_manifest(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b" " * (17 << 20)]
)
def test_what_is_no_manifest_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MANIFEST_NAME).write_bytes(content)
    with pytest.raises(UnreadableInputError) as caught:
        read_manifest(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_missing_manifest_and_later_additions(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInputError, match="No such file"):
        read_manifest(tmp_path)
    entry = {"path": "a", "role": "kineto", "colour": "red"}
    later = {"path": "b", "role": "hologram"}
    document = {"schema_version": 1, "files": [entry, later], "weather": "fine"}
    (tmp_path / MANIFEST_NAME).write_text(json.dumps(document))
    assert [item.path for item in read_manifest(tmp_path).files] == ["a"]


def test_sha256_of_a_file_larger_than_one_piece(tmp_path: Path) -> None:
    content = bytes(range(256)) * 10_000
    (tmp_path / "f").write_bytes(content)
    assert sha256_of(tmp_path / "f") == hashlib.sha256(content).hexdigest()


def test_collectors_can_import_it_with_the_standard_library_alone() -> None:
    code = (
        "import sys, trace_analyzer.bundle; "
        "print(sorted({'numpy', 'msgspec', 'click', 'fsspec'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
