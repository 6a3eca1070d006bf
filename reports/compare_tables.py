"""The tables of the comparison page."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from trace_analyzer.comparison_document import (
    ComparisonReport,
    KernelChange,
    PartChange,
    RankChange,
    ValueChange,
)
from trace_analyzer.reports import compare_words as words
from trace_analyzer.reports import svg_fall, units
from trace_analyzer.reports.names import short_names
from trace_analyzer.reports.svg import Scale
from trace_analyzer.reports.tables import Cell, Column, Table, absent
from trace_analyzer.reports.view_nccl import operation


def parts(rank: RankChange) -> Table:
    """Return the parts of a rank's step, with the change of each as a bar."""
    scale = Scale.to(
        max((_reach(part.change_ms, part.change_interval_ms) for part in rank.parts), default=0.0)
    )
    columns = (
        Column("ms/step", numeric=False),
        Column("Base"),
        Column("Other"),
        Column("Change", "[95 %]"),
        Column("Change", _axis(scale), numeric=False),
        Column("Told apart?", numeric=False),
    )
    rows = [_part(part, scale) for part in rank.parts]
    footer = _part(rank.step, None, "Step")
    return Table(f"Parts of a step of rank {rank.other_rank}", columns, tuple(rows), footer=footer)


def _part(part: PartChange, scale: Scale | None, name: str = "") -> tuple[Cell, ...]:
    change, bounds = words.change_cell(part.change_ms, part.change_interval_ms)
    cls = words.part_class(part.part) if part.distinguishable else "outline"
    bar = (
        svg_fall.change_bar(scale, part.change_ms, part.change_interval_ms, cls)
        if scale is not None
        else Markup("")
    )
    return (
        Cell(name or words.part_name(part.part)),
        Cell(units.ms_cell(part.base_ms)),
        Cell(units.ms_cell(part.other_ms)),
        Cell(change, "strong" if part.distinguishable else "", quiet=bounds),
        Cell("", figure=bar) if scale is not None else Cell(""),
        Cell(words.part_state(part), "quiet"),
    )


def _reach(change: float, bounds: Sequence[float] | None) -> float:
    """Return how far from zero a change is drawn; an endless interval does not flatten the others."""
    most = abs(change)
    if bounds is not None:
        most = max(most, min(max(abs(bound) for bound in bounds), 3 * most))
    return most


def _axis(scale: Scale) -> str:
    end = units.tick_label(scale.end, scale.ticks[1] - scale.ticks[0])
    return f"−{end} … +{end} ms"


def kernels(rows: Sequence[KernelChange]) -> Table | None:
    """Return kernels with their changes; None without any."""
    if not rows:
        return None
    names = short_names(
        [row.name for row in rows] + [row.instead_of for row in rows if row.instead_of]
    )
    scale = Scale.to(max(_reach(row.change_ms, row.change_interval_ms) for row in rows))
    columns = (
        Column("Kernel", numeric=False, wide=True),
        Column("What changed", numeric=False, wide=True),
        Column("Calls", "/step"),
        Column("Base", "ms/step"),
        Column("Other", "ms/step"),
        Column("Change", "[95 %]"),
        Column("Change", _axis(scale), numeric=False),
        Column("Grid", "blocks"),
    )
    return Table("Kernels by change", columns, tuple(_kernel(row, names, scale) for row in rows))


def _kernel(row: KernelChange, names: dict[str, str], scale: Scale) -> tuple[Cell, ...]:
    change, bounds = words.change_cell(row.change_ms, row.change_interval_ms)
    short = names[row.name]
    where = [text for text in (words.places(row), words.beside(row)) if text]
    if row.instead_of:
        where.append(f"was {names[row.instead_of]}")
    cls = "muted"
    if not words.told(row):
        cls = "outline"
    return (
        Cell(short, "mono", full=row.name if short != row.name else ""),
        Cell(words.KINDS[row.kind], quiet=", ".join(where)),
        Cell(words.calls(row)),
        absent() if row.base_ms is None else Cell(units.ms_cell(row.base_ms)),
        absent() if row.other_ms is None else Cell(units.ms_cell(row.other_ms)),
        Cell(change, "strong" if words.told(row) else "", quiet=bounds),
        Cell("", figure=svg_fall.change_bar(scale, row.change_ms, row.change_interval_ms, cls)),
        absent() if row.grid is None else Cell(units.shape(row.grid)),
    )


