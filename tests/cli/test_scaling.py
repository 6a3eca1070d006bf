"""`scaling` as its user meets it: what it may be given, its outputs, its refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tests.comparisons import series
from tests.recordings import Kineto, job
from trace_analyzer.cli import cli


def scaling(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["scaling", *map(str, arguments)])


def refused(done: Result, *parts: str) -> None:
    """Check that it ended with one line and exit code 2."""
    assert done.exit_code == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "defect" not in line
    for part in parts:
        assert part in line


def timer(path: Path, values: list[float], *, rank: int = 0, world: int | None = 1) -> Path:
    """Write a step timer's file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = {"schema_version": 1, "kind": "header", "rank": rank, "clock": "cuda-event", "torch": "2.11.0"}  # fmt: skip
    if world is not None:
        header["world_size"] = world
    lines = [header]
    lines += [
        {"kind": "step", "index": at, "phase": "unprofiled", "step_ms": value}
        for at, value in enumerate(values)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def steps(seed: int, median_ms: float, count: int = 60) -> list[float]:
    return series(np.random.default_rng(seed), count, median_ms=median_ms, variation=0.01).tolist()  # type: ignore[no-any-return]


def found(*arguments: object) -> dict[str, Any]:
    done = scaling(*arguments, "--json", "-")
    assert done.exit_code == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_plain_numbers() -> None:
    done = scaling("1=43.3", "2=25.7", "--mode", "strong")
    assert done.exit_code == 0
    assert "E = 84.2 %" in done.stdout
    assert "No verdict: a number alone" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_numbers_with_spread_and_count() -> None:
    one = found("1=43.3±0.4x60", "2=25.7+-0.3 x60", "--mode", "strong")
    assert one["verdict"]["state"] == "loses"
    assert one["efficiency_interval"] is not None
    few = found("1=43.3±0.4x20", "2=25.7±0.3x60", "--mode", "strong")
    assert "20 steps" in few["verdict"]["headline"]


def test_the_steps_themselves() -> None:
    listed = ",".join(f"{value:.3f}" for value in steps(1, 20.0, 40))
    document = found("1=40.0±0.1x50", f"2={listed}", "--mode", "strong")
    assert document["efficiency"] == pytest.approx(1.0, abs=0.01)
    assert document["runs"][1]["steady"] == 40


def test_a_gain_is_no_loss() -> None:
    document = found("1=40.0±0.1x60", "2=20.0±0.1x60", "--mode", "strong")
    assert document["verdict"]["state"] == "scales"


def test_step_timer_files(tmp_path: Path) -> None:
    one = timer(tmp_path / "one" / "steps_rank0.jsonl", steps(1, 50.0))
    for rank in (0, 1):
        timer(tmp_path / "two" / f"steps_rank{rank}.jsonl", steps(2, 31.25), rank=rank, world=2)
    document = found(one, tmp_path / "two", "--mode", "strong")
    assert document["efficiency"] == pytest.approx(0.8, abs=0.01)
    assert document["verdict"]["state"] == "loses"
    assert document["comparable"] is None
    assert [run["ranks"] for run in document["runs"]] == [1, 2]
    assert document["runs"][0]["versions"] == {"torch": "2.11.0"}


def test_the_slowest_rank_counts(tmp_path: Path) -> None:
    timer(tmp_path / "two" / "steps_rank0.jsonl", steps(1, 25.0), rank=0, world=2)
    timer(tmp_path / "two" / "steps_rank1.jsonl", steps(2, 30.0), rank=1, world=2)
    document = found("1=60", tmp_path / "two", "--mode", "strong")
    assert document["points"][1]["step_ms"] == pytest.approx(30.0, rel=0.01)


def test_how_many_ranks_a_file_has_can_be_said(tmp_path: Path) -> None:
    path = timer(tmp_path / "anything.jsonl", steps(1, 10.0), world=None)
    assert found("1=60", f"8={path}", "--mode", "strong")["n"] == 8
    assert found("2=60", path, "--mode", "strong")["base_n"] == 1


def test_runs_of_the_same_number_are_repetitions(tmp_path: Path) -> None:
    given: list[object] = []
    for run, level in enumerate((0.98, 1.0, 1.02)):
        given.append(timer(tmp_path / f"a{run}" / "steps_rank0.jsonl", steps(run, 40 * level)))
        path = timer(tmp_path / f"b{run}.jsonl", steps(10 + run, 25 * level), world=2)
        given.append(path)
    document = found(*given, "--mode", "strong")
    assert document["interval_scope"] == "over runs"
    assert document["efficiency"] == pytest.approx(0.8, abs=0.01)
    low, high = document["efficiency_interval"]
    assert high - low > 0.05
    assert document["verdict"]["state"] == "loses"


def test_a_curve_of_three_numbers_of_ranks() -> None:
    numbers = [f"{n}={10 + 90 / n}±0.1x60" for n in (1, 2, 4)]
    document = found(*numbers, "--mode", "strong")
    assert document["curve"]["fixed_share"] == pytest.approx(0.1, abs=0.001)
    assert [item["ranks"] for item in document["curve"]["projections"]] == [8, 16]
    assert len(document["curve"]["assumptions"]) == 4
    text = scaling(*numbers, "--mode", "strong").stdout
    assert "8 ranks, projected" in text
    assert "It takes for granted" in text


def test_a_level_that_changes_is_said() -> None:
    values = [*steps(1, 25.0, 40), *steps(2, 30.0, 20)]
    listed = ",".join(f"{value:.3f}" for value in values)
    document = found("1=50", f"2={listed}", "--mode", "strong")
    assert document["points"][1]["step_ms"] == pytest.approx(25.0, rel=0.01)
    assert "change their level" in document["verdict"]["proof"]
    assert "20 at another level" in scaling("1=50", f"2={listed}", "--mode", "strong").stdout


def test_traced_steps_alone_give_no_verdict(tmp_path: Path) -> None:
    runs = [
        job(tmp_path / "one", ranks=1, steps=8, step_us=2000),
        job(tmp_path / "two", ranks=2, steps=8, step_us=1200),
    ]
    document = found(*runs, "--mode", "weak")
    assert document["verdict"]["state"] == "no-verdict"
    assert "under the profiler" in document["verdict"]["headline"]
    assert "TRC003" in [w["code"] for w in document["warnings"]]


def test_all_outputs(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("s.html", "s.json", "s.md")]
    done = scaling("1=43.3", "2=25.7", "--mode", "strong", "--html", paths[0], "--json", paths[1], "--markdown", paths[2])  # fmt: skip
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [f"Wrote {path}" for path in paths]
    assert paths[0].read_text().lower().startswith("<!doctype html>")
    assert json.loads(paths[1].read_text())["schema_version"] == 1
    assert "84.2 %" in paths[2].read_text()
    refused(scaling("1=43.3", "2=25.7", "--mode", "strong", "--json", paths[1]), "exists already")


def test_inputs_are_never_overwritten(tmp_path: Path) -> None:
    path = timer(tmp_path / "steps_rank0.jsonl", steps(1, 50.0))
    before = path.read_bytes()
    done = scaling(path, "2=30", "--mode", "strong", "--json", path, "--force")
    refused(done, "one of the files that were read")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["1=43.3"], ["needs two numbers"]),
        (["2=43.3", "2=25.7"], ["all 2 runs have 2 ranks"]),
        (["1=43.3", "2=25.7"], ["--mode"]),
        (["0=43.3", "2=25.7"], ["at least 1"]),
        (["1=0", "2=25.7"], ["more than 0 ms"]),
        (["1=43.3±50x60", "2=25.7"], ["ms ± deviation x steps"]),
        (["1=43.3x0", "2=25.7"], ["ms ± deviation x steps"]),
        (["1=slow", "2=25.7"], ["slow", "no such file"]),
        (["nowhere", "2=25.7"], ["nowhere", "no such file"]),
    ],
)
def test_what_cannot_be_understood_is_one_line(arguments: list[str], parts: list[str]) -> None:
    refused(scaling(*arguments), *parts)


