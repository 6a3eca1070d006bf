"""Start-up, exit codes, errors and signals of the program itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.recordings import job
from trace_analyzer import __version__
from trace_analyzer.cli import VERBS, cli
from trace_analyzer.cli.group import LazyGroup, Verb, debug_option
from trace_analyzer.errors import UnreadableInputError

PROGRAM = [sys.executable, "-m", "trace_analyzer"]


def run(*arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **{str(k): str(v) for k, v in settings.items()}}
    environment.pop("FORCE_COLOR", None) if "FORCE_COLOR" not in settings else None
    return subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, text=True, env=environment, check=False
    )


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["-h"], ["analyze", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "trace_analyzer", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "click" in imported
    heavy = {"numpy", "pandas", "torch", "jinja2", "msgspec", "fsspec", "zstandard", "asyncio"}
    assert not imported & heavy
    assert not {name for name in imported if name.startswith("trace_analyzer.re")}


def test_help_lists_every_verb_with_its_own_summary() -> None:
    listed = run("--help").stdout
    context = click.Context(cli)
    for name, verb in VERBS.items():
        command = cli.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str(limit=200) == verb.summary
        assert f"{name} " in listed
        assert verb.summary in listed
        assert "Example: trace-analyzer" in str(command.epilog) or "eval" in str(command.epilog)


def test_version_and_usage_errors() -> None:
    assert run("--version").stdout == f"trace-analyzer, version {__version__}\n"
    for arguments in ([], ["nonsense"], ["analyze"], ["analyze", "x", "--nonsense"]):
        done = run(*arguments)
        assert done.returncode == 2
        assert done.stdout == ""
        assert "Traceback" not in done.stderr


def failing(error: BaseException) -> LazyGroup:
    """Return a group whose one command raises `error`."""

    @click.command()
    @debug_option
    def fail() -> None:
        raise error

    class OneCommand(LazyGroup):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
            return fail

    return OneCommand("program", verbs={"fail": Verb("", "")})


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UnreadableInputError("x.json", "is empty", "record it again"), "x.json: is empty; record"),
        (PermissionError(13, "Permission denied", "x.json"), "x.json: Permission denied"),
        (MemoryError(), "not enough memory"),
        (ValueError("two\nlines"), "defect in trace-analyzer: ValueError: two lines;"),
        (click.ClickException("plain"), "plain"),
    ],
)
def test_errors_are_one_line(error: Exception, message: str) -> None:
    done = CliRunner().invoke(failing(error), ["fail"])
    assert done.exit_code == (1 if type(error) is click.ClickException else 2)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: {message}")


def test_debug_shows_the_traceback_and_keeps_the_exit_code() -> None:
    done = CliRunner().invoke(failing(ValueError("bad")), ["fail", "--debug"])
    assert done.exit_code == 2
    assert done.stderr.startswith("Traceback")
    assert "Error: defect" in done.stderr


def test_an_interrupt_is_130() -> None:
    done = CliRunner().invoke(failing(KeyboardInterrupt()), ["fail"])
    assert done.exit_code == 130
    assert done.stderr.strip() == "Interrupted."


def start(script: str, tmp_path: Path) -> subprocess.Popen[str]:
    """Start the program with something slow in place of reading; wait until it is there."""
    flag = tmp_path / "flag"
    code = (
        "import pathlib, sys, time\n"
        "from trace_analyzer.readers import discovery\n"
        "def slow(*a, **k):\n"
        f"    {script}\n"
        f"    pathlib.Path({str(flag)!r}).touch()\n"
        "    time.sleep(60)\n"
        "discovery.open_run = slow\n"
        "from trace_analyzer.cli import main\n"
        "sys.argv = ['trace-analyzer', 'analyze', 'x']\n"
        "main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not flag.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
def test_signals_end_it_and_clean_up(tmp_path: Path, number: signal.Signals, code: int) -> None:
    script = f"discovery._WORKSPACE.folder(); {tmp_path!r}"
    script = script.replace("PosixPath", "pathlib.Path")
    script += "; pathlib.Path({!r}).write_text(str(discovery._WORKSPACE._folder))".format(
        str(tmp_path / "where")
    )
    process = start(script, tmp_path)
    temporary = Path((tmp_path / "where").read_text())
    assert temporary.is_dir()
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == code
    assert "Traceback" not in errors
    assert not temporary.exists()


def test_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    job(tmp_path / "gpt")
    command = [*PROGRAM, "analyze", str(tmp_path / "gpt"), "--json", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read().decode()
    assert (process.returncode, errors) == (141, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    done = CliRunner().invoke(cli, ["completion", shell])
    assert done.exit_code == 0
    assert "_TRACE_ANALYZER_COMPLETE" in done.stdout
    assert done.stderr == ""


def test_completion_completes() -> None:
    done = run(
        _TRACE_ANALYZER_COMPLETE="bash_complete", COMP_WORDS="trace-analyzer ana", COMP_CWORD="1"
    )
    assert done.stdout == "plain,analyze\n"
