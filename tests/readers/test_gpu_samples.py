"""Samples of clocks and processes beside a run, and what they say of a rank's GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.builder import RankBuilder, run_of
from trace_analyzer.analyses.gpu_state import AROUND_NS, gpu_of, gpu_states
from trace_analyzer.bundle import Role
from trace_analyzer.collectors.sampler import COLUMNS, to_parquet
from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.model import Device, Run
from trace_analyzer.readers.gpu_samples import read
from trace_analyzer.readers.sidecars import SidecarFile, read_sidecars

BASE = 1_700_000_000_000_000_000
LIMITED = 0x04


def table(
    folder: Path, gpu: int = 0, *, clock: int = 1_980, others: str = "", limits: int = 0
) -> Path:
    """Write a sample every 0.1 s, from 5 s before the recording to 5 s after its start."""
    path = folder / f"gpu{gpu}.csv"
    lines = [",".join(COLUMNS)]
    for number in range(100):
        row = dict.fromkeys(COLUMNS, "")
        row |= {
            "time_unix_ns": str(BASE + (number - 50) * 100_000_000),
            "sm_clock_mhz": str(clock if 40 <= number < 60 else 345),
            "clock_limit_reasons": str(limits if number % 2 else 0),
            "power_w": "690.5",
            "temperature_c": "61" if number % 3 else "",
            "foreign_processes": others if number % 10 == 0 else "",
        }
        lines.append(",".join(row[name] for name in COLUMNS))
    path.write_text("\n".join(lines) + "\n")
    return path


def made(folder: Path, **settings: str) -> Run:
    """Return a run of one rank, 20 ms long, beside its samples."""
    builder = RankBuilder()
    builder.operation("k", 0, 20_000_000)
    rank = replace(builder.build(), clock_base_ns=BASE, settings=settings)
    return run_of(rank, gpu_samples=(read(folder / "gpu0.csv", display="gpu0.csv"),))


def test_only_samples_around_the_recording_count(tmp_path: Path) -> None:
    table(tmp_path, others="2", limits=LIMITED)
    state = gpu_states(made(tmp_path))[0]
    assert state.samples == 2 * AROUND_NS // 100_000_000 + 1
    assert state.clock_mhz == 1_980
    assert state.limits[0][0] == "power limit"
    assert state.foreign_processes == 2
    assert state.in_words == (
        "at 1,980 MHz, 690 W, 61 °C, held down by power limit in 48 % of samples, "
        "with 2 other processes on it"
    )


def test_parquet_holds_the_same(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    plain = read(table(tmp_path, others="1"), display="gpu0.csv")
    packed = read(to_parquet(tmp_path / "gpu0.csv"), display="gpu0.parquet")
    for name in ("time_unix_ns", "sm_clock_mhz", "clock_limits", "power_w", "temperature_c"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(packed, name))
    np.testing.assert_array_equal(plain.foreign_processes, packed.foreign_processes)


@pytest.mark.parametrize(
    ("visible", "gpu"), [("", 0), ("3,1", 3), ("3", 3), ("MIG-0f", None), ("GPU-ab,GPU-cd", None)]
)
def test_a_rank_counts_the_gpus_that_it_sees(tmp_path: Path, visible: str, gpu: int | None) -> None:
    table(tmp_path)
    run = made(tmp_path, **({"CUDA_VISIBLE_DEVICES": visible} if visible else {}))
    assert gpu_of(run, run.ranks[0]) == gpu
    known = replace(run.ranks[0], devices=(Device(ordinal=0, gpu=5),))
    assert gpu_of(run, known) == 5


def test_several_hosts_count_their_gpus_alike_and_are_left_out(tmp_path: Path) -> None:
    table(tmp_path)
    run = made(tmp_path)
    ranks = (replace(run.ranks[0], host="a"), replace(run.ranks[0], rank=1, host="b"))
    assert gpu_states(replace(run, ranks=ranks)) == {}


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("gpu0.csv", "a,b\n1,2\n", "no column time_unix_ns"),
        ("gpu0.csv", "", "no column"),
        ("gpu0.parquet", "PAR1", "not a table of samples"),
        ("samples.csv", "time_unix_ns\n", "which GPU"),
    ],
)
def test_what_is_no_table_of_samples_is_named(
    tmp_path: Path, name: str, text: str, part: str
) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UnreadableInputError, match=part):
        read(path, display=name)
    found = read_sidecars([SidecarFile(path=path, name=name, role=Role.SAMPLER)])
    assert found.gpu_samples == []
    assert [warning.code for warning in found.warnings] == ["TRC009"]


def test_damaged_cells_and_times_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "gpu1.csv"
    path.write_text(
        "time_unix_ns,sm_clock_mhz,power_w\n"
        f"{BASE + 5},x,700\nnonsense,1,2\n{BASE},1500,\n-3,1,1\n{'9' * 19},7\n"
    )
    found = read(path, display="gpu1.csv")
    assert found.gpu == 1
    assert found.time_unix_ns.tolist() == [BASE, BASE + 5]
    assert np.isnan(found.sm_clock_mhz[1])
    assert found.sm_clock_mhz[0] == 1500
    assert np.isnan(found.foreign_processes).all()
