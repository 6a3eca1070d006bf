"""Faults that are injected together leave each other's work in the step."""

from __future__ import annotations

from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_two_faults_in_the_same_place_both_run() -> None:
    from trace_analyzer.collectors.faultlab.fault import Dose
    from trace_analyzer.collectors.faultlab.plan import StepPlan

    plan = StepPlan()
    assert plan.probe() is None
    trainer = cast("Any", None)  # neither fault asks it for anything
    for text in ("item-sync=1", "layout-copies=1"):
        Dose.parse(text).make().edit(plan, trainer)
    probe = plan.probe()
    assert probe is not None
    activity = torch.profiler.ProfilerActivity.CPU
    hidden = torch.arange(24.0).reshape(2, 3, 4)
    with torch.profiler.profile(activities=[activity]) as profile:
        result = probe(0, hidden)
    names = [event.name for event in profile.events()]
    assert "aten::item" in names
    assert "aten::clone" in names  # a copy into the other layout
    assert torch.equal(result, hidden)
