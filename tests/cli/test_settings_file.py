"""Settings of `analyze` in files, and --select and --ignore."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.recordings import job
from trace_analyzer.cli import cli
from trace_analyzer.cli.group import InputError
from trace_analyzer.cli.settings_file import settings


@pytest.fixture
def gpt(tmp_path: Path) -> Path:
    return job(tmp_path / "gpt")


@pytest.fixture
def below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder two below the one whose settings are tested; it is the current one."""
    folder = tmp_path / "work" / "deep" / "deeper"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def analyze(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["analyze", *map(str, arguments)])


def options(*arguments: object) -> dict[str, object]:
    done = analyze(*arguments, "--json", "-")
    assert done.exit_code == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)["tool"]["options"]
    return found


def codes(*arguments: object) -> set[str]:
    report = json.loads(analyze(*arguments, "--json", "-").stdout)
    return {item["code"] for item in [*report["findings"], *report["checks"]]}


def test_codes_are_selected_and_ignored(gpt: Path, below: Path) -> None:
    assert codes(gpt, "--select", "gpu", "--ignore", "GPU001") == {
        f"GPU00{number}" for number in range(2, 7)
    }
    assert codes(gpt, "--select", "RANK", "--select", "MEM001") >= {"MEM001", "RANK001"}
    assert not {code for code in codes(gpt, "--ignore", "COMM") if code.startswith("COMM")}
    assert options(gpt, "--select", "GPU", "--fail-on", "high") == {
        "select": ["GPU"],
        "fail_on": "high",
    }


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--select", "FOO"], "no cause has such a code"),
        (["--ignore", "GPU009"], "no cause has such a code"),
        (["--ignore", "TRC003"], "always shown"),
        (["--select", "a b"], "not a code like GPU001"),
    ],
)
def test_codes_that_nothing_has_are_refused(
    gpt: Path, below: Path, arguments: list[str], part: str
) -> None:
    done = analyze(gpt, *arguments)
    assert done.exit_code == 2
    assert part in done.stderr


@pytest.mark.parametrize("name", ["trace-analyzer.toml", "pyproject.toml"])
def test_settings_are_found_upward_and_echoed(gpt: Path, below: Path, name: str) -> None:
    table = "[tool.trace-analyzer]\n" if name == "pyproject.toml" else ""
    (below.parents[1] / name).write_text(
        table
        + 'select = ["gpu"]\nignore = ["GPU002"]\nunprofiled-step-ms = 20\nfail-on = "never"\n'
    )
    assert options(gpt) == {"select": ["GPU"], "ignore": ["GPU002"], "unprofiled_step_ms": 20.0}
    # What is typed wins.
    assert options(gpt, "--select", "RANK", "--unprofiled-step-ms", "21")["select"] == ["RANK"]


def test_the_nearest_file_wins_and_other_projects_files_do_not_count(below: Path) -> None:
    (below.parents[1] / "trace-analyzer.toml").write_text('ignore = ["COMM"]\n')
    (below.parent / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert settings(below) == {"ignore": ("COMM",)}
    (below.parent / "pyproject.toml").write_text("[tool.trace-analyzer]\nstep-range = 'step'\n")
    assert settings(below) == {"step_range": "step"}
    (below.parent / "trace-analyzer.toml").write_text("")
    assert settings(below) == {}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("slect = ['GPU']", "there is no setting 'slect'; there are select, ignore"),
        ("select = 'GPU'", "select: 'GPU' is not a list of codes"),
        ("ignore = [7]", "ignore: 7 is not a code"),
        ("fail-on = 'severe'", "'severe' is none of low, medium, high, never"),
        ("unprofiled-step-ms = -1", "-1 is not a time in ms"),
        ("unprofiled-step-ms = 1e-9", "1e-09 is not a time in ms"),
        ("unprofiled-step-ms = true", "True is not a time in ms"),
        ("step-range = 3", "3 is not a name"),
        ("select = [", "not valid TOML"),
    ],
)
def test_bad_settings_are_one_line_with_their_file(
    gpt: Path, below: Path, text: str, part: str
) -> None:
    place = below / "trace-analyzer.toml"
    place.write_text(text + "\n")
    with pytest.raises(InputError):
        settings(below)
    done = analyze(gpt)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: {place}: ")
    assert part in line


def test_a_table_that_is_none_is_refused(below: Path) -> None:
    (below / "pyproject.toml").write_text("tool.trace-analyzer = 3\n")
    with pytest.raises(InputError, match="not a table"):
        settings(below)


def test_help_does_not_need_the_settings(below: Path) -> None:
    (below / "trace-analyzer.toml").write_text("nonsense\n")
    assert analyze("--help").exit_code == 0


def test_findings_from_a_severity_on_fail_by_file(
    gpt: Path, below: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trace_analyzer.cli import analyze as module

    asked: list[str] = []

    def failing(_: object, fail_on: str) -> list[str]:
        asked.append(fail_on)
        return ["HOST002 (high)"]

    monkeypatch.setattr(module, "_failing", failing)
    (below / "trace-analyzer.toml").write_text('fail-on = "medium"\n')
    done = analyze(gpt)
    assert done.exit_code == 1
    assert "--fail-on medium: HOST002 (high)" in done.stderr
    assert asked == ["medium"]
