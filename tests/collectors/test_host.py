from __future__ import annotations

import importlib.util
import json
import os
import sys
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest

from trace_analyzer.collectors import environment, host, processes, sampler

TOPOLOGY = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tPIX\t0-31\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tSYS\t32-63\t1\t\tN/A\n"
    "NIC0\tPIX\tSYS\t X \t\t\t\t\n"
    "\nLegend:\n\n  X    = Self\n"
)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = Path(__file__).with_name("fake_nvml.py")
    spec = importlib.util.spec_from_file_location("pynvml", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


@pytest.fixture
def no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)


def schema(name: str) -> Any:
    return json.loads(
        files("trace_analyzer.data").joinpath("schemas", f"{name}.schema.json").read_text()
    )


def fake_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder) + os.pathsep + os.environ["PATH"])


def test_topology_is_a_matrix() -> None:
    found = host.parse_topology(TOPOLOGY)
    assert found["devices"] == ["GPU0", "GPU1", "NIC0"]
    assert found["links"] == [["X", "NV18", "PIX"], ["NV18", "X", "SYS"], ["PIX", "SYS", "X"]]
    assert found["cpu_affinity"] == {"GPU0": "0-31", "GPU1": "32-63"}
    assert found["numa"] == {"GPU0": "0", "GPU1": "1"}


def test_gpus_by_nvml(nvml: ModuleType) -> None:
    found = host.read_gpus()
    assert (found["driver"], found["driver_cuda"]) == ("580.159.04", "13.0")
    gpu = found["gpus"][1]
    assert (gpu["pcie_generation"], gpu["pcie_generation_max"]) == (4, 5)
    assert (gpu["pcie_width"], gpu["pcie_width_max"]) == (8, 16)
    assert (gpu["nvlinks"], gpu["nvlinks_active"]) == (4, 3)
    assert gpu["power_limit_w"] == 700.0
    assert gpu["bus_id"] == "00000000:00:06.0"


