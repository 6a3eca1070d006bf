"""The findings: a row with a bar on one scale, and inside it proof, actions and doubts."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from trace_analyzer.findings import Finding, Report
from trace_analyzer.reports import summary, svg_bars, svg_proof, units
from trace_analyzer.reports.names import lead
from trace_analyzer.reports.summary import Paragraph
from trace_analyzer.reports.svg import Scale
from trace_analyzer.reports.tables import Jump
from trace_analyzer.reports.view_evidence import EvidenceView, best_place, evidence_view
from trace_analyzer.timeline import Timeline

_STRIPS = 3  # findings that get a proof strip


@dataclass(frozen=True, slots=True)
class FindingView:
    """One finding."""

    anchor: str
    number: str
    title: str
    code: str
    remark: str
    bar: Markup
    gain: str
    below: str
    ranks: str
    confidence: str
    sure: bool
    singled: bool
    proof: str
    strip: Markup | None
    strip_title: str
    jump: Jump | None
    evidence: tuple[EvidenceView, ...]
    how_sure: Paragraph
    rival_heading: str
    rival: str
    limits: str
    actions: tuple[Paragraph, ...]
    expect: str
    opened: bool


@dataclass(frozen=True, slots=True)
class FindingsView:
    """All findings with their common axis."""

    axis: Markup | None
    faults: tuple[FindingView, ...]
    opportunities: tuple[FindingView, ...]
    joint: str
    empty: str
    replayed: bool


def findings_view(report: Report, timeline: Timeline | None) -> FindingsView:
    """Arrange the findings."""
    ends = [
        value
        for finding in report.findings
        for value in (
            finding.recoverable_ms,
            finding.ceiling_ms,
            *(finding.recoverable_interval_ms or ()),
        )
        if value is not None
    ]
    scale = Scale.to(max(ends)) if ends and max(ends) > 0 else None
    views: dict[str, list[FindingView]] = {"fault": [], "opportunity": []}
    for position, (number, finding) in enumerate(summary.numbered(report)):
        label = units.NOT_APPLICABLE if number is None else str(number)
        views[finding.kind].append(_view(report, timeline, finding, scale, label, position))
    return FindingsView(
        axis=svg_bars.gain_axis(scale) if scale is not None else None,
        faults=tuple(views["fault"]),
        opportunities=tuple(views["opportunity"]),
        joint=_joint(report),
        empty=_empty(report),
        replayed=any(finding.basis == "replay" for finding in report.findings),
    )


def _empty(report: Report) -> str:
    if report.verdict.state == "nothing":
        return "No cause above 3 % of the step."
    if report.checks:
        return "No cause could be named; what was checked stands under Checked and not found."
    return "No cause was judged for this run: the sections below show where the time goes."


def _joint(report: Report) -> str:
    base, _ = summary.base_ms(report)
    joint = report.verdict.joint_recoverable_ms
    if joint is None or base is None or len(report.findings) < 2:
        return ""
    after, gain = units.ms(base - joint), units.ms(joint)
    return f"fixing them together replays to {after} ms, {gain} ms less."


def _view(
    report: Report,
    timeline: Timeline | None,
    finding: Finding,
    scale: Scale | None,
    number: str,
    position: int,
) -> FindingView:
    told = summary.distinguishable(finding)
    gain, below = _gain(report, finding)
    remark = finding.name
    if finding.status == "experimental":
        remark += " · experimental"
    if finding.caused_by:
        remark += f" · caused by {finding.caused_by}"
    blamed = finding.kind == "fault" and set(finding.ranks) < {rank.rank for rank in report.ranks}
    strip = None
    if timeline is not None and position < _STRIPS:
        strip = svg_proof.strip(finding, timeline, blamed=blamed)
    heading, rival = _rival(finding)
    actions, expect = _actions(finding)
    return FindingView(
        anchor=f"finding-{position + 1}",
        number=number,
        title=finding.title,
        code=finding.code,
        remark=remark,
        bar=svg_bars.gain_bar(
            scale,
            finding.recoverable_ms if told else None,
            finding.recoverable_interval_ms,
            finding.ceiling_ms,
        )
        if scale is not None
        else Markup(""),
        gain=gain,
        below=below,
        ranks=summary.rank_words(report, finding.ranks).removesuffix(" ranks"),
        confidence=finding.confidence if told else units.NOT_APPLICABLE,
        sure=told,
        singled=blamed,
        proof=finding.proof,
        strip=strip,
        strip_title=_strip_title(timeline),
        jump=best_place(finding.ranges, timeline),
        evidence=tuple(evidence_view(item, timeline) for item in finding.evidence),
        how_sure=Paragraph(
            f"{finding.confidence.capitalize()}.",
            summary.sentence(finding.confidence_reason) if finding.confidence_reason else "",
        ),
        rival_heading=heading,
        rival=rival,
        limits=finding.limits,
        actions=actions,
        expect=expect,
        opened=position == 0,
    )


def _strip_title(timeline: Timeline | None) -> str:
    if timeline is None or timeline.shown_step is None:
        return ""
    clock = {1: "", 2: ", both ranks on one clock"}.get(
        len(timeline.ranks), ", two ranks on one clock"
    )
    return f": step {timeline.shown_step}{clock}"


def _gain(report: Report, finding: Finding) -> tuple[str, str]:
    """Return the number of a finding and the line below it."""
    if not summary.distinguishable(finding):
        return "≈ 0", "not distinguishable"
    if finding.recoverable_ms is None:
        if finding.ceiling_ms is not None:
            return f"≤ {units.ms(finding.ceiling_ms)}", "at most: ceiling only"
        return units.NOT_APPLICABLE, "on evidence"
    base, basis = summary.base_ms(report)
    base = base if base is not None else report.verdict.step_ms
    parts = [units.interval(finding.recoverable_interval_ms)]
    if base:
        parts.append(units.percent(finding.recoverable_ms / base))
    if basis == "predicted":
        parts.append("predicted")
    return units.ms(finding.recoverable_ms), " · ".join(part for part in parts if part)


def _rival(finding: Finding) -> tuple[str, str]:
    """Return heading and text of the rival explanation."""
    first, rest = lead(finding.rival, 6)
    if first.lower().startswith("not "):
        return f"Why this is {first[0].lower()}{first[1:].rstrip('.:')}", rest
    return "Why this is not something else", finding.rival


def _actions(finding: Finding) -> tuple[tuple[Paragraph, ...], str]:
    """Return the numbered actions, and what to expect, which is the last one if it says so."""
    actions = list(finding.actions)
    expect = actions.pop() if actions and actions[-1].startswith("Expect ") else ""
    return tuple(Paragraph(*_bold_first(action)) for action in actions), expect


def _bold_first(action: str) -> tuple[str, str]:
    first, rest = lead(action)
    return (first, rest) if first else (action, "")
