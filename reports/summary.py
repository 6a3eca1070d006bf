"""What every output says first: state, headline, paragraphs, data warnings, who is blamed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from trace_analyzer.findings import DATA_WARNING_NAMES, Finding, RankDoc, Report
from trace_analyzer.reports import units
from trace_analyzer.reports.names import cut_middle, lead

BARS_UP_TO = 8  # ranks that are all drawn one by one
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_GAIN = re.compile(r"\d[\d,]*(?:\.\d+)? of \d[\d,]*(?:\.\d+)?[ \u00a0]ms")
_LONGEST_PIECE = 100
_SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class State:
    """The line above the headline; `tone` is bad, warn or good."""

    glyph: str
    words: str
    tone: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A sentence or two with a bold beginning."""

    lead: str
    text: str


@dataclass(frozen=True, slots=True)
class WarningRow:
    """One data warning: code and name, what was seen, what changed because of it."""

    name: str
    text: str
    severity: str


@dataclass(frozen=True, slots=True)
class Trust:
    """Whether the data can be believed."""

    heading: str
    note: str
    tone: str
    rows: tuple[WarningRow, ...]


def untrustworthy(report: Report) -> bool:
    """Return whether no verdict was reached because the data does not carry one."""
    return report.verdict.state == "no-verdict" and any(
        warning.severity == "error" for warning in report.warnings
    )


def state(report: Report) -> State:
    """Return the state of the verdict in words."""
    verdict = report.verdict
    confidence = f" · confidence {verdict.confidence}" if verdict.confidence else ""
    if verdict.state == "fault":
        return State("▲", "Cause found" + confidence, "bad")
    if verdict.state == "likely":
        return State("▲", "Cause likely" + confidence, "warn")
    if verdict.state == "nothing":
        words = "Nothing worth fixing" if verdict.opportunity is None else "Nothing is broken"
        return State("✓", words, "good")
    why = ": data not trustworthy" if untrustworthy(report) else ""
    return State("!", "No verdict" + why, "warn")


def headline_parts(report: Report) -> tuple[str, str, str]:
    """Split the headline around its "G of S ms"; the middle is empty where nothing is given back."""
    headline = report.verdict.headline
    match = None if report.verdict.state == "no-verdict" else _GAIN.search(headline)
    if match is None:
        return headline, "", ""
    gain = match.group().replace(" ", units.NBSP)
    return headline[: match.start()], gain, headline[match.end() :]


def paragraphs(report: Report) -> list[Paragraph]:
    """Return proof and rival, each with its bold beginning; empty ones are left out."""
    verdict = report.verdict
    found: list[Paragraph] = []
    if verdict.proof:
        label = "Proof."
        if verdict.state == "no-verdict":
            label = "What is missing." if untrustworthy(report) else "What the trace shows."
        found.append(Paragraph(label, verdict.proof))
    if verdict.rival:
        first, rest = lead(verdict.rival, 6)
        found.append(Paragraph(first.removesuffix(":"), rest))
    return found


def trust(report: Report) -> Trust:
    """Return the data warnings, worst first, under a heading that says what they mean."""
    ordered = sorted(report.warnings, key=lambda item: _SEVERITIES.index(item.severity))
    rows = []
    for item in ordered:
        name = f"{item.code} {DATA_WARNING_NAMES.get(item.code, '')}".strip()
        text = " ".join(sentence(part) for part in (item.message, item.effect) if part.strip())
        rows.append(WarningRow(name, text, item.severity))
    serious = sum(item.severity != "note" for item in ordered)
    notes = len(ordered) - serious
    corrected = any(finding.basis == "replay" for finding in report.findings)
    if untrustworthy(report):
        return Trust("Data not trustworthy", "", "warn", tuple(rows))
    if serious:
        heading = f"Data usable, with {units.plural(serious, 'warning')}"
        if notes:
            heading += f" and {units.plural(notes, 'note')}"
        slowed = any(item.code == "TRC003" for item in ordered)
        note = (
            "The profiler is taken out of every “recoverable” below."
            if corrected and slowed
            else ""
        )
        return Trust(heading, note, "warn", tuple(rows))
    note = units.plural(notes, "note") if notes else "no warning"
    return Trust("Data good", note, "good", tuple(rows))


def sentence(text: str) -> str:
    """Return text with a capital at its start and a full stop at its end."""
    stripped = text.strip()
    ended = stripped if stripped[-1:] in ".:!?…" else f"{stripped}."
    return ended[:1].upper() + ended[1:]


def gpu_words(gpu: str | None, model: str | None) -> str:
    """Return a rank's GPU without the model that all ranks share: "GPU 0"."""
    return (gpu or "").removesuffix(f" ({model})") if model else gpu or ""


