"""The result of `scaling` for a terminal. Every line fits the width."""

from __future__ import annotations

from collections.abc import Sequence

from trace_analyzer.reports import scaling_words as words
from trace_analyzer.reports import units
from trace_analyzer.reports.document_trust import add_warnings
from trace_analyzer.reports.names import cut_middle, display_width, fit, visible
from trace_analyzer.reports.scaling_words import FallRow
from trace_analyzer.reports.terminal import BLOCKS, LEAST_WIDTH, PLAIN
from trace_analyzer.reports.terminal_page import Page, aligned
from trace_analyzer.scaling_document import ScalingReport

_SIGNS = {**BLOCKS, "muted": ("█", "2"), "host": ("▪", "35"), "outline": ("?", "2")}


def render(report: ScalingReport, *, color: bool, width: int, plain: bool = False) -> str:
    """Return the result as lines of at most `width` columns (at least 40), with a final line feed.

    `plain` writes ASCII for bars, glyphs and typographic signs.
    """
    page = Page(max(width, LEAST_WIDTH), color)
    state = words.state(report)
    page.add(report.name, "quiet")
    page.lines.append("")
    page.add(f"{state.glyph} {state.words}", state.tone, "bold")
    page.add(report.verdict.headline, "bold")
    page.lines.append("")
    page.add(report.verdict.proof)
    if report.verdict.do_next:
        page.labelled("Do next:", report.verdict.do_next, 10, "bold")
    for name, value, after in words.facts(report):
        page.add(f"{name}: {value} {after}".rstrip())
    add_warnings(page, report.warnings)
    _loss(page, report)
    _comparable(page, report)
    _points(page, report)
    _curve(page, report)
    _runs(page, report)
    text = "\n".join(line.rstrip() for line in page.lines) + "\n"
    return text.translate(PLAIN) if plain else text


def _loss(page: Page, report: ScalingReport) -> None:
    point = words.top(report)
    rows = words.waterfall(report, point)
    if not rows:
        return
    page.heading("From the ideal step to the measured one, ms a step")
    add_waterfall(page, rows)
    rank = f"Parts of rank {point.loss_rank}, which waits least for its peers. "
    page.add(rank + words.residual_sentence(report), "quiet")


def add_waterfall(page: Page, rows: Sequence[FallRow]) -> None:
    """Add a waterfall: a line a row, its bar where it stands on the common scale."""
    label = min(max(display_width(row.label) for row in rows), page.width * 2 // 5)
    value = max(len(row.value) for row in rows)
    room = max(page.width - label - value - 4, 8)
    most = max(max(row.start_ms, row.end_ms) for row in rows)
    for row in rows:
        head = fit(visible(row.label).replace(units.NBSP, " "), label)
        head += " " * (label - display_width(head))
        bar = _bar(page, row, room, most)
        text = row.value.replace(units.NBSP, " ").rjust(value)
        page.lines.append(f"{page.paint(head, 'bold') if row.total else head}  {bar}  {text}")


def _bar(page: Page, row: FallRow, room: int, most: float) -> str:
    low, high = sorted((row.start_ms, row.end_ms))
    first, last = (round(max(end, 0.0) / most * room) if most > 0 else 0 for end in (low, high))
    last = min(max(last, first + 1), room)
    first = min(first, last - 1)
    sign, style = _SIGNS[row.cls]
    return " " * first + page.paint(sign * (last - first), style) + " " * (room - last)


def _comparable(page: Page, report: ScalingReport) -> None:
    page.heading("Comparable?")
    for glyph, tone, sentence in words.comparability(report):
        page.labelled(glyph, sentence, 3, tone)
    if scope := words.scope(report):
        page.add(scope)


def _points(page: Page, report: ScalingReport) -> None:
    if len(report.points) < 3:
        return
    rows = [["ranks", "step ms", "ideal ms", "E", "95 %", "speed-up", "lost ms"]]
    rows += [
        [
            str(point.ranks),
            units.ms(point.step_ms),
            _number(point.ideal_ms),
            words.efficiency(point.efficiency) if point.efficiency else units.NOT_APPLICABLE,
            words.efficiency_bounds(point.efficiency_interval) or units.NOT_APPLICABLE,
            units.decimal(point.speed_up, 2) if point.speed_up else units.NOT_APPLICABLE,
            _number(point.loss_ms),
        ]
        for point in report.points
    ]
    page.heading("By number of ranks")
    lines = aligned(page, rows, left=(), shrink=0)
    page.lines += [page.paint(lines[0], "quiet"), *lines[1:]]


def _number(value: float | None) -> str:
    return units.NOT_APPLICABLE if value is None else units.ms(value)


def _curve(page: Page, report: ScalingReport) -> None:
    curve = report.curve
    if curve is None:
        return
    page.heading("Curve")
    page.add(words.curve_sentence(report))
    for item in curve.projections:
        bounds = units.interval(item.step_interval_ms)
        page.add(
            f"{words.ranks_words(item.ranks)}, projected: {units.ms(item.step_ms)} ms a step {bounds}, "
            f"E = {words.efficiency(item.efficiency)}"
        )
    if curve.projections:
        page.add("It takes for granted: " + "; ".join(curve.assumptions) + ".", "quiet")


def _runs(page: Page, report: ScalingReport) -> None:
    page.heading("Runs")
    for run in report.runs:
        page.add(
            f"{cut_middle(run.name)}: {words.ranks_words(run.ranks)}, {units.ms(run.step_ms)} ms, "
            f"{words.BASES[run.basis]}: {words.steps_words(run)}"
        )
