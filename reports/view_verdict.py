"""The first screen: verdict, step ruler or what can be answered, data warnings."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from trace_analyzer.findings import Report
from trace_analyzer.reports import summary, svg_bars, units
from trace_analyzer.reports.svg import Scale

WORTH = 0.03  # of the step: below it nothing is called worth fixing


@dataclass(frozen=True, slots=True)
class RulerRow:
    """One bar of the ruler with the words above it."""

    name: str
    note: str
    value: str
    after: str
    bar: Markup
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Ruler:
    """Up to three bars on one ms scale."""

    heading: str
    rows: tuple[RulerRow, ...]
    axis: Markup


@dataclass(frozen=True, slots=True)
class Answer:
    """What the data can answer: question, glyph, words, tone."""

    question: str
    glyph: str
    words: str
    tone: str


@dataclass(frozen=True, slots=True)
class VerdictView:
    """Everything above the findings."""

    state: summary.State
    before: str
    gain: str
    after: str
    paragraphs: tuple[summary.Paragraph, ...]
    do_next: str
    ruler: Ruler | None
    answers: tuple[Answer, ...]
    answered: int
    trust: summary.Trust


def verdict_view(report: Report) -> VerdictView:
    """Arrange the verdict."""
    before, gain, after = summary.headline_parts(report)
    answered = answers(report) if report.verdict.state == "no-verdict" else ()
    withheld = summary.untrustworthy(report) and bool(report.answers)
    return VerdictView(
        state=summary.state(report),
        before=before,
        gain=gain,
        after=after,
        paragraphs=tuple(summary.paragraphs(report)),
        do_next=report.verdict.do_next,
        ruler=None if withheld else ruler(report),
        answers=answered,
        answered=sum(answer.tone == "good" for answer in answered),
        trust=summary.trust(report),
    )


def answers(report: Report) -> tuple[Answer, ...]:
    """Return what the files can answer, as the report states it."""
    found = []
    for item in report.answers:
        question = item.name or item.code
        if item.state == "passed":
            found.append(Answer(question, "✓", item.reason or "yes", "good"))
        elif item.state == "not-distinguishable":
            found.append(Answer(question, "!", item.reason, "warn"))
        elif item.state == "error":
            found.append(Answer(question, "✕", item.reason, "warn"))
        else:
            needs = f"needs {item.needs}" if item.needs else item.reason
            found.append(Answer(question, "–", needs, "quiet"))
    return tuple(found)


def ruler(report: Report) -> Ruler | None:
    """Return the ruler, or None where no step time is known."""
    steps, verdict = report.steps, report.verdict
    base, basis = summary.base_ms(report)
    traced = steps.profiled_ms
    lengths = [value for value in (traced, base) if value is not None]
    if not lengths:
        return None
    interval = steps.predicted_interval_ms if basis == "predicted" else None
    scale = Scale.to(max([*lengths, *(interval or ())]))
    rows: list[RulerRow] = []
    if traced is not None:
        rows.append(
            RulerRow(
                "In this trace",
                "profiler on: not the real speed" if _distorted(report, base) else "profiler on",
                units.ms(traced),
                "ms",
                svg_bars.traced_bar(scale, traced, base),
            )
        )
    if base is not None:
        gain = verdict.recoverable_ms if verdict.state in {"fault", "likely"} else None
        kept = None if gain is None else base - gain
        count = units.plural(steps.unprofiled_count, "step") if steps.unprofiled_count else ""
        rows.append(
            RulerRow(
                f"Unprofiled, {basis}",
                count,
                units.ms(base),
                f"ms {units.interval(interval)}".strip(),
                svg_bars.base_bar(
                    scale, base, kept, predicted=basis == "predicted", interval_ms=interval
                ),
                strong=True,
            )
        )
        rows += _what_if(report, scale, base)
    return Ruler(f"Step time, ms ({_statistic(report)})", tuple(rows), scale.axis())


def _statistic(report: Report) -> str:
    used = len(report.steps.used)
    return "one step" if used == 1 else "median of steady steps" if used else "median"


def _distorted(report: Report, base: float | None) -> bool:
    traced = report.steps.profiled_ms
    return bool(base and traced and traced > (1 + WORTH) * base)


def _what_if(report: Report, scale: Scale, base: float) -> list[RulerRow]:
    verdict = report.verdict
    if verdict.state == "nothing":
        gains = [finding.recoverable_ms or 0.0 for finding in report.findings]
        largest = max(gains, default=0.0)
        line = WORTH * base
        where = "under the 3 % line" if largest < line else "an opportunity, not a fault"
        return [
            RulerRow(
                "Largest single gain, replayed",
                "",
                units.ms(largest),
                f"ms, {where}",
                svg_bars.threshold_bar(scale, largest, line),
            )
        ]
    if verdict.state == "no-verdict" or verdict.recoverable_ms is None:
        return []
    after = base - verdict.recoverable_ms
    bounds = verdict.recoverable_interval_ms
    interval = [base - bounds[1], base - bounds[0]] if bounds else None
    finding = summary.primary(report)
    edit = finding.edit if finding is not None else ""
    return [
        RulerRow(
            f"Replayed: {edit}" if edit else "Replayed with finding 1 fixed",
            "",
            units.ms(after),
            f"ms {units.interval(interval)}".strip(),
            svg_bars.replayed_bar(scale, after, interval),
        )
    ]
