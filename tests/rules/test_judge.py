"""What the judge makes of causes: which stand, in which order, and what a failing rule does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.traces import real_trace
from trace_analyzer.analyses.replay.edit import Edit
from trace_analyzer.analyses.replay.replay import Replay, replay
from trace_analyzer.analyses.study import Study, study
from trace_analyzer.readers.discovery import open_run
from trace_analyzer.rules.context import Context
from trace_analyzer.rules.judge import diagnose
from trace_analyzer.rules.rule import Answer, Cause, NotApplicable, Passed, Rule


@pytest.fixture(scope="module")
def studied() -> Study:
    """Return the analyses of a run whose rank 1 is late."""
    return study(open_run(str(real_trace("h200-ddp/slow_cpu_rank"))))


@pytest.fixture(scope="module")
def context(studied: Study) -> Context:
    """Return what rules read of it, with a replay."""
    replayed = replay(studied, 34.26e6)
    assert isinstance(replayed, Replay)
    return Context(study=studied, replay=replayed)


def rule(code: str, answer: Callable[[Context], Answer] | Answer, **settings: Any) -> Rule:
    """Make a rule that answers what is given."""
    find = answer if callable(answer) else lambda _: answer
    return Rule(
        code=code,
        name="made-up",
        needs="nothing",
        find=find,
        **{"kind": "fault", "status": "stable", **settings},
    )


def cause(edit: Callable[[Edit], None] | None, **settings: Any) -> Cause:
    """Make a cause of 5 ms a step on rank 1."""
    return Cause(
        **{
            "title": "Something is slow.",
            "ranks": (1,),
            "ceiling_ns": 5e6,
            "proof": "",
            "actions": (),
            "edit": edit,
            **settings,
        }
    )


def faster_host(factor: float) -> Callable[[Edit], None]:
    """Return an edit of rank 1's host."""
    return lambda edit: edit.all_host(1, factor)


def test_an_interval_reaches_to_what_the_rule_itself_does_not_know(context: Context) -> None:
    limits = (faster_host(0.97), faster_host(0.6))
    found = [
        diagnose(context, [rule("DATA001", [cause(faster_host(0.9), **more)])]).findings[0]
        for more in ({}, {"limits_of_gain": limits})
    ]
    own, wide = (item.recoverable_interval_ms for item in found)
    assert own is not None
    assert wide is not None
    assert found[0].recoverable_ms == found[1].recoverable_ms
    assert wide[0] < own[0] < own[1] < wide[1]


def test_the_largest_gain_comes_first_and_faults_before_opportunities(context: Context) -> None:
    found = diagnose(
        context,
        [
            rule("DATA001", [cause(faster_host(0.9))]),
            rule("HOST001", [cause(faster_host(0.5))]),
            rule("GPU001", [cause(faster_host(0.4))], kind="opportunity"),
        ],
    )
    assert [item.code for item in found.findings] == ["HOST001", "DATA001", "GPU001"]
    first = found.findings[0]
    assert first.recoverable_ms is not None
    assert first.recoverable_interval_ms is not None
    low, high = first.recoverable_interval_ms
    assert 0 < low < first.recoverable_ms < high
    assert (first.basis, first.severity) == ("replay", "high")
    assert found.joint is not None
    # Two edits of the same host time together: less than the sum of both, more than the larger.
    gains = [item.recoverable_ms or 0.0 for item in found.findings if item.kind == "fault"]
    alone = [item.alone_ms for item in found.findings if item.kind == "fault"]
    assert [item.alone_ms for item in found.findings if item.kind == "opportunity"] == [None]
    # Either one nearly reaches what the GPU allows, so that each hides behind the other.
    assert all(
        0 <= left < gain for left, gain in zip((x or 0.0 for x in alone), gains, strict=True)
    )
    assert max(gains) - 0.5 <= found.joint.gain_ns / 1e6 < sum(gains)


def test_an_edit_without_effect_is_a_check_not_a_finding(context: Context) -> None:
    found = diagnose(context, [rule("HOST002", [cause(faster_host(1.0))])])
    assert found.findings == []
    assert [(check.code, check.state) for check in found.checks] == [("HOST002", "passed")]


def test_a_gain_within_its_error_is_not_distinguishable(context: Context) -> None:
    assert context.replay is not None
    unsure = Context(study=context.study, replay=_Unsure(context.replay))  # type: ignore[arg-type]
    found = diagnose(unsure, [rule("HOST002", [cause(faster_host(0.5))])])
    assert found.findings == []
    assert found.checks[0].state == "not-distinguishable"
    assert "between -1.0 and" in found.checks[0].reason


class _Unsure:
    """A replay whose gains may as well be nothing."""

    def __init__(self, replayed: Replay) -> None:
        self._replay = replayed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replay, name)

    def gain_of(self, apply: Callable[[Edit], None], *, mean: bool = False) -> Any:
        gain = self._replay.gain_of(apply, mean=mean)
        return replace(gain, interval_ns=(-1e6, gain.interval_ns[1]))


def test_a_rule_that_fails_is_said_and_stops_nothing(context: Context) -> None:
    def fails(_: Context) -> Answer:
        raise ZeroDivisionError("of all things")

    found = diagnose(context, [rule("HOST002", fails), rule("HOST001", [cause(faster_host(0.5))])])
    assert [item.code for item in found.findings] == ["HOST001"]
    (error,) = [check for check in found.checks if check.state == "error"]
    assert (error.code, error.reason) == ("HOST002", "ZeroDivisionError: of all things")


def test_without_a_replay_the_ceiling_counts_with_low_confidence(studied: Study) -> None:
    context = Context(study=studied, replay=None, withheld="no launches")
    found = diagnose(
        context,
        [
            rule("HOST001", [cause(None)]),
            rule("HOST002", [cause(None, ceiling_ns=1e5)]),
            rule("COMM004", NotApplicable(reason="one rank", needs="all ranks")),
            rule("DATA001", Passed(reason="no loader")),
        ],
    )
    (finding,) = found.findings
    assert (finding.recoverable_ms, finding.ceiling_ms, finding.basis) == (None, 5.0, "ceiling")
    assert finding.confidence == "low"
    assert "no launches" in finding.confidence_reason
    states = {check.code: check.state for check in found.checks}
    assert states == {"HOST002": "passed", "COMM004": "not-applicable", "DATA001": "passed"}
    assert found.joint is None


def test_a_late_rank_is_explained_by_its_local_cause(context: Context) -> None:
    late = cause(faster_host(0.5), explains_late=False)
    found = diagnose(
        context,
        [
            rule("RANK001", [late]),
            rule("HOST003", [cause(faster_host(0.6))]),
            rule("COMM001", [cause(faster_host(0.3))]),
        ],
    )
    assert [(item.code, item.caused_by) for item in found.findings] == [
        ("COMM001", None),
        ("HOST003", None),
        ("RANK001", "HOST003"),
    ]


def test_experimental_rules_come_last_of_their_kind_and_are_less_sure(context: Context) -> None:
    found = diagnose(
        context,
        [
            rule("HOST007", [cause(faster_host(0.4))], status="experimental"),
            rule("HOST001", [cause(faster_host(0.6))]),
        ],
    )
    assert [item.code for item in found.findings] == ["HOST001", "HOST007"]
    assert found.findings[1].confidence == "medium"


def test_below_its_share_a_fault_is_an_opportunity(context: Context) -> None:
    found = diagnose(context, [rule("HOST004", [cause(faster_host(0.9))], opportunity_below=0.9)])
    assert [item.kind for item in found.findings] == ["opportunity"]
