"""Two faults of equal length: each alone gives nothing back, both together do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.rules.loop import Loop, context_of, single
from trace_analyzer.analyses.replay.edit import Edit
from trace_analyzer.rules.context import Context
from trace_analyzer.rules.hidden import hidden_pair
from trace_analyzer.rules.judge import Diagnosis, diagnose
from trace_analyzer.rules.rule import Cause, Kind, Rule


def context(host_ms: float, device_ms: float) -> Context:
    """Return a run whose host does nothing for a time that the GPU computes besides."""

    def body(loop: Loop, _: int) -> None:
        loop.launches(20, 50)
        loop.launch("long", device_ms * 1_000)
        loop.silent(host_ms * 1_000)

    return context_of(single(body))


def fast_host(change: Edit) -> None:
    change.all_host(0, 0.1)


def fast_device(change: Edit) -> None:
    part = change.built.parts[0]
    change.scale_duration(0, part.op_row, np.full(len(part.op_row), 0.1))


def cause(name: str, edit: Callable[[Edit], None], ceiling_ms: float) -> Cause:
    return Cause(
        title=f"{name} takes long.",
        ranks=(0,),
        ceiling_ns=ceiling_ms * 1e6,
        proof="",
        actions=(),
        edit=edit,
        edit_text=f"{name} is fast",
    )


def rules(ceiling_ms: float, kind: Kind, second: str = "GPU999") -> list[Rule]:
    """Return two rules, one that blames the host and one that blames the GPU."""
    causes = (cause("The host", fast_host, ceiling_ms), cause("The GPU", fast_device, ceiling_ms))
    return [
        Rule(
            code=code,
            name="made-up",
            kind=kind,
            status="stable",
            needs="nothing",
            find=lambda _, found=found: [found],  # type: ignore[misc]
        )
        for code, found in zip(("HOST999", second), causes, strict=True)
    ]


def judged(run: Context, ceiling_ms: float = 6.0, kind: Kind = "fault") -> Diagnosis:
    return diagnose(run, rules(ceiling_ms, kind))


def test_both_are_findings_that_name_each_other() -> None:
    found = judged(context(host_ms=7.1, device_ms=6.0))
    assert sorted(item.code for item in found.findings) == ["GPU999", "HOST999"]
    for item in found.findings:
        assert item.recoverable_ms == pytest.approx(6.2, abs=0.8)
        assert "Alone it gives nothing back" in item.limits
        assert item.alone_ms == pytest.approx(item.recoverable_ms or 0.0, abs=0.3)
    assert not found.checks
    host = next(item for item in found.findings if item.code == "HOST999")
    assert "The GPU takes long." in host.limits
    assert host.edit == "The host is fast, and The GPU is fast"


def test_where_one_holds_the_step_the_other_stays_small() -> None:
    found = judged(context(host_ms=3.0, device_ms=9.0))
    assert [item.code for item in found.findings] == ["GPU999"]
    assert [check.code for check in found.checks] == ["HOST999"]


def test_causes_that_intervals_give_no_time_hide_nothing() -> None:
    assert not judged(context(host_ms=7.1, device_ms=6.0), ceiling_ms=0.1).findings


def test_opportunities_are_not_paired() -> None:
    assert not judged(context(host_ms=7.1, device_ms=6.0), kind="opportunity").findings


def test_without_a_replay_nothing_is_hidden() -> None:
    run = context(host_ms=7.1, device_ms=6.0)
    blind = Context(study=run.study, replay=None, withheld="a test")
    seen = [(rule, rule.find(run)[0]) for rule in rules(6.0, "fault")]  # type: ignore[index]
    assert hidden_pair(blind, seen, 0.03) == []


def test_one_rule_that_blames_two_ranks_is_one_thing() -> None:
    found = diagnose(context(host_ms=7.1, device_ms=6.0), rules(6.0, "fault", second="HOST999"))
    assert not found.findings
