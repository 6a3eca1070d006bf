"""Where a step goes: bars and the same numbers as a table, the window, every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from trace_analyzer.findings import Report
from trace_analyzer.reports import parts, summary, svg_bars, units, what_if
from trace_analyzer.reports.parts import PartitionRow
from trace_analyzer.reports.svg import Scale
from trace_analyzer.reports.tables import Cell, Column, HeatCell, HeatRow, HeatTable, Table, level

LEGEND = {
    "compute": "compute",
    "transfer": "transfer, exposed",
    "comm": "communication, exposed",
    "wait": "wait for peer, exposed",
    "unsplit": "communication, exposed, not split",
    "copy": "copy, exposed",
    "idle": "idle",
}
_BOLD_FROM = 0.1  # of the step: a wait or an idle time that long is set in bold
_MOST_STEPS = 60
_ALL_ROWS = 16


@dataclass(frozen=True, slots=True)
class StepBar:
    """One rank's bar."""

    name: str
    blamed: bool
    below: str
    total: str
    bar: Markup


@dataclass(frozen=True, slots=True)
class StepView:
    """The section; `basis` is "step", "window" or "" without GPU work."""

    basis: str
    legend: tuple[tuple[str, str], ...]
    hidden: bool
    bars: tuple[StepBar, ...]
    axis: Markup
    spoken: str
    strips: Markup | None
    strips_note: str
    table: Table | None
    rest: Table | None
    launch: Table | None
    what_if: Table | None
    window: Table | None
    steps: HeatTable | None
    steps_note: str
    used: str
    excluded: tuple[str, ...]
    undivided: bool
    distorted: bool
    partial: bool


def step_view(report: Report) -> StepView:
    """Arrange the partition."""
    of_steps = parts.step_rows(report)
    of_window = parts.window_rows(report)
    rows = of_steps or of_window
    blamed = summary.blamed(report)
    many = len(rows) > summary.BARS_UP_TO
    chosen = summary.telling_ranks(report) if many else [row.rank for row in rows]
    shown = [row for number in chosen for row in rows if row.rank == number]
    scale = Scale.to(max((row.total_ms for row in rows), default=0.0))
    ordered = sorted(rows, key=lambda row: row.rank)
    table_rows = shown if len(rows) > _ALL_ROWS else rows
    left_out = [row for row in rows if row not in table_rows]
    present = parts.classes(rows)
    return StepView(
        basis="step" if of_steps else "window" if of_window else "",
        legend=tuple((cls, LEGEND[cls]) for cls in present),
        hidden=any(row.hidden_ms > 0 for row in rows),
        bars=tuple(_bar(row, scale, blamed) for row in shown),
        axis=scale.axis(),
        spoken=_spoken(rows),
        strips=_strips(scale, ordered) if many else None,
        strips_note=f"All {len(rows)} ranks, by rank from {ordered[0].rank} to {ordered[-1].rank}"
        if many
        else "",
        table=_table(table_rows, present, blamed, of_steps=bool(of_steps)) if rows else None,
        rest=_table(left_out, present, blamed, of_steps=bool(of_steps)) if left_out else None,
        launch=_launch(table_rows),
        what_if=what_if.table(report),
        window=_window(of_window, blamed) if of_steps and of_window else None,
        steps=_every_step(report, blamed),
        steps_note=_steps_note(report),
        used=_used(report),
        excluded=tuple(f"step {item.step}: {item.reason}" for item in report.steps.excluded[:12]),
        undivided="comm" in present,
        distorted=_distorted(report),
        partial=any(row.partial for row in rows),
    )


def _distorted(report: Report) -> bool:
    change = report.steps.perturbation
    return change is None or abs(change) > 0.03


def _used(report: Report) -> str:
    used = report.steps.used
    if not used:
        return ""
    if len(used) == 1:
        return f"step {used[0]} alone"
    return f"means over {units.plural(len(used), 'steady step')} ({units.ranges(used)})"


def _bar(row: PartitionRow, scale: Scale, blamed: Sequence[int]) -> StepBar:
    return StepBar(
        name=f"Rank {row.rank}",
        blamed=row.rank in blamed,
        below=" · ".join(part for part in (row.gpu, row.host) if part),
        total=units.ms(row.total_ms),
        bar=svg_bars.stacked_bar(scale, row.parts, row.hidden_ms),
    )


def _strips(scale: Scale, rows: Sequence[PartitionRow]) -> Markup:
    label = f"The parts of {len(rows)} ranks as strips, by rank; the table holds the numbers."
    return svg_bars.strips(scale, [row.parts for row in rows], label)


def _spoken(rows: Sequence[PartitionRow]) -> str:
    if not rows:
        return "No GPU work."
    slowest = max(rows, key=lambda row: row.total_ms)
    named = ", ".join(
        f"{part.word} {units.ms(part.value_ms)} ms" for part in slowest.parts if part.value_ms > 0
    )
    return f"Rank {slowest.rank}, the slowest, takes {units.ms(slowest.total_ms)} ms: {named}."


_HEADS = {
    "compute": ("Compute", ""),
    "transfer": ("Transfer", "exposed"),
    "comm": ("Communication", "exposed"),
    "wait": ("Wait", "exposed"),
    "unsplit": ("Not split", "exposed"),
    "copy": ("Copy", "exposed"),
    "idle": ("Idle", ""),
}


def _ms_cell(value: float | None, whole: float, *, striking: bool = False) -> Cell:
    if value is None:
        return Cell(units.NOT_APPLICABLE)
    return Cell(units.ms_cell(value), "strong" if striking and value >= _BOLD_FROM * whole else "")


