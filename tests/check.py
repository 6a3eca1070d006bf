"""Run every check of the project: what README, CONTRIBUTING and CI call "the tests".

    python tests/check.py [ARGUMENTS OF PYTEST]

All checks run, also after one has failed; the exit code is 1 if any did.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent  # the tools of this environment, whatever PATH says

# pytest comes last: its closing line is what a reader, and CI, looks for.
CHECKS = (
    ("lint", ("ruff", "check")),
    ("format", ("ruff", "format", "--check")),
    ("types", ("mypy",)),
    ("imports", ("lint-imports",)),
    ("tests", (sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile")),
)


def main(pytest_arguments: list[str]) -> int:
    """Run the checks, say which failed, and return the exit code."""
    failed = []
    environment = {
        "OMP_NUM_THREADS": "1",  # two processes test at once, and torch would take all cores in each
        **os.environ,
        # Tests that start trace-analyzer by name mean the one of this environment.
        "PATH": os.pathsep.join((str(BIN), os.environ.get("PATH", ""))),
    }
    for name, command in CHECKS:
        program = str(BIN / command[0])  # an absolute path stays what it is
        extra = pytest_arguments if name == "tests" else []
        started_s = time.monotonic()
        _say(f"== {name}: {' '.join((Path(program).name, *command[1:], *extra))}")
        arguments = [program, *command[1:], *extra]
        code = subprocess.run(arguments, cwd=ROOT, env=environment, check=False).returncode
        if code:
            failed.append(f"{name} (exit {code})")
        _say(f"== {name}: {'FAILED' if code else 'ok'}, {time.monotonic() - started_s:.0f} s")
    if failed:
        _say(f"== failed: {', '.join(failed)}")
    return 1 if failed else 0


def _say(text: str) -> None:
    sys.stdout.write(text + os.linesep)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
