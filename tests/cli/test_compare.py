"""`compare` as its user meets it: outputs, names, and every bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.recordings import KERNELS, job, nsys
from trace_analyzer.cli import cli


def compare(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["compare", *map(str, arguments)])


def refused(done: Result, *parts: str) -> None:
    """Check that it ended with one line and exit code 2."""
    assert done.exit_code == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "defect" not in line
    for part in parts:
        assert part in line


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return job(tmp_path / "base", steps=8)


def test_the_answer_is_printed(base: Path, tmp_path: Path) -> None:
    slow = job(tmp_path / "slow", steps=8, step_us=1500, pid=300)
    done = compare(base, slow)
    assert done.exit_code == 0
    assert "longer" in done.stdout
    assert done.stderr == ""
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_a_run_against_itself(base: Path) -> None:
    done = compare(base, base, "--json", "-")
    document = json.loads(done.stdout)
    assert document["verdict"]["state"] == "same"
    assert [document["base"]["name"], document["other"]["name"]] == ["base (base)", "base (slow)"]


def test_all_outputs(base: Path, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("c.html", "c.json", "c.md")]
    done = compare(base, base, "--html", paths[0], "--json", paths[1], "--markdown", paths[2])
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [f"Wrote {path}" for path in paths]
    assert paths[0].read_text().lower().startswith("<!doctype html>")
    assert json.loads(paths[1].read_text())["comparable"] is True
    assert "Comparable?" in paths[2].read_text()
    assert compare(base, base, "-q", "--html", paths[0], "--force").stderr == ""
    refused(compare(base, base, "--html", paths[0]), "exists already")


def test_both_inputs_are_safe_from_the_outputs(base: Path, tmp_path: Path) -> None:
    slow = job(tmp_path / "slow", pid=300)
    trace = slow / "rank1.pt.trace.json"
    refused(compare(base, slow, "--json", trace, "--force"), "one of the files that were read")


def test_what_cannot_be_read(base: Path, tmp_path: Path) -> None:
    refused(compare(base, tmp_path / "nowhere"), "nowhere", "no such file")
    (tmp_path / "empty").mkdir()
    refused(compare(tmp_path / "empty", base), "empty")
    refused(compare(base, base, "--step-range", "epoch"), "--step-range")


def test_other_work_is_side_by_side(base: Path, tmp_path: Path) -> None:
    other = job(tmp_path / "other", ranks=4, kernels=[*KERNELS, "conv"], pid=300, steps=8)
    done = compare(base, other)
    assert done.exit_code == 0
    assert "Not comparable" in done.stdout
    assert "world size" in done.stdout


def test_too_few_steps_are_no_verdict(base: Path, tmp_path: Path) -> None:
    short = job(tmp_path / "short", steps=2, pid=300)
    document = json.loads(compare(base, short, "--json", "-").stdout)
    assert document["verdict"]["state"] == "no-verdict"
    assert document["step"]["distinguishable"] is None


def test_a_recorder_without_operators(base: Path, tmp_path: Path) -> None:
    path = nsys(tmp_path / "run.sqlite", steps=8)
    document = json.loads(compare(base, path, "--json", "-").stdout)
    assert document["verdict"]["state"] == "no-verdict"
    assert "operators" in [item["what"] for item in document["not_compared"]]
