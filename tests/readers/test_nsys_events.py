"""GPU operations, calls, threads and devices of synthetic exports."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tests.readers.nsys_files import (
    GRAPH,
    KERNEL,
    MEMSET,
    RECORD,
    RUNTIME,
    SYNC,
    Nsys,
    global_pid,
    global_tid,
    names_of,
    values,
)
from trace_analyzer.model import Severity
from trace_analyzer.readers.nsys_columns import distinct, distinct_rows, first_rows, row_order
from trace_analyzer.readers.nsys_copies import copy_name
from trace_analyzer.schema import NA_INT64
from trace_analyzer.tables import CallKind, OperationKind, SyncKind, WorkClass


def _codes(rank_warnings: object) -> list[str]:
    assert isinstance(rank_warnings, tuple)
    return [warning.code for warning in rank_warnings]


def test_a_kernel_in_full(tmp_path: Path) -> None:
    made = Nsys()
    made.launched(100, 120, 150, "void gemm<float>(float*)", streamId=21, contextId=3, deviceId=2)
    rank = made.read_one(tmp_path)
    operation, config = rank.operations, rank.configs
    assert (operation.start_ns[0], operation.end_ns[0]) == (120, 150)
    assert (operation.device[0], operation.context[0], operation.stream[0]) == (2, 3, 21)
    assert operation.kind[0] == OperationKind.KERNEL
    assert operation.work[0] == WorkClass.COMPUTE
    assert names_of(rank, operation.name) == ["void gemm<float>(float*)"]
    row = operation.launch_config[0]
    assert (config.grid_x[row], config.block_x[row], config.registers[row]) == (8, 128, 40)
    assert config.shared_bytes[row] == 124
    assert values(operation.graph_node) == [None]
    assert operation.launch[0] == 0
    assert (rank.calls.start_ns[0], rank.calls.end_ns[0]) == (100, 105)
    assert rank.calls.kind[0] == CallKind.LAUNCH
    assert names_of(rank, rank.calls.name) == ["cudaLaunchKernel"]


def test_copies_and_memsets_read_as_in_torch_profiler(tmp_path: Path) -> None:
    made = Nsys()
    made.copy(0, 10, (1, 0, 2), bytes=1)
    made.copy(20, 30, (2, 2, 1))
    made.copy(40, 50, (8, 2, 2))
    made.copy(60, 70, (10, 2, 2))
    made.copy(80, 90, (77, 2, 99))
    made.add(MEMSET, start=100, end=101, globalPid=global_pid(10), bytes=64, memKind=2)
    rank = made.read_one(tmp_path)
    assert names_of(rank, rank.operations.name) == [
        "Memcpy HtoD (Pageable -> Device)",
        "Memcpy DtoH (Device -> Pinned)",
        "Memcpy DtoD (Device -> Device)",
        "Memcpy PtoP (Device -> Device)",
        "Memcpy unknown (Device -> Unknown)",
        "Memset (Device)",
    ]
    assert set(rank.operations.work.tolist()) == {WorkClass.COPY}
    assert rank.operations.bytes.tolist() == [1, 4096, 4096, 4096, 4096, 64]
    assert values(rank.operations.launch_config) == [None] * 6
    assert copy_name(1, NA_INT64, NA_INT64) == "Memcpy HtoD"


def test_correlation_ids_repeat_between_processes(tmp_path: Path) -> None:
    made = Nsys()
    for pid, offset in ((20, 1000), (10, 0)):
        for number in (1, 2, 3):
            start = offset + 100 * number
            made.call(start, start + 5, pid=pid, correlation=number)
            made.kernel(start + 10, start + 20, pid=pid, correlation=number)
    first, second = made.read(tmp_path)
    assert [rank.pid for rank in (first, second)] == [10, 20]
    assert [rank.rank for rank in (first, second)] == [0, 1]
    assert {rank.rank_basis for rank in (first, second)} == {"order"}
    for rank, offset in ((first, 0), (second, 1000)):
        launch = rank.calls.start_ns[rank.operations.launch]
        assert launch.tolist() == [offset + 100, offset + 200, offset + 300]
        assert rank.threads.process.tolist() == [rank.pid]


def test_the_outermost_call_is_the_launch(tmp_path: Path) -> None:
    made = Nsys()
    made.call(102, 104, "cuLaunchKernel", correlation=5)
    made.call(100, 110, "cudaLaunchKernel_v7000", correlation=5)
    made.call(100, 120, "cudaLaunchKernelExC_v11060", correlation=6)
    made.kernel(130, 140, correlation=5)
    rank = made.read_one(tmp_path)
    assert rank.calls.end_ns.tolist() == [120, 110, 104]
    assert rank.operations.launch.tolist() == [1]


def test_operations_are_ordered_and_duplicates_counted_once(tmp_path: Path) -> None:
    made = Nsys()
    for start, end, name in [(50, 60, "b"), (10, 20, "a"), (50, 55, "c"), (50, 60, "b")]:
        made.kernel(start, end, name, correlation=start)
    made.call(0, 5, correlation=10)
    rank = made.read_one(tmp_path)
    assert names_of(rank, rank.operations.name) == ["a", "c", "b"]
    assert rank.counts["left_out_duplicates"] == 1
    assert [w.count for w in rank.warnings if "twice" in w.message] == [1]


def test_damaged_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    made = Nsys()
    made.launched(0, 10, 20)
    made.kernel(30, 25)
    made.kernel(40, 45)
    made.tables[KERNEL][-1]["end"] = None
    made.call(60, 50)
    made.range(90, 80, "backwards")
    rank = made.read_one(tmp_path)
    assert len(rank.operations) == 1
    assert len(rank.calls) == 1
    assert [w.count for w in rank.warnings if w.code == "TRC007"] == [4]


def test_negative_times_and_no_correlation_are_kept(tmp_path: Path) -> None:
    made = Nsys()
    made.kernel(-50, -20, correlation=0)
    made.kernel(10, 20, correlation=3)
    made.call(-5, 0, correlation=0)
    made.call(1, 2, correlation=3)
    rank = made.read_one(tmp_path)
    assert rank.operations.start_ns.tolist() == [-50, 10]
    assert values(rank.operations.launch) == [None, 1]
    assert values(rank.operations.correlation) == [None, 3]


def test_trimmed_fixture_without_process_columns(tmp_path: Path) -> None:
    made = Nsys()
    made.add(KERNEL, start=10, end=20, correlationId=1, shortName=made.text("gemm"), streamId=7)
    made.call(0, 5, correlation=1)
    rank = made.read_one(tmp_path)
    assert (rank.pid, len(rank.operations)) == (10, 1)
    assert names_of(rank, rank.operations.name) == ["gemm"]
    assert rank.operations.launch.tolist() == [0]
    assert values(rank.operations.device) == [None]
    assert values(rank.configs.grid_x) == [None]
    assert "TRC011" in _codes(rank.warnings)


def test_unknown_processes_are_not_linked_by_guess(tmp_path: Path) -> None:
    made = Nsys()
    for start in (10, 30, 50):
        made.kernel(start, start + 5, correlation=start)
    for table in made.tables.values():
        for row in table:
            del row["globalPid"]
    made.call(0, 1, pid=10, correlation=10)
    made.call(2, 3, pid=20, correlation=10)
    made.call(4, 5, pid=20, correlation=30)
    rank = made.read_one(tmp_path)
    assert rank.pid is None
    assert values(rank.operations.launch) == [None, 2, None]
    assert "though 2 made CUDA calls" in next(w.effect for w in rank.warnings if w.code == "TRC011")


def test_calls_without_kernels_are_an_error_of_the_recording(tmp_path: Path) -> None:
    made = Nsys()
    made.launched(0, 10, 20, pid=10)
    for number in range(4):
        made.call(number * 10, number * 10 + 5, pid=20, correlation=number + 1)
    made.call(0, 1, "cudaGetDeviceCount_v3020", pid=30)
    first, second = made.read(tmp_path)
    assert (first.pid, second.pid) == (10, 20)
    assert len(second.operations) == 0
    (warning,) = second.warnings
    assert (warning.code, warning.severity, warning.count) == ("TRC004", Severity.ERROR, 4)
    assert warning.ranks == (1,)


def _steady(kernels: int, *, lost: int = 0, unlinked: int = 0) -> Nsys:
    made = Nsys()
    for number in range(kernels):
        start = number * 100
        if number and number <= unlinked:
            made.kernel(start + 20, start + 30, correlation=100_000 + number)
        else:
            made.launched(start, start + 20, start + 30)
        if 0 < number <= lost:
            made.call(start + 50, start + 55, correlation=200_000 + number)
    return made


@pytest.mark.parametrize(
    ("lost", "unlinked", "severity"),
    [
        (0, 0, Severity.NOTE),
        (1, 1, Severity.NOTE),
        (5, 0, Severity.WARNING),
        (0, 5, Severity.WARNING),
        (20, 0, Severity.ERROR),
        (0, 20, Severity.ERROR),
    ],
)
def test_events_decide_how_bad_a_diagnostic_is(
    tmp_path: Path, lost: int, unlinked: int, severity: Severity
) -> None:
    made = _steady(200, lost=lost, unlinked=unlinked)
    made.add(
        "DIAGNOSTIC_EVENT",
        severity=2,
        text="Not all CUDA events might have been collected.",
        globalPid=global_pid(10),
    )
    (warning,) = made.read_one(tmp_path).warnings
    assert (warning.code, warning.severity) == ("TRC004", severity)


def test_kernels_without_any_calls(tmp_path: Path) -> None:
    made = Nsys()
    made.kernel(0, 10, correlation=1)
    rank = made.read_one(tmp_path)
    assert values(rank.operations.launch) == [None]
    assert [(w.code, w.severity) for w in rank.warnings] == [("TRC004", Severity.WARNING)]


def test_edges_of_the_recording_are_no_loss(tmp_path: Path) -> None:
    made = Nsys()
    for number in range(30):  # launched before the recording
        made.kernel(number * 10, number * 10 + 5, correlation=None)
    for number in range(100):
        made.launched(number * 10, 400 + number * 10, 405 + number * 10)
    for number in range(30):  # executed after it
        made.call(2000 + number, 2001 + number, correlation=900 + number)
    assert made.read_one(tmp_path).warnings == ()


def test_launches_that_run_nothing_are_no_loss(tmp_path: Path) -> None:
    made = Nsys()
    made.launched(0, 10, 20)
    made.call(30, 31, "cudaStreamBeginCapture_v10000")
    for number in range(20):
        made.call(40 + number, 41 + number, correlation=500 + number)
    made.call(70, 71, "cudaStreamEndCapture_v10000")
    made.call(80, 81, "cudaLaunchHostFunc_v10000", correlation=600)
    made.launched(100, 110, 120)
    assert made.read_one(tmp_path).warnings == ()


def test_whole_graphs_count_as_work_and_are_said_to_hide_kernels(tmp_path: Path) -> None:
    made = Nsys()
    made.launched(0, 10, 20)
    made.call(30, 35, "cudaGraphLaunch_v10000", correlation=77)
    made.add(
        GRAPH,
        start=40,
        end=90,
        deviceId=0,
        contextId=1,
        streamId=7,
        correlationId=77,
        globalPid=global_pid(10),
        graphId=3,
    )
    rank = made.read_one(tmp_path)
    assert names_of(rank, rank.operations.name) == ["gemm", "CUDA graph"]
    assert rank.operations.kind.tolist() == [OperationKind.KERNEL] * 2
    assert rank.operations.work.tolist() == [WorkClass.COMPUTE] * 2
    assert rank.calls.kind[rank.operations.launch[1]] == CallKind.GRAPH_LAUNCH
    assert (rank.counts["kernels"], rank.counts["graph_runs"]) == (1, 1)
    assert rank.capture.graph_mode == "graph"
    (warning,) = rank.warnings
    assert (warning.code, warning.severity, warning.count) == ("TRC008", Severity.ERROR, 1)
    assert "--cuda-graph-trace=node" in warning.effect
    assert "counted as computing" in warning.effect


def test_graph_launches_without_any_row(tmp_path: Path) -> None:
    made = Nsys()
    made.launched(0, 10, 20)
    made.call(30, 35, "cudaGraphLaunch_v10000", correlation=77)
    rank = made.read_one(tmp_path)
    (warning,) = rank.warnings
    assert (warning.code, warning.count) == ("TRC008", 1)
    assert "not in the report" in warning.effect


def test_kernels_of_a_graph_share_their_launch(tmp_path: Path) -> None:
    made = Nsys()
    made.call(0, 5, "cudaGraphLaunch_v10000", correlation=9)
    for number in range(3):
        made.kernel(
            10 + 10 * number, 15 + 10 * number, correlation=9, graphNodeId=(4 << 32) + number + 1
        )
    rank = made.read_one(tmp_path)
    assert rank.operations.launch.tolist() == [0, 0, 0]
    assert rank.operations.graph_node.tolist() == [(4 << 32) + n for n in (1, 2, 3)]
    assert rank.capture.graph_mode == "node"
    assert rank.warnings == ()


def test_threads_and_their_names(tmp_path: Path) -> None:
    made = Nsys()
    made.launched(0, 10, 20, tid=11)
    made.launched(30, 40, 50, tid=12)
    made.range(0, 100, "step 1", tid=12)
    made.range(5, 6, "worker", tid=13)
    for tid, name in ((11, "python"), (12, "pt_autograd_0"), (99, "unrelated")):
        made.add("ThreadNames", nameId=made.text(name), priority=20, globalTid=global_tid(10, tid))
    rank = made.read_one(tmp_path)
    assert rank.threads.thread.tolist() == [11, 12, 13]
    assert rank.threads.process.tolist() == [10, 10, 10]
    titles = [None if name is None else rank.names[name] for name in values(rank.threads.name)]
    assert titles == ["python", "pt_autograd_0", None]
    assert rank.calls.thread.tolist() == [0, 1]
    assert rank.events.thread.tolist() == [1, 2]
    assert "unrelated" not in rank.names


def _waits(made: Nsys, **record: int) -> None:
    """Two records of event 4 on stream 14, and a wait of stream 7 after each of them."""
    for number, base in enumerate((100, 200)):
        made.call(base, base + 2, "cudaEventRecord_v3020", correlation=base)
        fields = {"eventSyncId": number + 1} if record else {}
        place = {"contextId": 1, "globalPid": global_pid(10), "eventId": 4}
        made.add(RECORD, streamId=14 + number, correlationId=base, **place, **fields)
        made.add(
            SYNC,
            start=base + 10,
            end=base + 12,
            deviceId=0,
            streamId=7,
            correlationId=base + 10,
            syncType=2,
            **place,
            **fields,
        )


@pytest.mark.parametrize("with_ids", [True, False])
def test_waits_find_their_event_record(tmp_path: Path, with_ids: bool) -> None:
    made = Nsys()
    made.launched(0, 10, 20, deviceId=3)
    if with_ids:
        _waits(made, eventSyncId=1)
    else:
        _waits(made)
    syncs = made.read_one(tmp_path).syncs
    assert syncs.kind.tolist() == [
        SyncKind.EVENT_RECORD,
        SyncKind.STREAM_WAIT_EVENT,
        SyncKind.EVENT_RECORD,
        SyncKind.STREAM_WAIT_EVENT,
    ]
    assert syncs.start_ns.tolist() == [100, 110, 200, 210]
    assert values(syncs.source_stream) == [None, 14, None, 15]
    assert values(syncs.record_correlation) == [None, 100, None, 200]
    assert values(syncs.event) == ([1, 1, 2, 2] if with_ids else [4, 4, 4, 4])
    assert syncs.device.tolist() == [3] * 4  # of the context: the column says 0 throughout


def test_waits_of_other_processes_and_contexts_do_not_match(tmp_path: Path) -> None:
    made = Nsys()
    made.launched(0, 10, 20)
    made.launched(0, 10, 20, pid=20)
    _waits(made)
    place = {"start": 300, "end": 301, "streamId": 0xFFFFFFFF, "correlationId": 300, "syncType": 1}
    made.add(SYNC, globalPid=global_pid(10), contextId=2, eventId=4, **place)
    made.add(SYNC, globalPid=global_pid(20), contextId=1, eventId=4, **place)
    first, second = made.read(tmp_path)
    assert values(first.syncs.source_stream)[-1] is None
    assert values(first.syncs.stream)[-1] is None
    assert len(second.syncs) == 1
    assert values(second.syncs.source_stream) == [None]


def test_records_without_call_have_no_time(tmp_path: Path) -> None:
    made = Nsys()
    made.launched(0, 10, 20)
    made.add(
        RECORD, contextId=1, streamId=3, correlationId=900, globalPid=global_pid(10), eventId=1
    )
    rank = made.read_one(tmp_path)
    assert len(rank.syncs) == 0
    assert rank.counts["left_out_synchronizations"] == 1


def test_devices_renumbered_by_visibility(tmp_path: Path) -> None:
    made = Nsys()
    made.launched(0, 10, 20, pid=10)
    made.launched(0, 10, 20, pid=20)
    for gpu in (0, 1, 2):
        made.add(
            "TARGET_INFO_GPU",
            id=gpu,
            name="NVIDIA H200",
            busLocation=f"0000:0{gpu}:00.0",
            smCount=132,
            memoryBandwidth=4_800_000_000_000,
            cuDevice=gpu,
        )
    for pid, gpu in ((10, 2), (20, 1)):
        made.add("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=pid)
    first, second = made.read(tmp_path)
    assert [(d.ordinal, d.gpu, d.bus_id) for d in first.devices] == [(0, 2, "0000:02:00.0")]
    assert [(d.ordinal, d.gpu) for d in second.devices] == [(0, 1)]
    assert first.devices[0].memory_bandwidth_bytes_per_s == 4_800_000_000_000
    assert first.warnings == ()


def test_devices_without_a_map_are_described_but_not_identified(tmp_path: Path) -> None:
    made = Nsys()
    made.launched(0, 10, 20)
    for gpu in (0, 1):
        made.add("TARGET_INFO_GPU", id=gpu, name="NVIDIA H200", smCount=132, cuDevice=gpu)
    rank = made.read_one(tmp_path)
    (device,) = rank.devices
    assert (device.name, device.sm_count, device.gpu) == ("NVIDIA H200", 132, None)
    assert [w.code for w in rank.warnings] == ["TRC011"]


def test_one_process_on_two_devices(tmp_path: Path) -> None:
    made = Nsys()
    made.launched(0, 10, 20, deviceId=0, contextId=1)
    made.launched(5, 10, 20, deviceId=1, contextId=2)
    rank = made.read_one(tmp_path)
    assert [device.ordinal for device in rank.devices] == [0, 1]
    assert rank.operations.device.tolist() == [0, 1]


def test_order_keeps_equal_rows_as_they_stood() -> None:
    start = np.array([5, 1, 5, 1, 5])
    tie = np.array([2, 9, 1, 9, 1])
    assert row_order(start, tie).tolist() == [1, 3, 2, 4, 0]


@pytest.mark.parametrize("spread", [3, 10**12])
def test_column_helpers_equal_plain_python(spread: int) -> None:
    dice = random.Random(4)
    keys = [dice.choice([NA_INT64, *(n * spread for n in range(40))]) for _ in range(300)]
    wanted = [dice.choice([NA_INT64, -3, *(n * spread for n in range(60))]) for _ in range(200)]
    column = np.array(keys, dtype=np.int64)
    found, inverse = distinct(column)
    assert found.tolist() == sorted(set(keys))
    assert found[inverse].tolist() == keys
    expected = [keys.index(key) if key in keys and key != NA_INT64 else NA_INT64 for key in wanted]
    assert first_rows(column, np.array(wanted, dtype=np.int64)).tolist() == expected
    other = np.array([dice.randrange(3) for _ in keys], dtype=np.int64)
    first, group = distinct_rows([column, other])
    assert len(first) == len(set(zip(keys, other.tolist(), strict=True)))
    assert np.array_equal(column[first][group], column)
    assert np.array_equal(other[first][group], other)


def test_unknown_columns_of_an_export_are_ignored(tmp_path: Path) -> None:
    made = Nsys()
    made.call(0, 5, correlation=1)
    made.kernel(10, 20, correlation=1, greenContextId=None, clusterX=0, tensorSize="[]")
    made.add("SCHED_EVENTS", start=1, cpu=2, isSchedIn=1, globalTid=global_tid(10))
    rank = made.read_one(tmp_path)
    assert len(rank.operations) == 1
    assert rank.counts["unread_SCHED_EVENTS"] == 1
    assert RUNTIME in made.tables
