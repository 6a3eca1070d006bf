"""Evidence of a finding: its tables and series, and links to the places in the timeline."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from trace_analyzer.findings import Evidence, Range, Series
from trace_analyzer.reports import svg_bars, units
from trace_analyzer.reports.tables import Cell, Column, Jump, Table, median
from trace_analyzer.timeline import RankTimeline, Timeline

_NS_PER_MS = 1e6
_MOST_PLACES = 8
_MOST_BARS = 200
_SEEN_IN = "seen in"  # the column whose counts are links
_OF_ALL = re.compile(r"\d+ of \d+")
_NUMBER = re.compile(r"[*]{0,2}[<>≈≤≥−–\d]")


@dataclass(frozen=True, slots=True)
class SeriesView:
    """Bars with the sentence above them."""

    caption: str
    figure: Markup


@dataclass(frozen=True, slots=True)
class EvidenceView:
    """One piece of evidence; `more` counts the places beyond those listed."""

    title: str
    table: Table | None
    series: tuple[SeriesView, ...]
    jumps: tuple[Jump, ...]
    more: int


def places(ranges: Sequence[Range], timeline: Timeline | None) -> list[Jump]:
    """Return links to the ranges that the timeline holds, named by step, and by rank where it varies."""
    if timeline is None:
        return []
    origin, _ = timeline.span_ns
    several = len({item.rank for item in ranges}) > 1
    found = []
    for item in ranges:
        rank = timeline.rank(item.rank)
        if rank is None:
            continue
        start, end = rank.window_start_ns + item.start_ns, rank.window_start_ns + item.end_ns
        words = _step_words(rank, start, end)
        if several:
            words += f", rank {item.rank}"
        found.append(
            Jump(
                f"{(start - origin) / _NS_PER_MS:.4f}",
                f"{(end - origin) / _NS_PER_MS:.4f}",
                item.rank,
                words,
            )
        )
    return found


def _step_words(rank: RankTimeline, start_ns: int, end_ns: int) -> str:
    middle = (start_ns + end_ns) // 2
    step = next((s for s in rank.steps if s.start_ns <= middle < s.end_ns), None)
    return "outside the steps" if step is None else f"step {step.index}"


def best_place(ranges: Sequence[Range], timeline: Timeline | None) -> Jump | None:
    """Return the link to the first range inside the shown step, else to the first range."""
    found = places(ranges, timeline)
    if timeline is None or not found:
        return None
    shown = f"step {timeline.shown_step}"
    best = next((item for item in found if item.words.split(",")[0] == shown), found[0])
    return Jump(best.start_ms, best.end_ms, best.rank, "Show in timeline")


def evidence_view(item: Evidence, timeline: Timeline | None) -> EvidenceView:
    """Arrange one piece of evidence."""
    found = places(item.ranges, timeline)
    columns = tuple(
        Column(name[:1].upper() + name[1:], numeric=_numeric(item, index), wide=index == 0)
        for index, name in enumerate(item.columns)
    )
    seen_in = [name.strip().lower() == _SEEN_IN for name in item.columns]
    whole = [_whole(item, index) for index in range(len(item.columns))]
    first = found[0] if found else None
    rows = tuple(
        tuple(
            _cell(value, first if seen_in[at] else None, whole=whole[at])
            for at, value in enumerate(row[: len(columns)])
        )
        for row in item.rows
    )
    table = Table(caption=item.title, columns=columns, rows=rows, note=item.title)
    listed = found if len(found) > 1 or not _links(rows) else []
    return EvidenceView(
        title=item.title,
        table=table if columns else None,
        series=tuple(_series(series) for series in item.series if series.values),
        jumps=tuple(listed[:_MOST_PLACES]),
        more=max(0, len(listed) - _MOST_PLACES),
    )


def _links(rows: Sequence[Sequence[Cell]]) -> bool:
    return any(cell.jump is not None for row in rows for cell in row)


def _numeric(item: Evidence, index: int) -> bool:
    """Return whether a column is set to the right: numbers, or text that begins with one."""
    cells = [row[index] for row in item.rows if index < len(row) and row[index] is not None]
    return index > 0 and all(not isinstance(cell, str) or _NUMBER.match(cell) for cell in cells)


def _whole(item: Evidence, index: int) -> bool:
    """Return whether all numbers of a column are whole: counts, though written as decimals."""
    cells = [row[index] for row in item.rows if index < len(row)]
    return all(float(cell).is_integer() for cell in cells if isinstance(cell, int | float))


def _cell(value: str | float | None, place: Jump | None, *, whole: bool) -> Cell:
    if value is None:
        return Cell(units.NOT_APPLICABLE)
    if isinstance(value, str):
        if place is not None and _OF_ALL.fullmatch(value):
            return Cell(value, jump=Jump(place.start_ms, place.end_ms, place.rank, value))
        bold = len(value) > 4 and value.startswith("**") and value.endswith("**")
        return Cell(value[2:-2], "strong") if bold else Cell(value)
    return Cell(units.integer(value) if whole else units.ms_cell(value))


def _series(series: Series) -> SeriesView:
    block = -(-len(series.values) // _MOST_BARS)
    bars: list[tuple[float | None, bool]] = []
    marked = set(series.marked)
    for begin in range(0, len(series.values), block):
        known = [value for value in series.values[begin : begin + block] if value is not None]
        numbers = range(series.first + begin, series.first + begin + block)
        bars.append((max(known) if known else None, not marked.isdisjoint(numbers)))
    told = [value for value in series.values if value is not None]
    words = f"{series.label}: unknown"
    if told:
        high = max(told)
        at = series.first + series.values.index(high)
        words = (
            f"{series.label}, {units.plural(len(series.values), 'step')} from "
            f"{series.first}: median {units.ms(median(told))}{units.NBSP}{series.unit}, largest "
            f"{units.ms(high)}{units.NBSP}{series.unit} at step {at}"
        )
    if block > 1:
        words += f"; a bar is the largest of {block} steps"
    if marked:
        words += "; red: what the finding is about"
    figure = svg_bars.series_bars(bars, series.unit, label=words)
    return SeriesView(f"{words}.", figure)
