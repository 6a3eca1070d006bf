"""Runs of the fault lab that every clone has, asked one rule at a time."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from tests.rules.loop import context_of
from trace_analyzer.readers.discovery import open_run
from trace_analyzer.rules.context import Context
from trace_analyzer.rules.judge import Diagnosis, diagnose
from trace_analyzer.rules.rule import Rule

FAULTLAB = Path(__file__).parents[1] / "data" / "faultlab"


@cache
def recording(name: str) -> Context:
    """Return what rules read of a run; its own unprofiled steps are left out."""
    return context_of(replace(open_run(str(FAULTLAB / name)), unprofiled=()))


def diagnosed_recording(rule: Rule, name: str) -> Diagnosis:
    """Return what one rule says about a recorded run."""
    return diagnose(recording(name), [rule])


def cost_ms(name: str) -> float:
    """Return what the fault of a run really costs, ms a step."""
    label = json.loads((FAULTLAB / name / "label.json").read_text())
    return float(label["cost_ms"])
