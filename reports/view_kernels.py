"""The kernel table: the largest on the slowest rank, with launch shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trace_analyzer.findings import KernelDoc, Report
from trace_analyzer.reports import summary, svg_bars, units
from trace_analyzer.reports.names import short_names
from trace_analyzer.reports.svg import Scale
from trace_analyzer.reports.tables import Cell, Column, Table, absent, median

SHOWN = 20
FOLDED = 180  # further rows in a fold; the JSON holds all
_EACH_RANK_UP_TO = 2


@dataclass(frozen=True, slots=True)
class KernelView:
    """The section."""

    table: Table | None
    rest: Table | None
    empty: str
    sub: str
    note: str
    below: str
    beyond: int


@dataclass(frozen=True, slots=True)
class _Reading:
    """How the rows are read: which value of a kernel is drawn solid, which outlined."""

    a_step: bool
    numbers: tuple[int, ...]
    lead: int

    def solid(self, kernel: KernelDoc) -> float | None:
        if not self.a_step:
            return kernel.total_ms
        values = kernel.ranks
        if len(self.numbers) <= _EACH_RANK_UP_TO:
            return values.get(str(self.numbers[0]))
        return median(list(values.values())) if values else None

    def outlined(self, kernel: KernelDoc) -> float | None:
        if not self.a_step or len(self.numbers) == 1:
            return None
        if len(self.numbers) == _EACH_RANK_UP_TO:
            return kernel.ranks.get(str(self.numbers[1]))
        return max(kernel.ranks.values(), default=None)

    def weight(self, kernel: KernelDoc) -> float:
        if not self.a_step:
            return kernel.total_ms
        return kernel.ranks.get(str(self.lead), 0.0)


def kernel_view(report: Report, *, folded: bool = True) -> KernelView:
    """Arrange the section: compute and copies; communication has its own table.

    Without `folded` the rows beyond the first 20 are left out.
    """
    kernels = [kernel for kernel in report.kernels if kernel.category != "communication"]
    if not kernels:
        none = "No GPU kernel in this trace."
        if report.kernels:
            none = "No kernel besides communication in this trace."
        return KernelView(None, None, none, "", "", "", 0)
    a_step = any(kernel.ranks for kernel in kernels)
    ordered = summary.by_step(report)
    numbers = tuple(rank.rank for rank in report.ranks) or (0,)
    reading = _Reading(a_step, numbers, ordered[0].rank if ordered else numbers[0])
    kernels.sort(key=lambda kernel: (-reading.weight(kernel), -kernel.total_ms, kernel.name))
    names = short_names(kernel.name for kernel in kernels)
    ends = [v for k in kernels for v in (reading.solid(k), reading.outlined(k)) if v is not None]
    scale = Scale.to(max(ends, default=0.0))
    rest = kernels[SHOWN : SHOWN + FOLDED] if folded else []
    where = f"on rank {reading.lead}" if a_step else "over all ranks"
    shown = sum(reading.weight(kernel) for kernel in kernels[:SHOWN])
    unit = "ms a step" if a_step else "ms"
    size = min(SHOWN, len(kernels))
    count = units.plural(len(kernels), "row")
    return KernelView(
        table=_table(kernels[:SHOWN], reading, names, scale, kernels),
        rest=_table(rest, reading, names, scale, kernels) if rest else None,
        empty="",
        sub=f"Compute and copy kernels by time {where}"
        + (", the slowest." if a_step and len(numbers) > 1 else "."),
        note=f"The {size} largest of {count} add up to {units.ms(shown)}{units.NBSP}{unit} {where}. "
        "Names are shortened; the full name opens in its row.",
        below=_below(reading),
        beyond=max(0, len(kernels) - SHOWN - len(rest)),
    )


def _below(reading: _Reading) -> str:
    if not reading.a_step or len(reading.numbers) == 1:
        return ""
    if len(reading.numbers) == _EACH_RANK_UP_TO:
        return f"Solid bar rank {reading.numbers[0]}, outlined bar rank {reading.numbers[1]}."
    return "Solid bar: median over ranks; outlined bar: the rank that takes longest."


def _table(
    kernels: Sequence[KernelDoc],
    reading: _Reading,
    names: dict[str, str],
    scale: Scale,
    every: Sequence[KernelDoc],
) -> Table:
    registers = any(kernel.registers is not None for kernel in every)
    shared = any(kernel.shared_bytes is not None for kernel in every)
    occupancy = any(kernel.occupancy for kernel in every)
    axis = f"0 – {units.tick_label(scale.end, scale.ticks[1] - scale.ticks[0])} ms"
    columns = [
        Column("Kernel", numeric=False, wide=True),
        Column("Kind", numeric=False),
        Column("Calls", "/step" if reading.a_step else "all ranks"),
        *_time_columns(reading),
        Column(_versus(reading), axis, numeric=False),
        Column("Grid", "blocks"),
        Column("Block", "threads"),
    ]
    if registers:
        columns.append(Column("Registers"))
    if shared:
        columns.append(Column("Shared", "KiB"))
    if occupancy:
        columns.append(Column("Occupancy", "%"))
    body = []
    for kernel in kernels:
        short = names[kernel.name]
        calls = kernel.count_per_step if reading.a_step else kernel.count
        cells = [
            Cell(short, "mono", full=kernel.name if short != kernel.name else ""),
            Cell(kernel.category),
            absent() if calls is None else Cell(units.integer(calls)),
            *_time_cells(kernel, reading),
            Cell(
                "", figure=svg_bars.twin_bar(scale, reading.solid(kernel), reading.outlined(kernel))
            ),
            _shape(kernel.grid, kernel.category),
            _shape(kernel.block, kernel.category),
        ]
        if registers:
            cells.append(_whole(kernel.registers, kernel.category))
        if shared:
            size = kernel.shared_bytes
            cells.append(
                Cell(units.kibibytes(size)) if size is not None else _none(kernel.category)
            )
        if occupancy:
            value = kernel.occupancy
            cells.append(Cell(units.decimal(value, 0)) if value else _none(kernel.category))
        body.append(tuple(cells))
    return Table(caption="Kernels by time", columns=tuple(columns), rows=tuple(body))


def _none(category: str) -> Cell:
    """Return "–" for copies, which have no launch shape, and "unknown" for kernels without one."""
    return absent() if category.startswith("mem") else Cell(units.UNKNOWN)


def _shape(extent: Sequence[int] | None, category: str) -> Cell:
    return Cell(units.shape(extent)) if extent else _none(category)


def _whole(value: int | None, category: str) -> Cell:
    return Cell(units.integer(value)) if value is not None else _none(category)


def _versus(reading: _Reading) -> str:
    if not reading.a_step or len(reading.numbers) == 1:
        return "Time"
    if len(reading.numbers) == _EACH_RANK_UP_TO:
        return f"Rank {reading.numbers[0]} vs {reading.numbers[1]}"
    return "Median vs max"


def _time_columns(reading: _Reading) -> list[Column]:
    if not reading.a_step:
        return [Column("Total", "ms", order="descending"), Column("Mean", "µs")]
    if len(reading.numbers) <= _EACH_RANK_UP_TO:
        return [
            Column(f"Rank {n}", "ms/step", order="descending" if n == reading.lead else "")
            for n in reading.numbers
        ]
    return [
        Column(f"Rank {reading.lead}", "ms/step", order="descending"),
        Column("Median", "ms/step"),
        Column("Max", "ms/step (rank)"),
    ]


def _time_cells(kernel: KernelDoc, reading: _Reading) -> list[Cell]:
    if not reading.a_step:
        return [Cell(units.ms_cell(kernel.total_ms)), Cell(units.us(kernel.mean_us))]

    def of_rank(rank: int) -> Cell:
        value = kernel.ranks.get(str(rank))
        return absent() if value is None else Cell(units.ms_cell(value))

    if len(reading.numbers) <= _EACH_RANK_UP_TO:
        return [of_rank(rank) for rank in reading.numbers]
    if not kernel.ranks:
        return [absent()] * 3
    worst = max(kernel.ranks, key=lambda key: (kernel.ranks[key], -int(key)))
    middle = median(list(kernel.ranks.values()))
    return [
        of_rank(reading.lead),
        Cell(units.ms_cell(middle)),
        Cell(f"{units.ms_cell(kernel.ranks[worst])} ({worst})"),
    ]
