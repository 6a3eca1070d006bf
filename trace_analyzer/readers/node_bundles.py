"""Bundles that several nodes of one job left, each of its own ranks, put together as one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from trace_analyzer.readers.grouping import common_folder
from trace_analyzer.readers.run_files import RunFiles


def merge_nodes(runs: Sequence[RunFiles]) -> list[RunFiles]:
    """Put bundles together whose manifests name the same job and world, and other ranks each.

    What a rank recorded twice, or a bundle that names no rank, stays a run of its own.
    """
    merged: list[RunFiles] = []
    by_job: dict[tuple[str, int], list[int]] = {}  # → positions in `merged`
    for run in runs:
        manifest = run.manifest
        if manifest is None or not manifest.job_id or not manifest.world_size or not _ranks(run):
            merged.append(run)
            continue
        places = by_job.setdefault((manifest.job_id, manifest.world_size), [])
        for place in places:
            if not _ranks(merged[place]) & _ranks(run):
                merged[place] = _joined(merged[place], run)
                break
        else:
            places.append(len(merged))
            merged.append(run)
    return merged


def _ranks(run: RunFiles) -> set[int]:
    files = () if run.manifest is None else run.manifest.files
    return {item.rank for item in files if item.rank is not None}


def _joined(one: RunFiles, other: RunFiles) -> RunFiles:
    assert one.manifest is not None
    assert other.manifest is not None
    folder = common_folder([PurePosixPath(one.name), PurePosixPath(other.name)])
    processes, cross_check = one.processes + other.processes, one.cross_check + other.cross_check
    return replace(
        one,
        name=folder.as_posix(),
        processes=processes,
        cross_check=cross_check,
        reports=() if processes else one.reports + other.reports,
        sidecars=one.sidecars + other.sidecars,
        damaged=one.damaged + other.damaged,
        manifest=replace(
            one.manifest,
            started=min(one.manifest.started, other.manifest.started),
            files=tuple(
                replace(
                    item, path=(PurePosixPath(run.name) / item.path).relative_to(folder).as_posix()
                )
                for run, manifest in ((one, one.manifest), (other, other.manifest))
                for item in manifest.files
            ),
        ),
        more_manifests=(
            *one.more_manifests,
            *((other.manifest_entry,) if other.manifest_entry is not None else ()),
            *other.more_manifests,
        ),
        warnings=tuple(dict.fromkeys(one.warnings + other.warnings)),
    )
