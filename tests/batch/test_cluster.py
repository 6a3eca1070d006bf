"""The same archive through a Dask scheduler and its workers, each a process of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.batch.archives import Counts, batch, command, contents, old, rows, write_run
from tests.batch.servers import dask_cluster, s3_server
from tests.heavy import heavy

pytest.importorskip("distributed")
pytestmark = heavy


def _archive(folder: Path, runs: int) -> Path:
    for seed in range(runs):
        write_run(folder / f"run{seed}", seed)
    bad = folder / "bad" / "rank0.pt.trace.json.gz"
    bad.parent.mkdir()
    bad.write_bytes(b"\x1f\x8b no")
    old(folder)
    return folder


def _cluster_batch(address: str, archive: Path, out: Path) -> Counts:
    environment = {**os.environ, "DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "error"}
    return batch(archive, out, "--scheduler", address, env=environment)


def test_a_cluster_gives_what_one_machine_gives(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "archive", 6)
    with dask_cluster(tmp_path, 2, {}) as cluster:
        assert _cluster_batch(cluster.address, archive, tmp_path / "there") == Counts(
            7, 7, 0, failed=1
        )
        assert _cluster_batch(cluster.address, archive, tmp_path / "there").now == 0
    batch(archive, tmp_path / "here")
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


def test_a_worker_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    archive, out = _archive(tmp_path / "archive", 10), tmp_path / "there"
    with dask_cluster(tmp_path, 2, {}) as cluster:
        arguments = ("-o", out, "--scheduler", cluster.address, "--jobs", "4", "-q")
        with subprocess.Popen(command("batch", archive, *arguments)) as client:
            while len(list(out.glob("runs/*/rows.json.zst"))) < 2:
                time.sleep(0.05)
                assert client.poll() is None
            # The worker's own process has a nanny that would end with it: both are killed.
            os.killpg(cluster.workers[0].pid, signal.SIGKILL)
            assert client.wait(200) == 0
    batch(archive, tmp_path / "here")
    assert contents(out) == contents(tmp_path / "here")
    assert rows(out, "SELECT COUNT(*) FROM runs") == [(11,)]


def test_workers_read_from_and_write_to_an_object_store(tmp_path: Path) -> None:
    pytest.importorskip("moto")
    s3fs = pytest.importorskip("s3fs")
    archive = _archive(tmp_path / "archive", 2)
    with s3_server(tmp_path) as store, dask_cluster(tmp_path, 2, store) as cluster:
        system = s3fs.S3FileSystem(
            key=store["AWS_ACCESS_KEY_ID"],
            secret=store["AWS_SECRET_ACCESS_KEY"],
            endpoint_url=store["AWS_ENDPOINT_URL"],
            use_listings_cache=False,
            skip_instance_cache=True,
        )
        system.mkdir("traces")
        system.put(str(archive), "traces/archive", recursive=True)
        done = batch(
            "s3://traces/archive",
            "s3://traces/out",
            "--scheduler",
            cluster.address,
            env={**os.environ, **store},
        )
        assert done == Counts(3, 3, 0, failed=1)
        reports = system.glob("traces/out/runs/*/report.html")
        system.get("traces/out", str(tmp_path / "there"), recursive=True)
        logs = [path.read_text() for path in tmp_path.glob("*.log") if path.name != "s3.log"]
    assert len(reports) == 2
    assert (tmp_path / "there" / "index.html").exists()
    assert len(logs) == 3
    assert not any(store["AWS_SECRET_ACCESS_KEY"] in log for log in logs)


def test_without_a_scheduler_one_line_says_so(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "archive", 1)
    arguments = ("-o", tmp_path / "out", "--scheduler", "tcp://127.0.0.1:1")
    done = subprocess.run(
        command("batch", archive, *arguments), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "no Dask scheduler answers" in done.stderr
    assert "Traceback" not in done.stderr
