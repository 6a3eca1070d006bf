"""`explain` and `rules`: the catalogue on a terminal and as JSON."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from trace_analyzer.cli import cli
from trace_analyzer.findings import DATA_WARNING_NAMES
from trace_analyzer.rules.catalogue import rules
from trace_analyzer.rules.sections import SECTIONS


def run(*arguments: str, columns: int | None = None) -> Result:
    environment = {} if columns is None else {"COLUMNS": str(columns)}
    return CliRunner().invoke(cli, arguments, env={"NO_COLOR": "1", **environment})


@pytest.mark.parametrize("asked", ["HOST002", "host002", "per-step-sync"])
def test_a_rule_is_explained_by_code_or_name(asked: str) -> None:
    done = run("explain", asked)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "HOST002 per-step-sync (fault)"
    assert [line for line in lines if line in SECTIONS] == list(SECTIONS)
    assert lines[-2] == "Needs"


@pytest.mark.parametrize("columns", [40, 60, 120])
@pytest.mark.parametrize("code", ["GPU004", "TRC003", "COMM011"])
def test_lines_fit_the_terminal(code: str, columns: int) -> None:
    lines = run("explain", code, columns=columns).stdout.splitlines()
    assert max(len(line) for line in lines[1:]) <= columns
    assert max(len(line) for line in lines) > columns / 2


def test_data_warnings_are_explained_too() -> None:
    done = run("explain", "trc008")
    assert done.stdout.startswith("TRC008 kernels-hidden-in-graphs (data warning)\n")
    assert "--cuda-graph-trace=node" in done.stdout


def test_experimental_rules_say_so() -> None:
    rule = next(rule for rule in rules() if rule.status == "experimental")
    assert (
        "experimental: no recorded run has shown what it costs" in run("explain", rule.code).stdout
    )


@pytest.mark.parametrize(
    ("asked", "hint"), [("GPU999", "did you mean GPU001"), ("nonsense", "no such code"), ("", "no")]
)
def test_an_unknown_code_is_one_line(asked: str, hint: str) -> None:
    done = run("explain", asked)
    assert done.exit_code == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert hint in line
    assert "trace-analyzer rules" in line


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_the_list_holds_every_code_once_and_fits(columns: int) -> None:
    done = run("rules", columns=columns)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    first = [line.split()[0] for line in lines if not line.startswith(" ")]
    head = ["code"] if columns == 120 else []
    assert first == [*head, *(rule.code for rule in rules()), *DATA_WARNING_NAMES]
    assert max(len(line) for line in lines) <= max(columns, 44)  # no name is broken
    assert (lines[0].split()[-1] == "finds") == (columns == 120)


def test_the_list_as_json_has_all_texts() -> None:
    found = json.loads(run("rules", "--json").stdout)
    assert len(found) == len(rules()) + len(DATA_WARNING_NAMES)
    sync = next(item for item in found if item["code"] == "HOST002")
    assert list(sync["sections"]) == list(SECTIONS)
    assert {"code", "name", "kind", "status", "needs", "sections"} == set(sync)
