"""Batches from the command line: what they find, what they do again, what they leave alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.batch.archives import (
    Counts,
    batch,
    command,
    contents,
    old,
    rows,
    states,
    trace,
    write_bundle,
    write_nodes,
    write_run,
    write_trace,
)
from tests.heavy import heavy
from tests.traces import ROOT


def _log(out: Path, event: str = "run") -> list[dict[str, Any]]:
    """The lines of the newest log with this event."""
    newest = max((out / "logs").iterdir())
    lines = [json.loads(line) for line in newest.read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


def _worked(out: Path) -> set[str]:
    """The runs that the last batch analysed."""
    return {line["run"] for line in _log(out)}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An archive with something of everything, and its output."""
    base = tmp_path_factory.mktemp("done")
    archive, out = base / "archive", base / "out"
    write_run(archive / "two_ranks", 1)
    for rank in range(2):
        write_trace(archive / "by_node" / f"node{rank}" / "trace.json", trace(2, rank))
    for seed in (3, 4):
        write_trace(archive / "flat" / f"job{seed}.json", trace(seed, 0, 1))
    write_bundle(archive / "bundle", 5, "nightly", "v1.2", "2026-11-01T00:00:00Z")
    packed = base / "packed"
    for seed in (6, 7):
        write_run(packed / f"inner{seed}", seed, world=1)
    with tarfile.open(archive / "several.tar.gz", "w:gz") as tar:
        tar.add(packed, arcname=".")
    with zipfile.ZipFile(archive / "one.zip", "w") as archived:
        archived.writestr("rank0.json", json.dumps(trace(8, 0, 1)))
    with zipfile.ZipFile(archive / "weights.zip", "w") as archived:
        archived.writestr("model/data.pkl", b"x")
    (archive / "cut.tar.gz").write_bytes((archive / "several.tar.gz").read_bytes()[:900])
    broken = archive / "broken" / "rank0.pt.trace.json.gz"
    broken.parent.mkdir()
    broken.write_bytes(b"\x1f\x8b not gzip")
    (archive / "config").mkdir()
    (archive / "config" / "settings.json").write_text('{"learning_rate": 0.1}')
    write_trace(archive / "é \u202e<b>" / "rank0.json", trace(9, 0, 1))
    (archive / "notes.txt").write_text("nothing to see")
    old(archive)
    assert batch(archive, out) == Counts(runs=11, now=11, unchanged=0, failed=2)
    return archive, out


def test_runs_are_found_and_judged(done: tuple[Path, Path]) -> None:
    _, out = done
    assert states(out) == {
        "two_ranks": "done",
        "by_node": "done",
        "flat/job3.json": "done",
        "flat/job4.json": "done",
        "bundle": "done",
        "several.tar.gz/inner6": "done",
        "several.tar.gz/inner7": "done",
        "one.zip": "done",
        "é \u202e<b>": "done",
        "broken": "failed",
        "cut.tar.gz": "failed",
    }
    assert rows(out, "SELECT world_size, recorded_ranks FROM runs WHERE name = 'by_node'") == [
        (2, 2)
    ]
    reasons = dict(rows(out, "SELECT name, failure || ': ' || reason FROM runs WHERE reason != ''"))
    assert set(reasons) == {"broken", "cut.tar.gz"}
    assert reasons["broken"].startswith("unreadable: ")
    assert "gzip" in reasons["broken"]
    assert "damaged archive" in reasons["cut.tar.gz"]


def test_what_holds_no_trace_is_no_run(done: tuple[Path, Path]) -> None:
    _, out = done
    nothing = dict(rows(out, "SELECT name, reason FROM units WHERE runs = 0"))
    assert nothing == {
        "config": "none of 1 file is a trace",
        "weights.zip": "an archive without traces",
    }
    assert _log(out, "start")[0]["ignored_files"] == 1


def test_every_run_has_its_report(done: tuple[Path, Path]) -> None:
    _, out = done
    for name, report in rows(out, "SELECT name, report FROM runs"):
        if name in {"broken", "cut.tar.gz"}:
            assert report == ""
            continue
        assert (out / report).read_text().startswith("<!doctype html>")
        document = json.loads((out / report).with_name("report.json").read_bytes())
        assert document["run"]["sources"]
    folders = [path for path in (out / "runs").iterdir() if (path / "report.html").exists()]
    assert len(folders) == 9
    assert {path.name for path in out.iterdir()} == {
        ".lock", "index.db", "index.html", "logs", "metadata.json", "runs"
    }  # fmt: skip


