"""The benchmarks: their arithmetic on known times, and real runs of two ranks with gloo."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner, Result

from trace_analyzer.cli.bench import bench
from trace_analyzer.collectors import bench_allreduce, bench_links, bench_nccl_env, bench_step
from trace_analyzer.collectors.bench_document import BenchError, Settings, settle, size_text
from trace_analyzer.collectors.bench_limits import parse_links
from trace_analyzer.collectors.bench_statistics import (
    Estimate,
    fit_line,
    median,
    nested_median,
)
from trace_analyzer.collectors.local_ranks import RanksError, run_ranks

ABOUT = {"backend": "nccl", "gpus": ["H200"], "versions": {"torch": "2"}, "variables": {}}
TWO = Settings(device="cpu", ranks=2, repetitions=30)
RANDOM = np.random.default_rng(3)


def validate(document: dict[str, Any]) -> dict[str, Any]:
    schema = files("trace_analyzer.data").joinpath("schemas", "bench.schema.json").read_text()
    jsonschema.Draft202012Validator(json.loads(schema)).validate(document)
    return document


def noisy(seconds: float, spread: float = 0.01) -> list[float]:
    return list(seconds * (1 + spread * RANDOM.standard_normal(40)))


def feed(monkeypatch: pytest.MonkeyPatch, module: Any, results: list[dict[str, Any]]) -> None:
    monkeypatch.setattr(module, "measure", lambda *_, **__: results)


def test_fit_finds_latency_and_rate() -> None:
    sizes = [1 << power for power in range(10, 30, 2)]
    times = [np.asarray(noisy(12e-6 + size / 250e9)) for size in sizes]
    fit = fit_line(sizes, times)
    assert fit.latency_s.low < 12e-6 < fit.latency_s.high
    assert fit.rate_bytes_per_s.value == pytest.approx(250e9, rel=0.01)
    assert fit.largest_relative_residual < 0.02
    with pytest.raises(ValueError, match="two sizes"):
        fit_line(sizes[:1], times[:1])


def test_median_interval_and_rates() -> None:
    found = median(np.asarray(noisy(2.0)))
    assert found.low < found.value < found.high
    rate = found.inverted(10.0)
    assert rate.value == pytest.approx(5.0, rel=0.01)
    assert rate.low < rate.high


def test_rounds_that_differ_widen_the_interval() -> None:
    steady = [np.asarray(noisy(1.0)) for _ in range(2)]
    moved = [steady[0], steady[1] * 1.1]
    widths = [
        np.ptp(np.percentile(nested_median(rounds)[1], [2.5, 97.5])) for rounds in (steady, moved)
    ]
    assert widths[1] > 5 * widths[0]


def test_allreduce_bandwidths_by_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (1 << 20, 1 << 28)
    ranks = [
        {"rows": [{"times_s": [seconds + shift] * 30} for seconds in (1e-5, 1e-3)], "about": ABOUT}
        for shift in (-1e-6, 0.0, 0.0, 1e-6)
    ]
    feed(monkeypatch, bench_allreduce, ranks)
    four = Settings(device="cpu", ranks=4, repetitions=30)
    document = validate(bench_allreduce.run(four, sizes))
    row = document["rows"][1]
    assert row["time_us"] == 1000
    assert row["algbw_gbs"] == pytest.approx(268.435)
    assert row["busbw_gbs"] == pytest.approx(268.435 * 2 * 3 / 4, rel=1e-5)
    assert row["share_of_limit"] is None
    assert "256 MiB" in bench_allreduce.text(document)


def test_links_take_the_receiver_s_times(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (4, 1 << 30)

    def row(source: int, target: int, size: int, seconds: float, *, both: bool = False) -> Any:
        return {
            "source": source,
            "target": target,
            "bytes": size,
            "both": both,
            "times_s": [seconds] * 30,
        }

    sender = [row(0, 1, 4, 9e-5), row(0, 1, 1 << 30, 9e-1)]
    receiver = [row(0, 1, 4, 1e-5), row(0, 1, 1 << 30, 4e-3)]
    back = [row(1, 0, 4, 2e-5), row(1, 0, 1 << 30, 8e-3)]
    exchange = [row(0, 1, 1 << 30, 5e-3, both=True)]
    results = [
        {"rows": [*sender, *back, *exchange], "about": ABOUT},
        {"rows": [*receiver, *back, *exchange], "about": ABOUT},
    ]
    feed(monkeypatch, bench_links, results)
    document = validate(bench_links.run(TWO, sizes))
    there, returned = document["rows"]
    assert (there["src"], there["dst"], there["latency_us"]) == (0, 1, 10)
    assert there["bandwidth_gbs"] == pytest.approx(268.435)
    assert returned["bandwidth_gbs"] == pytest.approx(134.218)
    assert document["both_directions"][0]["bandwidth_gbs"] == pytest.approx(429.497)
    assert "0 <-> 1" in bench_links.text(document)


def test_step_efficiency(monkeypatch: pytest.MonkeyPatch) -> None:
    def row(ranks: int, mode: str, seconds: float) -> dict[str, Any]:
        return {
            "width": 512,
            "ranks": ranks,
            "mode": mode,
            "gradient_bytes": 1 << 20,
            "batch_per_rank": 8,
            "times_s": noisy(seconds, 0.005),
        }

    first = [row(1, "strong", 40e-3), row(2, "strong", 25e-3), row(2, "weak", 42e-3)]
    second = [row(2, "strong", 26e-3), row(2, "weak", 41e-3)]
    feed(
        monkeypatch, bench_step, [{"rows": first, "about": ABOUT}, {"rows": second, "about": ABOUT}]
    )
    document = validate(bench_step.run(TWO, bench_step.Shape(widths=(512,))))
    strong, weak = document["rows"]
    assert strong["efficiency"] == pytest.approx(40 / 52, rel=0.01)
    assert strong["efficiency_interval"][0] < 40 / 52 < strong["efficiency_interval"][1]
    assert strong["lost_ms"] == pytest.approx(6, abs=0.3)
    assert weak["efficiency"] == pytest.approx(40 / 42, rel=0.01)
    assert "strong" in bench_step.text(document)


def test_settings_of_nccl_get_an_honest_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"": 1e-3, "NCCL_PROTO=LL": 2e-3, "NCCL_ALGO=Tree": 1.0e-3, "NCCL_BUFFSIZE=1": 0.8e-3}

    def measure(_: Settings, task: dict[str, Any], setting: dict[str, str]) -> list[dict[str, Any]]:
        name = ",".join(f"{key}={value}" for key, value in setting.items())
        shift = 1 + 0.02 * RANDOM.standard_normal()  # from start to start
        rows = [{"times_s": noisy(seconds[name] * shift)} for _ in task["sizes_bytes"]]
        return [{"rows": rows, "about": ABOUT}] * 2

    monkeypatch.setattr(bench_nccl_env, "measure", measure)
    grid = [bench_nccl_env.parse_setting(name) for name in seconds if name]
    document = validate(bench_nccl_env.run(TWO, grid, sizes_bytes=(1 << 20,), rounds=3))
    verdicts = {json.dumps(row["setting"]): row["verdict"] for row in document["rows"]}
    assert verdicts == {
        "{}": None,
        '{"NCCL_PROTO": "LL"}': "slower",
        '{"NCCL_ALGO": "Tree"}': "no difference",
        '{"NCCL_BUFFSIZE": "1"}': "faster",
    }
    assert "no difference" in bench_nccl_env.text(document)
    assert bench_nccl_env.verdict(Estimate(0.95, 0.9, 1.0)) == "no difference"
    with pytest.raises(BenchError, match="NAME=VALUE"):
        bench_nccl_env.parse_setting("NCCL_ALGO")


def test_no_setting_touches_nvlink_multicast() -> None:
    assert not any("NVLS" in name for setting in bench_nccl_env.GRID for name in setting)


NVLINK = (
    "GPU 0: NVIDIA H200 (UUID: GPU-0)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\nGPU 1: X\n"
)
TOPOLOGY = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV2\tSYS\tPIX\t0-31\t0\t\tN/A\nGPU1\tNV2\t X \tSYS\tSYS\t0-31\t0\t\tN/A\n"
    "GPU2\tSYS\tSYS\t X \tSYS\t0-31\t0\t\tN/A\nNIC0\tPIX\tSYS\tSYS\t X \n\nLegend:\n\n  X    = Self\n"
)


def test_limits_from_the_driver_s_words() -> None:
    links = parse_links(NVLINK, TOPOLOGY, "5, 16\n5, 16\n4, 8\n")
    assert links.connections == (("X", "NV2", "SYS"), ("NV2", "X", "SYS"), ("SYS", "SYS", "X"))
    pair, gpu = links.of_pair(0, 1), links.of_gpu(0)
    assert pair is not None
    assert gpu is not None
    assert pair.gbs == gpu.gbs == 53.1
    slow = links.of_pair(0, 2)
    assert slow is not None
    assert slow.gbs == pytest.approx(15.8)
    assert slow.basis == "nvidia-smi: PCIe 4.0 x8"
    assert parse_links("", "", "").of_pair(0, 1) is None


def test_what_cannot_be_measured_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trace_analyzer.collectors.bench_document.gpu_count", lambda: 0)
    assert settle("auto", None, 30, 5) == Settings(device="cpu", ranks=2, repetitions=30, warmup=5)
    with pytest.raises(BenchError, match="no GPU"):
        settle("cuda", None, 30, 5)
    with pytest.raises(BenchError, match="30 or more"):
        settle("cpu", None, 10, 5)
    with pytest.raises(BenchError, match="two ranks"):
        bench_links.run(Settings(device="cpu", ranks=1))
    with pytest.raises(BenchError, match="cannot be shared"):
        bench_step.run(Settings(device="cpu", ranks=3), bench_step.Shape(batch=16))
    assert bench_step.rank_counts(6) == [1, 2, 4, 6]
    assert [size_text(size) for size in (4, 1 << 10, 3 << 20, 1 << 30)] == [
        "4 B",
        "1 KiB",
        "3 MiB",
        "1 GiB",
    ]


@pytest.mark.torch
def test_a_rank_that_fails_is_named() -> None:
    with pytest.raises(RanksError, match=r"rank 0: KeyError: 'nonsense'"):
        run_ranks(
            "trace_analyzer.collectors.bench_worker", 1, {"kind": "nonsense", "device": "cpu"}
        )


def invoke(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> Result:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(folder)
    common = ("--device", "cpu", "--repetitions", "30", "--warmup", "2")
    return CliRunner().invoke(bench, [*arguments, *common], catch_exceptions=False)


@pytest.mark.torch
def test_allreduce_and_links_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = invoke(monkeypatch, tmp_path, "allreduce", "--sizes", "1K,256K")
    assert done.exit_code == 0
    assert "busbw GB/s" in done.stdout
    document = validate(json.loads((tmp_path / "bench_allreduce.json").read_text()))
    assert [row["bytes"] for row in document["rows"]] == [1 << 10, 256 << 10]
    assert document["backend"] == "gloo"
    assert document["limit"] is None

    done = invoke(monkeypatch, tmp_path, "links", "--sizes", "4,256K", "-o", "-")
    document = validate(json.loads(done.stdout))
    assert [(row["src"], row["dst"]) for row in document["rows"]] == [(0, 1), (1, 0)]
    assert document["both_directions"][0]["bandwidth_gbs"] > 0

    again = invoke(monkeypatch, tmp_path, "allreduce", "--sizes", "1K,4K")
    assert again.exit_code == 2
    assert "--force" in again.output


@pytest.mark.torch
def test_step_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = ("--widths", "8,16,32", "--layers", "1", "--sequence", "4", "--vocabulary", "16")
    done = invoke(monkeypatch, tmp_path, "step", *shape, "--batch", "2")
    assert done.exit_code == 0
    document = validate(json.loads((tmp_path / "bench_step.json").read_text()))
    assert len({row["gradient_bytes"] for row in document["rows"]}) == 3
    assert [row["mode"] for row in document["rows"]] == ["strong", "weak"] * 3
    assert [row["batch_per_rank"] for row in document["rows"]] == [1, 2] * 3


def test_sizes_are_read_or_refused() -> None:
    refused = CliRunner().invoke(bench, ["allreduce", "--sizes", "4X", "--device", "cpu"])
    assert refused.exit_code == 2
    assert "is no size" in refused.output
