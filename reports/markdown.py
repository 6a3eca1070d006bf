"""The report as markdown for a comment in a ticket: the verdict in full, the proof folded below it.

It is no longer than GitHub, GitLab and Jira take, and text from traces does nothing in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trace_analyzer.findings import Evidence, Finding, Report
from trace_analyzer.reports import parts, short_tables, summary, units, what_if
from trace_analyzer.reports.markdown_text import (
    MOST_CHARACTERS,
    cell,
    code,
    escaped,
    fitted,
    folded,
    table,
)

FINDINGS = 3
_WARNINGS = 12
_ROWS = 12  # of a folded table
_NAMES = {
    "compute": "compute",
    "transfer": "transfer",
    "comm": "communication",
    "wait": "wait",
    "unsplit": "not split",
    "copy": "copy",
    "idle": "idle",
}


def render(report: Report, most: int = MOST_CHARACTERS) -> str:
    """Return the summary as markdown of at most `most` characters, with a final line feed."""
    return fitted(
        [_verdict(report), _findings(report), _warnings(report), _partition(report)],
        [
            *(
                (f"evidence of {_safe(item.code)}", _evidence(item))
                for item in report.findings[:FINDINGS]
            ),
            (what_if.heading(report).lower(), _what_if(report)),
            ("NCCL", _nccl(report)),
            ("kernels", _kernels(report)),
            ("checks", _checks(report)),
            ("environment", _environment(report)),
        ],
        f"{report.tool.name} {report.tool.version}, report schema {report.schema_version}",
        most,
    )


def _verdict(report: Report) -> list[str]:
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
    return lines


def _findings(report: Report) -> list[str]:
    if not report.findings:
        return []
    rows = [
        [
            str(number),
            f"{cell(finding.title)} ({cell(finding.code)} {cell(finding.name)})",
            gain(finding),
            cell(summary.rank_words(report, finding.ranks)),
            finding.confidence,
        ]
        for number, finding in enumerate(report.findings[:FINDINGS], 1)
    ]
    heads = ["#", "Finding", "ms/step [95 %]", "Ranks", "Confidence"]
    lines = ["", *table(heads, rows, text=(0, 1, 3, 4))]
    rest = len(report.findings) - FINDINGS
    if rest > 0:
        lines += [
            "",
            f"{units.plural(rest, 'more finding')} in the report.".replace(units.NBSP, " "),
        ]
    return lines


def _what_if(report: Report) -> list[str]:
    rows = [
        [code(row.name), cell(row.meaning), row.step, row.back]
        for row in what_if.rows(report, asked_only=False)
    ]
    heads = ["what if", "it means", "step, ms", "gives back, ms [95 %]"]
    return table(heads, rows, text=(0, 1)) if rows else []


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
    rows = [f"- **{escaped(row.name)}** {escaped(row.text)}" for row in trust.rows[:_WARNINGS]]
    rest = len(trust.rows) - _WARNINGS
    if rest > 0:
        rows.append(f"- {rest} more in the report.")
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


def _evidence(finding: Finding) -> list[str]:
    """Return why a finding is believed and what to do about it."""
    lines: list[str] = []
    for label, text in (
        ("Proof", finding.proof),
        ("Why not something else", finding.rival),
        ("When it is wrong", finding.limits),
        ("Confidence", finding.confidence_reason),
    ):
        if text:
            lines += [f"**{label}.** {escaped(text)}", ""]
    lines += [f"{number}. {escaped(text)}" for number, text in enumerate(finding.actions, 1)]
    for item in finding.evidence:
        lines += ["", *_evidence_table(item)]
    return folded(f"Evidence of {_safe(finding.code)}", lines) if lines else []


def _safe(name: str) -> str:
    """Return a code of the catalogue for text that is not escaped; anything else as unknown."""
    return name if name.isascii() and name.isalnum() else units.UNKNOWN


def _evidence_table(item: Evidence) -> Iterator[str]:
    yield f"{escaped(item.title)}:"
    if item.columns and item.rows:
        rows = [
            [_value(value) for value in row[: len(item.columns)]]
            + [""] * (len(item.columns) - len(row))
            for row in item.rows[:_ROWS]
        ]
        yield ""
        yield from table([cell(name) for name in item.columns], rows, text=(0,))
    if len(item.rows) > _ROWS:
        yield ""
        yield f"{len(item.rows) - _ROWS} more rows in the report."


def _value(value: str | float | None) -> str:
    if value is None:
        return units.NOT_APPLICABLE
    if isinstance(value, str):
        return cell(value.replace("**", ""))
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}".rstrip("0").rstrip(".")


def _nccl(report: Report) -> list[str]:
    found = short_tables.collectives(report, _ROWS)
    rows = [[cell(text) for text in row] for row in found.rows]
    return _folded_table(found, rows, text=(0,))


def _kernels(report: Report) -> list[str]:
    found = short_tables.kernels(report, _ROWS)
    rows = [[code(row[0]), *(cell(text) for text in row[1:])] for row in found.rows]
    return _folded_table(found, rows, text=(0, 1))


def _folded_table(
    found: short_tables.ShortTable, rows: Sequence[Sequence[str]], text: Sequence[int]
) -> list[str]:
    if not rows:
        return []
    lines = table([cell(head) for head in found.heads], rows, text)
    if found.left_out:
        more = units.plural(found.left_out, "more row").replace(units.NBSP, " ")
        lines += ["", f"{more} in the report."]
    return folded(found.heading, lines)


def _checks(report: Report) -> list[str]:
    if not report.checks:
        return []
    rows = [[cell(f"{c.code} {c.name}"), cell(c.state), cell(c.reason)] for c in report.checks]
    lines = table(["Check", "state", "why"], rows, text=(0, 1, 2))
    return folded(f"What was checked beside the findings ({len(rows)})", lines)


def _environment(report: Report) -> list[str]:
    lines = [f"- {escaped(f'{key} {value}')}" for key, value in report.run.versions.items()]
    lines += [f"- {escaped(text)}" for text in report.environment.differences[:_ROWS]]
    rest = len(report.environment.differences) - _ROWS
    if rest > 0:
        lines.append(f"- {rest} more differences in the report.")
    return folded("Versions, and settings that differ", lines) if lines else []


__all__ = ["FINDINGS", "MOST_CHARACTERS", "cell", "escaped", "gain", "render"]
