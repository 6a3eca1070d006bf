"""Write the reports of the samples, and the example in the README, again.

    python samples/render.py

Run it when the report has changed, and read the difference before you commit it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ("slow_cpu_rank",)
README_SAMPLE = "slow_cpu_rank"

EXAMPLE = re.compile(r"(<!-- example: .*? -->\n```\n)(.*?)(```\n)", re.DOTALL)
# The example ends before this section: a README has to stay readable.
_CUT_BEFORE = "\nNCCL ("


def run(sample: str, *options: str) -> str:
    """Analyze a sample as a user would, from the root of the repository; return what it prints."""
    command = [sys.executable, "-m", "trace_analyzer", "analyze", f"samples/{sample}", *options]
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(  # noqa: S603 (this program itself)
        command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout


def example(printed: str) -> str:
    """Return the part of the output that the README shows."""
    return printed.partition(_CUT_BEFORE)[0]


def main() -> None:
    """Write everything."""
    for sample in SAMPLES:
        target = f"samples/{sample}/report"
        printed = run(
            sample, "--html", f"{target}.html", "--json", f"{target}.json", "--force", "--quiet"
        )
        if sample == README_SAMPLE:
            readme = ROOT / "README.md"
            found = EXAMPLE.search(text := readme.read_text(encoding="utf-8"))
            assert found, "README.md has no example to replace"
            new = text[: found.start(2)] + example(printed) + text[found.end(2) :]
            readme.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
