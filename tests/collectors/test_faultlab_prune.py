from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.traces import real_trace
from trace_analyzer.collectors.faultlab import prune_kineto, prune_nsys
from trace_analyzer.collectors.faultlab.pack import ARCHIVE_LIMIT_BYTES, pack

TRACE = """{"schemaVersion": 1, "traceName": "/home/me/rank0.json", "baseTimeNanoseconds": 5,
"traceEvents": [
{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1690000000000001.125, "dur": 2.000,
 "args": {"External id": 9, "queued": 0, "stream": 7, "correlation": 3, "grid": [1, 2, 3],
          "blocks per SM": 0.242424, "est. achieved occupancy %": 12, "Collective name": "allreduce"}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 10.5, "dur": 1.25,
 "args": {"External id": 9, "cbid": 211, "correlation": 3}},
{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10.25, "dur": 3,
 "args": {"External id": 9, "Concrete Inputs": [""], "Input Dims": [[2, 2]], "Sequence number": 4}},
{"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 1, "pid": 1, "tid": 1, "ts": 10.5},
{"ph": "X", "cat": "python_function", "name": "f", "pid": 1, "tid": 1, "ts": 1, "dur": 2},
{"ph": "i", "name": "Record Window End", "s": "g", "pid": "", "tid": "", "ts": 20.125}
]}"""


def pruned(tmp_path: Path, text: str) -> tuple[str, dict[str, int]]:
    source, target = tmp_path / "in.json", tmp_path / "out.json.gz"
    source.write_text(text)
    counts = prune_kineto.prune(source, target)
    return gzip.decompress(target.read_bytes()).decode(), counts


def test_kineto_keeps_what_analyses_read_to_the_last_digit(tmp_path: Path) -> None:
    text, counts = pruned(tmp_path, TRACE)
    assert counts == {"kept": 4, "left_out": 2}
    document = json.loads(text)
    assert document["traceName"] == "rank0.json"
    assert document["baseTimeNanoseconds"] == 5
    assert "1690000000000001.125" in text
    assert '"dur":2.000' in text
    by_name = {event["name"]: event for event in document["traceEvents"]}
    kernel = by_name["k"]["args"]
    assert kernel == {
        "correlation": 3,
        "External id": 9,
        "stream": 7,
        "grid": [1, 2, 3],
        "est. achieved occupancy %": 12,
        "Collective name": "allreduce",
    }
    assert by_name["cudaLaunchKernel"]["args"] == {"correlation": 3}
    operator = by_name["aten::mm"]["args"]
    assert operator == {"External id": 9, "Input Dims": [[2, 2]], "Sequence number": 4}
    assert by_name["Record Window End"]["ts"] == 20.125


def test_kineto_refuses_a_cut_trace_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line"):
        pruned(tmp_path, TRACE[:-40])
    assert not (tmp_path / "out.json.gz").exists()


def test_kineto_real_trace_keeps_all_gpu_events(tmp_path: Path) -> None:
    source = real_trace("h200-ddp/item_sync/rank0.pt.trace.json.gz")
    text, counts = pruned(tmp_path, gzip.decompress(source.read_bytes()).decode())

    def gpu(document: dict[str, Any]) -> list[tuple[Any, ...]]:
        return sorted(
            (event["cat"], str(event["ts"]), str(event["dur"]), event["name"])
            for event in document["traceEvents"]
            if event.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}
        )

    before, after = json.loads(gzip.decompress(source.read_bytes())), json.loads(text)
    assert gpu(before) == gpu(after)
    assert counts["left_out"] > 10_000
    assert (tmp_path / "out.json.gz").stat().st_size < 0.75 * source.stat().st_size


