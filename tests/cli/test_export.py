"""`export` as its user meets it: what is written, what is refused, and that nothing is lost."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.recordings import job
from trace_analyzer.cli import cli
from trace_analyzer.cli.progress import ProgressLine
from trace_analyzer.export import parquet

KINDS = {"perfetto": "run.json.gz", "sqlite": "run.db", "parquet": "tables"}


def export(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["export", *map(str, arguments)])


def refused(done: Result, *parts: str) -> None:
    assert done.exit_code == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "defect" not in line
    for part in parts:
        assert part in line


@pytest.fixture
def gpt(tmp_path: Path) -> Path:
    return job(tmp_path / "gpt")


@pytest.mark.parametrize("kind", KINDS)
def test_it_writes_what_is_asked_for_and_says_where(gpt: Path, tmp_path: Path, kind: str) -> None:
    target = tmp_path / KINDS[kind]
    done = export(gpt, "--to", kind, "-o", target)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"Wrote {target}\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["gpt", KINDS[kind]])
    assert export(gpt, "--to", kind, "-o", target, "--force", "-q").stderr == ""


def test_the_trace_is_analyzed_again(gpt: Path, tmp_path: Path) -> None:
    target = tmp_path / "run.json.gz"
    assert export(gpt, "--to", "perfetto", "-o", target).exit_code == 0
    steps = []
    for source in (gpt, target):
        done = CliRunner().invoke(cli, ["analyze", str(source), "--json", "-"])
        assert done.exit_code == 0
        steps.append([rank["steps"] for rank in json.loads(done.stdout)["ranks"]])
    assert steps[0] == steps[1]
    assert len(steps[0]) == 2


def test_a_trace_is_plain_by_its_name_and_on_stdout(gpt: Path, tmp_path: Path) -> None:
    plain, packed = tmp_path / "run.json", tmp_path / "run.json.gz"
    for target in (plain, packed):
        assert export(gpt, "--to", "perfetto", "-o", target).exit_code == 0
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    done = export(gpt, "--to", "perfetto", "-o", "-")
    assert (done.stdout_bytes, done.stderr) == (plain.read_bytes(), "")


def test_ranks_and_steps_are_chosen(gpt: Path, tmp_path: Path) -> None:
    target = tmp_path / "run.db"
    done = export(gpt, "--to", "sqlite", "-o", target, "--ranks", "1", "--steps", "4:5")
    assert done.exit_code == 0
    with closing(sqlite3.connect(target)) as base:
        assert base.execute("select rank from ranks").fetchall() == [(1,)]
        assert base.execute("select step from steps where steady").fetchall() == [(4,), (5,)]
    refused(export(gpt, "--to", "sqlite", "-o", tmp_path / "x", "--ranks", "7"), "rank 7")
    refused(export(gpt, "--to", "sqlite", "-o", tmp_path / "x", "--steps", "70:71"), "no such step")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_replaced_without_force(gpt: Path, tmp_path: Path, kind: str) -> None:
    target = tmp_path / KINDS[kind]
    if kind == "parquet":
        target.mkdir()
        kept = target / "steps.parquet"
        kept.write_text("precious")
    else:
        kept = target
        kept.write_text("precious")
    refused(export(gpt, "--to", kind, "-o", target), KINDS[kind], "--force")
    assert kept.read_text() == "precious"
    assert export(gpt, "--to", kind, "-o", target, "--force").exit_code == 0
    assert kept.read_bytes() != b"precious"


def test_a_folder_with_other_files_is_left_alone(gpt: Path, tmp_path: Path) -> None:
    refused(export(gpt, "--to", "parquet", "-o", gpt, "--force"), "holds other files", "rank0")
    (tmp_path / "file").write_text("")
    refused(export(gpt, "--to", "parquet", "-o", tmp_path / "file"), "is a file; name a folder")
    refused(export(gpt, "--to", "parquet", "-o", tmp_path / "a/b"), "no folder")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert export(gpt, "--to", "parquet", "-o", empty).exit_code == 0
    assert sorted(path.name for path in empty.iterdir()) == sorted(parquet.file_names())


def test_a_trace_is_not_put_among_those_that_it_is_made_of(gpt: Path) -> None:
    refused(export(gpt, "--to", "perfetto", "-o", gpt / "run.json.gz"), "inside", "elsewhere")
    assert export(gpt, "--to", "sqlite", "-o", gpt / "run.db").exit_code == 0
    assert CliRunner().invoke(cli, ["analyze", str(gpt)]).exit_code == 0


def test_inputs_are_never_replaced(gpt: Path) -> None:
    trace = gpt / "rank0.pt.trace.json"
    before = trace.read_bytes()
    done = export(trace, "--to", "perfetto", "-o", trace, "--force")
    refused(done, "one of the files that were read")
    done = export(gpt, "--to", "sqlite", "-o", trace, "--force")
    refused(done, "one of the files that were read")
    assert trace.read_bytes() == before


def test_what_cannot_be_written_is_refused_before_any_work(gpt: Path, tmp_path: Path) -> None:
    refused(export(tmp_path / "none", "--to", "sqlite", "-o", "-"), "stdout")
    refused(export(tmp_path / "none", "--to", "parquet", "-o", "-"), "stdout")
    refused(export(tmp_path / "none", "--to", "perfetto", "-o", tmp_path / "r.zst"), ".json.gz")
    refused(export(tmp_path / "none", "--to", "sqlite", "-o", tmp_path), "is a folder")
    refused(export(tmp_path / "none", "--to", "sqlite", "-o", tmp_path / "r.db"), "no such file")
    assert export(gpt, "--to", "excel", "-o", "x").exit_code == 2
    assert export(gpt, "-o", tmp_path / "x").exit_code == 2
    assert export(gpt, "--to", "sqlite").exit_code == 2


def test_a_full_disk_leaves_nothing(gpt: Path, tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    refused(
        export(gpt, "--to", "perfetto", "-o", "/dev/full", "--force"), "/dev/full", "No space left"
    )
    refused(export(gpt, "--to", "sqlite", "-o", "/dev/full", "--force"), "/dev/full")


def test_a_failure_leaves_what_was_there(
    gpt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet, "_array", fail)
    for name in ("tables", "filled"):
        target = tmp_path / name
        if name == "filled":
            target.mkdir()
            (target / "steps.parquet").write_text("precious")
        refused(export(gpt, "--to", "parquet", "-o", target, "--force"), name, "No space left")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["filled", "gpt"]
    assert (tmp_path / "filled" / "steps.parquet").read_text() == "precious"


def test_without_pyarrow_one_line_says_how_to_get_it(
    gpt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    done = export(gpt, "--to", "parquet", "-o", tmp_path / "tables")
    refused(done, "needs pyarrow", "pip install 'trace-analyzer[parquet]'")


def test_help_loads_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "trace_analyzer", "export", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "click" in imported
    assert not imported & {"numpy", "msgspec", "pyarrow", "pandas", "isal"}


def test_progress_says_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        text = ""

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            self.text += text
            return len(text)

        def flush(self) -> None:
            pass

    monkeypatch.setattr("trace_analyzer.cli.progress._DELAY_S", -1.0)
    terminal = Terminal()
    with ProgressLine(stream=terminal, doing="writing") as progress:  # type: ignore[arg-type]
        progress("steps", 1, 4)
    assert "writing [######------------------]  25 % steps" in terminal.text