def collectives(report: ComparisonReport) -> Table | None:
    """Return the collectives; None where neither run communicates."""
    if not report.collectives:
        return None
    columns = (
        Column("Collective", numeric=False),
        Column("Size", "MB"),
        Column("Type", numeric=False),
        Column("Calls", "/step"),
        Column("Channels"),
        Column("Transfer", "base → other"),
        Column("Change", "[95 %]"),
        Column("Wait", "change [95 %]"),
        Column("Exposed", "change [95 %]"),
    )
    rows = []
    for row in report.collectives:
        channels = _arrow(row.base_channels, row.other_channels)
        calls = _arrow(row.base_calls, row.other_calls)
        both = f"{units.ms_cell(row.transfer.base_ms)} → {units.ms_cell(row.transfer.other_ms)}"
        rows.append(
            (
                Cell(operation(row.operation)),
                Cell(units.megabytes(row.bytes)),
                Cell(row.dtype or units.UNKNOWN),
                Cell(calls),
                Cell(channels, "strong" if "→" in channels else ""),
                Cell(both),
                _value(row.transfer),
                _value(row.wait),
                _value(row.exposed),
            )
        )
    return Table("Collectives by change", columns, tuple(rows))


def _arrow(before: float | None, after: float | None) -> str:
    texts = [units.integer(value) if value else units.NOT_APPLICABLE for value in (before, after)]
    return texts[0] if texts[0] == texts[1] else " → ".join(texts)


def _value(value: ValueChange) -> Cell:
    change, bounds = words.change_cell(value.change_ms, value.change_interval_ms)
    return Cell(change, "strong" if value.distinguishable else "", quiet=bounds)


def findings(report: ComparisonReport) -> Table | None:
    """Return the findings of both runs; None without any."""
    if not report.findings:
        return None
    named = words.finding_states()
    columns = (
        Column("Finding", numeric=False, wide=True),
        Column("State", numeric=False),
        Column(report.base.name, "recoverable, ms"),
        Column(report.other.name, "recoverable, ms"),
    )
    rows = [
        (
            Cell(row.title, "strong" if row.state == "new" else "", quiet=f"{row.code} {row.name}"),
            Cell(named[row.state], "strong" if row.state == "new" else "quiet"),
            _gain(report, row.base_recoverable_ms, there=row.state != "new"),
            _gain(report, row.other_recoverable_ms, there=row.state != "gone"),
        )
        for row in report.findings
    ]
    return Table("Findings of both runs", columns, tuple(rows))


def _gain(report: ComparisonReport, value: float | None, *, there: bool) -> Cell:
    return Cell(words.gain(report, value, there=there))


def settings(report: ComparisonReport) -> Table | None:
    """Return settings and versions in which the runs differ; None where none does."""
    names = sorted(report.base.versions.keys() & report.other.versions.keys())
    rows = [
        (Cell(name), Cell(report.base.versions[name]), Cell(report.other.versions[name]))
        for name in names
        if report.base.versions[name] != report.other.versions[name]
    ]
    rows += [
        (Cell(item.what, "mono"), Cell(item.base), Cell(item.other)) for item in report.environment
    ]
    if not rows:
        return None
    columns = (
        Column("Setting", numeric=False),
        Column(report.base.name, numeric=False),
        Column(report.other.name, numeric=False),
    )
    return Table("Settings in which the runs differ", columns, tuple(rows))
