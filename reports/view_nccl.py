"""The NCCL table: what was sent, how it was launched, how long it moved and how long it waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trace_analyzer.findings import CollectiveDoc, Report
from trace_analyzer.reports import summary, units
from trace_analyzer.reports.names import cut_middle
from trace_analyzer.reports.tables import Cell, Column, Table, absent, median, text_cell

SHOWN = 30
_EACH_RANK_UP_TO = 2
_P95_FROM = 64
_NAMES = {
    "allreduce": "AllReduce",
    "allgather": "AllGather",
    "reducescatter": "ReduceScatter",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "alltoall": "AllToAll",
    "send": "Send",
    "recv": "Recv",
    "sendrecv": "SendRecv",
    "barrier": "Barrier",
    "gather": "Gather",
    "scatter": "Scatter",
}


@dataclass(frozen=True, slots=True)
class NcclView:
    """The section; `rest` holds rows beyond the first 30."""

    table: Table | None
    rest: Table | None
    empty: str
    split: bool
    waits: bool
    ranks: int
    shape: str


def operation(name: str) -> str:
    """Return a collective's name as NCCL writes it."""
    return _NAMES.get(name.lower(), name or "unknown")


def wait_ms(row: CollectiveDoc, rank: int) -> float | None:
    """Return a rank's wait in ms a step: its mean wait times the calls of a step."""
    mean_us = row.wait_us.get(str(rank))
    if mean_us is None or row.count_per_step is None:
        return None
    return mean_us * row.count_per_step / 1e3


def _waits(row: CollectiveDoc) -> dict[int, float]:
    found = {}
    for key in row.wait_us:
        value = wait_ms(row, int(key))
        if value is not None:
            found[int(key)] = value
    return found


def _totals(row: CollectiveDoc) -> dict[int, float]:
    return {int(key): value for key, value in row.duration_ms_by_rank.items()}


def ordered(report: Report) -> list[CollectiveDoc]:
    """Return the rows by wait, descending; by total duration where waits are not known."""

    def weight(row: CollectiveDoc) -> tuple[float, float]:
        waits = _waits(row)
        total = sum(row.duration_ms_by_rank.values())
        return (max(waits.values(), default=0.0), total or row.duration_us.p50 * row.count)

    return sorted(report.collectives, key=weight, reverse=True)


def nccl_view(report: Report) -> NcclView:
    """Arrange the section."""
    rows = ordered(report)
    split = any(row.transfer_us is not None for row in rows)
    waits = any(row.wait_us for row in rows)
    shapes = {units.launch_shape(row.grid, row.block) for row in rows if row.grid and row.block}
    gpu_work = any(rank.window is not None for rank in report.ranks)
    empty = "No communication kernel in this trace." if gpu_work else "No GPU work in this trace."
    return NcclView(
        table=_table(report, rows[:SHOWN], total=len(rows) <= SHOWN) if rows else None,
        rest=_table(report, rows[SHOWN:], total=False) if len(rows) > SHOWN else None,
        empty=empty,
        split=split,
        waits=waits,
        ranks=len(report.ranks),
        shape=next(iter(shapes)) if len(shapes) == 1 else "",
    )


def _rank_columns(numbers: Sequence[int], head: str, unit: str) -> list[Column]:
    if len(numbers) <= _EACH_RANK_UP_TO:
        columns = [Column(f"{head} r{rank}", unit) for rank in numbers]
    else:
        columns = [Column(head, f"{unit}, median"), Column(head, f"{unit}, max (rank)")]
        if len(numbers) >= _P95_FROM:
            columns.insert(1, Column(head, f"{unit}, p95"))
    return columns


def _rank_cells(values: dict[int, float], numbers: Sequence[int], step_ms: float) -> list[Cell]:
    def cell(value: float | None, after: str = "") -> Cell:
        if value is None:
            return absent()
        striking = step_ms > 0 and value >= 0.1 * step_ms
        return Cell(units.ms_cell(value) + after, "strong" if striking else "")

    if len(numbers) <= _EACH_RANK_UP_TO:
        return [cell(values.get(rank)) for rank in numbers]
    if not values:
        return [absent()] * (3 if len(numbers) >= _P95_FROM else 2)
    worst = max(values, key=lambda rank: (values[rank], -rank))
    cells = [cell(median(list(values.values()))), cell(values[worst], f" ({worst})")]
    if len(numbers) >= _P95_FROM:
        high = sorted(values.values())[int(0.95 * (len(values) - 1))]
        cells.insert(1, cell(high))
    return cells


