"""The verdict where rules and replay reach one: a fault, an opportunity, or nothing worth fixing."""

from __future__ import annotations

from trace_analyzer.findings import Check, Finding, RankDoc, Steps, Verdict
from trace_analyzer.rules.judge import PRIMARY_SHARE, Diagnosis

# A mean step this much above the median one is worth saying; below, they read as the same.
MEAN_APART = 1.05


def concluded(
    steps: Steps, ranks: list[RankDoc], diagnosis: Diagnosis, left_out: int
) -> Verdict | None:
    """Return the verdict of the rules; None where they cannot say that nothing is wrong.

    `left_out` is the number of rules that the user did not ask for.
    """
    total = steps.unprofiled_ms or steps.profiled_ms
    if total is None:
        return None
    joint = None if diagnosis.joint is None else round(diagnosis.joint.gain_ns / 1e6, 6)
    primary = _leading(diagnosis.findings, "fault", total)
    opportunity = _leading(diagnosis.findings, "opportunity", total)
    lead = primary or opportunity
    if primary is None and steps.replay_error is None:
        return None  # without a replay, what was not seen may still be there
    if primary is None and left_out:
        return _not_looked_for(opportunity, total, left_out)
    if lead is None:
        return _nothing(steps, ranks, diagnosis, total)
    gain = lead.recoverable_ms if lead.recoverable_ms is not None else lead.ceiling_ms or 0.0
    at_most = "" if lead.recoverable_ms is not None else "at most "
    # A cause that comes and goes is a part of the mean step; others are of the median one.
    step = lead.of_step_ms if _is_of_mean(lead, steps) and lead.of_step_ms else total
    mean = " in the mean" if step is not total else ""
    words = (
        f"gives back {at_most}{gain:.1f} of {step:.1f} ms a step{mean} ({100 * gain / step:.0f} %)."
    )
    if primary is not None:
        headline = f"{primary.title} Fixing it {words}"
    else:
        headline = f"Nothing is broken. {lead.title} Changing it {words}"
    state = "nothing" if primary is None else "fault" if lead.confidence == "high" else "likely"
    return Verdict(
        state=state,  # type: ignore[arg-type]
        headline=headline,
        proof=lead.proof,
        rival=lead.rival,
        do_next=lead.actions[0] if lead.actions else "",
        confidence=lead.confidence if primary is not None else None,
        primary=None if primary is None else primary.code,
        opportunity=None if opportunity is None else opportunity.code,
        step_ms=total,
        recoverable_ms=lead.recoverable_ms,
        recoverable_interval_ms=lead.recoverable_interval_ms,
        joint_recoverable_ms=joint,
    )


def _not_looked_for(opportunity: Finding | None, total_ms: float, left_out: int) -> Verdict:
    """Return no verdict: the cause may be one of those that were left out."""
    also = "" if opportunity is None else f" {opportunity.title}"
    return Verdict(
        state="no-verdict",
        headline=(
            f"No fault above {100 * PRIMARY_SHARE:.0f} % of the {total_ms:.1f} ms step among the "
            f"causes that were looked for.{also}"
        ),
        proof=(
            f"{left_out} causes were left out, by --select, --ignore or a settings file. Any of them "
            "may be what makes the step slow."
        ),
        rival="",
        do_next="Analyze again without leaving causes out.",
        confidence=None,
        primary=None,
        opportunity=None if opportunity is None else opportunity.code,
        step_ms=total_ms,
        recoverable_ms=None,
        recoverable_interval_ms=None,
        joint_recoverable_ms=None,
    )


def _is_of_mean(finding: Finding, steps: Steps) -> bool:
    """Return whether a gain is a part of the mean step, and that is not the median one."""
    usual = steps.unprofiled_ms or steps.profiled_ms or 0.0
    return finding.of_step_ms is not None and finding.of_step_ms > MEAN_APART * usual


def _leading(findings: list[Finding], kind: str, total_ms: float) -> Finding | None:
    """Return the first finding of a kind that is stable, explained by no other, and large enough."""
    for finding in findings:
        gain = finding.recoverable_ms if finding.recoverable_ms is not None else finding.ceiling_ms
        large = gain is not None and gain >= PRIMARY_SHARE * total_ms
        if (
            finding.kind == kind
            and finding.status == "stable"
            and finding.caused_by is None
            and finding.basis != "evidence"
            and large
        ):
            return finding
    return None


def _nothing(steps: Steps, ranks: list[RankDoc], diagnosis: Diagnosis, total_ms: float) -> Verdict:
    asked = [check for check in diagnosis.checks if check.state != "not-applicable"]
    skipped = [check for check in diagnosis.checks if check.state == "not-applicable"]
    proof = f"{_codes(asked)} causes were checked, {_codes(skipped)} not applicable."
    waits = [
        (rank.step.comm_exposed_wait_ms or 0.0, rank.rank)
        for rank in ranks
        if rank.step is not None
    ]
    wait, waiting = max(waits, default=(0.0, 0))
    if wait >= PRIMARY_SHARE * total_ms:
        proof += (
            f" The trace shows rank {waiting} waiting {wait:.1f} ms a step. That is the profiler's "
            "doing: without it, no rank is late enough to cost the others anything."
        )
    do_next = "Nothing to repair. To go faster, change the work: see Kernels."
    guessed = steps.unprofiled_basis == "predicted" and steps.bound != "device"
    if guessed and steps.predicted_interval_ms is not None:
        low, high = steps.predicted_interval_ms
        proof += (
            f" The step without the profiler is predicted, between {low:.1f} and {high:.1f} ms: a "
            "cause in the host's time may hide in that."
        )
        do_next = (
            "Time at least 30 steps without a profiler to be sure (`trace-analyzer collect` does), "
            "and pass --unprofiled-step-ms."
        )
    parts = [rank.step for rank in ranks if rank.step is not None]
    slowest = max(parts, key=lambda step: step.step_median_ms)
    filled = f"{slowest.compute_ms:.1f} ms of compute in the trace"
    if slowest.comm_exposed_transfer_ms:
        filled += (
            f", {slowest.comm_exposed_transfer_ms:.1f} ms of transfer that compute does not hide"
        )
    return Verdict(
        state="nothing",
        headline=f"No cause above {100 * PRIMARY_SHARE:.0f} % of the {total_ms:.1f} ms step.",
        proof=proof,
        rival=f"What fills the step. {filled[0].upper()}{filled[1:]}.",
        do_next=do_next,
        confidence=None,
        primary=None,
        opportunity=None,
        step_ms=total_ms,
        recoverable_ms=None,
        recoverable_interval_ms=None,
        joint_recoverable_ms=None,
    )


def _codes(checks: list[Check]) -> int:
    return len({check.code for check in checks})
