"""Bundles: a folder of recordings with a manifest that says what each file is.

Collectors write bundles on training machines and readers open them anywhere, so this module
uses the standard library alone. The manifest is `bundle.json`; its schema is published as
`trace_analyzer/data/schemas/bundle.schema.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from trace_analyzer.errors import UnreadableInputError

MANIFEST_NAME = "bundle.json"
SCHEMA_VERSION = 1
MAX_JSON_BYTES = 16 << 20  # a manifest or sidecar beyond this is not one of ours
_HASH_CHUNK_BYTES = 1 << 20


class Role(StrEnum):
    """What a file of a bundle holds. The values are those of `model.SourceKind`."""

    KINETO = "kineto"
    NSYS = "nsys"
    TIMER = "timer"
    ENVIRONMENT = "environment"
    CALIBRATION = "calibration"
    SAMPLER = "sampler"
    BENCH = "bench"
    NCCL_LOG = "nccl-log"
    FLIGHT_RECORDER = "flight-recorder"


# Default names; {key} is what tells files of one role apart.
_NAMES: Mapping[Role, str] = {
    Role.KINETO: "rank{key}.pt.trace.json.gz",
    Role.NSYS: "{key}.sqlite",
    Role.TIMER: "steps_rank{key}.jsonl",
    Role.ENVIRONMENT: "env_rank{key}.json",
    Role.CALIBRATION: "calibration_rank{key}.json",
    Role.SAMPLER: "gpu{key}.parquet",
    Role.BENCH: "bench_{key}.json",
    Role.NCCL_LOG: "nccl_{key}.log",
    Role.FLIGHT_RECORDER: "flight_rank{key}.pkl",
}

# Loose sidecars with usual names: ours, and those that torch and NCCL write by themselves.
# The group `rank` or `pid` says whose file it is.
_LOOSE_NAMES: tuple[tuple[Role, re.Pattern[str]], ...] = (
    (Role.TIMER, re.compile(r"steps_rank(?P<rank>\d+)\.jsonl")),
    (Role.TIMER, re.compile(r"meta_rank(?P<rank>\d+)\.json")),
    (Role.ENVIRONMENT, re.compile(r"env_rank(?P<rank>\d+)\.json")),
    (Role.CALIBRATION, re.compile(r"calibration_rank(?P<rank>\d+)\.json")),
    (Role.SAMPLER, re.compile(r"gpu\d+\.(?:parquet|csv)")),
    (Role.BENCH, re.compile(r"bench_[\w.-]+\.json")),
    (Role.NCCL_LOG, re.compile(r"nccl[_.-](?:[\w-]+[_.-])?(?P<pid>\d+)\.(?:log|txt)")),
    (Role.FLIGHT_RECORDER, re.compile(r"flight_rank(?P<rank>\d+)\.(?:pkl|json)")),
    (Role.FLIGHT_RECORDER, re.compile(r"(?:nccl|comm_lib)_trace_rank_?(?P<rank>\d+)")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleFile:
    """One file of a bundle; `path` is relative to the manifest, with forward slashes."""

    path: str
    role: Role
    rank: int | None = None
    pid: int | None = None
    bytes: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What `bundle.json` says about a recording."""

    job_name: str
    job_id: str
    started: str  # ISO 8601, UTC
    files: tuple[BundleFile, ...]
    world_size: int | None = None
    command: str = ""
    commit: str = ""
    tool_versions: Mapping[str, str] = field(default_factory=dict)

    def of_role(self, role: Role) -> tuple[BundleFile, ...]:
        """Return the files with this role, in manifest order."""
        return tuple(item for item in self.files if item.role is role)


