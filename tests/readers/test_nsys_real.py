"""Real exports: known numbers, and plain SQL as the second opinion."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.readers.nsys_files import names_of, values
from tests.traces import real_trace
from trace_analyzer.model import Rank, Severity
from trace_analyzer.readers import nsys
from trace_analyzer.schema import is_na
from trace_analyzer.tables import HostCategory, OperationKind, SyncKind, WorkClass

H200 = {
    "healthy": ((924, 925), 3726, 24, (23_718_465, 125_579_068)),
    "healthy_payload": ((924, 925), 3726, 24, (23_718_465, 125_579_068)),
    "slow_cpu_rank": ((1145, 1146), 3726, 24, (230_041_436, 17_304_341)),
    "slow_loader": ((1362, 1363), 3726, 24, (22_136_328, 154_252_284)),
    "nccl_1ch": ((1700, 1701), 3726, 1, (217_852_398, 220_941_883)),
    "item_sync": ((1860, 1861), 3822, 24, (30_461_216, 41_837_945)),
}
DDP = "public-nsys/lizhieffe_ddp53_profile.sqlite"
MFU = "public-nsys/nsysai_mfu_2gpu_before.sqlite"
FILES = (
    *(f"h200-ddp-nsys/{run}.sqlite" for run in H200),
    DDP,
    MFU,
    "public-nsys/nsysai_h100_2gpu_1s.sqlite",
    "public-nsys/nsysai_healthy_1pct.sqlite",
    "public-nsys/pipit_saxpy_mpi.sqlite",
    "public-nsys/bolongcheng_small_fwd_A100.sqlite",
)


@cache
def _read(relative: str) -> tuple[Rank, ...]:
    return tuple(nsys.read(real_trace(relative)))


def _query(relative: str, query: str) -> list[tuple[Any, ...]]:
    address = f"file:{real_trace(relative)}?mode=ro&immutable=1"
    with closing(sqlite3.connect(address, uri=True)) as base:
        return base.execute(query).fetchall()


def _durations(rank: Rank, work: WorkClass) -> Any:
    chosen = rank.operations.work == work
    return (rank.operations.end_ns - rank.operations.start_ns)[chosen]


def _shapes(rank: Rank) -> Counter[tuple[str, str | None, int, int]]:
    """Count communication kernels by operation, element type, grid and block."""
    found: Counter[tuple[str, str | None, int, int]] = Counter()
    operations, table, configs = rank.operations, rank.collectives, rank.configs
    for row in np.flatnonzero(operations.work == WorkClass.COMM).tolist():
        call, config = operations.collective[row], operations.launch_config[row]
        dtype = values(table.dtype)[call]
        found[
            rank.names[table.operation[call]],
            None if dtype is None else rank.names[dtype],
            int(configs.grid_x[config]),
            int(configs.block_x[config]),
        ] += 1
    return found


@pytest.mark.parametrize("run", H200)
def test_two_h200(run: str) -> None:
    pids, kernels, channels, total_ns = H200[run]
    ranks = _read(f"h200-ddp-nsys/{run}.sqlite")
    assert tuple(rank.pid for rank in ranks) == pids
    assert [rank.rank for rank in ranks] == [0, 1]
    for rank, total, gpu in zip(ranks, total_ns, (0, 1), strict=True):
        assert int(_durations(rank, WorkClass.COMM).sum()) == total
        assert _shapes(rank) == {("allreduce", "Float", channels, 544): 84}
        assert rank.counts["kernels"] == kernels
        assert rank.counts["nccl_kernels_in_ranges"] == 84
        assert not is_na(rank.operations.launch).any()
        (device,) = rank.devices
        assert (device.ordinal, device.gpu, device.name) == (gpu, gpu, "NVIDIA H200")
        assert device.memory_bandwidth_bytes_per_s == 4_814_304_000_000
        assert (device.sm_count, device.max_threads_per_sm) == (132, 2048)
        # nsys warns of lost events in every file; the events themselves are complete.
        assert {(w.code, w.severity) for w in rank.warnings} <= {("TRC004", Severity.NOTE)}
        names = names_of(rank, rank.events.name)
        annotations = Counter(
            name.split()[0]
            for name, category in zip(names, rank.events.category.tolist(), strict=True)
            if category == HostCategory.ANNOTATION
        )
        assert [annotations[n] for n in ("step", "data", "forward", "backward", "optimizer")] == [
            6
        ] * 5
        assert annotations["ncclAllReduce"] == 84
        assert set(rank.settings) >= {"NCCL_NVLS_ENABLE", "OMP_NUM_THREADS"}
        assert ("NCCL_MAX_NCHANNELS" in rank.settings) == (run == "nccl_1ch")


def test_sizes_of_h200_with_payload() -> None:
    for rank in _read("h200-ddp-nsys/healthy_payload.sqlite"):
        sizes = rank.collectives.message_bytes
        assert round(int(sizes.sum()) / 6e6, 1) == 682.0  # MB of gradients a step
        assert len(np.unique(sizes)) > 1
        assert np.array_equal(rank.collectives.in_elements * 4, sizes)
        assert [group.name for group in rank.groups] == ["3833832220697833136"]
        assert rank.groups[0].size is None  # made before the recording
    for rank in _read("h200-ddp-nsys/healthy.sqlite"):
        assert is_na(rank.collectives.message_bytes).all()
        assert rank.groups == ()


def test_raw_payloads_read_like_decoded_ones(tmp_path: Path) -> None:
    path = tmp_path / "raw.sqlite"
    shutil.copyfile(real_trace("h200-ddp-nsys/healthy_payload.sqlite"), path)
    path.chmod(0o600)
    with closing(sqlite3.connect(path)) as base:
        base.execute("update NVTX_EVENTS set jsonText = null")
        base.commit()
    for rank, decoded in zip(
        nsys.read(path), _read("h200-ddp-nsys/healthy_payload.sqlite"), strict=True
    ):
        assert rank.groups == decoded.groups
        for spec in rank.collectives.columns():
            ours, theirs = (getattr(r.collectives, spec.name) for r in (rank, decoded))
            assert np.array_equal(ours, theirs), spec.name
        assert np.array_equal(rank.operations.collective, decoded.operations.collective)
        assert np.array_equal(rank.events.collective, decoded.events.collective)


def test_a_hand_written_ddp_run() -> None:
    first, second = _read(DDP)
    for rank, pid, number in ((first, 13096, 0), (second, 13097, 1)):
        assert (rank.pid, rank.rank, rank.rank_basis, rank.world_size) == (
            pid,
            number,
            "payload",
            2,
        )
        assert _shapes(rank) == {
            ("broadcast", None, 4, 544): 86,
            ("broadcast", None, 1, 128): 25,
            ("allreduce", "BFloat16", 4, 544): 86,
            ("allreduce", "BFloat16", 1, 128): 25,
            ("allreduce", "Float", 1, 128): 3,
            ("allreduce", "Long", 1, 128): 5,
        }
        assert rank.counts["nccl_kernels_in_ranges"] == rank.counts["nccl_ranges"] == 230
        (group,) = rank.groups
        assert (group.name, group.size, group.ranks) == ("13429301450432826988", 2, (0, 1))
        # GPU 1 is CUDA device 0 here.
        assert [(d.ordinal, d.gpu) for d in rank.devices] == [(number, 1 - number)]
        assert {name for name in names_of(rank, rank.events.name) if "op_id" in name} == set()
    totals = [round(sum(_of_shape(rank, "broadcast", 4)) / 1e6, 1) for rank in (first, second)]
    assert totals == [147.1, 14.2]
    assert round(max(_of_shape(first, "broadcast", 4)) / 1e6, 1) == 132.3
    totals = [round(sum(_of_shape(rank, "allreduce", 4)) / 1e6, 1) for rank in (first, second)]
    assert totals == [31.3, 28.3]


def _of_shape(rank: Rank, operation: str, channels: int) -> list[int]:
    operations = rank.operations
    return [
        int(operations.end_ns[row] - operations.start_ns[row])
        for row in np.flatnonzero(operations.work == WorkClass.COMM).tolist()
        if rank.names[rank.collectives.operation[operations.collective[row]]] == operation
        and rank.configs.grid_x[operations.launch_config[row]] == channels
    ]


def test_ddp_sizes_and_types_agree() -> None:
    for rank in _read(DDP):
        table = rank.collectives
        counts: Counter[tuple[str, int]] = Counter(
            zip(names_of(rank, table.operation), table.message_bytes.tolist(), strict=True)
        )
        assert counts["allreduce", 4_718_592] == counts["broadcast", 4_718_592] == 36
        assert sum(counts.values()) == 230
        assert set(values(table.root)) == {None, 0}
        start = min(int(rank.operations.start_ns[0]), 0)
        assert start <= int(rank.operations.start_ns[0])
        rows = np.flatnonzero(~is_na(rank.events.collective))
        assert len(rows) == 230
        assert len(np.unique(rank.events.collective[rows])) == 230


def test_correlation_ids_shared_by_two_processes_link_inside_each() -> None:
    first, second = _read(DDP)
    kernels = [
        set(rank.operations.correlation[rank.operations.kind == OperationKind.KERNEL].tolist())
        for rank in (first, second)
    ]
    assert len(kernels[0] & kernels[1]) == 128
    for rank in (first, second):
        launch = rank.operations.launch
        assert np.array_equal(rank.calls.correlation[launch], rank.operations.correlation)
        assert (rank.calls.start_ns[launch] <= rank.operations.start_ns).all()
        assert set(rank.threads.process.tolist()) == {rank.pid}


def test_send_and_receive_in_one_kernel_without_payload() -> None:
    first, second = _read(MFU)
    for rank, total_ms in ((first, 17.17), (second, 8.23)):
        assert round(int(_durations(rank, WorkClass.COMM).sum()) / 1e6, 2) == total_ms
        assert _shapes(rank) == {("sendrecv", None, 32, 640): 33}
        row = rank.operations.collective[rank.operations.work == WorkClass.COMM]
        # Two sends and two receives each; the first kernel was launched before the slice.
        assert Counter(rank.collectives.calls[row].tolist()) == {4: 32, 1: 1}
        assert is_na(rank.collectives.message_bytes).all()
    shorter = np.minimum(_durations(first, WorkClass.COMM), _durations(second, WorkClass.COMM))
    assert round(int(shorter.sum()) / 1e6, 1) == 5.8


def test_the_other_public_files() -> None:
    (saxpy,) = _read("public-nsys/pipit_saxpy_mpi.sqlite")
    assert (saxpy.rank, saxpy.rank_basis, saxpy.pid) == (0, "content", 1_230_493)
    assert (saxpy.counts["kernels"], saxpy.counts["memcpys"]) == (5, 15)
    assert saxpy.versions["nsys_schema"] == "2.9.1"
    assert Counter(names_of(saxpy, saxpy.operations.name)) == {
        "saxpy(double *, double *, double *, double, int)": 5,
        "Memcpy HtoD (Pageable -> Device)": 10,
        "Memcpy DtoH (Device -> Pageable)": 5,
    }

    (trimmed,) = _read("public-nsys/nsysai_healthy_1pct.sqlite")
    assert trimmed.counts["kernels"] == 400
    assert [warning.code for warning in trimmed.warnings] == ["TRC011"]

    forward = _read("public-nsys/bolongcheng_small_fwd_A100.sqlite")[0]
    assert forward.counts["kernels"] == 632
    operators = forward.events.category == HostCategory.OPERATOR
    assert np.count_nonzero(operators) > 4000
    assert len(set(forward.events.name[operators].tolist())) < 100
    assert _durations(forward, WorkClass.COMM).sum() == 0

    for rank in _read("public-nsys/nsysai_h100_2gpu_1s.sqlite"):
        assert rank.counts["kernels"] == 1721
        assert rank.counts["nccl_kernels"] == 0


@pytest.mark.parametrize("relative", FILES)
def test_operations_equal_plain_sql(relative: str) -> None:
    ranks = _read(relative)
    tables = {row[0] for row in _query(relative, "select name from sqlite_master")}
    for rank in ranks:
        mine = (
            "1"
            if rank.rank_basis == "order" and rank.host is None
            else (f"(globalPid >> 24) & 0xffffff = {rank.pid}")
        )
        expected: list[tuple[int, int]] = []
        for kind in ("KERNEL", "MEMCPY", "MEMSET"):
            table = f"CUPTI_ACTIVITY_KIND_{kind}"
            if table in tables:
                expected += _query(relative, f'select start, "end" from {table} where {mine}')
        found = zip(rank.operations.start_ns.tolist(), rank.operations.end_ns.tolist(), strict=True)
        assert list(found) == sorted(expected)


@pytest.mark.parametrize("relative", [file for file in FILES if "1pct" not in file])
def test_launches_equal_plain_sql(relative: str) -> None:
    for rank in _read(relative):
        expected = dict(
            _query(
                relative,
                "select k.rowid, min(r.start) from CUPTI_ACTIVITY_KIND_KERNEL k "
                "join CUPTI_ACTIVITY_KIND_RUNTIME r on r.correlationId = k.correlationId "
                "and (r.globalTid >> 24) = (k.globalPid >> 24) "
                f"where (k.globalPid >> 24) & 0xffffff = {rank.pid} group by k.rowid",
            )
        )
        kernels = rank.operations.kind == OperationKind.KERNEL
        launch = rank.operations.launch[kernels]
        found = rank.calls.start_ns[launch[~is_na(launch)]]
        assert sorted(found.tolist()) == sorted(expected.values())


@pytest.mark.parametrize("relative", FILES)
def test_tables_are_in_order(relative: str) -> None:
    for rank in _read(relative):
        for table, outer_first in (
            (rank.calls, True),
            (rank.events, True),
            (rank.operations, False),
        ):
            rows = list(zip(table.start_ns.tolist(), table.end_ns.tolist(), strict=True))
            assert all(
                a[0] < b[0] or (a[0] == b[0] and (a[1] >= b[1] if outer_first else a[1] <= b[1]))
                for a, b in pairwise(rows)
            )
        assert all(a <= b for a, b in pairwise(rank.syncs.start_ns.tolist()))


def test_waits_of_a_real_run_find_their_records() -> None:
    for rank in _read("h200-ddp-nsys/healthy.sqlite"):
        waits = rank.syncs.kind == SyncKind.STREAM_WAIT_EVENT
        assert np.count_nonzero(waits) == 336
        assert not is_na(rank.syncs.source_stream[waits]).any()
        # The first queries of the watchdog are for events from before the recording.
        queries = rank.syncs.kind == SyncKind.EVENT_SYNC
        early = queries & is_na(rank.syncs.source_stream)
        assert np.count_nonzero(early) == 2 - rank.rank
        assert rank.syncs.start_ns[early].max() < rank.syncs.start_ns[waits].min()
        streams = set(rank.syncs.source_stream[waits].tolist())
        comm = rank.operations.stream[rank.operations.work == WorkClass.COMM]
        assert set(comm.tolist()) & streams  # compute waits for communication
        assert set(rank.syncs.device[~is_na(rank.syncs.device)].tolist()) == {rank.rank}
