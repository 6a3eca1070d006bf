"""What stands beside lateness, links and NCCL: late ranks' doings, transports, contention."""

from __future__ import annotations

from dataclasses import dataclass

from trace_analyzer.findings import CollectiveDoc, Report
from trace_analyzer.reports import units
from trace_analyzer.reports.tables import Cell, Column, Table

_MOST_RANKS = 16
_PARTS = {
    "compute": "compute",
    "comm": "other communication",
    "copy": "copies",
    "launch_data_loading": "data loading",
    "launch_blocking_sync": "blocking sync",
    "launch_allocator": "allocator",
    "launch_profiler_overhead": "profiler overhead",
    "launch_operators": "operators, idle GPU",
    "launch_silent": "silent host",
    "latency": "latency",
    "other": "other",
}
_LEAST_MS = 0.005  # rounds to 0.00


@dataclass(frozen=True, slots=True)
class BesideView:
    """Additions to three sections; None or empty where there is nothing to say."""

    late: Table | None
    transports: Table | None
    nccl: tuple[str, ...]


def beside_view(report: Report) -> BesideView:
    """Arrange the additions."""
    return BesideView(late_table(report), transport_table(report), tuple(nccl_notes(report)))


def late_table(report: Report) -> Table | None:
    """Return what the late ranks did while others waited for them, parts that matter as columns."""
    rows = report.late_ranks[:_MOST_RANKS]
    shown = [
        part for part in _PARTS if any(row.before_ms.get(part, 0.0) >= _LEAST_MS for row in rows)
    ]
    if not rows or not shown:
        return None
    cells = tuple(
        (
            Cell(
                f"Rank {row.rank}",
                quiet=f"last in {row.last_in:,} of {row.decided:,}"
                + (", nearly always" if row.persistent and len(report.ranks) > 1 else ""),
            ),
            Cell(units.ms_cell(row.late_ms)),
            *(Cell(units.ms_cell(row.before_ms.get(part, 0.0))) for part in shown),
        )
        for row in rows
    )
    columns = (
        Column("Late rank", numeric=False),
        Column("Others wait", "ms/step"),
        *(Column(_PARTS[part].capitalize(), "ms/step") for part in shown),
    )
    left = len(report.late_ranks) - len(rows)
    note = "What a late rank did while others waited for it, in the recorded run."
    if left > 0:
        note += (
            f" The {len(rows)} latest; {units.plural(left, 'more rank')} came last now and then."
        )
    return Table("What late ranks did while others waited", columns, cells, note=note)


def transport_table(report: Report) -> Table | None:
    """Return the ways between ranks, as the NCCL log names them; equal ones joined."""
    ways: dict[tuple[str, str, int], list[str]] = {}
    for item in report.transports:
        pair = f"{item.src} → {item.dst}"
        ways.setdefault((item.kind, item.detail, item.channels), []).append(pair)
    if not ways:
        return None
    rows = []
    for (kind, detail, channels), pairs in sorted(ways.items(), key=lambda way: -len(way[1])):
        more = f" and {len(pairs) - 4} more" if len(pairs) > 4 else ""
        rows.append(
            (
                Cell(f"{kind}/{detail}" if detail else kind),
                Cell(units.integer(channels)),
                Cell(", ".join(pairs[:4]) + more),
            )
        )
    columns = (
        Column("Transport", numeric=False),
        Column("Channels"),
        Column("From → to, ranks of the group", numeric=False, wide=True),
    )
    return Table("Transports", columns, tuple(rows), note="Transports, from the NCCL log.")


def nccl_notes(report: Report) -> list[str]:
    """Return sentences under the NCCL table: contention, and launches with few channels."""
    notes = []
    slower = {item.kind: item.slowdown for item in report.contention if item.slowdown is not None}
    if slower:
        words = {"matrix": "matrix products", "other": "other kernels"}
        told = " and ".join(f"{words[kind]} {value:.2f} times" for kind, value in slower.items())
        notes.append(
            f"While a collective is on the device, waiting or not, kernels take longer: {told}."
        )
    few = [row for row in report.collectives if _few(row)]
    if few:
        row = max(few, key=lambda item: item.bytes or 0)
        notes.append(
            f"{units.plural(len(few), 'row')} with fewer channels than NCCL's own rule gives the "
            f"size: {units.size(row.bytes or 0)} on {row.channels}, by the rule "
            f"{row.expected_channels}."
        )
    return notes


def _few(row: CollectiveDoc) -> bool:
    return (
        row.channels is not None
        and row.expected_channels is not None
        and row.channels < row.expected_channels
    )


__all__ = ["BesideView", "beside_view", "late_table", "nccl_notes", "transport_table"]