def default_name(role: Role, key: int | str) -> str:
    """Return the usual file name of a role.

    `key` is the global rank; for `NSYS` the node's name, for `SAMPLER` the GPU's index, for
    `BENCH` what was measured, for `NCCL_LOG` the process id.
    """
    return _NAMES[role].format(key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class LooseName:
    """What a file's usual name says: its role, and whose file it is."""

    role: Role
    rank: int | None = None
    pid: int | None = None


def loose_role(name: str) -> LooseName | None:
    """Return what a sidecar's file name says, or None for a name that is no sidecar's."""
    for role, pattern in _LOOSE_NAMES:
        match = pattern.fullmatch(name)
        if match:
            found = match.groupdict()
            rank, pid = found.get("rank"), found.get("pid")
            return LooseName(
                role=role,
                rank=None if rank is None else int(rank),
                pid=None if pid is None else int(pid),
            )
    return None


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal, reading it in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_HASH_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def describe_file(
    folder: Path, path: Path, role: Role, *, rank: int | None = None, pid: int | None = None
) -> BundleFile:
    """Return the manifest entry of a file inside `folder`, with its size and hash."""
    return BundleFile(
        path=path.relative_to(folder).as_posix(),
        role=role,
        rank=rank,
        pid=pid,
        bytes=path.stat().st_size,
        sha256=sha256_of(path),
    )


def write_manifest(folder: Path, manifest: Manifest) -> Path:
    """Write `bundle.json` into `folder` and return its path; replaces an older one in one step."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "job": {
            "name": manifest.job_name,
            "id": manifest.job_id,
            "command": manifest.command,
            "commit": manifest.commit,
        },
        "started": manifest.started,
        "world_size": manifest.world_size,
        "tool_versions": dict(sorted(manifest.tool_versions.items())),
        "files": [_file_document(item) for item in manifest.files],
    }
    target = folder / MANIFEST_NAME
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".bundle-", suffix=".json")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(document, stream, indent=2)
            stream.write("\n")
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return target


def _file_document(item: BundleFile) -> dict[str, Any]:
    return {
        "path": item.path,
        "role": item.role.value,
        "rank": item.rank,
        "pid": item.pid,
        "bytes": item.bytes,
        "sha256": item.sha256,
    }


def read_manifest(path: Path, *, display: str | None = None) -> Manifest:
    """Read and validate a manifest; `path` is the bundle's folder or the `bundle.json` itself.

    Raises `UnreadableInputError` where it is no manifest, of a newer schema, or names files
    outside its own folder. Keys that this version does not know are left out.
    """
    source = path / MANIFEST_NAME if path.is_dir() else path
    shown = display or str(source)
    document = read_json_object(source, display=shown)
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise UnreadableInputError(
            shown,
            f"manifest schema {version!r} is not {SCHEMA_VERSION}",
            "update trace-analyzer, or analyze the trace files without the manifest",
        )
    entries = document.get("files")
    if not isinstance(entries, list):
        raise UnreadableInputError(shown, "the manifest lists no files", "record the bundle again")
    job = document.get("job")
    job = job if isinstance(job, dict) else {}
    versions = document.get("tool_versions")
    versions = versions if isinstance(versions, dict) else {}
    return Manifest(
        job_name=_text(job.get("name")),
        job_id=_text(job.get("id")),
        started=_text(document.get("started")),
        command=_text(job.get("command")),
        commit=_text(job.get("commit")),
        world_size=_count(document.get("world_size"), "world_size", shown),
        tool_versions={str(name): _text(value) for name, value in versions.items()},
        files=tuple(_entries(entries, shown)),
    )


def read_json_object(path: Path, *, display: str | None = None) -> dict[str, Any]:
    """Return a small JSON file that must be an object.

    Raises `UnreadableInputError` where it cannot be read, is too large, or is something else.
    """
    shown = display or str(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise UnreadableInputError(shown, error.strerror or str(error)) from error
    if len(content) > MAX_JSON_BYTES:
        raise UnreadableInputError(shown, f"larger than {MAX_JSON_BYTES >> 20} MiB")
    try:
        document = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise UnreadableInputError(shown, f"not JSON: {reason}") from error
    if not isinstance(document, dict):
        raise UnreadableInputError(shown, "not a JSON object")
    return document


def _entries(entries: Sequence[object], shown: str) -> list[BundleFile]:
    files: list[BundleFile] = []
    seen: set[str] = set()
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
            raise UnreadableInputError(shown, "a file entry without a path")
        relative = _safe_relative(entry["path"], shown)
        if relative in seen:
            raise UnreadableInputError(shown, f"lists {relative} twice")
        seen.add(relative)
        role = entry.get("role")
        if role not in {item.value for item in Role}:
            continue  # a role of a later version
        files.append(
            BundleFile(
                path=relative,
                role=Role(str(role)),
                rank=_count(entry.get("rank"), "rank", shown),
                pid=_count(entry.get("pid"), "pid", shown),
                bytes=_count(entry.get("bytes"), "bytes", shown),
                sha256=_text(entry.get("sha256")).lower() or None,
            )
        )
    return files


def _safe_relative(text: str, shown: str) -> str:
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in text or "\\" in text:
        raise UnreadableInputError(shown, f"names a file outside its folder: {text!r}")
    return path.as_posix()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object, name: str, shown: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UnreadableInputError(shown, f"{name} is {value!r}, not a count")
    return value
