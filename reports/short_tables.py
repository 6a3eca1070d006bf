"""NCCL and kernel tables in a few columns of plain text, for the terminal and for comments."""

from __future__ import annotations

from dataclasses import dataclass

from trace_analyzer.findings import KernelDoc, Report
from trace_analyzer.reports import summary, units, view_nccl
from trace_analyzer.reports.names import short_names


@dataclass(frozen=True, slots=True)
class ShortTable:
    """Heads and rows; `left_out` counts the rows beyond those shown."""

    heading: str
    heads: list[str]
    rows: list[list[str]]
    left_out: int


def collectives(report: Report, most: int) -> ShortTable:
    """Return the collectives that wait or last longest."""
    a_step = any(row.count_per_step is not None for row in report.collectives)
    split = any(row.transfer_us is not None for row in report.collectives)
    heads = ["Collective", "MB", "calls/step" if a_step else "calls", "grid × block"]
    heads += ["transfer µs" if split else "µs p50", "bus GB/s"]
    rows = []
    for row in view_nccl.ordered(report)[:most]:
        calls = row.count_per_step if a_step else row.count
        middle = row.transfer_us if split else row.duration_us
        group = f" {row.group}" if row.group else ""
        rows.append(
            [
                view_nccl.operation(row.operation) + group,
                units.megabytes(row.bytes),
                units.integer(calls),
                units.launch_shape(row.grid, row.block),
                units.us(middle.p50) if middle is not None else units.NOT_APPLICABLE,
                view_nccl.bandwidth_text(row, row.busbw_gbs)
                if row.busbw_gbs is not None
                else units.NOT_APPLICABLE,
            ]
        )
    return ShortTable(
        "NCCL (grid = channels, block = threads a channel)",
        heads,
        rows,
        max(0, len(report.collectives) - most),
    )


def kernels(report: Report, most: int) -> ShortTable:
    """Return the kernels that take most time on the slowest rank; of all ranks without steps."""
    found = [kernel for kernel in report.kernels if kernel.category != "communication"]
    ordered = summary.by_step(report)
    lead = str(ordered[0].rank) if ordered and any(kernel.ranks for kernel in found) else None

    def weight(kernel: KernelDoc) -> float:
        return kernel.total_ms if lead is None else kernel.ranks.get(lead, 0.0)

    found.sort(key=lambda kernel: (-weight(kernel), -kernel.total_ms, kernel.name))
    names = short_names(kernel.name for kernel in found)
    rows = []
    for kernel in found[:most]:
        calls = kernel.count if lead is None else kernel.count_per_step
        shapes = [
            units.shape(shape) if shape else units.NOT_APPLICABLE
            for shape in (kernel.grid, kernel.block)
        ]
        count = units.integer(calls) if calls is not None else units.NOT_APPLICABLE
        rows.append(
            [names[kernel.name], kernel.category, units.ms_cell(weight(kernel)), count, *shapes]
        )
    return ShortTable(
        "Largest kernels" + (f" on rank {lead}" if lead is not None else ", all ranks"),
        ["Kernel", "kind", "ms" if lead is None else "ms/step", "calls", "grid", "block"],
        rows,
        max(0, len(found) - most),
    )
