"""`trace-analyzer explain` and `trace-analyzer rules`: the catalogue in words."""

from __future__ import annotations

import re
import sys
import textwrap
from typing import TYPE_CHECKING

import click

from trace_analyzer.cli.group import InputError, debug_option
from trace_analyzer.cli.terminal import text_width, use_color

if TYPE_CHECKING:
    from trace_analyzer.rules.sections import Entry

_INDENT = "  "
_LEAST_TEXT = 24


@click.command(
    short_help="Explain a code of a report.",
    epilog="Example: trace-analyzer explain HOST002",
)
@click.argument("code")
@debug_option
def explain(*, code: str) -> None:
    """Explain CODE, the code or name of a finding, a check or a data warning.

    It says what the rule finds, why that costs time, how it is measured, when it is wrong and what
    to do.
    """
    from trace_analyzer.rules.sections import entries, entry

    found = entry(code)
    if found is None:
        letters = re.match(r"[A-Z]{2,}", code.strip().upper())
        likely = [
            item.code for item in entries() if letters and item.code.startswith(letters.group())
        ]
        hint = f"; did you mean {', '.join(likely)}" if likely else ""
        raise InputError(f"{code}: no such code{hint}; trace-analyzer rules lists all")
    click.echo(_explained(found, text_width(sys.stdout), color=use_color(sys.stdout)))


def _explained(item: Entry, width: int, *, color: bool) -> str:
    def bold(text: str) -> str:
        return click.style(text, bold=True) if color else text

    kind = "data warning" if item.kind == "warning" else item.kind
    if item.status == "experimental":
        kind += ", experimental: no recorded run has shown what it costs"
    lines = [f"{bold(item.code)} {item.name} ({kind})"]
    for title, body in item.sections.items():
        lines += ["", bold(title)]
        lines += textwrap.wrap(
            " ".join(body.split()),
            width,
            initial_indent=_INDENT,
            subsequent_indent=_INDENT,
            break_on_hyphens=False,
            break_long_words=False,
        )
    if item.needs:
        lines += ["", bold("Needs"), *_filled(item.needs + ".", width)]
    return "\n".join(lines)


def _filled(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=_INDENT, subsequent_indent=_INDENT)


@click.command(
    short_help="List the causes that are looked for, and the data warnings.",
    epilog="Example: trace-analyzer rules --json",
)
@click.option("--json", "as_json", is_flag=True, help="Write the list as JSON, texts included.")
@debug_option
def rules(*, as_json: bool) -> None:
    """List the causes that are looked for, and the warnings about data."""
    from trace_analyzer.rules.sections import entries

    found = entries()
    if as_json:
        import json

        document = [
            {
                "code": item.code,
                "name": item.name,
                "kind": item.kind,
                "status": item.status,
                "needs": item.needs,
                "sections": dict(item.sections),
            }
            for item in found
        ]
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    for line in _table(found, text_width(sys.stdout)):
        click.echo(line)


def _table(found: tuple[Entry, ...], width: int) -> list[str]:
    """Return the list: in columns where they fit, else each entry below its code and name."""
    head = ("code", "name", "kind", "status")
    cells = [(item.code, item.name, item.kind, item.status) for item in found]
    widths = [max(len(row[column]) for row in [head, *cells]) for column in range(len(head))]
    used = sum(widths) + 2 * len(widths)
    texts = [item.first_sentence for item in found]
    if width - used < _LEAST_TEXT:
        return [
            line
            for (code, name, kind, status), text in zip(cells, texts, strict=True)
            for line in (f"{code} {name}", *_filled(f"{kind}, {status}: {text}", width))
        ]
    lines: list[str] = []
    for row, text in zip([head, *cells], ["finds", *texts], strict=True):
        left = "".join(part.ljust(size + 2) for part, size in zip(row, widths, strict=True))
        first, *rest = textwrap.wrap(text, width - used)
        lines += [left + first, *(" " * used + part for part in rest)]
    return lines
