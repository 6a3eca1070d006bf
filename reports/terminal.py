"""The report for a terminal: verdict, warnings, findings, partition, NCCL, kernels.

Every line fits the width. Colour is used only where asked for and never alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from trace_analyzer.findings import Report
from trace_analyzer.reports import markdown, parts, short_tables, summary, units, what_if
from trace_analyzer.reports.parts import PartitionRow
from trace_analyzer.reports.svg_bars import Part
from trace_analyzer.reports.terminal_page import Page, aligned

LEAST_WIDTH = 40
_KERNELS = 10
_COLLECTIVES = 12
_FINDINGS = 5
BLOCKS = {
    "compute": ("█", "34"),
    "transfer": ("▓", "33"),
    "comm": ("▓", "33"),
    "wait": ("▒", "33"),
    "unsplit": ("▓", "33"),
    "copy": ("▪", "36"),
    "idle": ("·", "2"),
}
PLAIN = str.maketrans(
    {
        "█": "#", "▓": "+", "▒": "-", "▪": "o", "·": ".", "▲": "!", "✓": "*", "–": "-", "−": "-",
        "×": "x", "µ": "u", "…": "~", "≤": "<", "≈": "~", "“": '"', "”": '"', "’": "'", "→": ">",
        "✕": "x", "‹": "<", "›": ">", "±": "+", "≥": ">", "△": "!", "÷": "/", "∪": "+", "α": "a",
        "β": "b", "¦": "|", "⟦": "[", "⟧": "]",
    }
)  # fmt: skip


def render(report: Report, *, color: bool, width: int, plain: bool = False) -> str:
    """Return the report as lines of at most `width` columns (at least 40), with a final line feed.

    `plain` writes ASCII for bars, glyphs and typographic signs.
    """
    page = Page(max(width, LEAST_WIDTH), color)
    _verdict(page, report)
    _warnings(page, report)
    _findings(page, report)
    _partition(page, report)
    _nccl(page, report)
    _kernels(page, report)
    text = "\n".join(line.rstrip() for line in page.lines) + "\n"
    return text.translate(PLAIN) if plain else text


def _verdict(page: Page, report: Report) -> None:
    state = summary.state(report)
    page.add(" · ".join([report.run.name, *summary.meta(report)]), "quiet")
    page.lines.append("")
    page.add(f"{state.glyph} {state.words}", state.tone, "bold")
    page.add(report.verdict.headline, "bold")
    page.lines.append("")
    for part in summary.paragraphs(report):
        page.add(f"{part.lead} {part.text}".strip())
    if report.verdict.do_next:
        page.labelled("Do next:", report.verdict.do_next, 10, "bold")
    for line in _times(report):
        page.add(line)


def _times(report: Report) -> list[str]:
    base, basis = summary.base_ms(report)
    traced = report.steps.profiled_ms
    pieces = []
    if traced is not None:
        pieces.append(f"{units.ms(traced)} ms in this trace (median)")
    if base is not None:
        change = f" (profiler {units.signed_percent(traced / base - 1)})" if traced and base else ""
        pieces.append(f"{units.ms(base)} ms unprofiled, {basis}{change}")
    return [f"Step: {', '.join(pieces)}."] if pieces else []


def _warnings(page: Page, report: Report) -> None:
    trust = summary.trust(report)
    page.lines.append("")
    glyph = "✓" if trust.tone == "good" else "!"
    note = f": {trust.note}" if trust.note and trust.tone == "good" else ""
    page.add(f"{glyph} {trust.heading}{note}", trust.tone)
    indent = min(32, page.width // 3)
    for row in trust.rows:
        tone = "quiet" if row.severity == "note" else "warn"
        page.labelled(f"  {row.name}", row.text, indent, tone)


def _findings(page: Page, report: Report) -> None:
    if not report.findings:
        _what_if(page, report)
        return
    shown = report.findings[:_FINDINGS]
    rows = [["#", "Cause", "ms/step [95 %]", "Ranks", "Sure"]]
    for number, finding in enumerate(shown, 1):
        ranks = summary.rank_words(report, finding.ranks).removesuffix(" ranks")
        name = f"{finding.name} ({finding.code})"
        if finding.caused_by is not None:
            name += f", caused by {finding.caused_by}"
        elif finding.kind == "opportunity":
            name += ", opportunity"
        rows.append([str(number), name, markdown.gain(finding), ranks, finding.confidence])
    page.heading("Findings: faults, then opportunities, each by what fixing it gives back")
    lines = aligned(page, rows, left=(1, 3, 4), shrink=1)
    page.lines.append(page.paint(lines[0], "quiet"))
    for line, finding in zip(lines[1:], shown, strict=True):
        page.lines.append(line)
        page.lines += [
            page.paint("   " + part, "quiet")
            for part in page.wrapped(finding.title, page.width - 3)
        ]
    rest = len(report.findings) - _FINDINGS
    if rest > 0:
        page.add(f"{units.plural(rest, 'more finding')} in the HTML and JSON report.", "quiet")
    _what_if(page, report)


def _what_if(page: Page, report: Report) -> None:
    """Add the step with named changes, where the user asked for some."""
    found = what_if.rows(report, asked_only=True)
    if not found:
        return
    page.heading(what_if.heading(report))
    cells = [["What if", "step ms", "gives back [95 %]"]]
    cells += [[row.name, row.step, row.back] for row in found]
    lines = aligned(page, cells, left=(0,), shrink=0)
    page.lines.append(page.paint(lines[0], "quiet"))
    for line, row in zip(lines[1:], found, strict=True):
        page.lines.append(line)
        page.lines += [
            page.paint("   " + part, "quiet") for part in page.wrapped(row.meaning, page.width - 3)
        ]


def _bar(page: Page, row: PartitionRow, cells: int, scale_ms: float) -> str:
    """Return a bar of whole characters: boundaries are rounded, so that lengths add up."""
    drawn, at, done = "", 0.0, 0
    for part in row.parts:
        at += part.value_ms
        end = round(at / scale_ms * cells) if scale_ms > 0 else 0
        sign, colour = BLOCKS[part.cls]
        drawn += page.paint(sign * (end - done), colour)
        done = max(done, end)
    return drawn


def _partition(page: Page, report: Report) -> None:
    steps = parts.step_rows(report)
    rows = steps or parts.window_rows(report)
    if not rows:
        page.heading("Where a step goes")
        page.add("No GPU work was recorded.")
        return
    used = len(report.steps.used)
    what = "whole recorded window"
    if steps:
        what = f"mean of {units.plural(used, 'steady step')}, cut at {report.steps.boundary}"
    page.heading(f"Where {'a step' if steps else 'the time'} goes, ms ({what})")
    shown = rows
    if len(rows) > summary.BARS_UP_TO:
        chosen = summary.telling_ranks(report)
        shown = [row for number in chosen for row in rows if row.rank == number]
    blamed = summary.blamed(report)
    names = {row.rank: f"rank {row.rank}{' ▲' if row.rank in blamed else ''}" for row in shown}
    label = max(len(name) for name in names.values())
    totals = {row.rank: units.ms(row.total_ms) for row in shown}
    room = page.width - label - max(len(total) for total in totals.values()) - 4
    scale_ms = max(row.total_ms for row in shown)
    present = parts.classes(rows)
    for row in shown:
        cells = round(row.total_ms / scale_ms * room) if scale_ms > 0 else 0
        name = names[row.rank].ljust(label)
        name = page.paint(name, "bad") if row.rank in blamed else name
        bar = _bar(page, row, room, scale_ms)
        page.lines.append(f"{name}  {bar}{' ' * (room - cells)}  {totals[row.rank]}")
    page.key([(*BLOCKS[cls], _words(rows, cls)) for cls in present], indent=label + 2)
    page.lines.append("")
    table = [
        ["rank", "step" if steps else "window", *(_words(rows, cls) for cls in present), "hidden"]
    ]
    for row in shown:
        values = [row.total_ms, *(row.value(cls) for cls in present), row.hidden_ms]
        cells_of = [units.ms_cell(v) if v is not None else units.NOT_APPLICABLE for v in values]
        table.append([str(row.rank), *cells_of])
    lines = aligned(page, table, left=(), shrink=0)
    page.lines += [page.paint(lines[0], "quiet"), *lines[1:]]
    if len(shown) < len(rows):
        page.add(f"{len(rows) - len(shown)} more ranks in the HTML and JSON report.", "quiet")


def _words(rows: Sequence[PartitionRow], cls: str) -> str:
    found: list[Part] = [part for row in rows for part in row.parts if part.cls == cls]
    word = found[0].word if found else cls
    return "comm" if word == "communication" else word


def _nccl(page: Page, report: Report) -> None:
    if not report.collectives:
        return
    table = short_tables.collectives(report, _COLLECTIVES)
    page.heading(table.heading)
    lines = aligned(page, [table.heads, *table.rows], left=(0,), shrink=0)
    page.lines += [page.paint(lines[0], "quiet"), *lines[1:]]
    if table.left_out:
        page.add(
            f"{units.plural(table.left_out, 'more row')} in the HTML and JSON report.", "quiet"
        )


def _kernels(page: Page, report: Report) -> None:
    table = short_tables.kernels(report, _KERNELS)
    if not table.rows:
        return
    page.heading(table.heading)
    lines = aligned(page, [table.heads, *table.rows], left=(0, 1), shrink=0)
    page.lines += [page.paint(lines[0], "quiet"), *lines[1:]]
