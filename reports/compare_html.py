"""The result of `compare` as one HTML file, in the look of the reports."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import join as shell_join

from markupsafe import Markup

from trace_analyzer.comparison_document import ComparisonReport, PartChange, RankChange
from trace_analyzer.reports import compare_markdown, compare_tables, svg_fall, units
from trace_analyzer.reports import compare_words as words
from trace_analyzer.reports.document_page import render_page
from trace_analyzer.reports.document_tables import inputs_table, made_by
from trace_analyzer.reports.document_trust import trust_of
from trace_analyzer.reports.scaling_words import signed_ms
from trace_analyzer.reports.svg import Scale
from trace_analyzer.reports.svg_fall import FallBar, StepPart

_RANKS_SHOWN = 4
_SHOWN = 20
_SECTIONS = (
    ("change", "Change"),
    ("findings", "Findings"),
    ("steps", "Steps"),
    ("kernels", "Kernels"),
    ("collectives", "Collectives"),
    ("settings", "Settings"),
    ("inputs", "Inputs"),
)


@dataclass(frozen=True, slots=True)
class _FallView:
    label: str
    total: bool
    bar: Markup


@dataclass(frozen=True, slots=True)
class _StepView:
    name: str
    below: str
    total: str
    bar: Markup


def render(report: ComparisonReport) -> str:
    """Return the page."""
    rows = words.waterfall(report)
    bars = [FallBar(row.cls, row.start_ms, row.end_ms, row.value, row.total) for row in rows]
    focus = words.focus(report)
    ranks = _shown(report, focus)
    scale = Scale.to(max((max(r.step.base_ms, r.step.other_ms) for r in ranks), default=0.0))
    told = [row for row in report.kernels if words.told(row)]
    same = [row for row in report.kernels if not words.told(row)]
    hidden = {"findings": not report.findings, "steps": not ranks}
    return render_page(
        "compare.html.j2",
        report,
        title=f"{report.name}: {words.state(report).words}",
        name=report.name,
        summary=compare_markdown.render(report),
        meta=words.meta(report),
        state=words.state(report),
        headline=report.verdict.headline,
        proof=report.verdict.proof,
        do_next=report.verdict.do_next,
        trust=trust_of(report.warnings),
        sections=[item for item in _SECTIONS if not hidden.get(item[0])],
        facts=words.facts(report),
        comparability=words.comparability(report),
        fall=[
            _FallView(row.label, row.total, bar)
            for row, bar in zip(rows, svg_fall.fall(bars), strict=True)
        ],
        fall_axis=svg_fall.scale_of(bars).axis(),
        focus_words="" if focus is None else _rank_words(focus),
        spoken=_spoken(focus),
        findings=compare_tables.findings(report),
        findings_note=_findings_note(report),
        steps=[view for rank in ranks for view in _steps(report, rank, scale)],
        steps_axis=scale.axis(),
        legend=_legend(ranks),
        parts=None if focus is None else compare_tables.parts(focus),
        parts_note="" if focus is None else _parts_note(focus),
        other_parts=[compare_tables.parts(rank) for rank in report.ranks if rank is not focus][:16],
        kernels=compare_tables.kernels(told[:_SHOWN]),
        more_kernels=compare_tables.kernels(told[_SHOWN:]),
        same_kernels=compare_tables.kernels(same),
        kernels_note=_kernels_note(len(told)),
        left_out=_left_out(report),
        collectives=compare_tables.collectives(report),
        settings=compare_tables.settings(report),
        no_settings=_no_settings(report),
        not_compared=[(f"{_capital(item.what)}:", f"{item.why}.") for item in report.not_compared],
        inputs=inputs_table([(side.name, side.sources) for side in (report.base, report.other)]),
        command=command(report),
        made_by=made_by(report.tool, report.schema_version),
    )


def command(report: ComparisonReport) -> str:
    """Return the command that makes this document."""
    options = dict(report.tool.options)
    parts = [report.tool.name, "compare"]
    parts += [
        str(options.pop("base", report.base.name)),
        str(options.pop("slow", report.other.name)),
    ]
    for name, value in sorted(options.items()):
        parts += [f"--{name.replace('_', '-')}", str(value)]
    return shell_join(parts)


def _shown(report: ComparisonReport, focus: RankChange | None) -> list[RankChange]:
    """Return the ranks that are drawn: the one that is looked at first, at most four."""
    rest = [rank for rank in report.ranks if rank is not focus]
    return ([] if focus is None else [focus]) + rest[: _RANKS_SHOWN - 1]


def _rank_words(rank: RankChange) -> str:
    if rank.base_rank == rank.other_rank:
        return f"rank {rank.other_rank}"
    return f"rank {rank.base_rank} of the base and rank {rank.other_rank} of the other run"


def _spoken(focus: RankChange | None) -> str:
    if focus is None:
        return "No step to compare."
    told = [part for part in focus.parts if part.distinguishable]
    listed = ", ".join(f"{words.part_name(p.part)} {signed_ms(p.change_ms)} ms" for p in told)
    return (
        f"The traced step of {_rank_words(focus)} goes from {units.ms(focus.step.base_ms)} to "
        f"{units.ms(focus.step.other_ms)} ms: {listed or 'no part is told from no change'}."
    )


def _steps(report: ComparisonReport, rank: RankChange, scale: Scale) -> list[_StepView]:
    views = []
    for side, number, whole in (
        (report.base, rank.base_rank, rank.step.base_ms),
        (report.other, rank.other_rank, rank.step.other_ms),
    ):
        parts = [
            StepPart(words.part_class(p.part), _short(p), _value(p, base=side is report.base))
            for p in rank.parts
        ]
        bar = svg_fall.step_bar(scale, parts, None)
        views.append(_StepView(f"Rank {number}", side.name, units.ms(whole), bar))
    return views


def _value(part: PartChange, *, base: bool) -> float:
    return part.base_ms if base else part.other_ms


def _short(part: PartChange) -> str:
    name = words.part_name(part.part)
    return name.removeprefix("Idle: ").split(",")[0].lower()


def _legend(ranks: list[RankChange]) -> list[tuple[str, str]]:
    """Return one entry a class: late launches share theirs."""
    found: dict[str, str] = {}
    for rank in ranks:
        for part in rank.parts:
            cls = words.part_class(part.part)
            name = {"host": "Idle: the host is late", "idle": "Other idle time"}.get(cls)
            found.setdefault(cls, name or words.part_name(part.part))
    return list(found.items())


def _parts_note(focus: RankChange) -> str:
    return (
        f"Parts of a step of {_rank_words(focus)}. Bars: change, with its interval; what is not told "
        "apart is grey: zero lies in the interval, or two starts of the same program differ by as much."
    )


def _findings_note(report: ComparisonReport) -> str:
    if not report.comparable:
        return "The runs are not comparable, so that no gain is given."
    return "What fixing each would give back, ms a step; gains overlap and are never added."


def _kernels_note(told: int) -> str:
    if not told:
        return "No kernel is told from no change."
    return (
        "Means over steps and the compared ranks, by how much each changes a step. Matched by name and "
        "launch shape, else by position in the step."
    )


def _left_out(report: ComparisonReport) -> str:
    if not report.kernels_left_out:
        return ""
    return f"{units.plural(report.kernels_left_out, 'smaller row')} that are not told apart are left out."


def _no_settings(report: ComparisonReport) -> str:
    known = report.base.versions and report.other.versions
    return "No recorded setting differs." if known else "Settings were not recorded in both runs."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