def test_rows_are_those_of_the_report(done: tuple[Path, Path]) -> None:
    _, out = done
    ((key, report),) = rows(out, "SELECT id, report FROM runs WHERE name = 'two_ranks'")
    document = json.loads((out / report).with_name("report.json").read_bytes())
    kernels = rows(
        out,
        "SELECT kernel, count, total_ms FROM kernels_by_name WHERE run_id = ? ORDER BY 1",
        key,
    )
    assert kernels == sorted((k["name"], k["count"], k["total_ms"]) for k in document["kernels"])
    ranks = rows(out, "SELECT rank, step_ms, idle_ms FROM ranks WHERE run_id = ?", key)
    assert ranks == [
        (r["rank"], r["step"]["step_ms"], r["step"]["idle_ms"]) for r in document["ranks"]
    ]
    files = rows(out, "SELECT path, sha256, bytes, kind FROM files WHERE run_id = ?", key)
    assert files == [
        (s["path"], s["sha256"], s["bytes"], s["kind"]) for s in document["run"]["sources"]
    ]
    collectives = rows(out, "SELECT operation, channels FROM collectives WHERE run_id = ?", key)
    assert collectives == [("all_reduce", 24)] or len(collectives) == len(document["collectives"])


def test_the_bundle_names_job_and_commit(done: tuple[Path, Path]) -> None:
    _, out = done
    query = 'SELECT job, job_id, "commit", started, title FROM runs WHERE name = ?'
    assert rows(out, query, "bundle") == [
        ("nightly", "nightly-5", "v1.2", "2026-11-01T00:00:00Z", "nightly")
    ]


def test_search_and_views_answer(done: tuple[Path, Path]) -> None:
    _, out = done
    found = rows(
        out,
        "SELECT name FROM runs WHERE rowid IN (SELECT rowid FROM runs_fts WHERE runs_fts MATCH ?)",
        "damaged",
    )
    assert ("cut.tar.gz",) in found
    views = [name for (name,) in rows(out, "SELECT name FROM sqlite_master WHERE type = 'view'")]
    assert len(views) >= 8
    for view in views:
        rows(out, f"SELECT * FROM {view}")
    assert rows(out, "SELECT name FROM failed_runs") == [("broken",), ("cut.tar.gz",)]


def test_metadata_labels_every_column(done: tuple[Path, Path]) -> None:
    _, out = done
    tables = json.loads((out / "metadata.json").read_text())["databases"]["index"]["tables"]
    for kind in ("table", "view"):
        names = rows(
            out,
            "SELECT name FROM sqlite_master WHERE type = ? AND name NOT LIKE '%_fts%' "
            "AND name NOT LIKE 'sqlite_%'",
            kind,
        )
        for (name,) in names:
            assert tables[name]["description"], name
            if kind == "table":
                columns = {row[1] for row in rows(out, f"PRAGMA table_info({name})")}
                assert set(tables[name]["columns"]) == columns, name


def test_nothing_is_done_twice(done: tuple[Path, Path]) -> None:
    archive, out = done
    before = contents(out)
    assert batch(archive, out) == Counts(11, 0, 11, failed=2)
    assert contents(out) == before
    assert _worked(out) == set()


def test_a_list_shows_runs_and_rules(done: tuple[Path, Path]) -> None:
    archive, out = done
    said = subprocess.run(
        command("batch", archive, "--list", "-o", out), capture_output=True, text=True, check=True
    ).stdout
    assert "A folder with a bundle.json is one run" in said
    lines = {line.split(maxsplit=1)[0]: line for line in said.splitlines() if "(" in line}
    assert said.rstrip().endswith("11 runs")
    assert "done     two_ranks  (" in said
    assert "kineto, 2 ranks" in said
    assert "failed   cut.tar.gz" in said
    assert "nothing  config" in said
    assert "new" not in lines
    assert "\u202e" not in said  # a mark that would turn the line around is shown as a symbol


# -- incremental ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs and their output, to be copied."""
    base = tmp_path_factory.mktemp("three")
    for seed in range(3):
        write_run(base / "archive" / f"run{seed}", seed, world=1)
    old(base / "archive")
    batch(base / "archive", base / "out")
    return base


