"""Makes a program that behaves as nsys does, as far as the collector can tell."""

from __future__ import annotations

import sys
from pathlib import Path

_PROGRAM = """#!{python}
import os, pathlib, sqlite3, subprocess, sys
arguments = sys.argv[1:]
def value(name):
    return next(a.partition("=")[2] for a in arguments if a.startswith(name + "="))
if arguments == ["--version"]:
    print("NVIDIA Nsight Systems version {version}")
elif arguments == ["profile", "--help"]:
    print("\\n".join("  " + option + "=" for option in {profile_options!r}))
elif arguments == ["export", "--help"]:
    print("\\n".join("  " + option + "=" for option in {export_options!r}))
elif arguments[0] == "profile":
    command = [a for a in arguments[1:]]
    while command and command[0].startswith("--"):
        command.pop(0)
    code = subprocess.call(command)
    name = value("--output").replace("%q{{RANK}}", os.environ.get("RANK", ""))
    pathlib.Path(name + "{suffix}").write_text("report")
    print("Importer error status: An unknown error occurred." if "{suffix}" == ".qdstrm" else "")
    sys.exit(code or {profile_code})
elif arguments[0] == "export":
    if {export_fails}:
        sys.exit("Exportation error: Report was created in a newer version")
    with sqlite3.connect(value("--output")) as database:
        database.execute("create table META_DATA_CAPTURE (name, value)")
        database.execute("insert into META_DATA_CAPTURE values "
            "('PROCESS_0:ENVIRONMENT_VARIABLE', 'MY_TOKEN=hunter2')")
        database.execute("create table OPTIONS (text)")
        database.execute("insert into OPTIONS values (?)", (" ".join(arguments),))
"""

PROFILE_2022 = ("--trace", "--sample", "--capture-range", "--capture-range-end", "--output")
PROFILE_2025 = (*PROFILE_2022, "--cpuctxsw", "--resolve-symbols", "--cuda-graph-trace")


def make_nsys(
    folder: Path,
    *,
    version: str = "2025.3.1.0-1",
    profile_options: tuple[str, ...] = PROFILE_2025,
    export_options: tuple[str, ...] = ("--type", "--include-json"),
    suffix: str = ".nsys-rep",
    profile_code: int = 0,
    export_fails: bool = False,
) -> Path:
    """Write the program into `folder` and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nsys"
    program.write_text(
        _PROGRAM.format(
            python=sys.executable,
            version=version,
            profile_options=profile_options,
            export_options=export_options,
            suffix=suffix,
            profile_code=profile_code,
            export_fails=export_fails,
        )
    )
    program.chmod(0o755)
    return program


def make_importer(folder: Path, *, works: bool = True) -> Path:
    """Write a QdstrmImporter that copies, or fails."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "QdstrmImporter"
    action = 'cp "$2" "$4"' if works else "echo 'cannot read the stream' >&2; exit 3"
    program.write_text(f'#!/bin/sh\necho "$LD_LIBRARY_PATH" > {folder}/path\n{action}\n')
    program.chmod(0o755)
    return program
