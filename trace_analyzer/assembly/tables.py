"""The NCCL and kernel tables, as the report states them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trace_analyzer.analyses.channels import block_reading, expected_channels
from trace_analyzer.analyses.comm_events import ROOTED
from trace_analyzer.analyses.kernel_table import KernelRow, LaunchShape
from trace_analyzer.analyses.nccl_table import CollectiveRow
from trace_analyzer.analyses.study import Study
from trace_analyzer.assembly.nccl_rows import SizeClass, size_classes
from trace_analyzer.assembly.ranks import ms
from trace_analyzer.findings import CollectiveDoc, KernelDoc, Percentiles
from trace_analyzer.model import ProcessGroup
from trace_analyzer.nccl_names import bus_factor, type_label
from trace_analyzer.schema import Int64Array, is_na

# The JSON keeps the rows that matter and folds the rest into one, so that sums still hold.
MOST_KERNEL_ROWS = 300
# Durations of unmatched collectives contain waiting. Their 10th percentile is the nearest to a
# transfer that one rank alone can show, and still an upper estimate of it.
UNMATCHED_TRANSFER_PERCENTILE = 10


_ASSUMED = "; the group is taken to be the recorded ranks"


def percentiles_us(durations_ns: Int64Array) -> Percentiles:
    """Return median and 99th percentile in µs."""
    p50, p99 = np.percentile(durations_ns, [50, 99]) / 1e3
    return Percentiles(p50=round(float(p50), 3), p99=round(float(p99), 3))


def group_label(group: ProcessGroup | None) -> str | None:
    """Return how a process group is called in the report."""
    if group is None:
        return None
    return group.description if group.description not in ("", "undefined") else group.name


def _counts_per_step(counts: dict[int, int], steps: int) -> float | None:
    """Return the mean over ranks of the launches a steady step."""
    if steps == 0 or not counts:
        return None
    return round(sum(counts.values()) / len(counts) / steps, 4)


def collective_docs(study: Study) -> list[CollectiveDoc]:
    """Return the NCCL table."""
    # The log tells how many channels the communicators have; without it, the most that was used.
    logged = [
        communicator.coll_channels
        for log in study.run.nccl_logs
        for communicator in log.communicators
        if communicator.coll_channels
    ]
    most: dict[ProcessGroup | None, int] = {}
    for row in study.collectives:
        grid = row.key.shape.grid
        if grid is not None:
            most[row.key.group] = max(most.get(row.key.group, 0), grid[0])
    return [
        _collective(study, item, max([*logged, most.get(item.row.key.group, 0)]))
        for item in size_classes(study.collectives)
    ]


@dataclass(frozen=True, slots=True)
class _Split:
    """Transfer of the matched operations of a row, and mean wait by rank."""

    transfer_ns: Int64Array
    wait_us: dict[str, float]


def _split(study: Study, row: CollectiveRow) -> _Split | None:
    """Divide the operations of a row; None where none of them is matched."""
    if study.cross is None:
        return None
    transfers: list[Int64Array] = []
    wait_us: dict[str, float] = {}
    for rank, rows in row.rows.items():
        change = study.cross.ranks[rank].transfer_start_ns[rows]
        known = ~is_na(change)
        if not bool(known.any()):
            continue
        operations = study.ranks[rank].rank.operations
        start, end = operations.start_ns[rows[known]], operations.end_ns[rows[known]]
        transfers.append(end - change[known])
        wait_us[str(rank)] = round(float(np.mean(change[known] - start)) / 1e3, 3)
    return _Split(np.concatenate(transfers), wait_us) if transfers else None


def _collective(study: Study, item: SizeClass, channels: int) -> CollectiveDoc:
    row = item.row
    key, durations = row.key, row.all_durations_ns
    steps = len(study.steady.used)
    size = None if key.group is None else key.group.size or len(key.group.ranks) or None
    split = _split(study, row)
    assumed = size is None and split is not None
    if assumed:
        size = len(split.wait_us) if split else None
    if split is None:
        transfer_ns = float(np.percentile(durations, UNMATCHED_TRANSFER_PERCENTILE))
        basis = "10th percentile of durations, not matched over ranks: a lower bound"
    else:
        transfer_ns = float(np.median(split.transfer_ns))
        basis = "median of the shortest duration among the ranks"
        if key.operation in ROOTED:
            basis = "median of the shortest duration, not counting the root where it is known"
    block = key.shape.block[0] if key.shape.block else None
    algbw, busbw = None, None
    if key.message_bytes and size and transfer_ns > 0:
        algbw = round(key.message_bytes / transfer_ns, 3)
        factor = bus_factor(key.operation, size)
        busbw = None if factor is None else round(algbw * factor, 3)
    return CollectiveDoc(
        operation=key.operation,
        group=group_label(key.group),
        ranks=list(key.group.ranks) if key.group else [],
        dtype=type_label(key.dtype),
        bytes=key.message_bytes,
        bytes_range=None if item.bytes_range is None else list(item.bytes_range),
        count_per_step=_counts_per_step(row.steady_count, steps),
        grid=_shape(key.shape.grid),
        block=_shape(key.shape.block),
        channels=key.shape.grid[0] if key.shape.grid else None,
        duration_us=percentiles_us(durations),
        transfer_us=None if split is None else percentiles_us(split.transfer_ns),
        wait_us={} if split is None else split.wait_us,
        algbw_gbs=algbw,
        busbw_gbs=busbw,
        bandwidth_basis=None if algbw is None else basis + _ASSUMED * assumed,
        expected_channels=(
            None
            if key.message_bytes is None or block is None
            else expected_channels(key.message_bytes, block, channels)
        ),
        block_reading=None if block is None else block_reading(block),
        exposed_ms_per_step=(
            ms(sum(row.exposed_ns.values()) / len(row.exposed_ns) / steps) if steps else None
        ),
        count=len(durations),
        kernel=key.kernel,
        duration_ms_by_rank={str(r): ms(int(ns.sum())) for r, ns in row.duration_ns.items()},
    )


def _shape(values: tuple[int, int, int] | None) -> list[int] | None:
    return None if values is None else list(values)


def kernel_docs(study: Study) -> list[KernelDoc]:
    """Return the kernel table: the longest rows, and one for the rest."""
    rows = study.kernels
    shown = [_kernel(study, row) for row in rows[:MOST_KERNEL_ROWS]]
    rest = rows[MOST_KERNEL_ROWS:]
    if rest:
        folded = KernelRow(name=f"({len(rest)} more rows)", category="other", shape=LaunchShape())
        for row in rest:
            folded.count += row.count
            folded.total_ns += row.total_ns
            for rank, count in row.steady_count.items():
                folded.steady_count[rank] = folded.steady_count.get(rank, 0) + count
                folded.steady_ns[rank] = folded.steady_ns.get(rank, 0) + row.steady_ns[rank]
        shown.append(_kernel(study, folded))
    return shown


def _kernel(study: Study, row: KernelRow) -> KernelDoc:
    steps = len(study.steady.used)
    shape = row.shape
    # Kineto writes an occupancy of 0 where it could not estimate one (clusters, large shared memory).
    occupancy = shape.occupancy_pct or None
    return KernelDoc(
        name=row.name,
        category=row.category,
        count=row.count,
        total_ms=ms(row.total_ns),
        mean_us=round(row.mean_us, 3),
        grid=_shape(shape.grid),
        block=_shape(shape.block),
        registers=shape.registers,
        shared_bytes=shape.shared_bytes,
        occupancy=occupancy,
        ranks={str(r): ms(ns / steps) for r, ns in row.steady_ns.items()} if steps else {},
        count_per_step=_counts_per_step(row.steady_count, steps),
    )
