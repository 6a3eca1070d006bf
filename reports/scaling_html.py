"""The result of `scaling` as one HTML file, in the look of the reports."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import join as shell_join

from markupsafe import Markup

from trace_analyzer.reports import scaling_markdown, svg_fall, units
from trace_analyzer.reports import scaling_words as words
from trace_analyzer.reports.document_page import render_page
from trace_analyzer.reports.document_tables import inputs_table, made_by
from trace_analyzer.reports.document_trust import trust_of
from trace_analyzer.reports.scaling_words import FallRow
from trace_analyzer.reports.svg import Scale
from trace_analyzer.reports.svg_fall import FallBar, StepPart
from trace_analyzer.reports.tables import Cell, Column, Table, absent
from trace_analyzer.scaling_document import ScalingPoint, ScalingReport, ScalingRun


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


def render(report: ScalingReport) -> str:
    """Return the page."""
    point = words.top(report)
    rows = words.waterfall(report, point)
    bars = [FallBar(row.cls, row.start_ms, row.end_ms, row.value, row.total) for row in rows]
    steps, scale = _steps(report, point) if rows else ([], None)
    sections = [("loss", "Loss"), ("steps", "Steps"), ("points", "Ranks"), ("runs", "Runs")]
    shown = {"loss": True, "steps": bool(rows), "points": len(report.points) > 2, "runs": True}
    return render_page(
        "scaling.html.j2",
        report,
        title=f"{report.name}: {words.state(report).words}",
        name=report.name,
        summary=scaling_markdown.render(report),
        meta=words.meta(report),
        state=words.state(report),
        headline=report.verdict.headline,
        proof=report.verdict.proof,
        do_next=report.verdict.do_next,
        trust=trust_of(report.warnings),
        sections=[*(item for item in sections if shown[item[0]]), ("inputs", "Inputs")],
        facts=words.facts(report),
        comparability=words.comparability(report),
        scope=words.scope(report),
        fall=[
            _FallView(row.label, row.total, bar)
            for row, bar in zip(rows, svg_fall.fall(bars), strict=True)
        ],
        fall_axis=svg_fall.scale_of(bars).axis(),
        loss_note=_loss_note(point),
        loss_spoken=_spoken(report, rows),
        residual_note=words.residual_sentence(report),
        no_loss=words.no_loss_sentence(report),
        steps=steps,
        steps_axis=Markup("") if scale is None else scale.axis(),
        legend=_legend(point),
        terms=_terms(report, point) if rows else None,
        efficient=point.efficiency is not None,
        points=_points(report) if len(report.points) > 2 else None,
        by_ranks=_by_ranks(report) if len(report.points) > 2 else [],
        by_ranks_axis=_curve_scale(report).axis(),
        curve=words.curve_sentence(report),
        assumptions=report.curve.assumptions if report.curve and report.curve.projections else [],
        runs=_runs(report),
        stretches=words.stretches(report),
        inputs=inputs_table([(run.name, run.sources) for run in report.runs]),
        command=command(report),
        made_by=made_by(report.tool, report.schema_version),
    )


def command(report: ScalingReport) -> str:
    """Return the command that makes this document."""
    options = dict(report.tool.options)
    parts = [report.tool.name, "scaling", *map(str, options.pop("runs", []))]
    for name, value in sorted(options.items()):
        parts += [f"--{name.replace('_', '-')}", str(value)]
    return shell_join(parts)


def _loss_note(point: ScalingPoint) -> str:
    if point.loss_rank is None:
        return ""
    return f"Parts of rank {point.loss_rank}, which waits least for its peers."


def _spoken(report: ScalingReport, rows: list[FallRow]) -> str:
    point = words.top(report)
    if not rows or point.loss_ms is None:
        return "The loss is not divided."
    terms = ", ".join(f"{row.label} {row.value}" for row in rows if not row.total)
    return f"{units.ms(point.loss_ms)} ms a step are lost: {terms}."


_CLASSES = {"contention": "slowed"}


def _cls(term: str) -> str:
    return _CLASSES.get(term) or words.TERMS.get(term, (term, "outline"))[1]


def _legend(point: ScalingPoint) -> list[tuple[str, str]]:
    return [
        (_cls(term.term), words.TERMS.get(term.term, (term.term, ""))[0]) for term in point.loss
    ]


def _steps(report: ScalingReport, point: ScalingPoint) -> tuple[list[_StepView], Scale]:
    base = report.points[0]
    sides = [
        [(term.term, term.base_share_ms) for term in point.loss],
        [(term.term, term.step_part_ms) for term in point.loss],
    ]
    marks = [point.ideal_ms or 0.0, point.step_ms]
    names = [f"Ideal for {words.ranks_words(point.ranks)}", words.ranks_words(point.ranks)]
    below = [f"from {words.ranks_words(base.ranks)}", "measured"]
    scale = Scale.to(max(*marks, *(sum(ms for _, ms in side) for side in sides)))
    views = []
    for name, under, side, mark in zip(names, below, sides, marks, strict=True):
        parts = [StepPart(_cls(term), _short(term), ms) for term, ms in side]
        views.append(_StepView(name, under, units.ms(mark), svg_fall.step_bar(scale, parts, mark)))
    return views, scale


def _short(term: str) -> str:
    return {
        "kernels": "kernels",
        "contention": "slowed",
        "exposed-transfer": "transfer",
        "wait": "wait",
        "exposed-communication": "communication",
        "copies": "copies",
        "gaps": "gaps",
        "host": "late launches",
    }.get(term, term)


def _terms(report: ScalingReport, point: ScalingPoint) -> Table:
    columns = (
        Column("ms/step", numeric=False),
        Column("Ideal", "of the base"),
        Column("Measured", "in the step"),
        Column("Adds to the loss"),
    )
    rows = [
        (
            Cell(words.title_of_term(term.term, report)),
            Cell(units.ms_cell(term.base_share_ms)),
            Cell(units.ms_cell(term.step_part_ms)),
            Cell(units.ms_cell(term.ms), "strong"),
        )
        for term in point.loss
    ]
    residual = point.residual_ms
    rows.append(
        (
            Cell(words.RESIDUAL[0]),
            absent(),
            absent(),
            Cell(
                units.ms_cell(residual) if residual is not None else units.NOT_APPLICABLE, "strong"
            ),
        )
    )
    footer = (
        Cell("Step", "strong"),
        Cell(units.ms_cell(point.ideal_ms)),
        Cell(units.ms_cell(point.step_ms)),
        Cell(units.ms_cell(point.loss_ms), "strong"),
    )
    return Table("Parts of the loss", columns, tuple(rows), footer=footer)


def _curve_scale(report: ScalingReport) -> Scale:
    return Scale.to(max(point.step_ms for point in report.points))


def _by_ranks(report: ScalingReport) -> list[_StepView]:
    scale = _curve_scale(report)
    views = []
    for point in report.points:
        bar = svg_fall.curve_bar(
            scale, point.step_ms, point.step_interval_ms, point.ideal_ms, measured=True
        )
        views.append(_StepView(words.ranks_words(point.ranks), "", units.ms(point.step_ms), bar))
    for item in report.curve.projections if report.curve is not None else []:
        bar = svg_fall.curve_bar(scale, item.step_ms, item.step_interval_ms, None, measured=False)
        name = words.ranks_words(item.ranks)
        views.append(_StepView(name, "projected", units.ms(item.step_ms), bar))
    return views


def _points(report: ScalingReport) -> Table:
    columns = (
        Column("Ranks", numeric=False),
        Column("Step", "ms [95 %]"),
        Column("Ideal", "ms"),
        Column("E", "[95 %]"),
        Column("E with rare long steps"),
        Column("Speed-up"),
        Column("Lost", "ms/step"),
    )
    rows = []
    for point in report.points:
        bounds = units.interval(point.step_interval_ms)
        refused = point.comparable is False
        rows.append(
            (
                Cell(str(point.ranks)),
                Cell(units.ms(point.step_ms), quiet=bounds),
                _ms(point.ideal_ms),
                _percent(point.efficiency, point.efficiency_interval)
                if not refused
                else Cell("not comparable", "warn"),
                _percent(point.efficiency_wallclock, None),
                Cell(units.decimal(point.speed_up, 2)) if point.speed_up else absent(),
                _ms(point.loss_ms),
            )
        )
    if report.curve is not None:
        rows += [
            (
                Cell(f"{item.ranks}, projected", "quiet"),
                Cell(units.ms(item.step_ms), quiet=units.interval(item.step_interval_ms)),
                absent(),
                _percent(item.efficiency, None),
                absent(),
                absent(),
                absent(),
            )
            for item in report.curve.projections
        ]
    return Table("Step time and efficiency by number of ranks", columns, tuple(rows))


def _ms(value: float | None) -> Cell:
    return absent() if value is None else Cell(units.ms(value))


def _percent(value: float | None, bounds: list[float] | None) -> Cell:
    if value is None:
        return absent()
    return Cell(words.efficiency(value), quiet=words.efficiency_bounds(bounds))


def _runs(report: ScalingReport) -> Table:
    columns = (
        Column("Run", numeric=False, wide=True),
        Column("Ranks"),
        Column("Median", "ms"),
        Column("Mean", "ms"),
        Column("Steps are", numeric=False),
        Column("Steady steps", numeric=False),
        Column("Worth", "independent steps"),
        Column("Steps in order", "from 0", numeric=False),
    )
    return Table("Runs", columns, tuple(_run_row(run) for run in report.runs))


def _run_row(run: ScalingRun) -> tuple[Cell, ...]:
    return (
        Cell(run.name),
        Cell(str(run.ranks)),
        Cell(units.ms_cell(run.step_ms)),
        absent() if run.mean_ms is None else Cell(units.ms_cell(run.mean_ms)),
        Cell(words.BASES[run.basis]),
        Cell(words.steps_words(run)),
        absent() if run.effective is None else Cell(units.decimal(run.effective, 0)),
        Cell("", figure=svg_fall.spark(run.steps_ms, _steady(run))) if run.steps_ms else absent(),
    )


def _steady(run: ScalingRun) -> list[bool]:
    """Return which steps are of the stretch that counts; single outliers in it are not told here."""
    if not run.segments:
        return [True] * len(run.steps_ms)
    chosen = max(run.segments, key=lambda item: (item.last - item.first, item.first))
    return [chosen.first <= at < chosen.last for at in range(len(run.steps_ms))]
