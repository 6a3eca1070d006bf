"""From causes to findings: what each gives back, which of them stand, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from trace_analyzer.analyses.replay.replay import Gain, Replay
from trace_analyzer.analyses.replay.simulate import ReplayError
from trace_analyzer.findings import Check, Finding
from trace_analyzer.rules.confidence import confidence_of
from trace_analyzer.rules.context import Context
from trace_analyzer.rules.hidden import hidden_pair
from trace_analyzer.rules.rule import Cause, Kind, NotApplicable, Passed, Rule

if TYPE_CHECKING:
    from trace_analyzer.analyses.replay.edit import Edit

# Below this share of the step nothing is told from noise: two healthy runs of an eager loop
# differ by it.
LEAST_SHARE = 0.02
PRIMARY_SHARE = 0.03
HIGH_SHARE = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A cause with what it gives back; `share` of the step orders them."""

    rule: Rule
    cause: Cause
    kind: Kind
    gain: Gain | None
    share: float
    caused_by: str | None = None
    alone_ns: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All that the rules say: findings in order, checks, and all edits together."""

    findings: list[Finding]
    checks: list[Check]
    joint: Gain | None


def diagnose(context: Context, rules: Sequence[Rule]) -> Diagnosis:
    """Ask every rule, replay what it saw, and order what stands."""
    judged: list[Judged] = []
    checks: list[Check] = []
    small: list[tuple[Rule, Cause, Check]] = []
    for rule in rules:
        try:
            answer = rule.find(context)
            if isinstance(answer, Passed | NotApplicable):
                checks.append(_check(rule, answer))
                continue
            for cause in answer:
                result = _judge(context, rule, cause)
                if isinstance(result, Check):
                    checks.append(result)
                    small.append((rule, cause, result))
                else:
                    judged.append(result)
            if not answer:
                checks.append(_check(rule, Passed(reason="nothing of the kind was seen")))
        except Exception as problem:  # noqa: BLE001 (one rule's failure never stops the report)
            reason = f"{type(problem).__name__}: {problem}"
            checks.append(_state(rule, "error", reason, "report this with the trace, if you can"))
    small = [item for item in small if (item[1].kind or item[0].kind) == "fault"]
    try:
        for place, cause, gain in hidden_pair(context, [item[:2] for item in small], PRIMARY_SHARE):
            rule, _, said = small[place]
            share = gain.gain_ns / context.step_ns
            judged.append(Judged(rule=rule, cause=cause, kind="fault", gain=gain, share=share))
            checks = [check for check in checks if check is not said]
    except ReplayError as problem:
        reason = f"two faults together cannot be replayed: {problem}"
        checks.append(_state(small[0][0], "error", reason, "report this with the trace"))
    judged = _linked(judged)
    judged.sort(key=_order)
    judged = _behind_their_cause(judged)
    joint: Gain | None = None
    try:
        joint = _joint(context, judged)
        if joint is not None:
            judged = [
                replace(item, alone_ns=_alone(context, judged, item, joint)) for item in judged
            ]
    except ReplayError as problem:
        reason = f"all faults together cannot be replayed: {problem}"
        checks.append(_state(judged[0].rule, "error", reason, "report this with the trace"))
    return Diagnosis(
        findings=[_finding(context, item) for item in judged],
        checks=sorted(checks, key=lambda check: check.code),
        joint=joint,
    )


def _judge(context: Context, rule: Rule, cause: Cause) -> Judged | Check:
    kind: Kind = cause.kind or rule.kind
    if rule.evidence_only:
        return Judged(rule=rule, cause=cause, kind=kind, gain=None, share=cause.size)
    total = _step_ns(context, cause)
    if context.replay is None or cause.edit is None:
        share = (cause.ceiling_ns or 0.0) / total if total else 0.0
        if share < LEAST_SHARE:
            return _state(rule, "passed", _small(cause, share, "at most "), "")
        return Judged(
            rule=rule, cause=cause, kind=_lowered(rule, kind, share), gain=None, share=share
        )
    gain = _gain(context.replay, cause, cause.edit)
    share = gain.gain_ns / total if total else 0.0
    if share < LEAST_SHARE:
        return _state(rule, "passed", _small(cause, max(share, 0.0), ""), "")
    if gain.interval_ns[0] <= 0:
        low, high = (value / 1e6 for value in gain.interval_ns)
        reason = (
            f"{cause.title} Fixing it gives {gain.gain_ns / 1e6:.1f} ms a step, between {low:.1f} "
            f"and {high:.1f} ms: not told from nothing."
        )
        return _state(rule, "not-distinguishable", reason, "more recorded steps")
    # A gain that may lie below the rule's limit is no fault yet.
    kind = _lowered(rule, kind, gain.interval_ns[0] / total)
    return Judged(rule=rule, cause=cause, kind=kind, gain=gain, share=share)


def _gain(replay: Replay, cause: Cause, edit: Callable[[Edit], None]) -> Gain:
    """Return what a fix gives back, with an interval that reaches to the rule's own limits."""
    gain = replay.gain_of(edit, mean=cause.mean)
    if cause.limits_of_gain is None:
        return gain
    least, most = (replay.gain_of(limit, mean=cause.mean) for limit in cause.limits_of_gain)
    low, high = gain.interval_ns
    return replace(
        gain, interval_ns=(min(low, least.interval_ns[0]), max(high, most.interval_ns[1]))
    )