@pytest.fixture
def small(three: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A copy of three runs and their output."""
    shutil.copytree(three / "archive", tmp_path / "archive")
    shutil.copytree(three / "out", tmp_path / "out")
    return tmp_path / "archive", tmp_path / "out"


def test_bundles_of_the_nodes_of_a_job_are_one_run(tmp_path: Path) -> None:
    archive, out = tmp_path / "archive", tmp_path / "out"
    write_nodes(archive / "job", 1, "123", ["ip-10-0-0-1", "ip-10-0-0-2"])
    write_nodes(archive / "others", 2, "124", ["one"])
    write_nodes(archive / "others", 3, "125", ["two"])
    old(archive)
    assert batch(archive, out) == Counts(3, 3, 0)
    assert set(states(out)) == {"job", "others/one", "others/two"}
    query = "SELECT world_size, recorded_ranks, job_id FROM runs WHERE name = 'job'"
    assert rows(out, query) == [(2, 2, "123")]
    files = rows(
        out, "SELECT f.path FROM files f JOIN runs r ON r.id = f.run_id WHERE r.name = 'job'"
    )
    assert sorted(files) == [
        (f"ip-10-0-0-{node + 1}/{name}",)
        for node in (0, 1)
        for name in ("bundle.json", f"rank{node}.pt.trace.json.gz")
    ]


def test_only_what_changed_is_analysed(small: tuple[Path, Path]) -> None:
    archive, out = small
    reports = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/report.json")}
    os.utime(archive / "run0" / "rank0.pt.trace.json.gz")  # touched, the same content
    write_run(archive / "run1", 77, world=1)
    write_run(archive / "run3", 3, world=1)
    assert batch(archive, out) == Counts(4, 2, 2)
    assert _worked(out) == {"run1", "run3"}
    changed = {path for path, moment in reports.items() if path.stat().st_mtime_ns != moment}
    assert {path.parent.name.split("-")[0] for path in changed} == {"run1"}


def test_in_a_folder_of_many_runs_only_new_files_are_read(tmp_path: Path) -> None:
    archive, out = tmp_path / "archive", tmp_path / "out"
    files = [write_trace(archive / f"job{seed}.json", trace(seed, 0, 1)) for seed in range(3)]
    old(archive)
    assert batch(archive, out) == Counts(3, 3, 0)
    # The same size and time with other content goes unnoticed: files that are known stay unread.
    status = files[0].stat()
    files[0].write_bytes(files[0].read_bytes().replace(b"gemm_0", b"gemm_9"))
    os.utime(files[0], ns=(status.st_mtime_ns, status.st_mtime_ns))
    os.utime(files[1])
    write_trace(archive / "job3.json", trace(3, 0, 1))
    assert batch(archive, out) == Counts(4, 1, 3)
    assert _worked(out) == {"job3.json"}
    os.utime(files[0])
    assert batch(archive, out) == Counts(4, 1, 3)
    assert _worked(out) == {"job0.json"}


@heavy
def test_the_result_is_that_of_a_fresh_batch(small: tuple[Path, Path], tmp_path: Path) -> None:
    archive, out = small
    write_run(archive / "run1", 77, world=2)
    shutil.rmtree(archive / "run0")
    write_run(archive / "run5" / "a", 5, world=1)
    old(archive)
    batch(archive, out)
    batch(archive, tmp_path / "fresh")
    left = contents(out)
    assert states(out) == {
        "run0": "done", "run1": "done", "run2": "done", "run5/a": "done"
    }  # fmt: skip
    # What the archive does not hold any more is kept, and marked.
    assert rows(out, "SELECT name FROM runs WHERE NOT present") == [("run0",)]
    fresh = contents(tmp_path / "fresh")
    for name in fresh:
        if name.startswith("runs/"):
            assert left[name] == fresh[name]


def test_a_run_that_moved_is_not_there_twice(small: tuple[Path, Path]) -> None:
    archive, out = small
    (archive / "run0").rename(archive / "renamed")
    assert batch(archive, out) == Counts(3, 1, 2)
    assert set(states(out)) == {"renamed", "run1", "run2"}
    assert len(list((out / "runs").iterdir())) == 3


def test_a_lost_index_is_made_again_without_work(small: tuple[Path, Path]) -> None:
    archive, out = small
    before = contents(out)
    (out / "index.db").unlink()
    assert batch(archive, out) == Counts(3, 3, 0)
    assert _log(out) == []
    assert len(_log(out, "kept")) == 3
    assert contents(out) == before


def test_a_damaged_index_is_refused_in_one_line(small: tuple[Path, Path]) -> None:
    archive, out = small
    (out / "index.db").write_bytes(b"no database at all" * 100)
    done = subprocess.run(
        command("batch", archive, "-o", out), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "remove it: it is made again" in done.stderr


@heavy
def test_another_version_analyses_again_only_when_asked(small: tuple[Path, Path]) -> None:
    archive, out = small
    import sqlite3

    with sqlite3.connect(out / "index.db") as base:
        base.execute("UPDATE runs SET tool_version = '0.0.1' WHERE name != 'run2'")
    base.close()
    assert batch(archive, out).now == 0
    assert batch(archive, out, "--refresh").now == 2
    assert batch(archive, out, "--refresh").now == 0


# -- what goes wrong --------------------------------------------------------------------------


@heavy
def test_failures_are_tried_again_when_asked(tmp_path: Path) -> None:
    archive, out = tmp_path / "archive", tmp_path / "out"
    write_run(archive / "good", 1, world=1)
    bad = archive / "bad" / "rank0.pt.trace.json.gz"
    bad.parent.mkdir()
    bad.write_bytes(b"\x1f\x8b no")
    old(archive)
    assert batch(archive, out) == Counts(2, 2, 0, failed=1)
    assert batch(archive, out) == Counts(2, 0, 2, failed=1)
    assert batch(archive, out, "--retry-failed") == Counts(2, 1, 1, failed=1)
    write_run(bad.parent, 2, world=1)
    assert batch(archive, out) == Counts(2, 1, 1)


def test_runs_that_take_too_long_fail_and_wait_for_more_time(tmp_path: Path) -> None:
    archive, out = tmp_path / "archive", tmp_path / "out"
    for seed in range(2):
        write_run(archive / f"run{seed}", seed, world=1)
    old(archive)
    assert batch(archive, out, "--time-limit", "0.05s").failed == 2
    assert set(rows(out, "SELECT failure, reason FROM runs")) == {
        ("time", "takes longer than 0.05 s; raise --time-limit")
    }
    assert batch(archive, out).now == 0
    assert batch(archive, out, "--retry-failed") == Counts(2, 2, 0)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["/nowhere/at/all", "-o", "out"], "no such file or folder"),
        (["archive"], "Missing option '-o'"),
        (["archive", "-o", "archive"], "is the archive"),
        (["empty", "-o", "out"], "none of its 1 files is named like a trace"),
        (["archive", "-o", "out", "--time-limit", "soon"], "not a time like"),
        (["archive", "-o", "out", "--memory-limit", "1M"], "less than the 256M"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, arguments: list[str], problem: str) -> None:
    write_run(tmp_path / "archive" / "run", 1, world=1)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "readme.md").write_text("x")
    done = subprocess.run(
        command("batch", *arguments),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 2, done.stderr
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


def test_only_one_batch_writes_into_an_output(small: tuple[Path, Path]) -> None:
    import fcntl

    archive, out = small
    with (out / ".lock").open("rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            command("batch", archive, "-o", out), capture_output=True, text=True, check=False
        )
    assert done.returncode == 2
    assert "another batch writes there" in done.stderr


@heavy
def test_an_output_inside_the_archive_is_no_part_of_it(small: tuple[Path, Path]) -> None:
    archive, _ = small
    for _ in range(2):
        assert batch(archive, archive / "out").runs == 3


def test_findings_of_runs_that_are_new_can_fail_a_job(tmp_path: Path) -> None:
    archive, out = tmp_path / "archive", tmp_path / "out"
    shutil.copytree(ROOT / "trace_analyzer" / "data" / "sample", archive / "slow")
    old(archive)
    assert batch(archive, out, "--fail-on", "low", code=1) == Counts(1, 1, 0)
    ((severity,),) = rows(out, "SELECT severity FROM runs")
    assert severity in {"low", "medium", "high"}
    # The finding stands, but it is not new.
    assert batch(archive, out, "--fail-on", "low") == Counts(1, 0, 1)
    assert rows(out, "SELECT COUNT(*) > 0 FROM findings WHERE severity = ?", severity) == [(1,)]


@heavy
def test_one_file_is_an_archive(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / "packed" / f"run{seed}", seed, world=1)
    with tarfile.open(tmp_path / "runs.tar", "w") as tar:
        tar.add(tmp_path / "packed", arcname="runs")
    shutil.rmtree(tmp_path / "packed")
    assert batch(tmp_path / "runs.tar", tmp_path / "out") == Counts(2, 2, 0)
    assert set(states(tmp_path / "out")) == {"runs.tar/runs/run1", "runs.tar/runs/run2"}
