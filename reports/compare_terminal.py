"""The result of `compare` for a terminal. Every line fits the width."""

from __future__ import annotations

from trace_analyzer.comparison_document import ComparisonReport
from trace_analyzer.reports import compare_words as words
from trace_analyzer.reports import units
from trace_analyzer.reports.document_trust import add_warnings
from trace_analyzer.reports.names import short_names
from trace_analyzer.reports.scaling_terminal import add_waterfall
from trace_analyzer.reports.terminal import LEAST_WIDTH, PLAIN
from trace_analyzer.reports.terminal_page import Page, aligned
from trace_analyzer.reports.view_nccl import operation

_KERNELS = 10
_COLLECTIVES = 8
_FINDINGS = 8


def render(report: ComparisonReport, *, color: bool, width: int, plain: bool = False) -> str:
    """Return the result as lines of at most `width` columns (at least 40), with a final line feed.

    `plain` writes ASCII for bars, glyphs and typographic signs.
    """
    page = Page(max(width, LEAST_WIDTH), color)
    state = words.state(report)
    page.add(" · ".join([report.name, *words.meta(report)]), "quiet")
    page.lines.append("")
    page.add(f"{state.glyph} {state.words}", state.tone, "bold")
    page.add(report.verdict.headline, "bold")
    page.lines.append("")
    page.add(report.verdict.proof)
    if report.verdict.do_next:
        page.labelled("Do next:", report.verdict.do_next, 10, "bold")
    add_warnings(page, report.warnings)
    page.heading("Comparable?")
    for glyph, tone, sentence in words.comparability(report):
        page.labelled(glyph, sentence, 3, tone)
    rows = words.waterfall(report)
    if rows:
        page.heading(f"From one traced step to the other on rank {report.rank}, ms")
        add_waterfall(page, rows)
    _findings(page, report)
    _kernels(page, report)
    _collectives(page, report)
    _settings(page, report)
    for item in report.not_compared:
        page.add(f"Not compared: {item.what}: {item.why}.", "quiet")
    text = "\n".join(line.rstrip() for line in page.lines) + "\n"
    return text.translate(PLAIN) if plain else text


def _table(page: Page, rows: list[list[str]], left: tuple[int, ...]) -> None:
    lines = aligned(page, rows, left=left, shrink=0)
    page.lines += [page.paint(lines[0], "quiet"), *lines[1:]]


def _findings(page: Page, report: ComparisonReport) -> None:
    if not report.findings:
        return
    page.heading("Findings, ms a step that each gives back")
    rows = [["Finding", "", report.base.name, report.other.name]]
    named = words.finding_states()
    rows += [
        [
            f"{row.code} {row.name}",
            named[row.state],
            words.gain(report, row.base_recoverable_ms, there=row.state != "new"),
            words.gain(report, row.other_recoverable_ms, there=row.state != "gone"),
        ]
        for row in report.findings[:_FINDINGS]
    ]
    _table(page, rows, (0, 1))


def _kernels(page: Page, report: ComparisonReport) -> None:
    told = [row for row in report.kernels if words.told(row)]
    page.heading("Kernels and copies, by how much they change a step")
    if not told:
        page.add("No kernel is told from no change.")
        return
    names = short_names(row.name for row in told)
    rows = [["Kernel", "change", "ms/step", "95 %", "calls"]]
    for row in told[:_KERNELS]:
        change, bounds = words.change_cell(row.change_ms, row.change_interval_ms)
        rows.append(
            [
                names[row.name],
                words.KINDS[row.kind],
                change,
                bounds or units.NOT_APPLICABLE,
                words.calls(row),
            ]
        )
    _table(page, rows, (0, 1))
    rest = len(told) - _KERNELS
    if rest > 0:
        page.add(f"{units.plural(rest, 'more row')} in the HTML and JSON.", "quiet")


def _collectives(page: Page, report: ComparisonReport) -> None:
    told = [
        row
        for row in report.collectives
        if any(value.distinguishable for value in (row.transfer, row.wait, row.exposed))
    ]
    if not report.collectives:
        return
    page.heading("Collectives, change in ms a step")
    if not told:
        page.add("No collective is told from no change.")
        return
    rows = [["Collective", "MB", "transfer", "wait", "exposed", "channels"]]
    for row in told[:_COLLECTIVES]:
        channels = [
            str(c) if c else units.NOT_APPLICABLE for c in (row.base_channels, row.other_channels)
        ]
        rows.append(
            [
                operation(row.operation),
                units.megabytes(row.bytes),
                *(
                    words.change_cell(value.change_ms, None)[0]
                    for value in (row.transfer, row.wait, row.exposed)
                ),
                channels[0] if channels[0] == channels[1] else " → ".join(channels),
            ]
        )
    _table(page, rows, (0,))


def _settings(page: Page, report: ComparisonReport) -> None:
    if not report.environment:
        return
    page.heading("Settings that differ")
    for item in report.environment:
        page.add(f"{item.what}: {item.base} → {item.other}")
