"""Bundles of several nodes: when they are one run, and when not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.recordings import Kineto
from trace_analyzer.bundle import (
    Manifest,
    Role,
    describe_file,
    read_manifest,
    write_manifest,
)
from trace_analyzer.errors import SeveralRunsError
from trace_analyzer.readers.discovery import find_runs, open_run


def node(folder: Path, *ranks: int, job_id: str = "a1", world_size: int = 4) -> Path:
    folder.mkdir(parents=True)
    files = []
    for rank in ranks:
        trace = Kineto(rank=rank, world_size=world_size, pid=100 + rank).write(
            folder / f"rank{rank}.pt.trace.json"
        )
        files.append(describe_file(folder, trace, Role.KINETO, rank=rank))
    timer = folder / f"steps_rank{ranks[0]}.jsonl"
    timer.write_text(
        f'{{"schema_version": 1, "kind": "header", "rank": {ranks[0]}}}\n'
        '{"kind": "step", "index": 0, "phase": "unprofiled", "step_ms": 25.0}\n'
    )
    files.append(describe_file(folder, timer, Role.TIMER, rank=ranks[0]))
    write_manifest(
        folder,
        Manifest(
            job_name="gpt",
            job_id=job_id,
            started=f"2026-11-29T21:44:0{ranks[0]}Z",
            world_size=world_size,
            files=tuple(files),
        ),
    )
    return folder


def test_bundles_of_one_job_with_other_ranks_are_one_run(tmp_path: Path) -> None:
    node(tmp_path / "b" / "node1", 2, 3)
    node(tmp_path / "b" / "node0", 0, 1)
    run = open_run(str(tmp_path / "b"))
    assert [rank.rank for rank in run.ranks] == [0, 1, 2, 3]
    assert run.ranks[2].path == "node1/rank2.pt.trace.json"
    assert (run.name, run.started) == ("gpt", "2026-11-29T21:44:00Z")
    assert sorted(item.rank for item in run.unprofiled) == [0, 2]
    assert not [w for w in run.all_warnings() if w.code in {"TRC002", "TRC011"}]
    manifests = [source.path for source in run.sources if source.kind.value == "manifest"]
    assert manifests == ["node0/bundle.json", "node1/bundle.json"]


def test_a_changed_file_of_any_node_is_said(tmp_path: Path) -> None:
    node(tmp_path / "node0", 0, 1)
    folder = node(tmp_path / "node1", 2, 3)
    trace = folder / "rank3.pt.trace.json"
    trace.write_text(trace.read_text().replace("relu", "gelu"))
    (warning,) = [w for w in open_run(str(tmp_path)).all_warnings() if w.code == "TRC001"]
    assert warning.message.startswith("node1/rank3.pt.trace.json is not what the manifest says")


def test_three_nodes_and_one_that_is_missing(tmp_path: Path) -> None:
    for number in (0, 2, 3):
        node(tmp_path / f"node{number}", number)
    run = open_run(str(tmp_path))
    assert [rank.rank for rank in run.ranks] == [0, 2, 3]
    assert run.missing_ranks == (1,)


@pytest.mark.parametrize(
    ("ranks", "job_id", "world_size"),
    [((2, 3), "other", 4), ((1, 2), "a1", 4), ((2, 3), "a1", 8), ((2, 3), "", 4)],
)
def test_other_bundles_stay_runs_of_their_own(
    tmp_path: Path, ranks: tuple[int, ...], job_id: str, world_size: int
) -> None:
    node(tmp_path / "one", 0, 1, job_id="" if not job_id else "a1")
    node(tmp_path / "two", *ranks, job_id=job_id, world_size=world_size)
    assert len(find_runs(str(tmp_path))) == 2
    with pytest.raises(SeveralRunsError):
        open_run(str(tmp_path))


def test_a_bundle_that_names_no_rank_is_not_put_to_others(tmp_path: Path) -> None:
    node(tmp_path / "one", 0, 1)
    folder = node(tmp_path / "two", 2, 3)
    manifest = read_manifest(folder)
    nameless = tuple(replace(item, rank=None) for item in manifest.files)
    write_manifest(folder, replace(manifest, files=nameless))
    assert len(find_runs(str(tmp_path))) == 2
