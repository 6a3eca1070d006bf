"""Reports that need an export first, with a stand-in for the nsys program."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.readers.nsys_files import Nsys
from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.readers import nsys

# What nsys prints of a report that a newer version wrote.
TOO_NEW = (
    "Exportation error: Report was created in Nsight Systems version "
    "(2025.1.3.140-251335620677v0), newer than your current version (2023.4.4.54-234433681190v0)"
)
_STAND_IN = """#!{python}
import shutil, sys
arguments = sys.argv[1:]
open({log!r}, "a").write(" ".join(arguments) + "\\n")
if "--help" in arguments:
    print({help!r})
    sys.exit(0)
if {error!r}:
    print({error!r})
    sys.exit(1)
for place, argument in enumerate(arguments):
    if argument.startswith("--output="):
        shutil.copyfile({answer!r}, argument[len("--output="):])
    if argument == "-o":
        shutil.copyfile({answer!r}, arguments[place + 1])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("bin", "into", "reports"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    made = Nsys()
    made.launched(0, 10, 20)
    made.write(tmp_path / "answer.sqlite")
    for name in ("my run.nsys-rep", "raw.qdstrm"):
        (tmp_path / "reports" / name).write_bytes(b"report")
    return tmp_path


def _install(folder: Path, program: str = "nsys", *, options: str = "", error: str = "") -> None:
    path = folder / "bin" / program
    path.write_text(
        _STAND_IN.format(
            python=sys.executable,
            log=str(folder / "calls.log"),
            help=f"usage: {options}",
            error=error,
            answer=str(folder / "answer.sqlite"),
        )
    )
    path.chmod(0o755)


def _calls(folder: Path) -> str:
    return (folder / "calls.log").read_text()


@pytest.mark.parametrize("options", ["--include-json --include-blobs", ""])
def test_a_report_is_exported_with_what_this_nsys_knows(folder: Path, options: str) -> None:
    _install(folder, options=options)
    made = nsys.export_report(folder / "reports" / "my run.nsys-rep", folder / "into")
    assert made == folder / "into" / "my run.sqlite"
    assert len(nsys.read(made)) == 1
    assert ("--include-json=true --include-blobs=true" in _calls(folder)) == bool(options)
    assert {path.name for path in (folder / "reports").iterdir()} == {
        "my run.nsys-rep",
        "raw.qdstrm",
    }


def test_without_nsys_the_command_is_given(folder: Path) -> None:
    with pytest.raises(UnreadableInputError) as caught:
        nsys.export_report(folder / "reports" / "my run.nsys-rep", folder / "into")
    assert "nsys is not installed" in str(caught.value)
    assert "nsys export -t sqlite --include-json=true 'my run.nsys-rep'" in caught.value.hint


def test_a_report_of_a_newer_version_names_it(folder: Path) -> None:
    _install(folder, error=TOO_NEW)
    with pytest.raises(UnreadableInputError) as caught:
        nsys.export_report(folder / "reports" / "my run.nsys-rep", folder / "into")
    assert "written by Nsight Systems 2025.1.3.140, and 2023.4.4.54 is installed" in str(
        caught.value
    )
    assert "install 2025.1.3.140 or newer" in caught.value.hint


def test_another_failure_shows_its_last_line(folder: Path) -> None:
    _install(folder, error="first\nThe report is broken.\n")
    with pytest.raises(UnreadableInputError, match=r"exit code 1\): The report is broken\."):
        nsys.export_report(folder / "reports" / "my run.nsys-rep", folder / "into")
    assert list((folder / "into").iterdir()) == []


def test_nothing_is_overwritten(folder: Path) -> None:
    _install(folder)
    (folder / "into" / "my run.sqlite").write_text("mine")
    with pytest.raises(UnreadableInputError, match="exists already"):
        nsys.export_report(folder / "reports" / "my run.nsys-rep", folder / "into")
    assert (folder / "into" / "my run.sqlite").read_text() == "mine"


def test_a_raw_stream_is_imported_first(folder: Path) -> None:
    _install(folder)
    _install(folder, "QdstrmImporter")
    made = nsys.export_report(folder / "reports" / "raw.qdstrm", folder / "into")
    assert made.name == "raw.sqlite"
    first, *_, last = _calls(folder).splitlines()
    assert first.startswith("-i ")
    assert first.endswith("raw.nsys-rep")
    assert last.endswith("raw.nsys-rep")


def test_a_raw_stream_without_importer(folder: Path) -> None:
    _install(folder)
    with pytest.raises(UnreadableInputError) as caught:
        nsys.export_report(folder / "reports" / "raw.qdstrm", folder / "into")
    assert "QdstrmImporter -i raw.qdstrm -o raw.nsys-rep" in caught.value.hint
    assert "--include-json=true raw.nsys-rep" in caught.value.hint