def _table(report: Report, rows: Sequence[CollectiveDoc], *, total: bool) -> Table:
    every = report.collectives
    split = any(row.transfer_us is not None for row in every)
    waits = any(row.wait_us for row in every)
    totals = not waits and any(row.duration_ms_by_rank for row in every)
    a_step = any(row.count_per_step is not None for row in every)
    exposed = any(row.exposed_ms_per_step is not None for row in every)
    bandwidth = any(row.busbw_gbs is not None or row.algbw_gbs is not None for row in every)
    numbers = [rank.rank for rank in report.ranks]
    step_ms = max((rank.step.step_ms for rank in summary.by_step(report) if rank.step), default=0.0)

    columns = [
        Column("Collective", numeric=False, wide=True),
        Column("Size", "MB"),
        Column("Type", numeric=False),
        Column("Calls", "/step" if a_step else "all ranks"),
        Column("Grid × block", "channels × threads"),
    ]
    if split:
        columns.append(Column("Transfer", "µs, p50"))
    else:
        columns += [Column("Duration", "µs, p50"), Column("Duration", "µs, p99")]
    if waits:
        columns += _rank_columns(numbers, "Wait", "ms/step")
    elif totals:
        columns += _rank_columns(numbers, "Total", "ms")
    if exposed:
        columns.append(Column("Exposed", "ms/step"))
    if bandwidth:
        columns += [Column("Algorithm", "GB/s"), Column("Bus", "GB/s")]
    first_rank = 6 if split else 7
    if waits or totals:
        head = columns[first_rank]
        columns[first_rank] = Column(head.head, head.sub, order="descending")

    body = []
    for row in rows:
        cells = _launch_cells(row, a_step=a_step)
        cells += _duration_cells(row, split=split)
        if waits:
            cells += _rank_cells(_waits(row), numbers, step_ms)
        elif totals:
            cells += _rank_cells(_totals(row), numbers, 0.0)
        if exposed:
            value = row.exposed_ms_per_step
            cells.append(absent() if value is None else Cell(units.ms_cell(value)))
        if bandwidth:
            cells += [_bandwidth(row, row.algbw_gbs), _bandwidth(row, row.busbw_gbs)]
        body.append(tuple(cells))
    footer = _sums(rows, columns, first_rank, numbers, a_step=a_step) if total and body[1:] else ()
    return Table(
        caption="Communication kernels by operation, size and launch shape",
        columns=tuple(columns),
        rows=tuple(body),
        footer=footer,
    )


def size_text(row: CollectiveDoc) -> str:
    """Return the size in MB; from the smallest to the largest where the row joins sizes."""
    if row.bytes_range is None:
        return units.megabytes(row.bytes)
    low, high = (units.decimal(size / 1e6, 2 if size >= 1e6 else 4) for size in row.bytes_range)
    return low if low == high else f"{low}–{high}"


def bandwidth_text(row: CollectiveDoc, value: float) -> str:
    """Return a bandwidth; "≥" where it divides by durations that hold waiting."""
    at_least = "lower bound" in (row.bandwidth_basis or "")
    return ("≥ " if at_least else "") + units.gb_per_s(value)


def _bandwidth(row: CollectiveDoc, value: float | None) -> Cell:
    return absent() if value is None else Cell(bandwidth_text(row, value))


def _launch_cells(row: CollectiveDoc, *, a_step: bool) -> list[Cell]:
    where = row.group or ""
    if row.ranks:
        where = f"{where}, {units.plural(len(row.ranks), 'rank')}".strip(", ")
    calls = row.count_per_step if a_step else row.count
    return [
        Cell(cut_middle(operation(row.operation)), quiet=cut_middle(where, 40), full=row.kernel),
        Cell(size_text(row)),
        text_cell(cut_middle(row.dtype or "", 16)),
        absent() if calls is None else Cell(units.integer(calls)),
        Cell(units.launch_shape(row.grid, row.block)),
    ]


def _duration_cells(row: CollectiveDoc, *, split: bool) -> list[Cell]:
    if split:
        value = row.transfer_us
        return [absent() if value is None else Cell(units.us(value.p50))]
    return [Cell(units.us(row.duration_us.p50)), Cell(units.us(row.duration_us.p99))]


def _sums(
    rows: Sequence[CollectiveDoc],
    columns: Sequence[Column],
    first_rank: int,
    numbers: Sequence[int],
    *,
    a_step: bool,
) -> tuple[Cell, ...]:
    """Return the sum row: MB and calls a step, wait or total of each rank, exposed."""
    cells = [Cell("All", "strong")] + [Cell("")] * (len(columns) - 1)
    sent = [row for row in rows if row.count_per_step]
    if a_step and sent and all(row.bytes is not None for row in sent):
        volume = sum((row.bytes or 0) * (row.count_per_step or 0.0) for row in sent)
        cells[1] = Cell(units.megabytes(volume), "strong")
    calls = sum((row.count_per_step or 0.0) if a_step else row.count for row in rows)
    cells[3] = Cell(units.integer(calls), "strong")
    if len(numbers) <= _EACH_RANK_UP_TO:
        waits = columns[first_rank].head.startswith("Wait") if first_rank < len(columns) else False
        for offset, rank in enumerate(numbers):
            values = [(_waits(row) if waits else _totals(row)).get(rank) for row in rows]
            known = [value for value in values if value is not None]
            if known and first_rank + offset < len(columns):
                cells[first_rank + offset] = Cell(units.ms_cell(sum(known)), "strong")
    for index, column in enumerate(columns):
        if column.head == "Exposed":
            known = [v for row in rows if (v := row.exposed_ms_per_step) is not None]
            cells[index] = Cell(units.ms_cell(sum(known)), "strong")
    return tuple(cells)
