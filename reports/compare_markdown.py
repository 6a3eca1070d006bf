"""The result of `compare` as markdown for a comment in a ticket."""

from __future__ import annotations

from trace_analyzer.comparison_document import ComparisonReport
from trace_analyzer.reports import compare_words as words
from trace_analyzer.reports import units
from trace_analyzer.reports.document_markdown import closing, opening, table
from trace_analyzer.reports.markdown import escaped
from trace_analyzer.reports.names import short_names
from trace_analyzer.reports.scaling_words import signed_ms

_KERNELS = 5


def render(report: ComparisonReport) -> str:
    """Return the summary as markdown, with a final line feed."""
    lines = opening(
        report.name, words.meta(report), words.state(report), report.verdict, report.warnings
    )
    lines += ["", *table(["", "", ""], [list(row) for row in words.facts(report)])]
    lines += ["", "**Comparable?**", ""]
    lines += [f"- {glyph} {escaped(text)}" for glyph, _, text in words.comparability(report)]
    rows = words.waterfall(report)
    if rows:
        lines += ["", f"From one traced step to the other on rank {report.rank}, ms:", ""]
        lines += table(["", "ms"], [[row.label, row.value] for row in rows])
    lines += _findings(report)
    lines += _kernels(report)
    if report.environment:
        lines += ["", "Settings that differ:", ""]
        lines += [
            f"- {escaped(f'{item.what}: {item.base} → {item.other}')}"
            for item in report.environment
        ]
    lines += [
        f"\nNot compared: {escaped(item.what)}: {escaped(item.why)}."
        for item in report.not_compared
    ]
    return closing(lines, report.tool, report.schema_version)


def _findings(report: ComparisonReport) -> list[str]:
    changed = [row for row in report.findings if row.state != "unchanged"]
    if not changed:
        return []
    named = words.finding_states()
    rows = [
        [
            f"{row.code} {row.name}",
            named[row.state],
            units.NOT_APPLICABLE if row.change_ms is None else signed_ms(row.change_ms),
        ]
        for row in changed
    ]
    return ["", *table(["Finding", "", "recoverable, ms a step"], rows)]


def _kernels(report: ComparisonReport) -> list[str]:
    told = [row for row in report.kernels if words.told(row)]
    if not told:
        return ["", "No kernel is told from no change."]
    names = short_names(row.name for row in told)
    rows = []
    for row in told[:_KERNELS]:
        change, bounds = words.change_cell(row.change_ms, row.change_interval_ms)
        rows.append([names[row.name], words.KINDS[row.kind], f"{change} {bounds}".strip()])
    return ["", *table(["Kernel", "", "ms a step"], rows)]
