"""`demo` and `doctor`, and the small parts that they share with `analyze`."""

from __future__ import annotations

import io
import os
import shutil
import stat
from importlib.resources import files
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.recordings import Kineto, job, nsys
from tests.traces import real_trace
from trace_analyzer import _native, installation
from trace_analyzer.analyses.answers import answers
from trace_analyzer.cli import cli
from trace_analyzer.cli import demo as demo_module
from trace_analyzer.cli.progress import ProgressLine
from trace_analyzer.readers.discovery import open_run

SAMPLE = files("trace_analyzer.data").joinpath("sample")


@pytest.mark.skipif(not SAMPLE.is_dir(), reason="this checkout has no sample")
def test_demo_writes_a_report_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["demo"])
    assert done.exit_code == 0
    path = tmp_path / "trace-analyzer-demo.html"
    assert done.stdout.splitlines()[-1] == f"The report is at {path}"
    assert path.read_text().lower().startswith("<!doctype html>")
    again = CliRunner().invoke(cli, ["demo"])
    assert again.exit_code == 2
    assert "exists already" in again.stderr
    assert CliRunner().invoke(cli, ["demo", "--force"]).exit_code == 0
    alone = CliRunner().invoke(cli, ["demo", "--html", "-"])
    assert alone.stdout_bytes == path.read_bytes()


def test_demo_without_a_sample_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_module, "files", lambda _: tmp_path)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["demo"])
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: this installation has no sample")
    assert not list(tmp_path.iterdir())


def test_doctor_lists_the_installation() -> None:
    done = CliRunner().invoke(cli, ["doctor"])
    assert done.exit_code == 0
    assert done.stderr == ""
    for name in ("Python", "numpy", "msgspec", "nsys", "torch", "native scanner"):
        assert name in done.stdout


@pytest.mark.parametrize(
    ("problem", "said"),
    [("", "yes      compiled code replays run in C\n"), ("not built: why", "(not built: why)")],
)
def test_doctor_says_whether_replays_are_compiled(
    problem: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_native, "PROBLEM", problem)
    done = CliRunner().invoke(cli, ["doctor"])
    assert done.exit_code == 0
    assert said in done.stdout
    assert ("no       compiled code optional: replays run in Python" in done.stdout) == bool(
        problem
    )


def test_doctor_finds_nsys_and_asks_for_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nsys"
    program.write_text("#!/bin/sh\necho NVIDIA Nsight Systems version 2025.3.1.90-0\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    found = {part.name: part for part in installation.parts()}
    assert found["nsys"].present
    assert found["nsys"].detail == "NVIDIA Nsight Systems version 2025.3.1.90-0"
    program.write_text("#!/bin/sh\nexit 1\n")
    assert "version unknown" in {p.name: p for p in installation.parts()}["nsys"].detail
    monkeypatch.setenv("PATH", "/nowhere")
    assert not {p.name: p for p in installation.parts()}["nsys"].present


def test_doctor_says_what_an_installation_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = installation.Part(name="numpy", present=False, detail="required", needed=True)
    monkeypatch.setattr(installation, "parts", lambda: (lacking,))
    done = CliRunner().invoke(cli, ["doctor"])
    assert done.exit_code == 2
    assert "lacks numpy" in done.stderr


def states(target: Path) -> list[str]:
    return [answer.state for answer in answers(open_run(str(target)))]


def test_questions_that_a_recording_answers(tmp_path: Path) -> None:
    folder = job(tmp_path / "gpt")
    done = CliRunner().invoke(cli, ["doctor", str(folder)])
    assert done.exit_code == 0
    assert f"{folder}: 2 ranks, kineto" in done.stdout
    #                     steps  idle   wait       sizes  replay     profiler link  transport
    assert states(folder) == ["yes", "yes", "partial", "no", "partial", "no", "no", "partial"]
    (folder / "meta_rank0.json").write_text('{"rank": 0, "plain_ms": [0.9, 0.8]}')
    (folder / "nccl_100.log").write_text("NCCL INFO")
    (folder / "bench_links.json").write_text("{}")
    assert states(folder) == ["yes", "yes", "partial", "no", "yes", "yes", "yes", "yes"]


def test_every_answer_that_is_not_yes_says_what_to_record(tmp_path: Path) -> None:
    Kineto(rank=0, steps=1).write(tmp_path / "one" / "rank0.json")
    Kineto(rank=0, kernels=()).write(tmp_path / "cpu" / "rank0.json")
    nsys(tmp_path / "node0.sqlite")
    for target in (tmp_path / "one", tmp_path / "cpu", tmp_path / "node0.sqlite"):
        for answer in answers(open_run(str(target))):
            assert answer.reason
            no_use = {"one GPU", "one rank: there", "no communication was"}
            if answer.state != "yes" and not any(text in answer.reason for text in no_use):
                assert answer.needs, answer.question
    assert states(tmp_path / "one")[0] == "partial"
    assert states(tmp_path / "cpu")[:2] == ["no", "no"]


def test_answers_of_the_labelled_run() -> None:
    assert states(real_trace("h200-ddp/healthy")) == [
        "yes",
        "yes",
        "yes",
        "yes",
        "yes",
        "yes",
        "partial",
        "yes",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_drawn_only_on_a_terminal_and_only_when_it_takes_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr("trace_analyzer.cli.progress.time.monotonic", lambda: now[0])
    terminal, pipe = Terminal(), io.StringIO()
    with ProgressLine(stream=terminal) as drawn, ProgressLine(stream=pipe) as silent:
        drawn("rank0.json", 0, 100)
        assert terminal.getvalue() == ""
        now[0] = 2.0
        for line in (drawn, silent):
            line("rank0.json", 50, 100)
        assert "50 % rank0.json" in terminal.getvalue()
    assert pipe.getvalue() == ""
    assert terminal.getvalue().endswith(" \r")
    quiet = Terminal()
    with ProgressLine(stream=quiet, quiet=True) as line:
        now[0] = 9.0
        line("rank0.json", 50, 100)
    assert quiet.getvalue() == ""


def test_the_program_is_installed() -> None:
    if shutil.which("trace-analyzer") is None:
        pytest.skip("trace-analyzer is not installed")
    assert os.access(str(shutil.which("trace-analyzer")), os.X_OK)
