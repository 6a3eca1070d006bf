"""The report as markdown for a comment in a ticket: verdict, findings, warnings, partition.

Text from traces is escaped so that it is shown and does nothing: no markup, no mention of
people, no link to another ticket.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trace_analyzer.findings import Finding, Report
from trace_analyzer.reports import parts, summary, units
from trace_analyzer.reports.names import code_spans, visible

FINDINGS = 3
_MARKS = re.compile(r"([\\*_\[\]<>|~#!])")
_MOST_CHARACTERS = 600  # of one text
_NAMES = {
    "compute": "compute",
    "transfer": "transfer",
    "comm": "communication",
    "wait": "wait",
    "unsplit": "not split",
    "copy": "copy",
    "idle": "idle",
}


def render(report: Report) -> str:
    """Return the summary as markdown, with a final line feed."""
    state = summary.state(report)
    lines = [
        f"**{escaped(report.run.name)}** · {escaped(' · '.join(summary.meta(report)))}",
        "",
        f"### {state.glyph} {escaped(report.verdict.headline)}",
        "",
        f"{state.words}.",
    ]
    for part in summary.paragraphs(report):
        lines += [
            "",
            f"**{escaped(part.lead)}** {escaped(part.text)}" if part.lead else escaped(part.text),
        ]
    if report.verdict.do_next:
        lines += ["", f"**Do next:** {escaped(report.verdict.do_next)}"]
    lines += _findings(report)
    lines += _warnings(report)
    lines += _partition(report)
    lines += [
        "",
        f"{report.tool.name} {report.tool.version}, report schema {report.schema_version}",
    ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Return text in which nothing but code between backticks is markup."""
    if len(text) > _MOST_CHARACTERS:
        text = text[:_MOST_CHARACTERS] + "…"
    written = []
    for is_code, part in code_spans(visible(text)):
        if is_code:
            written.append(f"`{part}`")
            continue
        marked = _MARKS.sub(r"\\\1", part.replace("&", "&amp;").replace("`", "'"))
        written.append(marked.replace("@", "`@`"))
    return "".join(written).replace(units.NBSP, " ").strip()


def cell(text: str) -> str:
    """Return text for a cell of a table, where a bar would end it, also inside code."""
    return escaped(text.replace("|", "¦"))


def _findings(report: Report) -> list[str]:
    if not report.findings:
        return []
    lines = ["", "| # | Finding | ms/step [95 %] | Ranks | Confidence |", "|--|--|--:|--|--|"]
    for number, finding in enumerate(report.findings[:FINDINGS], 1):
        lines.append(
            f"| {number} | {cell(finding.title)} ({cell(finding.code)} {cell(finding.name)}) "
            f"| {gain(finding)} | {cell(summary.rank_words(report, finding.ranks))} "
            f"| {finding.confidence} |"
        )
    rest = len(report.findings) - FINDINGS
    if rest > 0:
        lines += [
            "",
            f"{units.plural(rest, 'more finding')} in the report.".replace(units.NBSP, " "),
        ]
    return lines


def gain(finding: Finding) -> str:
    """Return what a finding gives back, or why there is no number."""
    if not summary.distinguishable(finding):
        return "≈ 0, not distinguishable"
    if finding.recoverable_ms is not None:
        bounds = units.interval(finding.recoverable_interval_ms)
        return f"{units.ms(finding.recoverable_ms)} {bounds}".strip()
    if finding.ceiling_ms is not None:
        return f"at most {units.ms(finding.ceiling_ms)}"
    return units.NOT_APPLICABLE


def _warnings(report: Report) -> list[str]:
    trust = summary.trust(report)
    heading = trust.heading.replace(units.NBSP, " ")
    if not trust.rows:
        return ["", f"**{heading}:** {trust.note.replace(units.NBSP, ' ')}."]
    rows = [f"- **{escaped(row.name)}** {escaped(row.text)}" for row in trust.rows]
    return ["", f"**{heading}.** {trust.note.replace(units.NBSP, ' ')}".strip(), "", *rows]


def _partition(report: Report) -> list[str]:
    steps = parts.step_rows(report)
    rows = steps or parts.window_rows(report)
    if not rows:
        return ["", "No GPU work was recorded."]
    chosen: Sequence[int] = [row.rank for row in rows]
    if len(rows) > summary.BARS_UP_TO:
        chosen = summary.telling_ranks(report)
    shown = parts.classes(rows)
    what = "Step" if steps else "Window"
    used = len(report.steps.used)
    unit = f"ms, mean of {units.plural(used, 'steady step')}" if steps and used else "ms"
    heads = ["Rank", what, *(_NAMES[cls] for cls in shown), "hidden comm."]
    lines = ["", f"{what} by rank, {unit}:", "", f"| {' | '.join(heads)} |"]
    lines.append("|--|" + "--:|" * (len(heads) - 1))
    blamed = summary.blamed(report)
    for number in chosen:
        for row in rows:
            if row.rank == number:
                mark = " ▲" if number in blamed else ""
                values = [row.total_ms, *(row.value(cls) for cls in shown), row.hidden_ms]
                cells = [
                    units.ms_cell(v) if v is not None else units.NOT_APPLICABLE for v in values
                ]
                lines.append(f"| {number}{mark} | {' | '.join(cells)} |")
    if len(chosen) < len(rows):
        lines += ["", f"{len(rows) - len(chosen)} more ranks in the report."]
    return lines
