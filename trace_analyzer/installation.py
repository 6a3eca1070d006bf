"""What this installation can do."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from importlib import metadata

from trace_analyzer import _native

_NSYS_TIMEOUT_S = 20
_CORE = (
    "click",
    "fsspec",
    "isal",
    "jinja2",
    "msgspec",
    "numpy",
    "pandas",
    "sqlite-utils",
    "zstandard",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the installation: `detail` is its version, or what its absence means."""

    name: str
    present: bool
    detail: str
    needed: bool = False


def parts() -> tuple[Part, ...]:
    """Return the parts of this installation; nothing heavy is imported."""
    return (
        Part(name="Python", present=True, detail=platform.python_version(), needed=True),
        *(_package(name) for name in _CORE),
        _compiled(),
        _scanner(),
        _nsys(),
        _torch(),
        Part(
            name="cores",
            present=True,
            detail=f"{_cores()}: several large traces are read at once"
            if _cores() > 1
            else "1: traces are read one after the other",
        ),
    )


def _package(name: str) -> Part:
    try:
        return Part(name=name, present=True, detail=metadata.version(name), needed=True)
    except metadata.PackageNotFoundError:
        return Part(name=name, present=False, detail="required: pip install it", needed=True)


def _compiled() -> Part:
    return Part(
        name="compiled code",
        present=not _native.PROBLEM,
        detail=f"optional: replays run in Python, about 40 times slower ({_native.PROBLEM})"
        if _native.PROBLEM
        else "replays run in C",
    )


def _scanner() -> Part:
    return Part(
        name="native scanner",
        present=False,
        detail="not part of this version: traces are read in Python",
    )


def _nsys() -> Part:
    path = shutil.which("nsys")
    if path is None:
        return Part(
            name="nsys",
            present=False,
            detail="optional: SQLite exports are read without it; .nsys-rep files are not",
        )
    return Part(name="nsys", present=True, detail=_nsys_version(path))


def _nsys_version(path: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 (the user's own nsys, by its path)
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=_NSYS_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return f"{path}, but it does not answer"
    text = done.stdout.strip()
    return text.splitlines()[-1] if text else f"{path}, version unknown"


def _torch() -> Part:
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return Part(
            name="torch",
            present=False,
            detail="optional: analyzing needs none; recording does (pip install 'trace-analyzer[collect]')",
        )
    return Part(name="torch", present=True, detail=f"{version}: runs can be recorded here")


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