def primary(report: Report) -> Finding | None:
    """Return the finding that leads the verdict."""
    code = report.verdict.primary or report.verdict.opportunity
    return next((finding for finding in report.findings if finding.code == code), None)


def blamed(report: Report) -> tuple[int, ...]:
    """Return the ranks that the verdict's fault names; none where it names every rank."""
    found = primary(report)
    if found is None or found.kind != "fault":
        return ()
    everyone = {rank.rank for rank in report.ranks}
    return () if set(found.ranks) >= everyone else tuple(sorted(found.ranks))


def by_step(report: Report) -> list[RankDoc]:
    """Return the ranks that have steps, slowest first."""
    timed = [rank for rank in report.ranks if rank.step is not None]
    return sorted(timed, key=lambda rank: (-_step_ms(rank), rank.rank))


def _step_ms(rank: RankDoc) -> float:
    return rank.step.step_ms if rank.step is not None else 0.0


def telling_ranks(report: Report, slowest: int = 4) -> list[int]:
    """Return the ranks that stand for many: the blamed, the slowest, the median, the fastest."""
    ordered = [rank.rank for rank in by_step(report)]
    if not ordered:
        return [rank.rank for rank in report.ranks[: slowest + 2]]
    named = [rank for rank in blamed(report) if rank in ordered][:8]
    chosen = [*named, *ordered[:slowest], ordered[len(ordered) // 2], ordered[-1]]
    return list(dict.fromkeys(chosen))


def findings_of(report: Report, kind: str) -> list[Finding]:
    """Return the findings of a kind, in the report's order."""
    return [finding for finding in report.findings if finding.kind == kind]


def numbered(report: Report) -> list[tuple[int | None, Finding]]:
    """Return faults, then opportunities, each with its number; None where it is not told from zero."""
    found: list[tuple[int | None, Finding]] = []
    number = 0
    for finding in [*findings_of(report, "fault"), *findings_of(report, "opportunity")]:
        told = distinguishable(finding)
        number += told
        found.append((number if told else None, finding))
    return found


def distinguishable(finding: Finding) -> bool:
    """Return whether a replayed gain is told from zero."""
    bounds = finding.recoverable_interval_ms
    gain = finding.recoverable_ms
    return gain is None or (gain > 0 and (bounds is None or bounds[0] > 0))


def base_ms(report: Report) -> tuple[float | None, str]:
    """Return the step without a profiler and its basis: measured, given or predicted."""
    steps = report.steps
    if steps.unprofiled_ms is not None:
        return steps.unprofiled_ms, steps.unprofiled_basis or "measured"
    return steps.predicted_unprofiled_ms, "predicted"


def meta(report: Report) -> list[str]:
    """Return what run this is, in pieces: GPUs, parallelism, versions, steps, date."""
    run, steps = report.run, report.steps
    pieces: list[str] = []
    count = run.world_size or len(report.ranks) or None
    if count is not None:
        gpu = run.gpu or ("rank" if count == 1 else "ranks")
        hosts = f", {units.plural(len(run.hosts), 'host')}" if run.hosts else ""
        pieces.append(f"{count} {'× ' if run.gpu else ''}{gpu}{hosts}")
    if run.missing_ranks:
        pieces.append(f"{len(report.ranks)} of {count} ranks recorded")
    if run.parallelism:
        pieces.append(run.parallelism)
    versions = [
        f"{label} {run.versions[key]}"
        for key, label in (("torch", "torch"), ("nccl", "NCCL"))
        if run.versions.get(key)
    ]
    if versions:
        pieces.append(", ".join(versions))
    if steps.count:
        unprofiled = f" + {steps.unprofiled_count} unprofiled" if steps.unprofiled_count else ""
        pieces.append(f"{steps.count} profiled{unprofiled} step{'s' * (steps.count != 1)}")
    if run.started:
        pieces.append(f"recorded {date(run.started)}")
    return [cut_middle(piece, _LONGEST_PIECE) for piece in pieces]


def date(started: str) -> str:
    """Return an ISO 8601 time as "29 Nov 2026"; text that is none comes back as it is."""
    try:
        moment = datetime.fromisoformat(started)
    except ValueError:
        return started
    return f"{moment.day} {_MONTHS[moment.month - 1]} {moment.year}"


def rank_words(report: Report, numbers: Sequence[int]) -> str:
    """Name ranks of this run; a node where all its ranks and no others share the matter."""
    wanted = set(numbers)
    hosts = {rank.host for rank in report.ranks if rank.host}
    if len(hosts) > 1 and len(wanted) > 1:
        for host in sorted(hosts):
            members = [rank.rank for rank in report.ranks if rank.host == host]
            if set(members) == wanted:
                return f"{host} (ranks {units.ranges(members)})"
    return units.ranks(numbers, report.run.world_size or len(report.ranks))
