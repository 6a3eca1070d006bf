"""Rank against rank: who is late, and how fast each pair is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from trace_analyzer.findings import LinkDoc, Report
from trace_analyzer.reports import summary, svg, units
from trace_analyzer.reports.tables import (
    Cell,
    Column,
    HeatCell,
    HeatRow,
    HeatTable,
    Table,
    absent,
    lateness_level,
    level,
    median,
)

_TABLE_UP_TO = 16  # ranks of a lateness table with numbers in its cells
_MOST_STEPS = 40
_MOST_STRIP_ROWS = 400
_MATRIX_UP_TO = 32
_LIST = 20
_SLOW = 0.5  # of the median: a link below it is marked
_ROW_PX = 10
_BASIS = {
    "p2p": "send and receive between the pair",
    "pair-group": "collectives of two-rank groups, where the group is the link",
    "bench": "the link benchmark",
    "topology": "the topology file",
}


@dataclass(frozen=True, slots=True)
class LateView:
    """Who is late; `strip` stands in for the table's other rows where there are many ranks."""

    heat: HeatTable | None
    strip: Markup | None
    note: str
    empty: str


@dataclass(frozen=True, slots=True)
class LinkView:
    """The links: a matrix, a list of the slowest, or one row a group."""

    heat: HeatTable | None
    table: Table | None
    scale_note: str
    basis: str
    empty: str


def late_view(report: Report) -> LateView:
    """Arrange the lateness of every rank in every step."""
    steps = sorted(report.lateness, key=int)
    if not steps:
        return LateView(None, None, "", _not_late(report))
    ranks = sorted({int(rank) for values in report.lateness.values() for rank in values})
    shown = steps[:_MOST_STEPS]
    values = {rank: [report.lateness[step].get(str(rank)) for step in steps] for rank in ranks}
    known = [value for row in values.values() for value in row if value is not None]
    largest = max(known, default=0.0)
    step_ms = report.steps.profiled_ms
    blamed = summary.blamed(report)
    many = len(ranks) > _TABLE_UP_TO
    named = summary.telling_ranks(report) if many else ranks
    rows = []
    for rank in [number for number in named if number in values]:
        numbers = values[rank]
        told = [value for value in numbers if value is not None]
        every = [*numbers[: len(shown)], median(told) if told else None]
        cells = tuple(_late_cell(value, largest, step_ms) for value in every)
        rows.append(HeatRow(f"Rank {rank}", rank in blamed, cells))
    columns = (*(f"step {step}" for step in shown), "median")
    heat = HeatTable(
        "Arrival at the step's first matched collective, ms after the first rank",
        columns,
        tuple(rows),
    )
    strip = _strip(values, shown, largest, step_ms) if many else None
    more = f" The first {len(shown)} of {len(steps)} steps." if len(shown) < len(steps) else ""
    return LateView(heat, strip, more.strip(), "")


def _not_late(report: Report) -> str:
    if len(report.ranks) < 2:
        return "One rank was recorded: lateness needs the trace of every rank."
    if not report.collectives:
        return "No collective in this trace, so no rank waits for another."
    return "No collective was matched between the ranks, so lateness cannot be told."


def _late_cell(value: float | None, largest: float, step_ms: float | None) -> HeatCell:
    if value is None:
        return HeatCell(units.UNKNOWN, 0)
    return HeatCell(units.ms(value), lateness_level(value, largest, step_ms))


