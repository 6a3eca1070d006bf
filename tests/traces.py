"""Where the real traces lie, and how tests ask for them.

Real traces are not part of the repository. `TRACE_ANALYZER_TRACES` names their folder; without
it, `../shared/traces` beside the checkout is tried. Tests that need an absent file are skipped,
and the skip reason is the same everywhere so that they can be counted.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TRACES = Path(os.environ.get("TRACE_ANALYZER_TRACES", ROOT.parent / "shared" / "traces"))


def real_trace(relative: str) -> Path:
    """Return a file or folder of the real traces, or skip the test where it is absent."""
    path = TRACES / relative
    if not path.exists():
        pytest.skip("real traces are absent (TRACE_ANALYZER_TRACES)")
    return path
