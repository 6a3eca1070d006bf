"""How far the processes of a command came, so that an empty bundle can say why it is empty.

Every Python process of a `collect` command adds a word to a small file of the machine it runs on.
Standard library only; the bootstrap writes its words itself, before the package is imported.
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

VARIABLE = "TRACE_ANALYZER_TRAIL"


class Stage(StrEnum):
    """What a process came to, in order."""

    PYTHON = "python"  # it runs our bootstrap
    NO_TORCH = "no-torch"  # it asked for torch, which is not there
    TORCH = "torch"  # it imported torch
    OPTIMIZER = "optimizer"  # an optimizer stepped
    REFUSED = "refused"  # a recording should have begun, and could not


_REASONS = {
    None: "the command started no Python process that the recorder sees here (python -I or -E, a "
    "container, another machine); use trace_analyzer.collectors.record in the script",
    Stage.PYTHON: "no process of the command imported torch",
    Stage.NO_TORCH: "the Python of the command has no torch; install it there (pip install torch)",
    Stage.TORCH: "no optimizer of torch stepped; use trace_analyzer.collectors.record in the "
    "script to say where its steps end",
    Stage.OPTIMIZER: "training ended before the recording began; it leaves the first --skip "
    "steps alone, so lower --skip or train for longer",
    Stage.REFUSED: "see the message of the process above",
}


def leave(stage: Stage) -> None:
    """Note that this process came to a stage. A trail that cannot be written is no matter."""
    path = os.environ.get(VARIABLE)
    if path:
        with suppress(OSError), open(path, "a", encoding="ascii") as stream:  # noqa: PTH123  # as the bootstrap
            stream.write(f"{stage}\n")


def reason(trail: Path) -> str:
    """Say why nothing was recorded, from the furthest stage that any process came to."""
    try:
        words = set(trail.read_text(encoding="ascii", errors="replace").split())
    except OSError:
        words = set()
    reached = [stage for stage in Stage if stage in words]
    return _REASONS[reached[-1] if reached else None]