def _strip(
    values: dict[int, list[float | None]],
    steps: Sequence[str],
    largest: float,
    step_ms: float | None,
) -> Markup:
    """Return all ranks as rows of 10 px; beyond 400 ranks a row is the latest of its block."""
    ranks = sorted(values)
    block = -(-len(ranks) // _MOST_STRIP_ROWS)
    drawn: list[Markup] = []
    width = 1 / len(steps)
    for row, first in enumerate(range(0, len(ranks), block)):
        members = ranks[first : first + block]
        for index, step in enumerate(steps):
            told = [(v, rank) for rank in members if (v := values[rank][index]) is not None]
            if not told:
                continue
            value, rank = max(told)
            shade = lateness_level(value, largest, step_ms)
            title = svg.element("title", f"Rank {rank}, step {step}: {units.ms(value)} ms")
            drawn.append(
                svg.element(
                    "rect",
                    title,
                    cls=f"seq-{shade}",
                    x=svg.pct(index * width),
                    y=row * _ROW_PX,
                    width=svg.pct(width),
                    height=_ROW_PX - 1,
                )
            )
    height = _ROW_PX * -(-len(ranks) // block)
    label = f"Lateness of {len(ranks)} ranks, a row each from rank {ranks[0]}, a column a step."
    return svg.drawing(*drawn, height=height, cls="plot heat-strip", label=label)


def link_view(report: Report) -> LinkView:
    """Arrange what is known of the paths between GPUs."""
    told = [link for link in report.links if link.bandwidth_gbs is not None]
    if told:
        ranks = sorted({rank for link in told for rank in (link.src, link.dst)})
        middle = median([link.bandwidth_gbs or 0.0 for link in told])
        basis = _link_basis(told)
        if len(ranks) > _MATRIX_UP_TO:
            return LinkView(None, _slowest(told, middle), _scale_note(told, middle), basis, "")
        return LinkView(_matrix(told, ranks, middle), None, _scale_note(told, middle), basis, "")
    groups = [group for group in report.groups if group.busbw_gbs is not None or group.latency_us]
    if groups:
        unclear = (
            "The culprit link cannot be told from this trace: a group shares its slowest path."
        )
        return LinkView(None, _groups(report), "", unclear, "")
    if len(report.ranks) < 2:
        return LinkView(None, None, "", "", "One rank was recorded: links need two.")
    return LinkView(
        None, None, "", "", "This trace gives no bandwidth for a pair or group of GPUs."
    )


def _reference(links: Sequence[LinkDoc]) -> float:
    known = [link.reference_gbs for link in links if link.reference_gbs is not None]
    return max(known, default=max(link.bandwidth_gbs or 0.0 for link in links))


def _scale_note(links: Sequence[LinkDoc], middle: float) -> str:
    note = f"Scale 0 – {units.gb_per_s(_reference(links))} GB/s."
    slow = any((link.bandwidth_gbs or 0.0) < _SLOW * middle for link in links)
    return f"{note} ▲ = less than half of the median link." if slow else note


def _link_basis(links: Sequence[LinkDoc]) -> str:
    kinds = list(dict.fromkeys(_BASIS[link.basis] for link in links))
    seen = {(link.bytes, link.count) for link in links}
    volume, count = next(iter(seen))
    amount = ""
    if len(seen) == 1 and volume and count:
        amount = f"; {units.size(volume)} in {units.plural(count, 'operation')}"
    text = f"Basis: {' and '.join(kinds)}{amount}."
    known = [link for link in links if link.reference_gbs]
    if known:
        worst = min((link.bandwidth_gbs or 0.0) / (link.reference_gbs or 1.0) for link in known)
        reference = units.gb_per_s(_reference(links))
        text += f" Reference {reference} GB/s; the slowest pair reaches {units.percent(worst)}."
    return text


def _matrix(links: Sequence[LinkDoc], ranks: Sequence[int], middle: float) -> HeatTable:
    by_pair = {(link.src, link.dst): link.bandwidth_gbs or 0.0 for link in links}
    end = _reference(links)
    rows = []
    for source in ranks:
        cells = []
        for target in ranks:
            value = by_pair.get((source, target))
            if source == target or value is None:
                cells.append(HeatCell(units.NOT_APPLICABLE, 0))
                continue
            mark = "▲ " if value < _SLOW * middle else ""
            cells.append(HeatCell(mark + units.gb_per_s(value), level(value, 0.0, end)))
        rows.append(HeatRow(f"GPU {source}", blamed=False, cells=tuple(cells)))
    names = tuple(f"GPU {rank}" if len(ranks) <= 4 else str(rank) for rank in ranks)
    return HeatTable("Bus bandwidth in GB/s, from (row) → to (column)", names, tuple(rows))


def _slowest(links: Sequence[LinkDoc], middle: float) -> Table:
    ordered = sorted(links, key=lambda link: (link.bandwidth_gbs or 0.0, link.src, link.dst))
    rows = []
    for link in ordered[:_LIST]:
        slow = (link.bandwidth_gbs or 0.0) < _SLOW * middle
        rows.append(
            (
                Cell(f"{'▲ ' if slow else ''}{link.src} → {link.dst}"),
                Cell(units.gb_per_s(link.bandwidth_gbs)),
                absent() if link.latency_us is None else Cell(units.us(link.latency_us)),
                absent() if link.count is None else Cell(units.integer(link.count)),
            )
        )
    columns = (
        Column("From → to", numeric=False),
        Column("Bandwidth", "GB/s"),
        Column("Latency", "µs"),
        Column("Transfers"),
    )
    note = f"The {len(rows)} slowest of {len(links):,} pairs."
    return Table("The slowest links", columns, tuple(rows), note=note)


def _groups(report: Report) -> Table:
    rows = []
    for group in report.groups:
        reference = group.reference_gbs
        reached = absent()
        if reference and group.busbw_gbs is not None:
            reached = Cell(units.percent(group.busbw_gbs / reference))
        rows.append(
            (
                Cell(group.name, quiet=summary.rank_words(report, group.ranks)),
                absent() if group.latency_us is None else Cell(units.us(group.latency_us)),
                absent() if group.busbw_gbs is None else Cell(units.gb_per_s(group.busbw_gbs)),
                absent()
                if reference is None
                else Cell(units.gb_per_s(reference), quiet=group.reference_basis or ""),
                reached,
            )
        )
    columns = (
        Column("Group", numeric=False, wide=True),
        Column("Latency", "µs"),
        Column("Bus", "GB/s"),
        Column("Reference", "GB/s"),
        Column("Reached"),
    )
    return Table("Bandwidth by process group", columns, tuple(rows))