def test_without_arguments_the_usage_is_shown() -> None:
    done = scaling()
    assert done.exit_code == 2
    assert "Missing argument 'T1 TN...'" in done.stderr


def test_damaged_timer_files(tmp_path: Path) -> None:
    empty = tmp_path / "steps_rank0.jsonl"
    empty.write_text("", encoding="utf-8")
    refused(scaling(empty, "2=30", "--mode", "strong"), "steps_rank0.jsonl", "no step times")
    profiled = timer(tmp_path / "only.jsonl", [])
    refused(scaling(profiled, "2=30", "--mode", "strong"), "only.jsonl", "no step times")
    newer = tmp_path / "new.jsonl"
    newer.write_text('{"schema_version": 2, "kind": "header", "rank": 0}\n', encoding="utf-8")
    refused(scaling(newer, "2=30", "--mode", "strong"), "schema 2")


def test_unreadable_lines_are_counted(tmp_path: Path) -> None:
    path = timer(tmp_path / "steps_rank0.jsonl", steps(1, 50.0))
    with path.open("a", encoding="utf-8") as stream:
        stream.write("{broken\n")
    document = found(path, "2=30", "--mode", "strong")
    assert any("1 line cannot be read" in w["message"] for w in document["warnings"])


def test_traces_beside_a_timer_are_read_as_a_run(tmp_path: Path) -> None:
    folder = job(tmp_path / "run", ranks=1, steps=8)
    timer(folder / "steps_rank0.jsonl", steps(1, 50.0))
    document = found(folder, "2=30", "--mode", "strong")
    assert document["runs"][0]["basis"] == "unprofiled"
    kinds = {source["kind"] for source in document["runs"][0]["sources"]}
    assert kinds == {"kineto", "timer"}
    assert Kineto().rank == 0
