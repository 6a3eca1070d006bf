"""How sure a finding is, and what that rests on."""

from __future__ import annotations

from trace_analyzer.rules.context import Context
from trace_analyzer.rules.rule import Cause, Confidence, Rule

_CONFIDENCE = {"low": 0, "medium": 1, "high": 2}


def confidence_of(context: Context, rule: Rule, cause: Cause) -> tuple[Confidence, str]:
    """Return the lowest confidence that anything asks for, with its reason."""
    found: list[tuple[Confidence, str]] = [(cause.confidence, cause.confidence_reason)]
    if rule.status == "experimental":
        found.append(("medium", "no recorded run has shown yet what this cause costs"))
    if not rule.evidence_only:
        if context.replay is None:
            found.append(("low", f"the replay is withheld: {context.withheld}"))
        elif context.replay.known_ns is None and context.replay.bound != "device":
            found.append(("medium", "the step without the profiler is predicted, not measured"))
        if len(context.study.steady.used) < 3:
            found.append(("low", f"{len(context.study.steady.used)} steady steps only"))
    level, reason = min(found, key=lambda pair: _CONFIDENCE[pair[0]])
    return level, reason or _why_sure(context)


def _why_sure(context: Context) -> str:
    """Return what a high confidence rests on."""
    steps = len(context.study.steady.used)
    replay = context.replay
    if replay is None:
        return f"seen in {steps} steady steps"
    known = (
        "the step without the profiler is known"
        if replay.known_ns is not None
        else "the GPU decides the step, so that the profiler hardly changes it"
    )
    return f"{steps} steady steps, a replay that misses them by {100 * replay.error:.1f} %, and {known}"
