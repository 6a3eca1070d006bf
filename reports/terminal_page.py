"""Lines for a terminal: wrapping, columns, colour, all within a width."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

from trace_analyzer.reports import units
from trace_analyzer.reports.names import display_width, fit, visible

_COLOURS = {"bad": "31", "warn": "33", "good": "32", "quiet": "2", "bold": "1"}


@dataclass(slots=True)
class Page:
    """A growing list of lines, none wider than `width` columns."""

    width: int
    color: bool
    lines: list[str] = field(default_factory=list)

    def paint(self, text: str, *styles: str) -> str:
        codes = ";".join(_COLOURS.get(style, style) for style in styles)
        return f"\x1b[{codes}m{text}\x1b[0m" if self.color and text and codes else text

    def add(self, text: str, *styles: str) -> None:
        """Add text, wrapped to the width."""
        for line in self.wrapped(text, self.width):
            self.lines.append(self.paint(line, *styles))

    def wrapped(self, text: str, width: int) -> list[str]:
        clean = visible(text).replace(units.NBSP, " ")
        lines = textwrap.wrap(clean, width, break_on_hyphens=False) or [""]
        return [part for line in lines for part in _hard(line, width)]

    def labelled(self, label: str, text: str, indent: int, *styles: str) -> None:
        """Add text beside a label, wrapped under itself; below the label where that is long."""
        label = visible(label).replace(units.NBSP, " ")
        if display_width(label) + 2 > indent:
            self.lines += [self.paint(line, *styles) for line in self.wrapped(label, self.width)]
            label = ""
        for position, line in enumerate(self.wrapped(text, self.width - indent)):
            head = label if position == 0 else ""
            pad = " " * (indent - display_width(head))
            self.lines.append(self.paint(head, *styles) + pad + line)

    def key(self, entries: Sequence[tuple[str, str, str]], indent: int) -> None:
        """Add a legend of (sign, style, word), as many in a line as fit."""
        line, used = " " * indent, indent
        for sign, style, word in entries:
            need = display_width(sign) + 1 + display_width(word) + 2
            if used + need - 2 > self.width and used > indent:
                self.lines.append(line)
                line, used = " " * indent, indent
            line += f"{self.paint(sign, style)} {word}  "
            used += need
        self.lines.append(line)

    def heading(self, text: str) -> None:
        self.lines.append("")
        self.add(text, "bold")


def _hard(line: str, width: int) -> list[str]:
    """Split a line whose characters are wider than one column."""
    found, current = [], ""
    for character in line:
        if display_width(current + character) > width:
            found.append(current)
            current = ""
        current += character
    return [*found, current]


def aligned(
    page: Page, rows: Sequence[Sequence[str]], left: Sequence[int], shrink: int
) -> list[str]:
    """Return rows as aligned lines: `left` columns to the left, column `shrink` cut to fit.

    Columns that do not fit at all are dropped from the right.
    """
    count = len(rows[0])
    cells = [[visible(cell).replace(units.NBSP, " ") for cell in row] for row in rows]
    widths = [max(display_width(row[i]) for row in cells) for i in range(count)]
    while count > 1:
        spare = page.width - sum(widths[:count]) - 2 * (count - 1)
        if widths[shrink] + spare >= min(widths[shrink], 14):
            break
        count -= 1
    spare = page.width - sum(widths[:count]) - 2 * (count - 1)
    widths[shrink] = max(1, widths[shrink] + min(spare, 0))
    lines = []
    for row in cells:
        parts_of_line = []
        for index in range(count):
            text = fit(row[index], widths[index])
            pad = " " * (widths[index] - display_width(text))
            parts_of_line.append(text + pad if index in left else pad + text)
        lines.append("  ".join(parts_of_line))
    return lines
