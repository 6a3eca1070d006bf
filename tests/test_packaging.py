"""What is installed, what it imports, and that the documents around the code still say the truth."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from typing import Any

import jsonschema
import pytest
from click import Command, Context, Group, Option

import trace_analyzer
from tests.traces import ROOT
from trace_analyzer import findings
from trace_analyzer.cli import cli
from trace_analyzer.field_meanings import MEANINGS
from trace_analyzer.tables import TABLES
from trace_analyzer.timeline import Slices

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS = {
    "trace_analyzer": "trace_analyzer",
    "collectors": "trace_analyzer.collectors",
    "reports": "trace_analyzer.reports",
}
MOST_LINES = 400
# Modules above it, each with the reason why it is one piece.
LONG_MODULES = {
    "trace_analyzer/findings.py": "the report as one document: one type after the other",
}

CODES = {"", "identifier"}  # numbers that count or measure nothing


def _sources() -> list[str]:
    """Every module below the three packages, each once, by its real path."""
    return sorted(
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if path.resolve() == path
    )


def test_every_package_is_listed() -> None:
    found = set()
    for folder, name in FOLDERS.items():
        for path in (ROOT / folder).rglob("__init__.py"):
            if path.resolve() == path:
                inner = path.parent.relative_to(ROOT / folder).parts
                found.add(".".join((name, *inner)))
    assert sorted(PROJECT["tool"]["setuptools"]["packages"]) == sorted(found)


def test_sub_packages_beside_are_mapped_to_their_folders() -> None:
    mapped = PROJECT["tool"]["setuptools"]["package-dir"]
    assert mapped == {name: folder for folder, name in FOLDERS.items()}


@pytest.mark.parametrize("name", ["collectors", "reports"])
def test_links_resolve(name: str) -> None:
    link = ROOT / "trace_analyzer" / name
    assert link.is_symlink(), (
        f"{link} is not a symbolic link: a clone without links cannot be typed"
    )
    assert link.resolve() == ROOT / name


def test_modules_are_short() -> None:
    lines = {name: (ROOT / name).read_text(encoding="utf-8").count("\n") for name in _sources()}
    too_long = {name: count for name, count in lines.items() if count > MOST_LINES}
    assert sorted(too_long) == sorted(LONG_MODULES), f"over {MOST_LINES} lines: {too_long}"


def test_package_data_is_there() -> None:
    for package, patterns in PROJECT["tool"]["setuptools"]["package-data"].items():
        folder = ROOT.joinpath(*package.split("."))
        for pattern in patterns:
            assert list(folder.glob(pattern)), f"{package}: nothing matches {pattern}"


def test_demo_sample_is_small() -> None:
    sample = ROOT / "trace_analyzer" / "data" / "sample"
    assert 100_000 < sum(path.stat().st_size for path in sample.iterdir()) <= 1_000_000


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["analyze", "--help"], ["completion", "bash"]]
)
def test_start_up_imports_nothing_heavy(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "trace_analyzer", *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "click" in imported
    heavy = {"fsspec", "jinja2", "msgspec", "numpy", "pandas", "sqlite3", "sqlite_utils", "torch"}
    assert not imported & heavy


def test_only_collectors_import_torch() -> None:
    pattern = re.compile(r"^\s*(?:import|from)\s+torch\b", re.MULTILINE)
    using = [
        name for name in _sources() if pattern.search((ROOT / name).read_text(encoding="utf-8"))
    ]
    assert [name for name in using if not name.startswith("collectors/")] == []


def test_version_is_the_newest_in_the_changelog() -> None:
    versions = re.findall(
        r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert versions[0] == trace_analyzer.__version__


@pytest.mark.parametrize("table", [*TABLES, Slices], ids=lambda table: table.__name__)
def test_columns_say_unit_and_meaning(table: Any) -> None:
    assert table.__doc__
    assert table.columns()
    for spec in table.columns():
        assert spec.meaning, spec.name
        suffix = spec.name.rpartition("_")[2]
        units = {"ns": "ns", "bytes": "bytes", "elements": "elements", "pct": "%"}
        assert spec.unit == units.get(suffix, spec.unit), spec.name


def _declarations() -> list[tuple[str, str, Any]]:
    return [
        (name, field, declared)
        for name, definition in findings.json_schema()["$defs"].items()
        for field, declared in definition["properties"].items()
    ]


def _numbers(declared: dict[str, Any]) -> list[dict[str, Any]]:
    """The number types inside a declaration."""
    found = [declared] if declared.get("type") in {"number", "integer"} else []
    for key in ("items", "additionalProperties"):
        if isinstance(declared.get(key), dict):
            found += _numbers(declared[key])
    for alternative in declared.get("anyOf", ()):
        found += _numbers(alternative)
    return found


def test_fields_of_the_report_say_what_they_mean() -> None:
    described = {(name, field) for name, field, _ in _declarations()}
    assert described == {(name, field) for name, fields in MEANINGS.items() for field in fields}
    assert all(declared["description"] for _, _, declared in _declarations())


def test_numbers_of_the_report_say_unit_statistic_and_scope() -> None:
    silent = [
        f"{name}.{field}"
        for name, field, declared in _declarations()
        for number in _numbers(declared)
        if not (number.get("statistic") and number.get("scope"))
        or (not number.get("unit") and number["statistic"] not in CODES)
    ]
    # Cells of evidence tables have their units in the table's headers.
    assert silent == ["Evidence.rows", "Evidence.rows"]


@pytest.mark.parametrize(
    ("suffix", "unit"), [("_ms", "ms"), ("_us", "us"), ("_ns", "ns"), ("_gbs", "GB/s")]
)
def test_units_of_the_report_are_those_of_the_names(suffix: str, unit: str) -> None:
    wrong = [
        f"{name}.{field}: {number['unit']}"
        for name, field, declared in _declarations()
        if field.endswith(suffix)
        for number in _numbers(declared)
        if number["unit"].split()[0] != unit
    ]
    assert wrong == []


def test_schema_of_the_report_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(findings.json_schema())


def test_reference_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr


def _commands(command: Command, context: Context) -> list[tuple[str, Command]]:
    found = [(context.command_path, command)]
    if isinstance(command, Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            found += _commands(inner, Context(inner, info_name=name, parent=context))
    return found


ALL_COMMANDS = _commands(cli, Context(cli, info_name="trace-analyzer"))


@pytest.mark.parametrize(("path", "command"), ALL_COMMANDS, ids=[path for path, _ in ALL_COMMANDS])
def test_commands_have_help_and_are_documented(path: str, command: Command) -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert command.help
    assert path == "trace-analyzer" or f"# {path}\n" in page
    for parameter in command.params:
        if isinstance(parameter, Option):
            assert parameter.help, parameter.name
            assert f"`{parameter.opts[0]}`" in page


def _blocks(text: str) -> list[str]:
    return re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_readme_opens_with_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    install, tests = _blocks(text)[:2]
    assert install.count("\n") == 1
    assert install.endswith("-m pip install -q . && .venv/bin/trace-analyzer demo\n")
    assert tests.count("\n") == 1
    assert "tests/check.py" in tests
    # What .ci/run looks for.
    assert f"<!-- command: tests -->\n```sh\n{tests}```" in text


def test_readme_names_every_command_that_works() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    works = text.partition("\nWorks: ")[2].partition(";")[0]
    missing = {path.split()[1] for path, _ in ALL_COMMANDS[1:]} - set(re.findall(r"`(.+?)`", works))
    assert missing == set()


def test_documents_point_at_what_exists() -> None:
    missing = []
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("samples/**/*.md")]:
        text = page.read_text(encoding="utf-8")
        missing += [
            f"{page.name}: {target}"
            for target in re.findall(r"\]\((?!https?:)([^)#]+)", text)
            if not (page.parent / target).exists()
        ]
    assert missing == []


def test_documents_use_options_that_exist() -> None:
    known = {"--help"}
    for _, command in ALL_COMMANDS:
        for parameter in command.params:
            known.update(parameter.opts)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"trace-analyzer [^\n`]*", text)
    used = {option for line in lines for option in re.findall(r"--[a-z-]+", line.split(" -- ")[0])}
    assert used <= known
