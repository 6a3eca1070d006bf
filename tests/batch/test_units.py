"""Which files are looked at together, by their names alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from trace_analyzer.batch.tasks import run_folder, run_id
from trace_analyzer.batch.units import ListedFile, UnitKind, split


def _units(*names: str) -> dict[str, list[str]]:
    plan = split(ListedFile(name, 10, "1") for name in names)
    return {unit.name: [file.name for file in unit.files] for unit in plan.units}


def test_every_folder_with_traces_stands_for_itself() -> None:
    found = _units("a/rank0.json", "a/rank1.json.gz", "a/b/x.sqlite", "c/d/e/t.pt.trace.json.zst")
    assert list(found) == ["a", "a/b", "c/d/e"]
    assert found["a"] == ["a/rank0.json", "a/rank1.json.gz"]


@pytest.mark.parametrize(
    "part", ["node0", "host-12", "rank_3", "Worker 1", "gpu7", "nodes2", "local_rank0", "kineto",
             "nsys", "profiles", "torch_profiler", "logs", "nccl_logs", "node0/rank3/traces"],
)  # fmt: skip
def test_parts_of_a_run_belong_to_the_folder_above(part: str) -> None:
    assert list(_units(f"runs/one/{part}/trace.json", "runs/one/trace.json")) == ["runs/one"]


@pytest.mark.parametrize("name", ["node", "nodeful1", "run1", "healthy", "rank0_backup", "v2"])
def test_other_names_are_runs_of_their_own(name: str) -> None:
    assert list(_units(f"{name}/trace.json")) == [name]


def test_a_part_at_the_top_belongs_to_the_archive() -> None:
    assert list(_units("node0/rank0.json", "node1/rank1.json")) == [""]


def test_a_bundle_is_everything_below_its_manifest() -> None:
    found = _units(
        "b/bundle.json", "b/rank0.json", "b/deep/er/notes.txt", "b/inner/bundle.json", "c/x.json"
    )
    assert list(found) == ["b", "c"]
    assert len(found["b"]) == 4


def test_bundles_of_one_job_side_by_side_are_one_unit() -> None:
    manifests = {
        "j/host-a/bundle.json": b'{"job": {"id": "7"}, "world_size": 16}',
        "j/host-b/bundle.json": b'{"job": {"id": "7"}, "world_size": 16}',
        "j/later/bundle.json": b'{"job": {"id": "8"}, "world_size": 16}',
        "j/broken/bundle.json": b"no manifest",
        "k/host-a/bundle.json": b'{"job": {"id": "7"}, "world_size": 16}',
    }
    asked: list[str] = []

    def read(names: Sequence[str]) -> dict[str, bytes]:
        asked.extend(names)
        return {name: manifests[name] for name in names}

    plan = split((ListedFile(name, 1, "1") for name in [*manifests, "j/stray.json"]), read)
    assert {unit.name: len(unit.files) for unit in plan.units} == {
        "j": 3, "j/broken": 1, "j/later": 1, "k/host-a": 1
    }  # fmt: skip
    assert asked == [name for name in sorted(manifests) if name.startswith("j/")]


def test_archives_stand_for_themselves_unless_named_like_a_part() -> None:
    names = ("x/old.tar.gz", "x/old.zip", "x/node0.tar", "x/node1.tgz", "y.tar.zst")
    plan = split(ListedFile(name, 1, "1") for name in names)
    assert [(unit.name, unit.kind) for unit in plan.units] == [
        ("x", UnitKind.FOLDER),
        ("x/old.tar.gz", UnitKind.ARCHIVE),
        ("x/old.zip", UnitKind.ARCHIVE),
        ("y.tar.zst", UnitKind.ARCHIVE),
    ]


def test_sidecars_go_with_the_traces_beside_or_above_and_the_rest_is_counted() -> None:
    names = ("r/rank0.json.gz", "r/steps_rank0.jsonl", "r/comm/nccl_77.log", "s/nccl_78.log",
             "model.pt", "readme.md")  # fmt: skip
    plan = split(ListedFile(name, 1, "1") for name in names)
    assert [[file.name for file in unit.files] for unit in plan.units] == [
        ["r/comm/nccl_77.log", "r/rank0.json.gz", "r/steps_rank0.jsonl"]
    ]
    assert plan.ignored == 3


def test_a_fingerprint_changes_with_names_sizes_and_stamps() -> None:
    (unit,) = split([ListedFile("a/t.json", 5, "7")]).units
    assert unit.fingerprint
    assert unit.fingerprint == replace(unit).fingerprint
    others = {
        replace(unit, files=(ListedFile(*changed),)).fingerprint
        for changed in [("a/u.json", 5, "7"), ("a/t.json", 6, "7"), ("a/t.json", 5, "8")]
    }
    assert len(others - {unit.fingerprint}) == 3
    assert not replace(unit, files=(ListedFile("a/t.json", 5, ""),)).fingerprint


def test_folders_of_runs_are_names_for_every_file_system() -> None:
    names = ["a/b", "a_b", "ü/\udcff\n:*", "x" * 500, "", "../../etc", "CON", "a/b "]
    folders = [run_folder(name) for name in names]
    assert len(set(folders)) == len(names)
    for name, folder in zip(names, folders, strict=True):
        assert folder.endswith(run_id(name))
        assert len(folder) < 90
        assert not set(folder.removeprefix("runs/")) & set('/\\:*?"<>|\n ')
        assert not folder.removeprefix("runs/").startswith(".")