def test_gpus_by_nvidia_smi(no_nvml: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "0, NVIDIA H200, GPU-7, 00000000:00:06.0, 143771, 5, 5, 16, 16, 580.159.04"
    fake_smi(tmp_path, monkeypatch, f'echo "{line}"\n')
    found = host.gather()
    assert found["driver"] == "580.159.04"
    assert found["gpus"][0]["memory_bytes"] == 143771 << 20
    assert found["gpus"][0]["pcie_generation_max"] == 5


def test_a_host_without_gpus_has_no_facts(
    no_nvml: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_smi(tmp_path, monkeypatch, "exit 9\n")
    assert host.gather() == {}


@pytest.mark.parametrize(
    ("cuda", "driver", "fits"),
    [
        ("12.8", "525.60.13", True),  # an older minor version of the driver is fine
        ("12.8", "520.61.05", False),
        ("13.0", "580.159.04", True),
        ("13.0", "570.10", False),
        ("11.8", "450.80.02", True),
        ("14.0", "600.1", None),  # not known
        ("", "580.1", None),
        ("12.4", "", None),
    ],
)
def test_driver_compatibility(cuda: str, driver: str, fits: bool | None) -> None:
    assert host.compatibility(cuda, driver, "")["fits"] is fits


def test_rows_of_the_sampler(nvml: Any) -> None:
    first = sampler.GpuReader(nvml, 0, os.getpid()).read(slow=True)
    jsonschema.validate(first, schema("sampler"))
    assert set(first) == set(sampler.COLUMNS)
    assert first["power_w"] == 412.5
    assert first["clock_limit_reasons"] == 4
    assert first["nvlink_sent_bytes"] == 5 * 1024
    assert first["pcie_received_bytes_per_s"] == 1001 * 1024
    assert (first["processes"], first["foreign_processes"]) == (2, 1)
    assert first["foreign_memory_bytes"] == 7 << 20


def test_what_a_gpu_does_not_tell_is_asked_once(nvml: Any) -> None:
    reader = sampler.GpuReader(nvml, 1, os.getpid())
    rows = [reader.read(slow=False) for _ in range(3)]
    assert [row["power_w"] for row in rows] == [None] * 3
    assert nvml.asked.count(("power", 1)) == 1
    assert "processes" not in rows[0]


def test_foreign_processes_are_unknown_in_another_name_space(nvml: Any) -> None:
    nvml.processes[:] = [999_999_991, 999_999_992]
    row = sampler.GpuReader(nvml, 0, os.getpid()).read(slow=True)
    assert row["processes"] == 2
    assert "foreign_processes" not in row
    assert [item["own"] for item in environment.processes_on_gpus()] == [None] * 4


def test_sampling_leaves_one_table_a_gpu(
    nvml: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "to_parquet", lambda table: table)
    left = iter([False, False, False, True])
    assert sampler.sample(tmp_path, os.getpid(), lambda: next(left), hertz=200.0) == 3
    for name in ("gpu0.csv", "gpu1.csv"):
        lines = (tmp_path / name).read_text().splitlines()
        assert lines[0].split(",") == list(sampler.COLUMNS)
        assert len(lines) == 4


def test_samples_become_parquet_with_the_same_columns(nvml: Any, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    left = iter([False, False, True])
    sampler.sample(tmp_path, os.getpid(), lambda: next(left), hertz=200.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpu0.parquet", "gpu1.parquet"]
    table = parquet.read_table(tmp_path / "gpu1.parquet")
    assert table.column_names == list(sampler.COLUMNS)
    assert table.column("sm_clock_mhz").to_pylist() == [1755, 1755]
    assert table.column("power_w").to_pylist() == [None, None]


def test_no_sampler_without_a_gpu(tmp_path: Path) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    assert sampler.start_process(tmp_path) is None
    assert sampler.stop_process(None) is False


def test_control_group_limits(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    (tmp_path / "memory.max").write_text("17179869184\n")
    (tmp_path / "cpu.stat").write_text("usage_usec 1\nnr_periods 10\nnr_throttled 4\n")
    assert environment.cgroup(tmp_path) == {
        "cores": 2.5,
        "memory_bytes": 16 << 30,
        "throttled_periods": 4,
    }
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert environment.cgroup(tmp_path)["cores"] is None
    assert environment.cgroup(tmp_path)["memory_bytes"] is None


def test_older_control_groups(tmp_path: Path) -> None:
    for name, text in (
        ("cpu/cpu.cfs_quota_us", "400000"),
        ("cpu/cpu.cfs_period_us", "100000"),
        ("memory/memory.limit_in_bytes", "9223372036854771712"),
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n")
    found = environment.cgroup(tmp_path)
    assert (found["cores"], found["memory_bytes"]) == (4.0, None)


def test_the_environment_holds_what_is_allowed(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    monkeypatch.setenv("NCCL_SECRET_KEY", "hunter2")
    monkeypatch.setenv("WANDB_API_KEY", "hunter2")
    monkeypatch.setenv("NCCL_TOPO_FILE", "/home/me/topo.xml")
    document = environment.read(3, {"topology": host.parse_topology(TOPOLOGY)})
    jsonschema.validate(document, schema("environment"))
    assert document["variables"]["NCCL_P2P_DISABLE"] == "1"
    assert document["variables"]["NCCL_TOPO_FILE"] == "topo.xml"
    assert "hunter2" not in json.dumps(document)
    assert "/home/me" not in json.dumps(document)
    assert document["versions"]["driver"] == "580.159.04"
    assert [item["own"] for item in document["processes"]] == [True, False] * 2


def test_differences_between_ranks_name_the_ranks() -> None:
    def rank(number: int, **more: Any) -> dict[str, Any]:
        return {
            "rank": number,
            "variables": {"RANK": str(number), "NCCL_ALGO": more.get("algo", "Ring")},
            "versions": {"torch": "2.11.0"},
            "settings": {"ddp.bucket_cap_mb": more.get("bucket", 25.0)},
            "affinity": {"count": more.get("cores", 8)},
        }

    assert environment.differences([rank(0), rank(1)]) == []
    documents = [rank(2, algo="Tree", cores=1), rank(0), rank(1), rank(3)]
    assert environment.differences(documents) == [
        "NCCL_ALGO differs between ranks: Ring on ranks 0-1,3; Tree on rank 2",
        "cores differs between ranks: 8 on ranks 0-1,3; 1 on rank 2",
    ]


def test_descent_of_processes() -> None:
    assert processes.descends_from(os.getpid(), os.getpid())
    assert processes.descends_from(os.getpid(), os.getppid())
    assert not processes.descends_from(os.getppid(), os.getpid())
    assert not processes.descends_from(999_999_999, os.getpid())
