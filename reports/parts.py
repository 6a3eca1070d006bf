"""The partition of a step, or of the window where there are no steps, as rows for every output."""

from __future__ import annotations

from dataclasses import dataclass

from trace_analyzer.findings import RankDoc, Report, StepPartition, WindowPartition
from trace_analyzer.reports.summary import gpu_words
from trace_analyzer.reports.svg_bars import Part


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One rank: its parts in drawing order, its total, and what compute hides."""

    rank: int
    gpu: str
    host: str
    total_ms: float
    median_ms: float | None
    parts: tuple[Part, ...]
    hidden_ms: float
    partial: bool
    step: StepPartition | None
    window: WindowPartition | None

    def value(self, cls: str) -> float | None:
        """Return a part's length, or None where the row has no such part."""
        return next((part.value_ms for part in self.parts if part.cls == cls), None)


def _row(
    model: str | None,
    rank: RankDoc,
    values: StepPartition | WindowPartition,
    communication: list[Part],
) -> PartitionRow:
    step = values if isinstance(values, StepPartition) else None
    window = values if isinstance(values, WindowPartition) else None
    return PartitionRow(
        rank=rank.rank,
        gpu=gpu_words(rank.gpu, model),
        host=rank.host or "",
        total_ms=step.step_ms if step is not None else window.window_ms if window else 0.0,
        median_ms=step.step_median_ms if step is not None else None,
        parts=(
            Part("compute", "compute", values.compute_ms),
            *communication,
            Part("copy", "copy", values.copy_exposed_ms),
            Part("idle", "idle", values.idle_ms),
        ),
        hidden_ms=max(values.comm_ms - values.comm_exposed_ms, 0.0),
        partial=rank.partial,
        step=step,
        window=window,
    )


def _communication(step: StepPartition) -> list[Part]:
    """Return exposed communication: split where the step tells transfer and wait, else in one."""
    transfer, wait = step.comm_exposed_transfer_ms, step.comm_exposed_wait_ms
    if transfer is None or wait is None:
        return [Part("comm", "communication", step.comm_exposed_ms)]
    split = [Part("transfer", "transfer", transfer), Part("wait", "wait", wait)]
    rest = step.comm_exposed_unsplit_ms
    return [*split, Part("unsplit", "not split", rest)] if rest else split


def step_rows(report: Report) -> list[PartitionRow]:
    """Return the ranks that have steps: means over steady steps."""
    return [
        _row(report.run.gpu, rank, rank.step, _communication(rank.step))
        for rank in report.ranks
        if rank.step is not None
    ]


def window_rows(report: Report) -> list[PartitionRow]:
    """Return the ranks that have GPU work: totals over the recorded window."""
    return [
        _row(
            report.run.gpu,
            rank,
            rank.window,
            [Part("comm", "communication", rank.window.comm_exposed_ms)],
        )
        for rank in report.ranks
        if rank.window is not None
    ]


def classes(rows: list[PartitionRow]) -> list[str]:
    """Return the textures that occur, in drawing order; copies and communication only if not 0."""
    order = ("compute", "transfer", "comm", "wait", "unsplit", "copy", "idle")
    present = {part.cls for row in rows for part in row.parts if part.value_ms > 0}
    return [cls for cls in order if cls in present]
