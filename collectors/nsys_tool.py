"""Nsight Systems: where it is, what it understands, and turning what it leaves into SQLite.

Works with nsys from 2022 on: options are used where the installed version lists them in its help.
Some installations (the host folder of Nsight Compute is one) capture but cannot import; their
`QdstrmImporter` is then called by itself.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from trace_analyzer.errors import TraceAnalyzerError

PROGRAM_VARIABLE = "TRACE_ANALYZER_NSYS"  # the nsys program, or the folder that holds it
LIBRARIES_VARIABLE = "TRACE_ANALYZER_NSYS_LIBRARIES"  # searched by the importer only
EXPORT_TIMEOUT_SECONDS = 1800
_PLACES = (
    "/usr/local/cuda*/bin/nsys",
    "/opt/nvidia/nsight-systems/*/bin/nsys",
    "/opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    "/opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
    "/usr/lib/nsight-systems/bin/nsys",
)
_IMPORTER = "QdstrmImporter"
# Debian's packages of what the importer links with and bare images lack.
_PACKAGES = {
    "libdw.so.1": "libdw1",
    "libelf.so.1": "libelf1",
    "libbz2.so.1.0": "libbz2-1.0",
    "libglib-2.0.so.0": "libglib2.0-0",
}


class NsysError(TraceAnalyzerError):
    """nsys is missing, or what it needs is; the message says what to do."""


@dataclass(frozen=True)
class Nsys:
    """One installation. `libraries` are put before LD_LIBRARY_PATH for the importer."""

    program: Path
    libraries: str = ""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @cached_property
    def version(self) -> str:
        """The version, e.g. "2025.3.1"; "" where it does not say."""
        match = re.search(r"(\d{4}\.\d+(?:\.\d+)*)", self._ask("--version"))
        return match[1] if match else ""

    @cached_property
    def profile_options(self) -> frozenset[str]:
        """Long options of `nsys profile`."""
        return _options(self._ask("profile", "--help"))

    @cached_property
    def export_options(self) -> frozenset[str]:
        """Long options of `nsys export`."""
        return _options(self._ask("export", "--help"))

    def profile_command(self, output: str, *, graph_nodes: bool = False) -> list[str]:
        """Return what goes before the user's command.

        CUDA and NVTX only, no sampling: both cost, and answer other questions. The window is
        that between cudaProfilerStart and cudaProfilerStop, and training goes on after it.
        `output` may hold nsys's placeholders (`%h`, `%q{RANK}`). `graph_nodes` shows the kernels
        inside CUDA graphs, at a price.
        """
        command = [
            str(self.program),
            "profile",
            "--trace=cuda,nvtx",
            "--sample=none",
            "--capture-range=cudaProfilerApi",
            "--capture-range-end=stop",
            "--force-overwrite=true",
            f"--output={output}",
        ]
        optional = ["--cpuctxsw=none", "--resolve-symbols=false"]
        if graph_nodes:
            optional.append("--cuda-graph-trace=node")
        known = self.profile_options
        command += [option for option in optional if option.partition("=")[0] in known]
        return command

    def export(self, report: Path, target: Path) -> Path:
        """Write the SQLite export of a report, with NCCL's payload where this version can.

        Raises `NsysError`.
        """
        command = [
            str(self.program),
            "export",
            "--type=sqlite",
            "--force-overwrite=true",
            f"--output={target}",
        ]
        command += ["--include-json=true"] if "--include-json" in self.export_options else []
        done = self._run([*command, str(report)])
        if done.returncode or not target.exists():
            raise NsysError(
                f"{report}: nsys {self.version} cannot export it ({_last_line(done)}); "
                f"export it where a full Nsight Systems is installed: nsys export --type=sqlite "
                f"--include-json=true {report.name}"
            )
        return target

    def import_stream(self, stream: Path) -> Path:
        """Turn a `.qdstrm` into a report. Raises `NsysError` that names what is missing."""
        importer = self.importer()
        if importer is None:
            raise NsysError(
                f"{stream}: nsys captured, but there is no {_IMPORTER} beside {self.program}; "
                f"install Nsight Systems in full, or run `{_IMPORTER} -i {stream.name}` elsewhere"
            )
        missing = self.missing_libraries(importer)
        if missing:
            raise NsysError(
                f"{stream}: {importer} needs {', '.join(missing)}; install "
                f"{' '.join(_PACKAGES.get(name, name) for name in missing)}, or name a folder "
                f"that holds them in {LIBRARIES_VARIABLE}"
            )
        report = stream.with_suffix(".nsys-rep")
        done = self._run(
            [str(importer), "-i", str(stream), "-o", str(report)], self._importing(importer)
        )
        if done.returncode or not report.exists():
            raise NsysError(f"{stream}: {importer} failed: {_last_line(done)}")
        return report

    def importer(self) -> Path | None:
        """Return the importer that belongs to this nsys."""
        here = self.program.resolve()
        # <version>/target-linux-x64/nsys, <version>/bin/nsys; importer in <version>/host-linux-x64
        for folder in (here.parent, here.parent.parent, here.parent.parent.parent):
            found = sorted([*folder.glob(_IMPORTER), *folder.glob(f"*/{_IMPORTER}")])
            if found:
                return found[0]
        return None

    def missing_libraries(self, importer: Path) -> list[str]:
        """Return the shared libraries that the importer does not find."""
        try:
            done = self._run(["ldd", str(importer)], self._importing(importer))
        except NsysError:
            return []  # no ldd: the importer itself will say
        return re.findall(r"^\s*(\S+) => not found", done.stdout, re.MULTILINE)

    def _importing(self, importer: Path) -> dict[str, str]:
        environment = dict(self.environment)
        parts = [self.libraries, str(importer.parent), environment.get("LD_LIBRARY_PATH", "")]
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(part for part in parts if part)
        return environment

    def _ask(self, *arguments: str) -> str:
        done = self._run([str(self.program), *arguments])
        return done.stdout + done.stderr

    def _run(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(  # noqa: S603  # nsys, as found or named by the user
                list(command),
                env=dict(environment or self.environment),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=EXPORT_TIMEOUT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NsysError(f"{command[0]}: {error}") from error


def find(environment: Mapping[str, str] | None = None) -> Nsys:
    """Return nsys: the one that `TRACE_ANALYZER_NSYS` names, on PATH, or in a usual place.

    Raises `NsysError` that lists where it looked.
    """
    given = dict(os.environ) if environment is None else dict(environment)
    for program in _candidates(given):
        if program.is_file() and os.access(program, os.X_OK):
            libraries = given.get(LIBRARIES_VARIABLE, "")
            return Nsys(program=program, libraries=libraries, environment=given)
    if given.get(PROGRAM_VARIABLE):
        raise NsysError(f"{PROGRAM_VARIABLE}={given[PROGRAM_VARIABLE]}: there is no nsys")
    raise NsysError(
        "nsys (Nsight Systems) is not installed: it is neither on PATH nor under /usr/local/cuda*, "
        f"/opt/nvidia; install nsight-systems-cli, or name the program in {PROGRAM_VARIABLE}. "
        "Without it, `trace-analyzer collect torch` records the same run"
    )


def _candidates(given: Mapping[str, str]) -> Iterator[Path]:
    named = given.get(PROGRAM_VARIABLE)
    if named:
        yield Path(named) / "nsys" if Path(named).is_dir() else Path(named)
        return
    on_path = shutil.which("nsys", path=given.get("PATH"))
    if on_path:
        yield Path(on_path)
    for pattern in _PLACES:
        yield from sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)  # newest first


def _options(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"--[a-z][a-z-]+", text))


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stdout + "\n" + done.stderr).strip().splitlines()
    return lines[-1].strip() if lines else f"exit code {done.returncode}"