def _table(
    rows: Sequence[PartitionRow], present: Sequence[str], blamed: Sequence[int], *, of_steps: bool
) -> Table:
    split = of_steps and any(row.step and row.step.idle_launch_ms is not None for row in rows)
    shown = [cls for cls in _HEADS if cls in present or cls in {"compute", "copy", "idle"}]
    columns = [
        Column("ms/step" if of_steps else "ms", numeric=False),
        Column("Step" if of_steps else "Window"),
        *(Column(*_HEADS[cls]) for cls in shown),
    ]
    if split:
        columns += [Column("of it: late launch"), Column("latency"), Column("other")]
    columns.append(Column("Hidden", "communication"))
    body = []
    for row in rows:
        cells = [_name(row, blamed), _ms_cell(row.total_ms, row.total_ms)]
        cells += [
            _ms_cell(row.value(cls), row.total_ms, striking=cls in {"wait", "idle", "comm"})
            for cls in shown
        ]
        if split and row.step is not None:
            late = row.step.idle_launch_ms
            cells.append(_ms_cell(late, row.total_ms, striking=True))
            cells.append(_ms_cell(row.step.idle_latency_ms, row.total_ms))
            cells.append(_ms_cell(row.step.idle_other_ms, row.total_ms))
        cells.append(_ms_cell(row.hidden_ms, row.total_ms))
        body.append(tuple(cells))
    what = "Parts of a step" if of_steps else "Parts of the recorded window"
    return Table(caption=f"{what} for each rank", columns=tuple(columns), rows=tuple(body))


def _name(row: PartitionRow, blamed: Sequence[int]) -> Cell:
    marked = row.rank in blamed
    partial = "partial" if row.partial else ""
    return Cell(f"Rank {row.rank}{' ▲' if marked else ''}", "blamed" if marked else "", partial)


def _launch(rows: Sequence[PartitionRow]) -> Table | None:
    """Return what the launching thread did while its GPU had nothing to run."""
    keys = list(
        dict.fromkeys(
            key for row in rows if row.step is not None for key in row.step.idle_launch_by_host
        )
    )
    keys = [key for key in keys if any(_meanwhile(row, key) for row in rows)]
    if not keys:
        return None
    body = [
        (
            Cell(f"Rank {row.rank}"),
            *(_ms_cell(_meanwhile(row, key), row.total_ms, striking=True) for key in keys),
        )
        for row in rows
        if row.step is not None
    ]
    names = tuple(Column(key.replace("_", " ").capitalize()) for key in keys)
    return Table(
        caption="What the launching thread did during late launches",
        columns=(Column("ms/step", numeric=False), *names),
        rows=tuple(body),
        note="Late launches by what the launching thread was doing meanwhile.",
    )


def _meanwhile(row: PartitionRow, key: str) -> float | None:
    return None if row.step is None else row.step.idle_launch_by_host.get(key)


def _window(rows: Sequence[PartitionRow], blamed: Sequence[int]) -> Table:
    names = ("Window", "Compute", "Communication", "Exposed comm.", "Exposed copy", "Idle")
    columns = [Column("ms", numeric=False), *(Column(name) for name in names)]
    columns += [Column("Head", "before the first step"), Column("Tail", "after the last step")]
    body = []
    for row in rows:
        window = row.window
        if window is None:
            continue
        values = (
            window.window_ms,
            window.compute_ms,
            window.comm_ms,
            window.comm_exposed_ms,
            window.copy_exposed_ms,
            window.idle_ms,
            window.head_ms,
            window.tail_ms,
        )
        body.append((_name(row, blamed), *(Cell(units.decimal(value, 3)) for value in values)))
    return Table(
        caption="Parts of the recorded window for each rank",
        columns=tuple(columns),
        rows=tuple(body),
        note="From the first GPU operation's start to the last one's end. "
        "Compute + exposed communication + exposed copy + idle = window, to the nanosecond.",
    )


def _every_step(report: Report, blamed: Sequence[int]) -> HeatTable | None:
    """Return step time by rank and step."""
    ranks = [rank for rank in report.ranks if rank.steps]
    if not ranks:
        return None
    if len(ranks) > _ALL_ROWS:
        chosen = summary.telling_ranks(report)
        ranks = [rank for rank in ranks if rank.rank in chosen]
    indices = sorted({step.index for rank in ranks for step in rank.steps})[:_MOST_STEPS]
    excluded = {item.step for item in report.steps.excluded}
    values = [step.step_ms for rank in ranks for step in rank.steps if step.index in indices]
    low, high = min(values), max(values)
    flat = high - low < 0.05 * high
    rows = []
    for rank in ranks:
        by_index = {step.index: step for step in rank.steps}
        cells = []
        for index in indices:
            step = by_index.get(index)
            if step is None:
                cells.append(HeatCell(units.NOT_APPLICABLE, 0))
                continue
            mark = "" if step.steady else " *"
            shade = 1 if flat else level(step.step_ms, low, high)
            cells.append(HeatCell(units.ms(step.step_ms) + mark, shade))
        marked = rank.rank in blamed
        rows.append(HeatRow(f"Rank {rank.rank}", marked, tuple(cells)))
    names = tuple(f"step {index}{' *' if index in excluded else ''}" for index in indices)
    return HeatTable("Step time in ms, by rank and step", names, tuple(rows))


def _steps_note(report: Report) -> str:
    count = max((len(rank.steps) for rank in report.ranks), default=0)
    more = f" The first {_MOST_STEPS} of {count} steps." if count > _MOST_STEPS else ""
    return f"Device time of each step in this trace, ms. * not a steady step.{more}"
