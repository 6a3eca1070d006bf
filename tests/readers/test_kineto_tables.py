"""Events of every writer and year in the tables: categories, links, collectives, header."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.readers.kineto_documents import (
    BASE_NS,
    START_US,
    Event,
    codes,
    document,
    event,
    kernel,
    launch,
    names,
    read,
)
from trace_analyzer.model import ProcessGroup, Rank
from trace_analyzer.readers.kineto_collectives import (
    group_ranks,
    message_bytes,
    operation_name,
)
from trace_analyzer.schema import NA_INT8, NA_INT16, NA_INT32, NA_INT64
from trace_analyzer.tables import CallKind, HostCategory, OperationKind, SyncKind, WorkClass


def _read(tmp_path: Path, events: list[Event], **header: Any) -> Rank:
    return read(tmp_path, document(events, **header))


# -- categories -------------------------------------------------------------------------------------


def _gpu(category: str, ts: int, **changes: Any) -> Event:
    return event(category, "n", ts, 1, pid=0, tid=7, args={"correlation": ts}, **changes)


def test_gpu_operations_of_every_spelling(tmp_path: Path) -> None:
    spellings = [
        ("kernel", OperationKind.KERNEL),
        ("Kernel", OperationKind.KERNEL),
        ("gpu_memcpy", OperationKind.MEMCPY),
        ("Memcpy", OperationKind.MEMCPY),
        ("gpu_memset", OperationKind.MEMSET),
        ("Memset", OperationKind.MEMSET),
    ]
    rank = _read(tmp_path, [_gpu(cat, START_US + i) for i, (cat, _) in enumerate(spellings)])
    assert rank.operations.kind.tolist() == [int(kind) for _, kind in spellings]
    copy = int(WorkClass.COPY)
    assert rank.operations.work.tolist() == [0, 0, copy, copy, copy, copy]
    assert {key: rank.counts[key] for key in ("kernel", "memcpy", "memset")} == {
        "kernel": 2,
        "memcpy": 2,
        "memset": 2,
    }


def test_what_is_no_gpu_operation(tmp_path: Path) -> None:
    triton = event(
        "cpu_op", "triton_poi_fused_0", START_US, 5, args={"stream": 0, "grid": "grid(1,)"}
    )
    rank = _read(
        tmp_path,
        [
            triton,
            kernel(START_US + 10, 5),
            event("gpu_user_annotation", "forward", START_US, 50, pid=0, tid=7),
            event("Trace", "PyTorch Profiler (0)", START_US, 90, pid="Spans", tid="PyTorch Profiler"),
            event("mtia_ccp_events", "x", START_US, 1),
            {**triton, "cat": None},
        ],
    )  # fmt: skip
    assert len(rank.operations) == 1
    assert rank.counts["operator"] == 1
    assert rank.counts["left_out.gpu_user_annotation"] == 1
    assert rank.counts["left_out.Trace"] == 1
    assert rank.counts["left_out.mtia_ccp_events"] == 1
    assert rank.counts["left_out.no category"] == 1
    (warning,) = [w for w in rank.warnings if w.code == "TRC009" and "category" in w.message]
    assert warning.count == 2


@pytest.mark.parametrize(
    ("category", "expected"),
    [
        ("cpu_op", HostCategory.OPERATOR),
        ("Operator", HostCategory.OPERATOR),
        ("user_annotation", HostCategory.ANNOTATION),
        ("python_function", HostCategory.PYTHON),
        ("overhead", HostCategory.OVERHEAD),
    ],
)
def test_host_categories(category: str, expected: HostCategory, tmp_path: Path) -> None:
    rank = _read(tmp_path, [event(category, "aten::mm", START_US, 1)])
    assert rank.events.category.tolist() == [int(expected)]
    assert rank.counts[expected.name.lower()] == 1


def test_steps_of_2021_are_annotations(tmp_path: Path) -> None:
    rank = _read(
        tmp_path,
        [
            event("Operator", "ProfilerStep#4", START_US, 100, tid="100"),
            event("Operator", "aten::mm", START_US, 10, tid="100"),
            event("Operator", "enumerate(DataLoader)#X.__next__", START_US + 20, 10, tid="100"),
        ],
    )
    annotation, operator = int(HostCategory.ANNOTATION), int(HostCategory.OPERATOR)
    assert rank.events.category.tolist() == [annotation, operator, annotation]


@pytest.mark.parametrize(
    ("category", "name", "kind"),
    [
        ("cuda_runtime", "cudaLaunchKernel", CallKind.LAUNCH),
        ("cuda_runtime", "cudaLaunchKernelExC_v11060", CallKind.LAUNCH),
        ("cuda_driver", "cuLaunchKernelEx", CallKind.LAUNCH),
        ("Runtime", "cudaMemcpyAsync", CallKind.MEMCPY),
        ("cuda_runtime", "hipLaunchKernel", CallKind.LAUNCH),
        ("hip_runtime", "hipMemcpyWithStream", CallKind.MEMCPY),
        ("xpu_runtime", "urEnqueueKernelLaunch", CallKind.LAUNCH),
        ("cuda_runtime", "cudaGraphLaunch", CallKind.GRAPH_LAUNCH),
    ],
)
def test_calls(category: str, name: str, kind: CallKind, tmp_path: Path) -> None:
    rank = _read(tmp_path, [event(category, name, START_US, 2, args={"correlation": 4})])
    if kind is not CallKind.LAUNCH or not name.startswith("ur"):
        assert rank.calls.kind.tolist() == [int(kind)]
    assert rank.calls.correlation.tolist() == [4]
    assert not rank.names[rank.calls.name[0]].endswith("_v11060")


def test_other_phases_are_counted(tmp_path: Path) -> None:
    phases = {"s": 3, "f": 2, "t": 1, "M": 2, "i": 2, "I": 1, "C": 1, "B": 1, "E": 1, "b": 1, "e": 1, "n": 1}  # fmt: skip
    rest = [
        {"ph": phase, "name": "x", "ts": START_US, "pid": 1, "tid": 1, "cat": "ac2g", "id": 1}
        for phase, count in phases.items()
        for _ in range(count)
    ]
    rank = _read(tmp_path, [kernel(START_US, 1), *rest])
    counts = {key: value for key, value in rank.counts.items() if key.startswith("left_out.")}
    assert counts == {
        "left_out.flow": 6,
        "left_out.metadata": 2,
        "left_out.instant": 3,
        "left_out.counter": 1,
        "left_out.begin-end": 2,
        "left_out.async": 3,
    }


# -- columns ----------------------------------------------------------------------------------------


def test_kernel_columns(tmp_path: Path) -> None:
    shape: dict[str, Any] = {
        "grid": [24, 1, 2],
        "block": [544, 1, 1],
        "registers per thread": 96,
        "shared memory": 103808,
        "est. achieved occupancy %": 41,
    }
    rest: dict[str, Any] = {"External id": 4, "graph id": 3, "graph node id": 17}
    full = kernel(f"{START_US}.125", 2.5, correlation=9, **{**shape, **rest, "warps per SM": "inf"})
    again = kernel(START_US + 5, 1, correlation=10, **shape)
    copy = event(
        "gpu_memcpy",
        "Memcpy PtoP (Device -> Device)",
        START_US + 10,
        1,
        pid=1,
        tid=9,
        args={"fromDevice": 0, "toDevice": 1, "stream": 9, "correlation": 11, "bytes": 4096},
    )
    text = json.dumps(document([full, again, copy])).replace(f'"{START_US}.125"', f"{START_US}.125")
    operations, configs = (rank := read(tmp_path, text)).operations, rank.configs
    assert operations.start_ns.tolist() == [
        START_US * 1000 + 125,
        (START_US + 5) * 1000,
        (START_US + 10) * 1000,
    ]
    assert operations.end_ns[0] == START_US * 1000 + 2625
    assert operations.device.tolist() == [0, 0, 1]
    assert operations.context.tolist() == [1, 1, NA_INT32]
    assert operations.stream.tolist() == [7, 7, 9]
    assert operations.correlation.tolist() == [9, 10, 11]
    assert operations.external_id.tolist() == [4, NA_INT64, NA_INT64]
    assert operations.graph_node.tolist() == [17, NA_INT64, NA_INT64]
    assert operations.bytes.tolist() == [NA_INT64, NA_INT64, 4096]
    assert operations.launch_config.tolist() == [0, 0, NA_INT32]
    row = configs.to_pandas().iloc[0].tolist()
    assert row == [24, 1, 2, 544, 1, 1, 96, 103808, 41.0]
    assert len(configs) == 1
    assert rank.warnings == ()


def test_device_and_stream_without_arguments(tmp_path: Path) -> None:
    bare = [
        event("kernel", f"k{i}", START_US + i, 1, pid=pid, tid=tid)
        for i, (pid, tid) in enumerate([(1, 20), ("1", "stream 21"), (4515, "Stream x"), (7, -1)])
    ]
    devices = [{"id": number, "name": "A"} for number in range(2)]
    operations = _read(tmp_path, bare, deviceProperties=devices).operations
    assert operations.device.tolist() == [1, 1, NA_INT16, NA_INT16]
    assert operations.stream.tolist() == [20, 21, NA_INT64, NA_INT64]
    rank = _read(tmp_path, bare)
    assert rank.operations.device.tolist() == [1, 1, NA_INT16, 7]
    told = {w.message.split(":")[0]: w.count for w in rank.warnings if w.code == "TRC009"}
    assert told["GPU operations that do not state their stream"] == 2
    assert told["GPU operations without a stream"] == 2


def test_external_id_of_2021(tmp_path: Path) -> None:
    rank = _read(
        tmp_path,
        [
            event("Kernel", "k", START_US, 1, pid=0, tid="stream 7", args={"external id": 5}),
            event("Runtime", "cudaLaunchKernel", START_US, 1, args={"external id": 6}),
            event("Runtime", "cudaLaunchKernel", START_US + 1, 1, args={"External id": 0}),
        ],
    )
    assert rank.operations.external_id.tolist() == [5]
    assert rank.calls.external_id.tolist() == [6, NA_INT64]


def test_threads(tmp_path: Path) -> None:
    events = [
        event("cpu_op", "a", START_US, 1, tid=200),
        event("cpu_op", "b", START_US + 1, 1, tid="100"),
        event("cpu_op", "c", START_US + 2, 1, tid=100),
        event("overhead", "d", START_US + 3, 1, pid=-1, tid=0),
        event("cpu_op", "e", START_US + 4, 1, pid="CPU functions", tid="main"),
        {"ph": "M", "name": "thread_name", "pid": 100, "tid": 200, "args": {"name": "backward"}},
    ]
    rank = _read(tmp_path, events)
    table = rank.threads
    pairs = list(zip(table.process.tolist(), table.thread.tolist(), strict=True))
    assert [pairs[row] for row in rank.events.thread] == [
        (100, 200),
        (100, 100),
        (100, 100),
        (-1, 0),
        (NA_INT64, NA_INT64),
    ]
    named = [rank.names[name] for name in table.name if name != NA_INT32]
    assert named == ["backward"]
    assert rank.pid == 100


def test_the_process_that_steps_owns_the_rank(tmp_path: Path) -> None:
    busy = [event("cpu_op", "x", START_US + i, 1, pid=5) for i in range(9)]
    assert _read(tmp_path, busy).pid == 5
    step = event("user_annotation", "ProfilerStep#0", START_US, 10, pid=6)
    assert _read(tmp_path, [*busy, step]).pid == 6
    assert _read(tmp_path, [kernel(START_US, 1)]).pid is None


def test_orders(tmp_path: Path) -> None:
    spans = [(30, 5), (10, 50), (10, 5), (10, 90), (0, 3)]
    rank = _read(
        tmp_path,
        [
            *(event("cpu_op", f"{ts}+{dur}", START_US + ts, dur) for ts, dur in spans),
            *(launch(START_US + ts, dur, 1, name=f"c{ts}+{dur}") for ts, dur in spans),
            *(kernel(START_US + ts, dur, name=f"{ts}+{dur}") for ts, dur in spans),
        ],
    )
    nested = ["0+3", "10+90", "10+50", "10+5", "30+5"]
    assert [rank.names[name] for name in rank.events.name] == nested
    assert [rank.names[name] for name in rank.calls.name] == [f"c{name}" for name in nested]
    assert names(rank) == ["0+3", "10+5", "10+50", "10+90", "30+5"]


def test_sequence_numbers(tmp_path: Path) -> None:
    events = [
        event("cpu_op", "fw", START_US, 1, args={"Sequence number": 0, "Fwd thread id": 0}),
        event("cpu_op", "none", START_US + 1, 1),
        event("cpu_op", "minus", START_US + 2, 1, args={"Sequence number": -1}),
    ]
    assert _read(tmp_path, events).events.sequence.tolist() == [0, NA_INT64, NA_INT64]


# -- links and copies -------------------------------------------------------------------------------


def test_links_to_the_outermost_call(tmp_path: Path) -> None:
    rank = _read(
        tmp_path,
        [
            launch(START_US + 2, 3, 7, name="cuLaunchKernel"),
            launch(START_US + 1, 9, 7, name="cudaLaunchKernel"),
            launch(START_US + 20, 9, 8, name="cudaGraphLaunch"),
            launch(START_US + 40, 1, 0, name="cudaFree"),
            kernel(START_US + 50, 1, name="inner", correlation=7),
            kernel(START_US + 60, 1, name="graph a", correlation=8),
            kernel(START_US + 70, 1, name="graph b", correlation=8),
            kernel(START_US + 80, 1, name="zero", correlation=0),
            kernel(START_US + 90, 1, name="lost", correlation=99),
        ],
    )
    found = [
        None if row == NA_INT32 else rank.names[rank.calls.name[row]]
        for row in rank.operations.launch
    ]
    assert found == ["cudaLaunchKernel", "cudaGraphLaunch", "cudaGraphLaunch", None, None]
    assert rank.operations.correlation.tolist() == [7, 8, 8, NA_INT64, 99]


def test_exact_copies_are_dropped(tmp_path: Path) -> None:
    one = kernel(START_US + 0.001, 1.5, name="a", correlation=1)
    others = [
        kernel(START_US + 0.001, 1.5, name="b", correlation=1),
        kernel(START_US + 0.001, 1.5, name="a", correlation=2),
        kernel(START_US + 0.001, 1.501, name="a", correlation=1),
        {**one, "args": {**one["args"], "stream": 8}},
    ]
    rank = _read(tmp_path, [one, *others, one, others[1], one])
    assert len(rank.operations) == 5
    assert codes(rank) == {"TRC009": 3}


def test_alike_kernels_of_a_graph_are_no_copies_in_whole_microseconds(tmp_path: Path) -> None:
    graph = [kernel(START_US + ts, 1, name="a", correlation=3) for ts in (0, 0, 5)]
    single = [kernel(START_US + 9, 1, name="a", correlation=4)] * 2
    rank = _read(tmp_path, graph + single)
    assert len(rank.operations) == 4
    assert codes(rank) == {"TRC009": 1}


def test_no_correlation_at_all(tmp_path: Path) -> None:
    rank = _read(tmp_path, [launch(START_US, 1, 0), kernel(START_US + 1, 1)])
    assert rank.operations.launch.tolist() == [NA_INT32]
    assert codes(rank) == {"TRC009": 1}


# -- collectives ------------------------------------------------------------------------------------

ALLREDUCE: dict[str, Any] = {
    "Collective name": "allreduce",
    "In msg nelems": 1000,
    "Out msg nelems": 1000,
    "Group size": 2,
    "dtype": "Float",
    "In split size": "[]",
    "Out split size": "[]",
    "Process Group Name": "0",
    "Process Group Description": "default_pg",
    "Process Group Ranks": "[0, 1]",
}
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def test_kernel_and_host_event_share_a_row(tmp_path: Path) -> None:
    shared = {"External id": 31, **ALLREDUCE, "Seq": 12, "Is asynchronized op": True}
    rank = _read(
        tmp_path,
        [
            event("cpu_op", "record_param_comms", START_US, 5, args={**shared, "Rank": 0}),
            event("cpu_op", "record_param_comms", START_US + 8, 5, args={"Collective name": "wait"}),
            kernel(START_US + 10, 5, name=NCCL, correlation=4, **shared),
            kernel(START_US + 20, 5, name=NCCL, correlation=5),
        ],
        distributedInfo={
            "rank": 0,
            "world_size": 2,
            "pg_config": [{"pg_name": "0", "pg_size": 2, "ranks": [0, 1], "backend_config": "nccl"}],
        },
    )  # fmt: skip
    assert rank.operations.collective.tolist() == [0, NA_INT32]
    assert rank.events.collective.tolist() == [0, NA_INT32]
    assert rank.operations.work.tolist() == [1, 1]
    table = rank.collectives
    assert len(table) == 1
    assert rank.names[table.operation[0]] == "allreduce"
    assert rank.names[table.dtype[0]] == "Float"
    assert (table.in_elements[0], table.out_elements[0]) == (1000, 1000)
    assert table.message_bytes[0] == 4000
    assert (table.group[0], table.sequence[0], table.is_async[0], table.calls[0]) == (0, 12, 1, 1)
    assert table.root[0] == table.source_rank[0] == table.destination_rank[0] == NA_INT32
    assert rank.groups == (
        ProcessGroup(name="0", description="default_pg", backend="nccl", size=2, ranks=(0, 1)),
    )


@pytest.mark.parametrize("indent", [None, 1])
def test_details_of_calls_that_look_the_same(indent: int | None, tmp_path: Path) -> None:
    sizes = [10, 20, 30, 20]
    events = [
        kernel(
            START_US + i,
            1,
            name=NCCL,
            **{**ALLREDUCE, "In msg nelems": size, "Out msg nelems": size},
        )
        for i, size in enumerate(sizes)
    ]
    noise = event(
        "cpu_op", 'a "Collective name": "args"', START_US, 1, args={"x": '"Collective name"'}
    )
    text = json.dumps(document([noise, *events, noise]), indent=indent)
    rank = read(tmp_path, text)
    elements = rank.collectives.in_elements[rank.operations.collective]
    assert elements.tolist() == sizes
    same = read(tmp_path, text.replace('"dtype": "Float"', '"dtype": "Float", "x": NaN'))
    assert same.collectives.in_elements[same.operations.collective].tolist() == sizes
    loose = read(tmp_path, text.replace('"Group size": 2', '"Group size": "2"'))
    assert loose.collectives.in_elements[loose.operations.collective].tolist() == sizes
    assert loose.groups[0].size == 2


def test_point_to_point_and_roots(tmp_path: Path) -> None:
    def call(ts: int, name: str, **args: Any) -> Event:
        given = {"Collective name": name, "dtype": "BFloat16", "Group size": 4, **args}
        return kernel(START_US + ts, 1, name="ncclDevKernel_SendRecv", correlation=ts + 1, **given)

    rank = _read(
        tmp_path,
        [
            call(0, "send", **{"Dst Rank": 3, "Src Rank": -1, "In msg nelems": 8}),
            call(1, "recv", **{"Src Rank": 2, "Out msg nelems": 8, "Process Group Name": "7"}),
            call(2, "broadcast", **{"Root Rank": 1, "In msg nelems": 8, "Out msg nelems": 8}),
            call(3, "barrier", **{"In msg nelems": 1, "Out msg nelems": 1}),
        ],
    )
    table = rank.collectives
    assert [rank.names[name] for name in table.operation] == [
        "send",
        "recv",
        "broadcast",
        "barrier",
    ]
    assert table.destination_rank.tolist() == [3, NA_INT32, NA_INT32, NA_INT32]
    assert table.source_rank.tolist() == [NA_INT32, 2, NA_INT32, NA_INT32]
    assert table.root.tolist() == [NA_INT32, NA_INT32, 1, NA_INT32]
    assert table.message_bytes.tolist() == [16, 16, 16, NA_INT64]
    assert table.group.tolist() == [NA_INT32, 0, NA_INT32, NA_INT32]
    assert table.is_async.tolist() == [NA_INT8] * 4
    assert rank.groups == (ProcessGroup(name="7", size=4),)


def test_groups_that_only_calls_tell_of(tmp_path: Path) -> None:
    given = {**ALLREDUCE, "Process Group Name": "5", "Process Group Ranks": "[0, 4, 8, ...]", "Group size": 5}  # fmt: skip
    old = {"Collective name": "allreduce", "dtype": "Float", "Process Group ID": 3}
    rank = _read(
        tmp_path,
        [
            event("cpu_op", "record_param_comms", START_US, 1, args=given),
            event("cpu_op", "record_param_comms", START_US + 1, 1, args=old),
        ],
        distributedInfo={"rank": 0, "pg_config": [{"pg_name": "a", "uid": 3, "ranks": [0]}]},
    )
    assert rank.groups == (
        ProcessGroup(name="a", size=1, ranks=(0,)),
        ProcessGroup(name="5", description="default_pg", size=5, ranks=(0, 4, 8, 12, 16)),
    )
    assert rank.collectives.group.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ("allreduce", "allreduce"),
        ("allreduce_coalesced", "allreduce"),
        ("_allgather_base", "allgather"),
        ("allgather_into_tensor_coalesced", "allgather"),
        ("all_gather", "allgather"),
        ("_reduce_scatter_base", "reducescatter"),
        ("reduce_scatter_tensor_coalesced", "reducescatter"),
        ("reduce_scatter", "reducescatter"),
        ("broadcast", "broadcast"),
        ("_broadcast_oop", "broadcast"),
        ("_reduce_oop", "reduce"),
        ("all_to_all", "alltoall"),
        ("all_to_allv", "alltoall"),
        ("alltoall_base", "alltoall"),
        ("all_to_all_single", "alltoall"),
        ("recv_anysource", "recv"),
        ("barrier", "barrier"),
        ("something_new", "somethingnew"),
        ("_base", "base"),
    ],
)
def test_operation_names(recorded: str, expected: str) -> None:
    assert operation_name(recorded) == expected


@pytest.mark.parametrize(
    ("operation", "sent", "received", "size"),
    [
        ("allreduce", 100, 100, 400),
        ("allgather", 100, 800, 3200),
        ("reducescatter", 800, 100, 3200),
        ("alltoall", 800, 800, 3200),
        ("broadcast", 100, 100, 400),
        ("gather", 100, 800, 3200),  # on the root
        ("gather", 100, 0, 3200),  # elsewhere
        ("scatter", 0, 100, 3200),
        ("scatter", 800, 100, 3200),
        ("send", 100, NA_INT64, 400),
        ("recv", NA_INT64, NA_INT64, NA_INT64),
    ],
)
def test_message_bytes(operation: str, sent: int, received: int, size: int) -> None:
    assert message_bytes(operation, sent, received, 4, 8) == size


def test_group_ranks() -> None:
    assert group_ranks("[0, 1]", 2) == (0, 1)
    assert group_ranks([2, 3], 2) == (2, 3)
    assert group_ranks(None, 2) == ()
    assert group_ranks("[]", 1) == ()
    assert group_ranks("[0, 2, 4, ...]", 6) == (0, 2, 4, 6, 8, 10)
    assert group_ranks("[0, 1, 8, ...]", 6) == ()  # not evenly spaced: not known
    assert group_ranks("[0, 1, ...]", NA_INT64) == ()


@pytest.mark.parametrize(
    ("dtype", "bytes_each"),
    [("Float8_e4m3fn", 1), ("BFloat16", 2), ("Double", 8), ("Bool", 1), ("Nonesuch", None)],
)
def test_element_types(dtype: str, bytes_each: int | None, tmp_path: Path) -> None:
    given = {**ALLREDUCE, "dtype": dtype}
    rank = _read(tmp_path, [kernel(START_US, 1, name=NCCL, **given)])
    expected = NA_INT64 if bytes_each is None else 1000 * bytes_each
    assert rank.collectives.message_bytes.tolist() == [expected]
    assert rank.names[rank.collectives.dtype[0]] == dtype


# -- synchronisation --------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", ["", ', "x": NaN', ', "context": "1"'])
def test_synchronisation(odd: str, tmp_path: Path) -> None:
    place = {"device": 0, "context": 1}
    waits = {
        "wait_on_stream": 20,
        "wait_on_cuda_event_record_corr_id": 40,
        "wait_on_cuda_event_id": 3,
    }
    events = [
        kernel(START_US, 1),
        event("cuda_sync", "Stream Wait Event", START_US + 10, 1, pid=0, tid=7,
              args={"cuda_sync_kind": "Stream Wait Event", **waits, "stream": 7, "correlation": 41, **place}),
        event("cuda_sync", "Context Sync", START_US + 20, 9, pid=0, tid=-1,
              args={"cuda_sync_kind": "Context Sync", "stream": -1, "correlation": 42, **place}),
        event("cuda_sync", "Event Sync", START_US + 30, 5, pid=0, tid=7, args={
              "cuda_sync_kind": "Event Sync", "wait_on_stream": -1, "stream": 7, "correlation": 43,
              "wait_on_cuda_event_record_corr_id": -1, "wait_on_cuda_event_id": 4, **place}),
        event("cuda_event", "cudaEvent", START_US + 5, 3, pid=0, tid=20,
              args={"event_id": 3, "stream": 20, "correlation": 40, **place}),
        event("cuda_sync", "Stream Sync", START_US + 40, 2, args={"stream": 7, **place}),
        event("cuda_sync", "Unheard Of", START_US + 50, 2, args={"stream": 7, **place}),
    ]  # fmt: skip
    text = json.dumps(document(events)).replace('"device": 0', f'"device": 0{odd}')
    rank = read(tmp_path, text)
    table = rank.syncs
    assert [SyncKind(kind) for kind in table.kind] == [
        SyncKind.EVENT_RECORD,
        SyncKind.STREAM_WAIT_EVENT,
        SyncKind.CONTEXT_SYNC,
        SyncKind.EVENT_SYNC,
        SyncKind.STREAM_SYNC,
    ]
    assert (table.start_ns // 1000 - START_US).tolist() == [5, 10, 20, 30, 40]
    assert (table.end_ns - table.start_ns).tolist() == [0, 1000, 9000, 5000, 2000]
    assert table.device.tolist() == [0] * 5
    assert table.stream.tolist() == [20, 7, NA_INT64, 7, 7]
    assert table.correlation.tolist() == [40, 41, 42, 43, NA_INT64]
    assert table.event.tolist() == [3, 3, NA_INT64, 4, NA_INT64]
    assert table.record_correlation.tolist() == [NA_INT64, 40, NA_INT64, NA_INT64, NA_INT64]
    assert table.source_stream.tolist() == [NA_INT64, 20, NA_INT64, NA_INT64, NA_INT64]
    assert rank.capture.sync_events is True
    assert rank.counts["sync"] == 5


# -- header -----------------------------------------------------------------------------------------


def test_header(tmp_path: Path) -> None:
    device = {
        "id": 1, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "computeMajor": 9,
        "computeMinor": 0, "maxThreadsPerMultiprocessor": 2048, "numSms": 132,
        "regsPerMultiprocessor": 65536, "sharedMemPerMultiprocessor": 233472,
    }  # fmt: skip
    rank = _read(
        tmp_path,
        [
            kernel(START_US, 1),
            event("python_function", "f.py(1): g", START_US, 1),
            {"ph": "i", "name": "[memory]", "ts": START_US, "s": "t", "pid": 1, "tid": 1},
        ],
        deviceProperties=[device, {"id": 2, "name": "AMD", "maxSharedMemoryPerMultiProcessor": 1}, 7],
        distributedInfo={"rank": 34, "world_size": 300, "nccl_version": "2.28.9"},
        cuda_driver_version=13000,
        cuda_runtime_version=12090,
        cupti_version=130001,
        pytorch_version="2.11.0",
        host_name="node0",
        record_shapes=1,
        with_stack=0,
    )  # fmt: skip
    assert (rank.rank, rank.rank_basis, rank.world_size) == (34, "content", 300)
    assert rank.host == "node0"
    assert rank.clock_base_ns == BASE_NS
    first, second = rank.devices
    assert (first.ordinal, first.name, first.sm_count) == (1, "NVIDIA H200", 132)
    assert first.compute_capability == (9, 0)
    assert first.memory_bytes == 150109880320
    assert first.max_threads_per_sm == 2048
    assert first.registers_per_sm == 65536
    assert first.shared_bytes_per_sm == 233472
    assert second.shared_bytes_per_sm == 1
    assert second.compute_capability is None
    assert dict(rank.versions) == {
        "cuda": "12.9",
        "cuda_driver": "13.0",
        "cupti": "130001",
        "nccl": "2.28.9",
        "torch": "2.11.0",
    }
    capture = rank.capture
    assert (capture.record_shapes, capture.with_stack, capture.profile_memory) == (True, True, True)
    assert capture.sync_events is None
    assert capture.python_events == 1


def test_rank_that_the_content_does_not_tell(tmp_path: Path) -> None:
    for info in ({}, {"rank": -1}, {"rank": "x"}, None, [1]):
        rank = _read(tmp_path, [kernel(START_US, 1)], distributedInfo=info)
        assert (rank.rank, rank.rank_basis, rank.world_size) == (0, "unknown", None)
    rank = _read(tmp_path, [kernel(START_US, 1)], distributedInfo={"rank": "3", "world_size": "8"})
    assert (rank.rank, rank.world_size) == (3, 8)


def test_path_is_what_is_shown(tmp_path: Path) -> None:
    assert read(tmp_path, document([kernel(START_US, 1)])).path == str(tmp_path / "trace.json")
    shown = read(tmp_path, document([kernel(START_US, 1)]), display="archive.tar/rank0.json")
    assert shown.path == "archive.tar/rank0.json"


# -- clocks and units -------------------------------------------------------------------------------

EPOCH_US = 1_712_195_495_519_689


def _clock(tmp_path: Path, ts: Any, base: int | None) -> Rank:
    events = [kernel(ts, 1), kernel(ts + 7, 1, correlation=3)]
    return read(
        tmp_path, {"traceEvents": events} | ({} if base is None else {"baseTimeNanoseconds": base})
    )


def test_clock_base(tmp_path: Path) -> None:
    assert _clock(tmp_path, START_US, BASE_NS).clock_base_ns == BASE_NS
    assert _clock(tmp_path, EPOCH_US, None).clock_base_ns == 0
    assert _clock(tmp_path, START_US, None).clock_base_ns is None
    absolute = _clock(tmp_path, EPOCH_US, BASE_NS)  # absolute although a base is given
    assert absolute.clock_base_ns == 0
    assert absolute.operations.start_ns[0] == EPOCH_US * 1000
    assert absolute.warnings == ()


@pytest.mark.parametrize(
    ("ts_ns", "base"), [(EPOCH_US * 1000 + 123, None), (START_US * 1000 + 123, BASE_NS)]
)
def test_stamps_in_nanoseconds_are_noticed(ts_ns: int, base: int | None, tmp_path: Path) -> None:
    document_ = {
        "traceEvents": [
            {**kernel(ts_ns, 1500), "args": {"correlation": 1, "device": 0, "stream": 7}},
            event("cpu_op", "x", ts_ns + 7, 2500),
        ]
    }
    rank = read(tmp_path, document_ | ({} if base is None else {"baseTimeNanoseconds": base}))
    assert rank.operations.start_ns.tolist() == [ts_ns]
    assert rank.operations.end_ns.tolist() == [ts_ns + 1500]
    assert rank.events.start_ns.tolist() == [ts_ns + 7]
    assert rank.events.end_ns.tolist() == [ts_ns + 2507]
    assert codes(rank) == {"TRC012": 1}
    assert rank.clock_base_ns == (0 if base is None else base)


def test_times_of_many_events_are_exact(tmp_path: Path) -> None:
    count = 3000
    stamps = [f"{EPOCH_US + 3 * i}.{i % 1000:03d}" for i in range(count)]
    body = ",\n".join(
        f'{{"ph": "X", "cat": "kernel", "name": "k", "ts": {stamp}, "dur": 0.{i % 999:03d}, '
        f'"pid": 0, "tid": 7, "args": {{"correlation": {i + 1}}}}}'
        for i, stamp in enumerate(stamps)
    )
    rank = read(tmp_path, f"[\n{body}\n]")
    start = np.array([(EPOCH_US + 3 * i) * 1000 + i % 1000 for i in range(count)])
    np.testing.assert_array_equal(rank.operations.start_ns, start)
    np.testing.assert_array_equal(
        rank.operations.end_ns - rank.operations.start_ns, np.arange(count) % 999
    )


def test_cpu_only_says_so(tmp_path: Path) -> None:
    rank = _read(tmp_path, [event("cpu_op", "aten::mm", START_US, 1)])
    assert len(rank.operations) == 0
    assert codes(rank) == {"TRC004": 1}


def test_tables_are_read_only_and_collector_is_restored(tmp_path: Path) -> None:
    import gc

    assert gc.isenabled()
    rank = _read(tmp_path, [kernel(START_US, 1)])
    assert gc.isenabled()
    with pytest.raises(ValueError, match="read-only"):
        rank.operations.start_ns[0] = 0
