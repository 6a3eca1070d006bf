"""Where reports are written: checked before the work, written in one step after it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trace_analyzer.cli.group import InputError

STDOUT = "-"


@dataclass(frozen=True, slots=True)
class Output:
    """One report to write: the option that asked for it, and a path or "-" for stdout."""

    option: str
    target: str

    @property
    def to_stdout(self) -> bool:
        """Whether it takes stdout."""
        return self.target == STDOUT


def check_outputs(outputs: Sequence[Output], *, force: bool) -> None:
    """Refuse outputs that cannot be written, before any work is done.

    Raises `InputError` for an existing file without `force`, a missing folder, two outputs in
    one place.
    """
    seen: dict[str, str] = {}
    for output in outputs:
        place = STDOUT if output.to_stdout else str(Path(output.target).absolute())
        if place in seen:
            raise InputError(f"{seen[place]} and {output.option} both write to {output.target}")
        seen[place] = output.option
        if not output.to_stdout:
            _check_file(Path(output.target), force=force)


def _check_file(path: Path, *, force: bool) -> None:
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file in it")
    if path.is_file() and not force:
        raise InputError(f"{path}: exists already; give another name, or --force to replace it")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}; create it first")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: the folder {path.parent} cannot be written to")


def refuse_inputs(outputs: Sequence[Output], run: str, names: Iterable[str]) -> None:
    """Refuse, even with --force, to write over a file that was read.

    `names` are the paths of sources inside `run`.
    """
    read = [Path(run), *(Path(run) / name for name in names)]
    for output in outputs:
        path = Path(output.target)
        if output.to_stdout or not path.exists():
            continue
        if any(source.exists() and source.samefile(path) for source in read):
            raise InputError(f"{path}: is one of the files that were read; give another name")


def write(output: Output, content: str | bytes) -> str:
    """Write a report and return where; a file is complete or not there at all.

    Raises `InputError` where it cannot be written.
    """
    data = content.encode("utf-8", errors="replace") if isinstance(content, str) else content
    if output.to_stdout:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return STDOUT
    with replaced(output) as path:
        path.write_bytes(data)
    return output.target


@contextmanager
def replaced(output: Output) -> Iterator[Path]:
    """Give the path of a new file that takes the output's place once it is complete.

    Raises `InputError` where it cannot be written.
    """
    path = Path(output.target)
    try:
        if path.exists() and not path.is_file():
            yield path  # a device or pipe cannot be replaced
        else:
            with _beside(path) as temporary:
                yield temporary
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
