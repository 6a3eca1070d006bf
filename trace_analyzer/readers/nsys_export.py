"""Reports of Nsight Systems (.nsys-rep, .qdrep, .qdstrm) → SQLite, with the installed nsys."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

from trace_analyzer.errors import UnreadableInputError

_NEWER = re.compile(
    r"created in Nsight Systems version \(?([\d.]+)[^)]*\)?,? newer than your current version "
    r"\(?([\d.]+)",
    re.IGNORECASE,
)
_IMPORTER = "QdstrmImporter"
_RAW = ".qdstrm"
_JSON_OPTION = "--include-json"
_BLOB_OPTION = "--include-blobs"


def export_report(path: Path, into: Path) -> Path:
    """Export a report into the folder `into` and return the SQLite file.

    A raw stream (.qdstrm) is imported first. Payloads of NCCL calls are exported too where the
    installed nsys can. Raises `UnreadableInputError`, with the command to run, where nsys is not
    installed, too old for the report, or fails.
    """
    nsys = shutil.which("nsys")
    if nsys is None:
        raise UnreadableInputError(
            path,
            "a report of Nsight Systems, and nsys is not installed here",
            f"run where it was recorded: {_advice(path)}",
        )
    report = _imported(path, into, nsys) if path.suffix == _RAW else path
    target = into / f"{path.stem}.sqlite"
    if target.exists():
        raise UnreadableInputError(path, f"{target.name} exists already in {into}", "remove it")
    known = _run([nsys, "export", "--help"]).stdout
    options = [f"{option}=true" for option in (_JSON_OPTION, _BLOB_OPTION) if option in known]
    command = [nsys, "export", "--type=sqlite", *options, f"--output={target}"]
    done = _run([*command, str(report.resolve())])
    if done.returncode == 0 and target.exists():
        return target
    target.unlink(missing_ok=True)
    raise _failure(path, done)


def _imported(path: Path, into: Path, nsys: str) -> Path:
    """Turn a raw stream into a report with the importer that lies beside nsys."""
    root = Path(nsys).resolve().parent.parent
    beside = sorted(root.glob(f"host-*/{_IMPORTER}"))
    importer = shutil.which(_IMPORTER) or (str(beside[0]) if beside else None)
    report = into / f"{path.stem}.nsys-rep"
    if importer is None:
        raise UnreadableInputError(
            path,
            f"a raw recording that was never imported, and {_IMPORTER} of Nsight Systems was not "
            "found",
            f"run where it was recorded: {_advice(path)}",
        )
    done = _run([importer, "-i", str(path.resolve()), "-o", str(report)])
    if done.returncode or not report.exists():
        report.unlink(missing_ok=True)
        raise _failure(path, done)
    return report


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 -- a list of arguments, no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, stdout=str(error))


def _failure(path: Path, done: subprocess.CompletedProcess[str]) -> UnreadableInputError:
    newer = _NEWER.search(done.stdout)
    if newer is not None:
        written, installed = (version.rstrip(".") for version in newer.groups())
        return UnreadableInputError(
            path,
            f"the report was written by Nsight Systems {written}, and {installed} is installed",
            f"install {written} or newer, or run where it was recorded: {_advice(path)}",
        )
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    reason = f": {lines[-1][:200]}" if lines else ""
    return UnreadableInputError(
        path,
        f"nsys could not export it (exit code {done.returncode}){reason}",
        f"try it by hand: {_advice(path)}",
    )


def _advice(path: Path) -> str:
    """Return the command that makes a readable export."""
    name = shlex.quote(path.name)
    if path.suffix == _RAW:
        report = shlex.quote(f"{path.stem}.nsys-rep")
        return (
            f"{_IMPORTER} -i {name} -o {report} && "
            f"nsys export -t sqlite {_JSON_OPTION}=true {report}"
        )
    return f"nsys export -t sqlite {_JSON_OPTION}=true {name} (without {_JSON_OPTION} if it is unknown there)"
