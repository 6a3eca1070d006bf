"""How much slower kernels are beside communication, where ranks do not do the same work."""

from __future__ import annotations

import pytest

from tests.rules.ranks import COMM, COMPUTE, KERNELS, Ranks
from trace_analyzer.analyses.contention import Contention
from trace_analyzer.analyses.study import study

SLOWER = 1.5
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
RELU = "void at::native::vectorized_elementwise_kernel<4, relu>"
MB = 1_000_000


def late(
    *, larger: float = 1.0, extra: int = 0, every_kernel_longer: float = 1.0, steps: int = 5
) -> Contention:
    """Return the contention of a run whose rank 0 waits in NCCL through all of its backward.

    Rank 1 has `extra` more kernels, or element-wise launches `larger` times as large; its
    products, whose launches always look alike, then take `every_kernel_longer` times as long.
    """
    ranks = Ranks()
    for _ in range(steps):
        ranks.step()
        for rank, size in enumerate((1.0, larger)):
            time = every_kernel_longer if rank else 1.0
            ranks.kernels(10, 200 * time, GEMM, rank, grid=132)
            ranks.kernels(20, 50 * time, RELU, rank, grid=round(1_000 * size))
            if rank:
                ranks.kernels(extra, 400, GEMM, rank, grid=132)
        begin = {rank: ranks.free[rank, COMPUTE] for rank in range(2)}
        ranks.kernels(20, 300 * SLOWER, GEMM, 0, grid=132)
        ranks.kernels(20, 300 * every_kernel_longer, GEMM, 1, grid=132)
        end = max(ranks.free[rank, COMPUTE] for rank in range(2)) + 100_000
        start = (begin[0], end - 50_000)
        for rank in range(2):
            ranks.launch(
                rank,
                KERNELS["allreduce"],
                start[rank],
                end,
                COMM,
                grid=24,
                block=544,
                operation="allreduce",
                group=0,
                dtype="Float",
                elements=2 * MB,
                message_bytes=8 * MB,
            )
        ranks.pending += 1
        ranks.join()
    return study(ranks.run()).contention


def test_the_same_kernels_of_a_late_rank_are_alone() -> None:
    found = late()
    assert found.alpha["matrix"] == pytest.approx(SLOWER - 1.0, abs=0.01)


def test_kernels_that_only_one_rank_launches_are_not_taken_for_the_others() -> None:
    # The extra products stand before the others: by place, each would meet another kernel.
    found = late(extra=15)
    assert found.alpha["matrix"] is None or found.alpha["matrix"] == pytest.approx(
        SLOWER - 1.0, abs=0.01
    )


def test_products_that_are_longer_because_the_batch_is_are_scaled() -> None:
    found = late(larger=1.25, every_kernel_longer=1.25)
    assert found.alpha["matrix"] == pytest.approx(SLOWER - 1.0, abs=0.01)


def test_work_that_has_nothing_in_common_gives_no_factor() -> None:
    ranks = Ranks()
    for _ in range(5):
        ranks.step()
        ranks.kernels(10, 200, GEMM, 0, grid=132)
        ranks.kernels(10, 200, RELU, 1, grid=1_000)
        ranks.collective(8 * MB)
        ranks.join()
    assert study(ranks.run()).contention.alpha["matrix"] is None
