"""Tables and heat tables as data: the templates draw them, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from trace_analyzer.reports import units

SORTABLE_FROM = 4  # rows


@dataclass(frozen=True, slots=True)
class Column:
    """A header: `sub` is its second line (the unit), `order` an initial sort."""

    head: str
    sub: str = ""
    numeric: bool = True
    order: str = ""
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Jump:
    """A link to a stretch of the timeline, in ms from its left edge."""

    start_ms: str
    end_ms: str
    rank: int
    words: str


@dataclass(frozen=True, slots=True)
class Cell:
    """A value: `quiet` follows the text in grey, `full` opens below it, `figure` replaces it.

    With `jump` the text is a link into the timeline.
    """

    text: str
    cls: str = ""
    quiet: str = ""
    full: str = ""
    figure: Markup = field(default_factory=Markup)
    jump: Jump | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first cell of a row is its header. `note` stands above, `caption` is hidden."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    footer: tuple[Cell, ...] = ()

    @property
    def sortable(self) -> bool:
        """Whether sorting helps."""
        return len(self.rows) >= SORTABLE_FROM


@dataclass(frozen=True, slots=True)
class HeatCell:
    """A cell of a heat table: `level` 1 to 5, 0 for a cell without a value."""

    text: str
    level: int


@dataclass(frozen=True, slots=True)
class HeatRow:
    """A row of a heat table."""

    label: str
    blamed: bool
    cells: tuple[HeatCell, ...]


@dataclass(frozen=True, slots=True)
class HeatTable:
    """Numbers in cells shaded by size."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[HeatRow, ...]
    corner: str = ""


def text_cell(text: str, cls: str = "") -> Cell:
    """Return a cell; empty text becomes "unknown"."""
    return Cell(text or units.UNKNOWN, cls)


def absent() -> Cell:
    """Return the cell of a value that does not apply."""
    return Cell(units.NOT_APPLICABLE)


def level(value: float, low: float, high: float) -> int:
    """Return the class of a value: five equal parts from `low` to `high`."""
    if high <= low:
        return 1
    return min(5, max(1, 1 + int(5 * (value - low) / (high - low))))


def lateness_level(value_ms: float, largest_ms: float, step_ms: float | None) -> int:
    """Return the class of a lateness: fifths of the largest, but the first below 1 ms or 2 % of a step."""
    floor = max(1.0, 0.02 * (step_ms or 0.0))
    if value_ms < floor or largest_ms <= floor:
        return 1
    return min(5, max(2, 1 + int(5 * value_ms / largest_ms)))


def median(values: Sequence[float]) -> float:
    """Return the middle of the values; the mean of both where their number is even."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
