"""That a program is one: its columns have the declared types, and positions lie inside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from trace_analyzer.analyses.replay.program import COPY, NONE, Program
from trace_analyzer.errors import SchemaError
from trace_analyzer.schema import AnyArray

_INT64 = (
    "node_first",
    "node_gap_ns",
    "node_cost_ns",
    "wait_first",
    "op_fixed_ns",
    "op_base_ns",
    "op_latency_ns",
    "op_gap_ns",
    "op_end_offset_ns",
    "dep_first",
    "collective_transfer_ns",
)
_INT32 = (
    "node_step",
    "node_queue",
    "wait_operation",
    "op_rank",
    "op_node",
    "op_stream",
    "op_collective",
    "dep_operation",
    "collective_size",
)
_TYPES: dict[str, np.dtype[Any]] = {
    **dict.fromkeys(_INT64, np.dtype(np.int64)),
    **dict.fromkeys(_INT32, np.dtype(np.int32)),
    "op_class": np.dtype(np.int8),
    "alpha": np.dtype(np.float64),
}
_CLASSES = COPY + 1


def check_program(program: Program) -> None:
    """Raise `SchemaError`, naming the first column that is wrong, unless a program can be executed.

    Whether it finishes is another question: that is what the simulator finds out.
    """
    for name, dtype in _TYPES.items():
        _check_column(name, getattr(program, name), dtype)
    nodes, operations = program.nodes, program.operations
    ranks, collectives = len(program.ranks), len(program.collective_size)
    for name in _TYPES:
        if name.startswith("node_") and name != "node_first":
            _check_rows(program, name, nodes)
        elif name.startswith("op_"):
            _check_rows(program, name, operations)
    _check_rows(program, "collective_transfer_ns", collectives)
    _check_rows(program, "alpha", _CLASSES)
    _check_delimiters(program, "node_first", ranks, nodes)
    _check_delimiters(program, "wait_first", nodes, len(program.wait_operation))
    _check_delimiters(program, "dep_first", operations, len(program.dep_operation))
    _check_positions(program, "node_step", NONE, len(program.steps))
    _check_positions(program, "node_queue", NONE, operations)
    _check_positions(program, "wait_operation", 0, operations)
    _check_positions(program, "op_rank", 0, ranks)
    _check_positions(program, "op_node", NONE, nodes)
    _check_positions(program, "op_class", 0, _CLASSES)
    _check_positions(program, "op_collective", NONE, collectives)
    _check_positions(program, "dep_operation", 0, operations)
    _check_sizes(program)
    if not bool(np.all(np.isfinite(program.alpha) & (program.alpha > -1.0))):
        raise SchemaError(f"Program: alpha is {program.alpha.tolist()}, not above -1 and finite")


def _check_column(name: str, values: object, dtype: np.dtype[Any]) -> None:
    if not isinstance(values, np.ndarray) or values.ndim != 1:
        raise SchemaError(f"Program: {name} is not a one-dimensional array")
    if values.dtype != dtype:
        raise SchemaError(f"Program: {name} is {values.dtype}, not {dtype}")
    if not (values.flags.c_contiguous and values.flags.aligned):
        raise SchemaError(f"Program: {name} is a view with gaps: copy it")


def _check_rows(program: Program, name: str, rows: int) -> None:
    values: AnyArray = getattr(program, name)
    if len(values) != rows:
        raise SchemaError(f"Program: {name} has {len(values)} rows, not {rows}")


def _check_delimiters(program: Program, name: str, parts: int, total: int) -> None:
    _check_rows(program, name, parts + 1)
    values: AnyArray = getattr(program, name)
    if values[0] != 0 or values[-1] != total or bool(np.any(values[1:] < values[:-1])):
        raise SchemaError(f"Program: {name} does not go up from 0 to {total}")


def _check_positions(program: Program, name: str, low: int, high: int) -> None:
    values: AnyArray = getattr(program, name)
    if len(values) == 0:
        return
    if int(values.min()) < low or int(values.max()) >= high:
        row = int(np.flatnonzero((values < low) | (values >= high))[0])
        raise SchemaError(f"Program: {name}[{row}] is {int(values[row])}, outside [{low}, {high})")


def _check_sizes(program: Program) -> None:
    """A collective may lack members, and never ends then; it cannot have more than its size."""
    size = program.collective_size
    members = program.op_collective[program.op_collective != NONE]
    count = np.bincount(members, minlength=len(size))
    if bool(np.any(count > size)):
        row = int(np.flatnonzero(count > size)[0])
        raise SchemaError(
            f"Program: collective_size[{row}] is {int(size[row])}, but it has {int(count[row])} members"
        )
