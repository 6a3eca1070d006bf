"""Settings of `analyze` that stand in a file beside the work, so that they need not be typed.

The nearest folder upward from the current one that has a `trace-analyzer.toml`, or a
`pyproject.toml` with a table `[tool.trace-analyzer]`, sets them. What is given on the command line
wins.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from trace_analyzer.cli.group import InputError
from trace_analyzer.cli.values import SEVERITIES, Codes, Milliseconds

OWN_FILE = "trace-analyzer.toml"
SHARED_FILE = "pyproject.toml"
_TABLE = "trace-analyzer"


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise click.BadParameter(f"{value!r} is not a name")
    return value


def _severity(value: object) -> str:
    if value not in (*SEVERITIES, "never"):
        raise click.BadParameter(f"{value!r} is none of {', '.join((*SEVERITIES, 'never'))}")
    return str(value)


def _milliseconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise click.BadParameter(f"{value!r} is not a time in ms")
    return Milliseconds().convert(value, None, None)


def _codes(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise click.BadParameter(f"{value!r} is not a list of codes")
    return tuple(Codes().convert(item, None, None) for item in value)


_SETTINGS: Mapping[str, Callable[[object], object]] = {
    "select": _codes,
    "ignore": _codes,
    "fail-on": _severity,
    "unprofiled-step-ms": _milliseconds,
    "step-range": _text,
}


class ConfiguredCommand(click.Command):
    """A command whose options have their defaults from the settings file."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401
    ) -> click.Context:
        """Read the settings, unless only help or a completion is asked for."""
        if not extra.get("resilient_parsing") and not {"-h", "--help"} & set(args):
            extra["default_map"] = settings(Path.cwd())
        return super().make_context(info_name, args, parent, **extra)


def settings(folder: Path) -> dict[str, object]:
    """Return the settings that hold in a folder, by parameter. Raises `InputError`."""
    for place in (folder, *folder.parents):
        own = _table(place / OWN_FILE, ())
        if own is not None:
            return _checked(place / OWN_FILE, own)
        shared = _table(place / SHARED_FILE, ("tool", _TABLE))
        if shared is not None:
            return _checked(place / SHARED_FILE, shared)
    return {}


def _table(path: Path, inside: tuple[str, ...]) -> Mapping[str, object] | None:
    """Return the table of a file, None where there is none."""
    try:
        with path.open("rb") as stream:
            found: object = tomllib.load(stream)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except PermissionError:
        return None  # a folder above that is not ours
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid TOML: {' '.join(str(error).split())}") from error
    for name in inside:
        if not isinstance(found, dict) or name not in found:
            return None
        found = found[name]
    if not isinstance(found, dict):
        raise InputError(f"{path}: {'.'.join(inside)} is not a table of settings")
    return found


def _checked(path: Path, table: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in table.items():
        if name not in _SETTINGS:
            known = ", ".join(_SETTINGS)
            raise InputError(f"{path}: there is no setting {name!r}; there are {known}")
        try:
            found[name.replace("-", "_")] = _SETTINGS[name](value)
        except click.BadParameter as error:
            raise InputError(f"{path}: {name}: {error.message}") from error
    return found