def _step_ns(context: Context, cause: Cause) -> float:
    return context.mean_step_ns if cause.mean else context.step_ns


def _lowered(rule: Rule, kind: Kind, share: float) -> Kind:
    return "opportunity" if share < rule.opportunity_below else kind


def _small(cause: Cause, share: float, at_most: str) -> str:
    return f"{cause.title} It costs {at_most}{100 * share:.1f} % of the step."


def _check(rule: Rule, answer: Passed | NotApplicable) -> Check:
    if isinstance(answer, Passed):
        return _state(rule, "passed", answer.reason, "")
    return _state(rule, "not-applicable", answer.reason, answer.needs or rule.needs)


def _state(
    rule: Rule,
    state: Literal["passed", "not-distinguishable", "not-applicable", "error"],
    reason: str,
    needs: str,
) -> Check:
    return Check(code=rule.code, state=state, reason=reason, needs=needs, name=rule.name)


def _order(item: Judged) -> tuple[int, int, float, str]:
    """Faults before opportunities, stable before experimental, the largest first."""
    return (item.kind != "fault", item.rule.status != "stable", -item.share, item.rule.code)


def _linked(judged: Sequence[Judged]) -> list[Judged]:
    """Name, for each late rank, the local cause that makes it late."""
    result: list[Judged] = []
    for item in judged:
        cause = item
        if item.rule.code in ("RANK001", "RANK002"):
            local = [
                other
                for other in judged
                if not other.rule.code.startswith(("RANK", "COMM"))
                and other.cause.explains_late
                and other.kind == "fault"
                and set(other.cause.ranks) == set(item.cause.ranks)
            ]
            if local:
                first = max(local, key=lambda other: other.share)
                cause = replace(item, caused_by=first.rule.code)
        result.append(cause)
    return result


def _behind_their_cause(judged: list[Judged]) -> list[Judged]:
    """Put what another finding explains right behind it."""
    free = [item for item in judged if item.caused_by is None]
    result: list[Judged] = []
    for item in free:
        result.append(item)
        result += [
            other
            for other in judged
            if other.caused_by == item.rule.code
            and set(other.cause.ranks) == set(item.cause.ranks)
            and other not in result
        ]
    return result + [item for item in judged if item not in result]


def _joint(
    context: Context, judged: Sequence[Judged], without: Judged | None = None
) -> Gain | None:
    """Return what all faults together give back, in one replay; None where there are none."""
    faults = [item for item in judged if _counts(item)]
    mean = bool(faults) and faults[0].cause.mean  # one statistic for all: that of the largest
    faults = [item for item in faults if item is not without]
    if context.replay is None or not faults:
        return None
    edit = context.replay.edit()
    for item in faults:
        if item.cause.edit is not None:
            item.cause.edit(edit)
    return context.replay.gain(edit, mean=mean)


def _counts(item: Judged) -> bool:
    """Return whether a fault counts by itself: one that another explains is in that other's gain."""
    return item.kind == "fault" and item.gain is not None and item.caused_by is None


def _alone(context: Context, judged: Sequence[Judged], item: Judged, joint: Gain) -> float | None:
    """Return what a fault still costs when all others are fixed: the other side of its gain.

    Where both agree, the fault stands by itself; where they differ, it hides behind another, or
    shares its time with it.
    """
    if not _counts(item):
        return None
    rest = _joint(context, judged, without=item)
    return joint.gain_ns - (0.0 if rest is None else rest.gain_ns)


def _severity(share: float) -> Literal["high", "medium", "low"]:
    if share >= HIGH_SHARE:
        return "high"
    return "medium" if share >= PRIMARY_SHARE else "low"


def _finding(context: Context, item: Judged) -> Finding:
    cause, gain = item.cause, item.gain
    confidence, reason = confidence_of(context, item.rule, item.cause)
    replayed = gain is not None
    return Finding(
        code=item.rule.code,
        name=item.rule.name,
        kind=item.kind,
        status=item.rule.status,
        title=cause.title,
        severity=_severity(item.share),
        ranks=list(cause.ranks),
        recoverable_ms=_ms(gain.gain_ns) if gain else None,
        recoverable_interval_ms=[_ms(ns) for ns in gain.interval_ns] if gain else None,
        of_step_ms=_ms(_step_ns(context, cause)) if _step_ns(context, cause) else None,
        alone_ms=None if item.alone_ns is None else _ms(item.alone_ns),
        ceiling_ms=None if cause.ceiling_ns is None else _ms(cause.ceiling_ns),
        basis="evidence" if item.rule.evidence_only else "replay" if replayed else "ceiling",
        confidence=confidence,
        confidence_reason=reason,
        caused_by=item.caused_by,
        proof=cause.proof,
        rival=cause.rival,
        limits=cause.limits,
        evidence=list(cause.evidence),
        ranges=list(cause.ranges),
        actions=list(cause.actions),
        edit=cause.edit_text,
    )


def _ms(ns: float) -> float:
    return round(ns / 1e6, 6)
