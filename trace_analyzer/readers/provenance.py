"""Where a run comes from: its files with their hashes, when it was recorded, and by what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import PurePosixPath

from trace_analyzer.bundle import Manifest, sha256_of
from trace_analyzer.model import DataWarning, Rank, Source, SourceKind
from trace_analyzer.readers.loading import Loaded
from trace_analyzer.readers.rank_numbers import window_start_ns
from trace_analyzer.readers.run_files import RunFiles


def started(manifest: Manifest | None, ranks: Sequence[Rank]) -> str:
    """Return when the recording began, ISO 8601 UTC: the manifest's word, else the clock's."""
    if manifest is not None and manifest.started:
        return manifest.started
    start_ns = window_start_ns(ranks)
    if start_ns is None:
        return ""
    moment = datetime.fromtimestamp(start_ns // 10**9, tz=UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def sources(run: RunFiles, ranks: Sequence[Rank], loaded: Sequence[Loaded]) -> Iterable[Source]:
    """Yield the files that were read; `ranks` are those that were kept."""
    for item in loaded:
        inside = [rank for rank in ranks if rank.path == item.file.name]
        if not inside:
            continue  # read to learn its rank, which was not asked for
        yield Source(
            path=item.file.name,
            kind=item.file.kind,
            bytes=item.file.bytes,
            sha256=item.sha256,
            ranks=tuple(rank.rank for rank in inside),
            gpu_operations=sum(len(rank.operations) for rank in inside),
            tool=_tool(item.ranks[0]),
            schema=item.ranks[0].versions.get("schema", ""),
        )
    beside = [(s.path, s.name, SourceKind(s.role.value), s.rank) for s in run.sidecars]
    beside += [
        (entry.path, entry.name, SourceKind.MANIFEST, None)
        for entry in (run.manifest_entry, *run.more_manifests)
        if entry is not None
    ]
    for path, name, kind, rank in sorted(beside, key=lambda item: item[1]):
        try:
            size, digest = path.stat().st_size, sha256_of(path)
        except OSError:
            continue  # already a warning of the sidecar's own reader
        yield Source(
            path=name,
            kind=kind,
            bytes=size,
            sha256=digest,
            ranks=() if rank is None else (rank,),
        )


def _tool(rank: Rank) -> str:
    """Return what wrote a recording, as far as it says."""
    if rank.source is SourceKind.NSYS:
        version = rank.versions.get("nsys", "")
        return f"Nsight Systems {version}".strip()
    version = rank.versions.get("torch", "")
    return f"torch {version}" if version else ""


def hash_differences(run: RunFiles, loaded: Sequence[Loaded]) -> Iterable[DataWarning]:
    """Warn of files whose content is not what the manifest says; sizes are checked before."""
    if run.manifest is None:
        return
    folder = PurePosixPath(run.name)
    stated = {(folder / item.path).as_posix(): item for item in run.manifest.files}
    for item in loaded:
        expected = stated.get(item.file.name)
        same_size = expected is not None and expected.bytes in {None, item.file.bytes}
        if expected is None or not expected.sha256 or not same_size:
            continue
        if item.sha256 and item.sha256 != expected.sha256:
            yield DataWarning(
                code="TRC001",
                message=f"{item.file.name} is not what the manifest says (SHA-256 differs)",
                effect="it was changed after it was recorded",
            )


__all__ = ["hash_differences", "sources", "started"]
