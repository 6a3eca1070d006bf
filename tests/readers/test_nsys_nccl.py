"""NCCL calls of synthetic exports: which kernel executes which call, sizes, groups, peers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.readers.nsys_files import (
    ALL_REDUCE,
    GENERIC,
    SEND_RECV,
    Nsys,
    names_of,
    values,
)
from trace_analyzer.kernels import is_communication
from trace_analyzer.model import ProcessGroup, Rank
from trace_analyzer.nccl_names import operation_of
from trace_analyzer.readers.nsys_nccl import kernel_type
from trace_analyzer.readers.nsys_payload import range_operation
from trace_analyzer.tables import HostCategory, WorkClass

BIG = 13_429_301_450_432_826_988  # a real communicator id, above 2^63
OTHER = 77


def _sized(size: int, communicator: int = BIG, /, **more: Any) -> dict[str, Any]:
    return {"NCCL communicator ID": communicator, "Message size [bytes]": size, **more}


def _member(rank: int, ranks: int, communicator: int = BIG) -> dict[str, Any]:
    return {
        "NCCL communicator ID": communicator,
        "No. of ranks": ranks,
        "Rank": rank,
        "CUDA device": rank,
    }


def _issued(made: Nsys, at: int, call: str, kernel: str, **fields: Any) -> None:
    """Add a call that launches its kernel itself."""
    pid = fields.pop("pid", 10)
    made.range(at, at + 20, call, domain=1, pid=pid, **fields)
    made.launched(at + 5, at + 100, at + 150, kernel, pid=pid, gridX=24, blockX=544)


def _group(
    made: Nsys, at: int, calls: Sequence[tuple[str, dict[str, Any] | None]], **fields: Any
) -> int:
    """Add a group of calls; return the time at which its kernels can be launched."""
    made.range(at, at + 2, "ncclGroupStart", domain=1, **fields)
    for number, (call, payload) in enumerate(calls):
        made.range(
            at + 5 + 5 * number, at + 8 + 5 * number, call, domain=1, payload=payload, **fields
        )
    end = at + 10 + 5 * len(calls)
    made.range(end, end + 50, "ncclGroupEnd", domain=1, **fields)
    return end + 10


def _table(rank: Rank) -> list[tuple[str, int, int | None]]:
    table = rank.collectives
    return list(
        zip(
            names_of(rank, table.operation),
            table.calls.tolist(),
            values(table.message_bytes),
            strict=True,
        )
    )


def _of_kernels(rank: Rank) -> list[tuple[str, int, int | None] | None]:
    rows = _table(rank)
    return [
        None if row is None else rows[row]
        for row, work in zip(
            values(rank.operations.collective), rank.operations.work.tolist(), strict=True
        )
        if work == WorkClass.COMM
    ]


def test_a_call_with_payload(tmp_path: Path) -> None:
    made = Nsys()
    made.nccl_domain()
    made.launched(0, 10, 30)
    _issued(
        made,
        100,
        "ncclAllReduce",
        ALL_REDUCE,
        payload=_sized(4096, **{"Reduction operation": "Avg"}),
    )
    rank = made.read_one(tmp_path)
    assert rank.operations.work.tolist() == [WorkClass.COMPUTE, WorkClass.COMM]
    assert _of_kernels(rank) == [("allreduce", 1, 4096)]
    table = rank.collectives
    assert names_of(rank, table.dtype) == ["Float"]
    assert (table.in_elements[0], table.out_elements[0]) == (1024, 1024)
    assert values(rank.events.collective) == [0]
    assert rank.events.category.tolist() == [HostCategory.ANNOTATION]
    assert rank.groups == (
        ProcessGroup(name=str(BIG), description="NCCL communicator", backend="nccl"),
    )
    assert table.group.tolist() == [0]
    assert rank.counts["nccl_kernels_in_ranges"] == 1


def test_without_payload_and_without_range(tmp_path: Path) -> None:
    made = Nsys()
    made.nccl_domain()
    _issued(made, 100, "ncclBroadcast", "ncclDevKernel_Broadcast_RING_LL(args)")
    made.launched(300, 310, 320, ALL_REDUCE)
    made.launched(400, 410, 420, GENERIC)
    made.launched(500, 510, 520, "nvshmemi_collective_kernel")
    rank = made.read_one(tmp_path)
    assert _of_kernels(rank) == [("broadcast", 1, None), ("allreduce", 1, None), None, None]
    assert values(rank.collectives.group) == [None, None]
    assert rank.groups == ()
    (warning,) = rank.warnings
    assert (warning.code, warning.count) == ("TRC004", 1)
    assert "--include-json=true" in warning.effect


def test_sizes_in_the_sense_of_nccl_tests(tmp_path: Path) -> None:
    made = Nsys()
    made.nccl_domain()
    made.range(0, 50, "ncclCommInitRankConfig", domain=1, payload=_member(1, 8))
    expected = {
        "ncclAllReduce": ("AllReduce_Sum_f32_RING_LL", "allreduce", 1000),
        "ncclAllGather": ("AllGather_RING_LL", "allgather", 8000),
        "ncclReduceScatter": ("ReduceScatter_Sum_f32_RING_LL", "reducescatter", 8000),
        "ncclAlltoAll": ("SendRecv", "alltoall", 8000),
        "ncclBroadcast": ("Broadcast_RING_LL", "broadcast", 1000),
        "ncclBcast": ("Broadcast_RING_LL", "broadcast", 1000),
        "ncclReduce": ("Reduce_Sum_f32_RING_LL", "reduce", 1000),
    }
    for number, (call, (kernel, _, _)) in enumerate(expected.items()):
        _issued(
            made,
            1000 * (number + 1),
            call,
            f"ncclDevKernel_{kernel}(x)",
            payload=_sized(1000, Root=3),
        )
    rank = made.read_one(tmp_path)
    assert _of_kernels(rank) == [(name, 1, size) for _, name, size in expected.values()]
    assert values(rank.collectives.root) == [3] * 7
    scatter = 2
    assert values(rank.collectives.in_elements)[scatter] == 2000
    assert values(rank.collectives.out_elements)[scatter] == 250
    assert (rank.rank, rank.rank_basis, rank.world_size) == (1, "payload", 8)
    assert rank.groups[0].size == 8
    assert rank.groups[0].ranks == ()  # seven of its members are not in the file


def test_size_of_a_gather_needs_the_number_of_ranks(tmp_path: Path) -> None:
    made = Nsys()
    made.nccl_domain()
    _issued(made, 0, "ncclAllGather", "ncclDevKernel_AllGather_RING_LL(x)", payload=_sized(1000))
    assert _of_kernels(made.read_one(tmp_path)) == [("allgather", 1, None)]


def test_ranks_and_peers_of_a_world(tmp_path: Path) -> None:
    made = Nsys()
    for pid, place in ((10, 1), (20, 0)):  # process ids are not in order of rank
        made.nccl_domain(pid)
        made.range(0, 50, "ncclCommInitRankConfig", domain=1, pid=pid, payload=_member(place, 2))
        _issued(
            made,
            100,
            "ncclSend" if place else "ncclRecv",
            SEND_RECV,
            pid=pid,
            payload=_sized(64, **{"Peer rank": 1 - place}),
        )
    first, second = made.read(tmp_path)
    assert [(r.pid, r.rank, r.rank_basis) for r in (first, second)] == [
        (10, 1, "payload"),
        (20, 0, "payload"),
    ]
    assert first.groups[0].ranks == (0, 1)
    assert (values(first.collectives.destination_rank), values(first.collectives.source_rank)) == (
        [0],
        [None],
    )
    assert (
        values(second.collectives.destination_rank),
        values(second.collectives.source_rank),
    ) == (
        [None],
        [1],
    )


def test_peers_of_a_subgroup_become_global_ranks(tmp_path: Path) -> None:
    made = Nsys()
    for pid, world, pair in (
        (10, 0, (OTHER, 0)),
        (20, 1, (88, 0)),
        (30, 2, (OTHER, 1)),
        (40, 3, (88, 1)),
    ):
        made.nccl_domain(pid)
        made.range(0, 50, "ncclCommInitRankConfig", domain=1, pid=pid, payload=_member(world, 4))
        made.range(60, 70, "ncclCommSplit", domain=1, pid=pid, payload=_member(pair[1], 2, pair[0]))
        _issued(
            made,
            100,
            "ncclSend",
            SEND_RECV,
            pid=pid,
            payload=_sized(64, pair[0], **{"Peer rank": 1 - pair[1]}),
        )
    ranks = made.read(tmp_path)
    assert [rank.rank for rank in ranks] == [0, 1, 2, 3]
    assert [values(rank.collectives.destination_rank) for rank in ranks] == [[2], [3], [0], [1]]
    assert [rank.groups[-1].ranks for rank in ranks] == [(0, 2), (1, 3), (0, 2), (1, 3)]


def test_unknown_peers_are_counted(tmp_path: Path) -> None:
    made = Nsys()
    made.nccl_domain()
    _issued(made, 0, "ncclSend", SEND_RECV, payload=_sized(8, **{"Peer rank": 3}))
    rank = made.read_one(tmp_path)
    assert values(rank.collectives.destination_rank) == [None]
    assert [(w.code, w.count) for w in rank.warnings] == [("TRC011", 1)]


def test_a_group_fused_into_one_kernel(tmp_path: Path) -> None:
    made = Nsys()
    made.nccl_domain()
    peers = [("ncclSend", 1, 100), ("ncclRecv", 1, 300), ("ncclSend", 2, 100), ("ncclRecv", 2, 10)]
    launch = _group(
        made, 0, [(call, _sized(size, **{"Peer rank": peer})) for call, peer, size in peers]
    )
    made.launched(launch, 200, 300, SEND_RECV)
    rank = made.read_one(tmp_path)
    # 200 bytes are sent and 310 received at the same time.
    assert _of_kernels(rank) == [("sendrecv", 4, 310)]
    assert values(rank.events.collective) == [None, 0, 0, 0, 0, None]


def test_an_exchange_with_every_rank_is_an_alltoall(tmp_path: Path) -> None:
    made = Nsys()
    made.nccl_domain()
    made.range(-500, -400, "ncclCommInitRank", domain=1, payload=_member(0, 2))
    calls = [
        (call, _sized(100, **{"Peer rank": peer}))
        for peer in (0, 1)
        for call in ("ncclSend", "ncclRecv")
    ]
    launch = _group(made, 0, calls)
    made.launched(launch, 200, 300, SEND_RECV)
    assert _of_kernels(made.read_one(tmp_path)) == [("alltoall", 4, 200)]


@pytest.mark.parametrize(
    ("calls", "kernels", "expected"),
    [
        # Fused, and one size unknown: the sum is unknown too.
        (["R 10", "R ?"], ["R"], [("allreduce", 2, None)]),
        (["R 10", "R 20", "R 30"], ["R"], [("allreduce", 3, 60)]),
        # As many kernels as calls: by order.
        (["R 10", "R 20"], ["R", "R"], [("allreduce", 1, 10), ("allreduce", 1, 20)]),
        (["R 10", "R 20"], ["?", "?"], [("allreduce", 1, 10), ("allreduce", 1, 20)]),
        # Kinds of kernels tell calls apart, whatever their order.
        (
            ["S 1", "R 10", "V 2", "R 20"],
            ["R", "P"],
            [("allreduce", 2, 30), ("sendrecv", 2, 2)],
        ),
        # Communicators tell calls apart.
        (
            ["R 10", "R 5 o", "R 20", "R 7 o"],
            ["R", "R"],
            [("allreduce", 2, 30), ("allreduce", 2, 12)],
        ),
        # Three calls of one communicator in two kernels: no way to tell.
        (["R 10", "R 20", "R 30"], ["R", "R"], [("allreduce", 1, None)] * 2),
        (["R 10", "S 20", "V 30"], ["?", "?"], [None, None]),
        # One call, two kernels.
        (["R 10"], ["R", "R"], [("allreduce", 1, 10)] * 2),
    ],
)
def test_groups(
    tmp_path: Path,
    calls: list[str],
    kernels: list[str],
    expected: list[tuple[str, int, int | None] | None],
) -> None:
    named = {"R": "ncclAllReduce", "S": "ncclSend", "V": "ncclRecv"}
    made = Nsys()
    made.nccl_domain()
    issued: list[tuple[str, dict[str, Any] | None]] = []
    for text in calls:
        kind, size, *other = text.split()
        communicator = OTHER if other else BIG
        payload = None if size == "?" else _sized(int(size), communicator)
        issued.append((named[kind], payload))
    launch = _group(made, 0, issued)
    for number, kind in enumerate(kernels):
        name = {"R": ALL_REDUCE, "P": SEND_RECV, "?": GENERIC}[kind]
        made.launched(launch + 6 * number, 500 + 10 * number, 505 + 10 * number, name)
    rank = made.read_one(tmp_path)
    assert _of_kernels(rank) == expected
    unclear = [w.count for w in rank.warnings if w.code == "TRC009"]
    assert unclear == (
        [2] if expected[0] is None or (expected[0][2] is None and len(calls) == 3) else []
    )
    # Every call of the group is somebody's, fused or for itself.
    issuing = [row for row in values(rank.events.collective) if row is not None]
    assert len(issuing) == len(calls)


def test_nested_groups_launch_at_the_outermost_end(tmp_path: Path) -> None:
    made = Nsys()
    made.nccl_domain()
    for at, name in [
        (0, "ncclGroupStart"),
        (10, "ncclGroupStart"),
        (20, "ncclAllReduce"),
        (30, "ncclGroupEnd"),
        (40, "ncclAllReduce"),
        (50, "ncclGroupEnd"),
        (60, "ncclAllReduce"),
    ]:
        made.range(at, at + 8, name, domain=1, payload=_sized(at) if "All" in name else None)
    made.launched(51, 100, 110, ALL_REDUCE)
    made.launched(61, 120, 130, ALL_REDUCE)
    assert _of_kernels(made.read_one(tmp_path)) == [("allreduce", 2, 60), ("allreduce", 1, 60)]


def test_a_group_opened_before_the_recording(tmp_path: Path) -> None:
    made = Nsys()
    made.nccl_domain()
    made.range(0, 5, "ncclAllReduce", domain=1, payload=_sized(8))
    made.range(10, 20, "ncclGroupEnd", domain=1)
    made.range(30, 40, "ncclAllReduce", domain=1, payload=_sized(9))
    made.launched(11, 100, 110, ALL_REDUCE)
    made.launched(31, 120, 130, ALL_REDUCE)
    assert _of_kernels(made.read_one(tmp_path)) == [("allreduce", 1, 8), ("allreduce", 1, 9)]


def test_sends_of_old_versions_hold_a_group_of_their_own(tmp_path: Path) -> None:
    made = Nsys()
    made.nccl_domain()
    made.range(0, 40, "ncclSend", domain=1, payload={"Bytes": 96, "Peer rank": 1})
    made.range(5, 8, "ncclGroupStart", domain=1)
    made.range(10, 30, "ncclGroupEnd", domain=1)
    made.launched(12, 100, 110, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)")
    rank = made.read_one(tmp_path)
    assert _of_kernels(rank) == [("send", 1, 96)]
    assert values(rank.collectives.dtype) == [None]


def test_threads_do_not_mix(tmp_path: Path) -> None:
    made = Nsys()
    made.nccl_domain()
    made.range(0, 100, "ncclAllReduce", domain=1, tid=11, payload=_sized(1))
    made.range(0, 100, "ncclAllReduce", domain=1, tid=12, payload=_sized(2))
    made.launched(10, 200, 210, ALL_REDUCE, tid=12)
    made.launched(20, 220, 230, ALL_REDUCE, tid=11)
    made.launched(30, 240, 250, ALL_REDUCE, tid=13)  # non-blocking: NCCL's own thread launches
    assert [row and row[2] for row in _of_kernels(made.read_one(tmp_path))] == [2, 1, None]


def test_domains_count_per_process(tmp_path: Path) -> None:
    made = Nsys()
    made.range(-9, None, "cuBLAS", domain=1, kind=75)
    made.nccl_domain(10, domain=2)
    made.nccl_domain(20, domain=1)
    made.range(0, 20, "ncclAllReduce", domain=2, payload=_sized(1))
    made.range(0, 20, "ncclAllReduce", domain=1, pid=20, payload=_sized(2))
    made.range(30, 50, "ncclAllReduce", domain=1)  # of cuBLAS's domain, whatever it is called
    made.range(30, 50, "ncclAllReduce", domain=0, pid=20)  # the user's own
    for pid in (10, 20):
        made.launched(5, 100, 110, ALL_REDUCE, pid=pid)
    first, second = made.read(tmp_path)
    assert _of_kernels(first) == [("allreduce", 1, 1)]
    assert _of_kernels(second) == [("allreduce", 1, 2)]
    assert values(first.events.collective) == [0, None]


def test_copies_of_the_copy_engine(tmp_path: Path) -> None:
    made = Nsys()
    made.nccl_domain()
    made.range(0, 50, "ncclAllGather", domain=1, payload=_sized(10))
    for number, kinds in enumerate([(10, 2, 2), (8, 2, 2), (1, 1, 2)]):
        made.call(5 + 5 * number, 8 + 5 * number, "cudaMemcpyAsync_v3020", correlation=500 + number)
        made.copy(100 + number, 200 + number, kinds, correlation=500 + number)
    made.call(60, 65, "cudaMemcpyAsync_v3020", correlation=600)
    made.copy(300, 310, (8, 2, 2), correlation=600)
    made.range(70, 90, "ncclCommInitRank", domain=1)
    made.call(75, 76, "cudaMemcpyAsync_v3020", correlation=700)
    made.copy(320, 330, (8, 2, 2), correlation=700)
    rank = made.read_one(tmp_path)
    assert rank.operations.work.tolist() == [
        WorkClass.COMM,
        WorkClass.COMM,
        WorkClass.COPY,
        WorkClass.COPY,
        WorkClass.COPY,
    ]
    assert values(rank.operations.collective) == [0, 0, None, None, None]
    assert _table(rank) == [("allgather", 1, None)]


def test_an_nccl_rank_without_gpu_work(tmp_path: Path) -> None:
    made = Nsys()
    for pid, place in ((10, 0), (20, 1)):
        made.nccl_domain(pid)
        made.range(0, 50, "ncclCommInitRank", domain=1, pid=pid, payload=_member(place, 2))
    made.launched(0, 10, 20)
    assert [(rank.rank, len(rank.operations)) for rank in made.read(tmp_path)] == [(0, 1), (1, 0)]


@pytest.mark.parametrize(
    ("name", "operation", "dtype"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "allreduce", ("BFloat16", 2)),
        ("ncclDevKernel_ReduceScatter_Sum_f16_RING_LL(x)", "reducescatter", ("Half", 2)),
        ("ncclDevKernel_Reduce_Sum_u64_TREE_LL(x)", "reduce", ("Long", 8)),
        ("ncclDevKernel_AllReduce_Sum_f8e4m3_TREE_LL(x)", "allreduce", ("Float8_e4m3fn", 1)),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "allreduce", ("Float", 4)),
        ("ncclKernel_AllReduce_TREE_LL_Sum___nv_bfloat16(x)", "allreduce", ("BFloat16", 2)),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)", "allgather", None),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(x)", "broadcast", None),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "allreduce", ("Float", 4)),
        ("ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(x)", "allreduce", ("BFloat16", 2)),
        ("ncclSymDevKernel_AllGather_LL(x)", "allgather", None),
        ("ncclDevKernel_SendRecv(x)", "sendrecv", None),
        ("ncclDevKernel_Generic(x)", None, None),
    ],
)
def test_what_names_of_kernels_tell(
    name: str, operation: str | None, dtype: tuple[str, int] | None
) -> None:
    assert is_communication(name)
    assert operation_of(name) == operation
    assert kernel_type(name) == dtype


def test_names_of_calls() -> None:
    assert range_operation("ncclAllToAllv") == "alltoall"
    assert range_operation("ncclCommCount") == ""
    assert range_operation("ncclGroupEnd") == ""
    assert range_operation("pncclReduceScatter") == "reducescatter"
    assert range_operation("ncclRedOpCreatePreMulSum") == ""
