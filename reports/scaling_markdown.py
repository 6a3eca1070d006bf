"""The result of `scaling` as markdown for a comment in a ticket."""

from __future__ import annotations

from trace_analyzer.reports import scaling_words as words
from trace_analyzer.reports import units
from trace_analyzer.reports.document_markdown import closing, opening, table
from trace_analyzer.reports.markdown import escaped
from trace_analyzer.scaling_document import ScalingReport


def render(report: ScalingReport) -> str:
    """Return the summary as markdown, with a final line feed."""
    lines = opening(
        report.name, words.meta(report), words.state(report), report.verdict, report.warnings
    )
    lines += ["", *table(["", "", "95 %"], [list(row) for row in words.facts(report)])]
    rows = words.waterfall(report, words.top(report))
    if rows:
        lines += ["", "From the ideal step to the measured one, ms a step:", ""]
        lines += table(["", "ms"], [[row.label, row.value] for row in rows])
        lines += ["", escaped(words.residual_sentence(report))]
    lines += ["", "**Comparable?**", ""]
    lines += [f"- {glyph} {escaped(text)}" for glyph, _, text in words.comparability(report)]
    if scope := words.scope(report):
        lines += ["", escaped(scope)]
    if len(report.points) > 2:
        lines += ["", *_points(report)]
    if report.curve is not None:
        lines += ["", escaped(words.curve_sentence(report))]
    lines += [f"\n{escaped(sentence)}" for sentence in words.stretches(report)]
    return closing(lines, report.tool, report.schema_version)


def _points(report: ScalingReport) -> list[str]:
    rows = [
        [
            str(point.ranks),
            units.ms(point.step_ms),
            words.efficiency(point.efficiency) if point.efficiency else units.NOT_APPLICABLE,
            words.efficiency_bounds(point.efficiency_interval) or units.NOT_APPLICABLE,
        ]
        for point in report.points
    ]
    if report.curve is not None:
        rows += [
            [
                f"{item.ranks}, projected",
                units.ms(item.step_ms),
                words.efficiency(item.efficiency),
                units.NOT_APPLICABLE,
            ]
            for item in report.curve.projections
        ]
    return table(["ranks", "step ms", "E", "95 %"], rows)
