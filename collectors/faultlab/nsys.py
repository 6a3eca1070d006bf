"""Start programs under nsys, and turn what it leaves into SQLite.

Some installations hold nsys without a working importer: it then leaves a `.qdstrm`, which
`QdstrmImporter` turns into a report once the libraries that it misses are on its path.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

STEP_TIMEOUT_S = 120.0


class NsysError(Exception):
    """nsys or its importer failed; the text is its last output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nsys:
    """Where nsys is; `importer` and `libraries` only where its own import does not work."""

    program: str = "nsys"
    importer: str = ""
    libraries: str = ""

    def prefix(self, output: Path, captures: int) -> list[str]:
        """Return the command to put before a program; it records between cudaProfilerStart/Stop.

        With several captures, nsys writes one report for each.
        """
        end = "stop" if captures == 1 else f"repeat:{captures}"
        return [
            self.program,
            "profile",
            "--trace=cuda,nvtx",
            "--sample=none",
            "--cpuctxsw=none",
            "--resolve-symbols=false",
            "--capture-range=cudaProfilerApi",
            f"--capture-range-end={end}",
            "--force-overwrite=true",
            f"--output={output}",
        ]

    def export(self, raw: Path, target: Path) -> None:
        """Write the SQLite export of a `.qdstrm` or `.nsys-rep`. Raises `NsysError`."""
        report = raw
        if raw.suffix == ".qdstrm":
            report = raw.with_suffix(".nsys-rep")
            if not report.exists():
                self._run([self.importer, "-i", str(raw), "-o", str(report)], importing=True)
        self._run(
            [
                self.program,
                "export",
                "--type=sqlite",
                "--include-json=true",
                "--force-overwrite=true",
                f"--output={target}",
                str(report),
            ]
        )

    def _run(self, command: list[str], *, importing: bool = False) -> None:
        environment = dict(os.environ)
        if importing and self.importer:
            own = str(Path(self.importer).parent)
            parts = [self.libraries, own, environment.get("LD_LIBRARY_PATH", "")]
            environment["LD_LIBRARY_PATH"] = ":".join(part for part in parts if part)
        try:
            done = subprocess.run(  # noqa: S603
                command,
                env=environment,
                capture_output=True,
                text=True,
                timeout=STEP_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NsysError(str(error)) from error
        if done.returncode:
            raise NsysError((done.stdout + done.stderr).strip()[-500:])


def reports(folder: Path, stem: str) -> list[Path]:
    """Return what nsys left under this name, one file a capture, in the order of capture."""
    found: dict[str, Path] = {}
    for suffix in (".qdstrm", ".nsys-rep"):  # a report is preferred to its raw stream
        for path in folder.glob(f"{stem}*{suffix}"):
            found[path.name.removesuffix(suffix)] = path
    return sorted(found.values(), key=lambda path: path.stat().st_mtime_ns)
