"""The table of GPU operations, linked to the calls that launched them."""

from __future__ import annotations

import numpy as np

from trace_analyzer.kernels import communication_names, work_classes
from trace_analyzer.readers.kineto_anomalies import Anomalies, Anomaly
from trace_analyzer.readers.kineto_columns import GpuColumns
from trace_analyzer.readers.kineto_order import (
    exact_copies,
    launches,
    narrow,
    not_negative,
    positive,
    renumber,
    renumbered,
)
from trace_analyzer.readers.kineto_spans import RecordedNames, Spans
from trace_analyzer.readers.kineto_values import triple, whole
from trace_analyzer.schema import (
    NA_INT32,
    NA_INT64,
    AnyArray,
    BoolArray,
    Int8Array,
    Int32Array,
    Int64Array,
)
from trace_analyzer.tables import GpuOperations, HostCalls, LaunchConfigs, OperationKind

_MOST_DEVICES = 1 << 10  # without a list of devices, a larger process id is no device


def operations(
    columns: GpuColumns,
    spans: Spans,
    calls: HostCalls,
    names: RecordedNames,
    device_ordinals: frozenset[int],
    anomalies: Anomalies,
) -> tuple[GpuOperations, LaunchConfigs]:
    """Return GPU operations in order of start, without copies; the columns are given up."""
    order = spans.ordered()
    correlation = positive(columns.correlation.take())
    graph_node = positive(columns.graph_node.take())
    stream = not_negative(columns.stream.take())
    code = columns.name.take()
    copies = exact_copies(
        spans.start[order],
        spans.end[order],
        stream[order],
        code[order],
        correlation[order],
        graph_node[order],
    )
    if copies.any():
        anomalies.note(Anomaly.DUPLICATE, count=int(np.count_nonzero(copies)))
        order = order[~copies]
    stream, correlation = stream[order], correlation[order]
    stream_is_thread = np.frombuffer(columns.stream_is_thread, dtype=np.bool_)[order]
    _tell_gaps(stream, stream_is_thread, correlation, anomalies)
    kind = np.frombuffer(columns.kind, dtype=np.int8)[order]
    name = names.positions(code[order])
    collective = columns.collective.take()[order]
    is_comm = communication_names(names.table.texts)[name] | (collective != NA_INT32)
    configs, config = _launch_configs(columns, kind, order)
    table = GpuOperations.from_columns(
        len(order),
        start_ns=spans.start[order],
        end_ns=spans.end[order],
        kind=kind,
        work=work_classes(kind, is_comm),
        name=name,
        device=_devices(columns, order, device_ordinals),
        context=narrow(columns.context.take()[order], np.int32),
        stream=stream,
        correlation=correlation,
        launch=launches(correlation, calls.correlation),
        graph_node=graph_node[order],
        external_id=positive(columns.external_id.take()[order]),
        bytes=not_negative(columns.bytes.take()[order]),
        launch_config=config,
        collective=collective,
    )
    return table, configs


def _tell_gaps(
    stream: Int64Array, is_thread: BoolArray, correlation: Int64Array, anomalies: Anomalies
) -> None:
    none = stream == NA_INT64
    anomalies.note(Anomaly.STREAM_FROM_THREAD, count=int(np.count_nonzero(is_thread & ~none)))
    anomalies.note(Anomaly.NO_STREAM, count=int(np.count_nonzero(none)))
    if len(correlation) and (correlation == NA_INT64).all():
        anomalies.note(Anomaly.NO_CORRELATION, count=len(correlation))


def _devices(columns: GpuColumns, order: Int64Array, ordinals: frozenset[int]) -> AnyArray:
    device = columns.device.take()[order]
    is_process = np.frombuffer(columns.device_is_process, dtype=np.bool_)[order]
    may_be = np.isin(device, list(ordinals)) if ordinals else device < _MOST_DEVICES
    known = (device >= 0) & (may_be | ~is_process)
    return narrow(np.where(known, device, NA_INT64), np.int16)


def _launch_configs(
    columns: GpuColumns, kind: Int8Array, order: Int64Array
) -> tuple[LaunchConfigs, Int32Array]:
    """Return the distinct launch shapes, and the row of each operation's."""
    shapes = [
        (*_sizes(grid, block, registers, shared_bytes), occupancy_pct)
        for grid, block, registers, shared_bytes, occupancy_pct in columns.configs
    ]
    nothing = (*_sizes(None, None, NA_INT64, NA_INT64), None)
    rows = {shape: row for row, shape in enumerate(dict.fromkeys(shapes)) if shape != nothing}
    row_of = np.array([rows.get(shape, NA_INT32) for shape in shapes], dtype=np.int32)
    config = np.full(len(order), NA_INT32, dtype=np.int32)
    is_kernel = kind == OperationKind.KERNEL
    config[is_kernel] = row_of[columns.config.take()[order[is_kernel]]]
    used, number = renumber([config], len(shapes))
    by_row = {row: shape for shape, row in rows.items()}
    return _config_table([by_row[int(row)] for row in used]), renumbered(config, number)


def _sizes(grid: object, block: object, registers: object, shared_bytes: object) -> list[int]:
    none = (NA_INT64,) * 3
    single = [whole(value) for value in (registers, shared_bytes)]
    return [
        *(triple(grid) or none),
        *(triple(block) or none),
        *(NA_INT64 if value is None else value for value in single),
    ]


def _config_table(shapes: list[tuple[int | float, ...]]) -> LaunchConfigs:
    sizes = np.array([shape[:-1] for shape in shapes], dtype=np.int64).reshape(len(shapes), 8)
    percents = [np.nan if shape[-1] is None else shape[-1] for shape in shapes]
    small = [narrow(sizes[:, column], np.int32) for column in range(7)]
    return LaunchConfigs.from_columns(
        len(shapes),
        grid_x=small[0],
        grid_y=small[1],
        grid_z=small[2],
        block_x=small[3],
        block_y=small[4],
        block_z=small[5],
        registers=small[6],
        shared_bytes=sizes[:, 7],
        occupancy_pct=np.array(percents, dtype=np.float64),
    )
