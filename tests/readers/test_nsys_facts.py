"""Metadata of exports: versions, clock, settings, and what must not leave the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.readers.nsys_files import MEMCPY, Nsys, global_pid, global_tid
from trace_analyzer.model import Rank
from trace_analyzer.tables import TABLES

EPOCH = 1_795_988_184_456_017_278


def _with_clock(**export: str) -> Nsys:
    made = Nsys()
    made.launched(0, 10, 20)
    made.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=EPOCH, utcTime="2026-11-29T21:36:24")
    made.meta("META_DATA_EXPORT", EXPORT_SCHEMA_VERSION="3.20.3", **export)
    return made


@pytest.mark.parametrize(
    ("export", "base"),
    [
        ({}, EPOCH),
        ({"EXPORT_PARAM_TIME_NORMALIZE": "false", "EXPORT_PARAM_TIME_SHIFT": "0"}, EPOCH),
        ({"EXPORT_PARAM_TIME_SHIFT": "5000"}, None),
        ({"EXPORT_PARAM_TIME_NORMALIZE": "true"}, None),  # claims Unix time, but shows none
    ],
)
def test_the_clock(tmp_path: Path, export: dict[str, str], base: int | None) -> None:
    assert _with_clock(**export).read_one(tmp_path).clock_base_ns == base


def test_the_clock_of_an_export_in_unix_time(tmp_path: Path) -> None:
    made = _with_clock(EXPORT_PARAM_TIME_NORMALIZE="true")
    for rows in made.tables.values():
        for row in rows:
            for name in {"start", "end"} & set(row):
                row[name] += EPOCH
    rank = made.read_one(tmp_path)
    assert rank.operations.start_ns.tolist() == [EPOCH + 10]
    assert rank.clock_base_ns == 0


def test_an_export_without_session_start(tmp_path: Path) -> None:
    made = Nsys()
    made.launched(0, 10, 20)
    rank = made.read_one(tmp_path)
    assert (rank.clock_base_ns, rank.host, dict(rank.versions)) == (None, None, {})
    assert rank.capture.graph_mode is None


@pytest.mark.parametrize("table", ["EXPORT_META_DATA", "META_DATA_EXPORT"])
def test_versions(tmp_path: Path, table: str) -> None:
    made = Nsys()
    made.launched(0, 10, 20)
    made.meta(table, EXPORT_PRODUCT_VERSION="2022.2.1.31", EXPORT_SCHEMA_VERSION="2.9.1")
    made.meta(
        "TARGET_INFO_SYSTEM_ENV",
        Hostname="node7",
        NvDriverVersion="580.1",
        CudaDriverVersion="13020",
    )
    made.meta("META_DATA_CAPTURE", **{"PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE": "Node"})
    rank = made.read_one(tmp_path)
    assert dict(rank.versions) == {
        "nsys": "2022.2.1.31",
        "nsys_schema": "2.9.1",
        "driver": "580.1",
        "cuda": "13.2",
    }
    assert rank.host == "node7"
    assert rank.capture.graph_mode == "node"


def _everything(rank: Rank) -> str:
    """Return all text that a rank holds."""
    tables = (
        rank.operations,
        rank.configs,
        rank.calls,
        rank.events,
        rank.syncs,
        rank.collectives,
        rank.threads,
    )
    assert len(tables) == len(TABLES)
    return "\n".join([repr(rank), *rank.names, *(repr(table) for table in tables)])


def test_secrets_stay_in_the_file(tmp_path: Path) -> None:
    secret = "hunter2"
    made = Nsys()
    made.launched(0, 10, 20)
    for line in (
        f'AWS_SECRET_ACCESS_KEY="{secret}"',
        f"HF_TOKEN={secret}",
        f"NCCL_AUTH_TOKEN={secret}",
        f"WANDB_API_KEY={secret}",
        f"USER={secret}",
        f'NCCL_TOPO_FILE="/home/{secret}/topo.xml"',
        'NCCL_IB_DISABLE="1"',
        "OMP_NUM_THREADS=4",
        "no equals sign",
    ):
        made.add("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value=line)
    made.meta("META_DATA_CAPTURE", **{"PROCESS_0:ARGUMENT_1": f"--password={secret}"})
    made.meta("META_DATA_EXPORT", EXPORT_USER=secret, EXPORT_HOST=secret)
    made.meta(
        "TARGET_INFO_SYSTEM_ENV",
        DeviceEnvironment=f"MY_PASSWORD={secret};CUDA_VISIBLE_DEVICES=3;LD_PRELOAD={secret}",
        SystemUID=secret,
    )
    made.add("PROCESSES", globalPid=global_pid(11), pid=11, name=secret)
    made.add("ProcessStreams", globalPid=global_pid(10), filenameId=1, contentId=made.text(secret))
    made.add("ThreadNames", nameId=made.text(f"{secret} thread"), globalTid=global_tid(99))
    made.add(
        "DIAGNOSTIC_EVENT", severity=3, text=f"/home/{secret}: failed", globalPid=global_pid(10)
    )
    rank = made.read_one(tmp_path)
    assert secret not in _everything(rank)
    assert dict(rank.settings) == {
        "CUDA_VISIBLE_DEVICES": "3",
        "NCCL_IB_DISABLE": "1",
        "NCCL_TOPO_FILE": "topo.xml",
        "OMP_NUM_THREADS": "4",
    }
    assert [(w.code, w.count) for w in rank.warnings] == [("TRC004", 1)]


def test_an_export_of_2022(tmp_path: Path) -> None:
    """Schema 2.9: no ENUM tables, no DIAGNOSTIC_EVENT, name columns in the tables themselves."""
    made = Nsys()
    made.meta("EXPORT_META_DATA", EXPORT_SCHEMA_VERSION="2.9.1")
    made.launched(0, 10, 20, launchType=0, cacheConfig=0)
    made.copy(30, 40, (1, 0, 2), name="[CUDA memcpy HtoD]", correlation=50)
    made.call(25, 28, "cudaMemcpy_v3020", correlation=50, name_="cudaMemcpy", callchainId=3)
    made.range(0, 100, "saxpy", text="saxpy", textId=None)
    made.add(
        "TARGET_INFO_CUDA_NULL_STREAM",
        streamId=7,
        hwId=0,
        vmId=1,
        processId=10,
        deviceId=0,
        contextId=1,
    )
    rank = made.read_one(tmp_path)
    assert len(rank.operations) == 2
    assert rank.operations.launch.tolist() == [0, 1]
    assert MEMCPY in made.tables


def test_an_export_of_2026(tmp_path: Path) -> None:
    """Schema 3.28: columns that did not exist before change nothing."""
    made = Nsys()
    made.meta("META_DATA_EXPORT", EXPORT_SCHEMA_VERSION="3.28.1", EXPORT_PARAM_USE_SHUFFLE="true")
    for start in (300, 100, 200):  # rows in no order
        made.launched(start - 50, start, start + 10, graphId=None, clusterX=0, tensorSize=None)
    made.add(
        "TARGET_INFO_SESSION_START_TIME", utcEpochNs=EPOCH, systemClockNs=5, sessionStartCntVctNs=6
    )
    made.add("TARGET_INFO_GPU", id=0, name="NVIDIA B200", numaNodeId=0)
    rank = made.read_one(tmp_path)
    assert rank.operations.start_ns.tolist() == [100, 200, 300]
    assert rank.calls.start_ns[rank.operations.launch].tolist() == [50, 150, 250]
    assert rank.devices[0].name == "NVIDIA B200"
    assert rank.clock_base_ns == EPOCH
