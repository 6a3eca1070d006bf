"""NCCL launches, shapes, sizes and durations in real recordings of both kinds."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from tests.real_runs import H200, studied


@pytest.mark.parametrize("source", ["h200-ddp/{}", "h200-ddp-nsys/{}.sqlite"])
@pytest.mark.parametrize("run", H200)
def test_nccl_has_the_same_launch_shape_in_kineto_and_nsys(source: str, run: str) -> None:
    rows = studied(source.format(run)).collectives
    channels = 1 if run == "nccl_1ch" else 24
    assert {row.key.operation for row in rows} == {"allreduce"}
    assert {row.key.shape.grid for row in rows} == {(channels, 1, 1)}
    assert {row.key.shape.block for row in rows} == {(544, 1, 1)}


def test_message_sizes_are_the_same_in_kineto_and_nsys() -> None:
    kineto, nsys = (
        {
            row.key.message_bytes: len(row.all_durations_ns) / (2 * steps)
            for row in studied(relative).collectives
            if row.key.message_bytes is not None
        }
        for relative, steps in (
            ("h200-ddp/healthy", 5),
            ("h200-ddp-nsys/healthy_payload.sqlite", 6),
        )
    )
    assert kineto == nsys
    assert sum(kineto.values()) == 14
    assert round(sum(size * count for size, count in kineto.items()) / 1e6, 1) == 682.0


NCCL_TOTAL_NS = {
    "healthy": (23718465, 125579068),
    "slow_cpu_rank": (230041436, 17304341),
    "slow_loader": (22136328, 154252284),
    "nccl_1ch": (217852398, 220941883),
    "item_sync": (30461216, 41837945),
    "healthy_payload": (23718465, 125579068),
}


@pytest.mark.parametrize(("run", "total_ns"), NCCL_TOTAL_NS.items(), ids=NCCL_TOTAL_NS)
def test_nccl_counts_and_totals_of_nsys(run: str, total_ns: tuple[int, int]) -> None:
    rows = studied(f"h200-ddp-nsys/{run}.sqlite").collectives
    for rank in (0, 1):
        durations = [row.duration_ns[rank] for row in rows if rank in row.duration_ns]
        assert sum(len(values) for values in durations) == 84
        assert sum(int(values.sum()) for values in durations) == total_ns[rank]


def test_nccl_of_a_two_process_ddp_export() -> None:
    rows = studied("public-nsys/lizhieffe_ddp53_profile.sqlite").collectives
    for rank in (0, 1):
        counts: Counter[tuple[str, str | None, int, int]] = Counter()
        for row in rows:
            grid, block = row.key.shape.grid, row.key.shape.block
            assert grid
            assert block
            dtype = re.search(r"_(bf16|f32|u64)_", row.key.kernel)
            key = (row.key.operation, dtype and dtype[1], grid[0], block[0])
            counts[key] += len(row.duration_ns.get(rank, ()))
        assert counts == {
            ("broadcast", None, 4, 544): 86,
            ("broadcast", None, 1, 128): 25,
            ("allreduce", "bf16", 4, 544): 86,
            ("allreduce", "bf16", 1, 128): 25,
            ("allreduce", "f32", 1, 128): 3,
            ("allreduce", "u64", 1, 128): 5,
        }

    def total_ms(rank: int, kernel: str, least_channels: int) -> float:
        total_ns = sum(
            int(row.duration_ns[rank].sum())
            for row in rows
            if kernel in row.key.kernel and (row.key.shape.grid or (0,))[0] >= least_channels
        )
        return round(total_ns / 1e6, 1)

    assert [total_ms(rank, "Broadcast", 4) for rank in (0, 1)] == [147.1, 14.2]
    assert [total_ms(rank, "_bf16_", 4) for rank in (0, 1)] == [31.3, 28.3]


def test_send_and_receive_of_an_export_without_payload() -> None:
    rows = studied("public-nsys/nsysai_mfu_2gpu_before.sqlite").collectives
    chosen = [row for row in rows if row.key.shape.block == (640, 1, 1)]
    assert {row.key.shape.grid for row in chosen} == {(32, 1, 1)}
    totals = []
    for rank in (0, 1):
        durations = np.concatenate([row.duration_ns[rank] for row in chosen])
        assert len(durations) == 33
        totals.append(round(int(durations.sum()) / 1e6, 2))
    assert totals == [17.17, 8.23]