def nsys_export(path: Path) -> None:
    with sqlite3.connect(path) as export:
        export.executescript(
            """
            create table StringIds (id integer, value text);
            insert into StringIds values (1, 'kernel'), (2, 'cudaLaunchKernel'), (3, 'secret'),
                (4, '{"Message size [bytes]":4}'), (5, 'worker');
            create table CUPTI_ACTIVITY_KIND_KERNEL (start, end, shortName integer);
            insert into CUPTI_ACTIVITY_KIND_KERNEL values (1, 2, 1);
            create table CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, nameId integer);
            create table NVTX_EVENTS (start, jsonTextId integer);
            insert into NVTX_EVENTS values (1, 4), (2, null);
            create table OSRT_API (start, nameId integer);
            insert into OSRT_API values (1, 3);
            create table ThreadNames (nameId integer, globalTid);
            create table META_DATA_CAPTURE (name text, value text);
            insert into META_DATA_CAPTURE values
                ('PROCESS_0:ENVIRONMENT_VARIABLE', 'NCCL_PROTO=LL'),
                ('PROCESS_0:ENVIRONMENT_VARIABLE', 'MY_TOKEN=hunter2'),
                ('PROCESS_0:USER_NAME', 'me'), ('CUDA_TRACE', 'on');
            create table TARGET_INFO_SYSTEM_ENV (name text, value text);
            create table DIAGNOSTIC_EVENT (timestamp integer, text text);
            insert into DIAGNOSTIC_EVENT values (1, 'see /home/me/out.log for output');
            insert into TARGET_INFO_SYSTEM_ENV values ('Hostname', 'box'), ('CpuCores', '32');
            """
        )
        for pid, name in ((77, 5), (99, 3)):
            export.execute("insert into ThreadNames values (?, ?)", (name, pid << 24 | 1))
        export.execute(
            "insert into CUPTI_ACTIVITY_KIND_RUNTIME values (0, 1, ?, 2)", (77 << 24 | 1,)
        )


def test_nsys_keeps_gpu_work_and_drops_what_is_private(tmp_path: Path) -> None:
    nsys_export(tmp_path / "in.sqlite")
    counts = prune_nsys.prune(tmp_path / "in.sqlite", tmp_path / "out.sqlite")
    assert counts == {"CUPTI_ACTIVITY_KIND_KERNEL": 1, "CUPTI_ACTIVITY_KIND_RUNTIME": 1}
    with sqlite3.connect(tmp_path / "out.sqlite") as export:
        names = {row[0] for row in export.execute("select name from sqlite_master")}
        assert "OSRT_API" not in names
        assert "NVTX_EVENTS" in names
        strings = {row[0] for row in export.execute("select value from StringIds")}
        assert strings == {"kernel", "cudaLaunchKernel", '{"Message size [bytes]":4}', "worker"}
        settings = [row[0] for row in export.execute("select value from META_DATA_CAPTURE")]
        assert settings == ["NCCL_PROTO=LL", "", "", "on"]
        system = dict(export.execute("select name, value from TARGET_INFO_SYSTEM_ENV").fetchall())
        assert system == {"Hostname": "", "CpuCores": "32"}
        assert export.execute("select text from DIAGNOSTIC_EVENT").fetchall() == [
            ("see out.log for output",)
        ]
        assert export.execute("select count(*) from ThreadNames").fetchone() == (1,)
    assert b"hunter2" not in (tmp_path / "out.sqlite").read_bytes()


def test_nsys_real_export_keeps_every_activity(tmp_path: Path) -> None:
    source = real_trace("h200-ddp-nsys/healthy_payload.sqlite")
    counts = prune_nsys.prune(source, tmp_path / "out.sqlite")
    assert counts["CUPTI_ACTIVITY_KIND_KERNEL"] == 2 * 3726
    assert counts["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"] == 1157
    assert (tmp_path / "out.sqlite").stat().st_size < source.stat().st_size


def test_ranks_without_kernels_in_an_export_are_seen(tmp_path: Path) -> None:
    source = real_trace("h200-ddp-nsys/healthy_payload.sqlite")
    assert prune_nsys.traced_processes(source) == 2
    damaged = tmp_path / "damaged.sqlite"
    shutil.copyfile(source, damaged)
    with sqlite3.connect(damaged) as export:
        export.execute(
            "delete from CUPTI_ACTIVITY_KIND_KERNEL where globalPid = "
            "(select max(globalPid) from CUPTI_ACTIVITY_KIND_KERNEL)"
        )
    assert prune_nsys.traced_processes(damaged) == 1
    with sqlite3.connect(tmp_path / "empty.sqlite") as export:
        export.execute("create table StringIds (id integer, value text)")
    assert prune_nsys.traced_processes(tmp_path / "empty.sqlite") == 0


def test_archives_never_split_a_run_and_stay_below_their_limit(tmp_path: Path) -> None:
    folders = []
    for index in range(5):
        folder = tmp_path / "runs" / f"run{index}"
        folder.mkdir(parents=True)
        with (folder / "trace.gz").open("wb") as stream:
            stream.truncate(ARCHIVE_LIMIT_BYTES // 3 if index else ARCHIVE_LIMIT_BYTES + 1)
        folders.append(folder)
    archives, left_over = pack(folders, tmp_path, "some")
    assert left_over == [folders[0]]
    assert [path.name for path in archives] == ["some-0.tar.gz", "some-1.tar.gz"]
    assert all(path.stat().st_size < ARCHIVE_LIMIT_BYTES for path in archives)
