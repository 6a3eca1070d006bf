"""Kernels, copies and memsets by name and launch shape, over all ranks of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from trace_analyzer.analyses.steps import DeviceSteps
from trace_analyzer.kernels import category
from trace_analyzer.model import Rank, Run
from trace_analyzer.schema import BoolArray, Int64Array, is_na
from trace_analyzer.tables import OperationKind

Shape = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchShape:
    """How a kernel was launched; None where the trace does not tell."""

    grid: Shape | None = None
    block: Shape | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    occupancy_pct: float | None = None


@dataclass(slots=True, kw_only=True)
class KernelRow:
    """Operations of one name and launch shape.

    `count` and `total_ns` cover the window of all ranks; the `steady_*` maps hold totals over the
    steady steps by rank (an operation belongs to the step in which it starts).
    """

    name: str
    category: str
    shape: LaunchShape
    count: int = 0
    total_ns: int = 0
    steady_count: dict[int, int] = field(default_factory=dict)
    steady_ns: dict[int, int] = field(default_factory=dict)

    @property
    def mean_us(self) -> float:
        """Mean duration over all ranks and the window."""
        return self.total_ns / self.count / 1e3


def in_steady_steps(times_ns: Int64Array, steps: DeviceSteps, mask: BoolArray) -> BoolArray:
    """Return which times lie in a steady step; shape of `times_ns`."""
    if len(steps) == 0:
        return np.zeros(len(times_ns), dtype=np.bool_)
    row = np.searchsorted(steps.start_ns, times_ns, side="right") - 1
    inside = (row >= 0) & (times_ns < steps.end_ns[np.maximum(row, 0)])
    return np.asarray(inside & mask[np.maximum(row, 0)], dtype=np.bool_)


def launch_shape(rank: Rank, config: int) -> LaunchShape:
    """Return row `config` of a rank's launch configurations."""
    table = rank.configs

    def value(name: str) -> int | None:
        raw = getattr(table, name)[config : config + 1]
        return None if bool(is_na(raw)[0]) else int(raw[0])

    def shape(prefix: str) -> Shape | None:
        x, y, z = (value(f"{prefix}_{axis}") for axis in "xyz")
        return None if x is None else (x, 1 if y is None else y, 1 if z is None else z)

    occupancy = float(table.occupancy_pct[config])
    return LaunchShape(
        grid=shape("grid"),
        block=shape("block"),
        registers=value("registers"),
        shared_bytes=value("shared_bytes"),
        occupancy_pct=None if np.isnan(occupancy) else occupancy,
    )


_NO_SHAPE = LaunchShape()


def kernel_table(
    run: Run, steps: Mapping[int, DeviceSteps], mask: Mapping[int, BoolArray]
) -> list[KernelRow]:
    """Return the rows of all ranks, by total time, then name."""
    rows: dict[tuple[str, LaunchShape], KernelRow] = {}
    for rank in run.ranks:
        if rank.rank in steps:
            _add_rank(rows, rank, steps[rank.rank], mask[rank.rank])
    return sorted(rows.values(), key=lambda row: (-row.total_ns, row.name, -row.count))


def _add_rank(
    rows: dict[tuple[str, LaunchShape], KernelRow],
    rank: Rank,
    steps: DeviceSteps,
    mask: BoolArray,
) -> None:
    operations = rank.operations
    duration = operations.end_ns - operations.start_ns
    width = len(rank.configs) + 1
    config = np.where(is_na(operations.launch_config), width - 1, operations.launch_config)
    key, inverse = np.unique(operations.name.astype(np.int64) * width + config, return_inverse=True)
    steady = in_steady_steps(operations.start_ns, steps, mask)
    count = np.bincount(inverse, minlength=len(key))
    steady_count = np.bincount(inverse[steady], minlength=len(key))
    total = _sum_by(inverse, duration, len(key))
    steady_ns = _sum_by(inverse[steady], duration[steady], len(key))
    # One operation of each row tells its kind.
    example = np.zeros(len(key), dtype=np.int64)
    example[inverse] = np.arange(len(inverse))
    for item, code in enumerate(key.tolist()):
        name, number = rank.names[code // width], code % width
        shape = _NO_SHAPE if number == width - 1 else launch_shape(rank, number)
        row = rows.get((name, shape))
        if row is None:
            family = _family(name, int(operations.kind[example[item]]))
            row = rows[name, shape] = KernelRow(name=name, category=family, shape=shape)
        row.count += int(count[item])
        row.total_ns += int(total[item])
        row.steady_count[rank.rank] = int(steady_count[item])
        row.steady_ns[rank.rank] = int(steady_ns[item])


def _family(name: str, kind: int) -> str:
    if kind == OperationKind.MEMCPY:
        return "memcpy"
    if kind == OperationKind.MEMSET:
        return "memset"
    return category(name)


def _sum_by(group: Int64Array, values: Int64Array, count: int) -> Int64Array:
    """Return exact int64 sums by group (bincount's weights would go through float64)."""
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, group, values)
    return total
