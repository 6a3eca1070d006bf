"""Symptoms that users reported of several ranks, as constructed traces: their cause comes first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.rules.loop import all_codes
from tests.rules.ranks import Ranks
from tests.rules.reported import MB, ddp, forward, whole
from trace_analyzer.model import Run
from trace_analyzer.tables import HostCategory, OperationKind

ANNOTATION = HostCategory.ANNOTATION
ACCUMULATE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"


def test_random_image_sizes_on_every_gpu() -> None:
    dice = np.random.default_rng(3)
    ranks = Ranks()
    for _ in range(12):
        ranks.step()
        for rank in range(2):
            larger = float(dice.uniform(0.6, 1.6))
            ranks.kernels(10, 200 * larger, "conv forward", rank, grid=round(1_000 * larger))
            ranks.kernels(10, 400 * larger, "conv backward", rank, grid=round(2_000 * larger))
        ranks.collective(20 * MB)
        ranks.join()
        ranks.kernels(2, 300, "sgd")
    assert all_codes(ranks.run())[0] == ("RANK003", [0, 1])


def test_pauses_of_other_ranks_in_every_gather() -> None:
    """Stragglers out of step in the all-gathers of FSDP: each collects garbage when it likes."""
    dice = np.random.default_rng(11)
    when = [set(dice.choice(16, 3, replace=False).tolist()) for _ in range(4)]
    ranks = Ranks(world=4)
    for number in range(16):
        ranks.step()
        for layer in range(4):
            ranks.collective(64 * MB, operation="allgather")
            ranks.join()
            ranks.kernels(5, 200)
            for rank in range(4):
                if layer == 2 and number in when[rank]:
                    ranks.silent(200_000, rank)
        ranks.collective(64 * MB, operation="reducescatter")
        ranks.join()
        ranks.kernels(2, 200, "adam")
    assert all_codes(ranks.run())[0] == ("HOST003", [0, 1, 2, 3])


def late(ranks: Ranks, number: int, count: int, us: float) -> None:
    """Launch kernels, on one rank with much Python between them."""
    for _ in range(count):
        ranks.kernels(1, 20)
        ranks.event("aten::mul", us, number)
        for other in range(ranks.world):
            if other != number:
                ranks.event("aten::mul", 10, other)


def test_all_reduces_that_last_100_ms_longer_on_one_rank() -> None:
    """The rank with the shortest time came last."""
    ranks = Ranks()
    for _ in range(6):
        ranks.step()
        late(ranks, 0, 100, 1_000)
        ranks.collective(64 * MB, 280.0)
        ranks.join()
        ranks.kernels(10, 400, "adam")
    assert all_codes(ranks.run())[0] == ("RANK001", [0])


@pytest.mark.parametrize("sized", [True, False])
def test_a_grid_of_one_block_waits_188_ms_for_its_peer(*, sized: bool) -> None:
    ranks = Ranks()
    for _ in range(6):
        ranks.step()
        late(ranks, 1, 100, 1_880)
        ranks.collective(8_192, 0.1, channels=1, block=64, sized=sized)
        ranks.join()
        ranks.kernels(10, 400)
    codes = all_codes(ranks.run())
    assert codes[0] == ("RANK001", [1])
    assert not {"COMM003", "COMM004", "COMM010"} & {code for code, _ in codes}


def test_one_rank_loads_and_sends_to_all() -> None:
    """An IterableDataset that one process reads for all: more GPUs, slower steps."""
    ranks = Ranks(world=4)
    for _ in range(8):
        ranks.step()
        ranks.event(
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 9_000, 0, ANNOTATION
        )
        begin = list(ranks.now)
        ranks.collective(4 * MB, operation="broadcast")
        for rank, builder in enumerate(ranks.builders):
            builder.event("c10d::broadcast_", begin[rank], ranks.now[rank],
                          category=HostCategory.OPERATOR)  # fmt: skip
        ranks.join()
        forward(ranks, 10, 100)
        ranks.kernels(20, 100)
        ranks.collective(20 * MB)
        ranks.join()
        ranks.kernels(2, 100, "adam")
    assert all_codes(ranks.run())[0] == ("DATA001", [0])


def unsharded(sampler: str) -> Run:
    settings = {rank: {"setting.dataloader.sampler": sampler} for rank in range(2)}
    return replace(ddp(), environment=settings)


def test_data_that_nothing_shards() -> None:
    """An epoch takes as long on two GPUs as on one, though no step is slower."""
    assert all_codes(unsharded("RandomSampler")) == [("DATA004", [0, 1])]
    assert all_codes(unsharded("DistributedSampler")) == []


def searched(search_us: float, kernel_us: float) -> Run:
    """Return ranks on which DDP searches for unused parameters after forward."""
    ranks = Ranks()
    for _ in range(8):
        ranks.step()
        begin = list(ranks.now)
        ranks.kernels(20, kernel_us, host_us=20)
        ranks.event("torch.distributed.ddp.reducer::search_unused_parameters", search_us)
        for rank, builder in enumerate(ranks.builders):
            builder.event("DistributedDataParallel.forward", begin[rank], ranks.now[rank])
        ranks.kernels(40, kernel_us, host_us=20)
        begin = list(ranks.now)
        ranks.event("torch::autograd::AccumulateGrad", 10)
        ranks.collective(8 * MB)
        for rank in range(2):
            start = ranks.now[rank] + 5_000
            ranks.launch(rank, "Memcpy HtoD (Pinned -> Device)", start, start + 1_000, 19,
                         kind=OperationKind.MEMCPY, size=800)  # fmt: skip
        ranks.collective(800, 0.1, channels=1, block=128)
        for rank, builder in enumerate(ranks.builders):
            builder.event(ACCUMULATE, begin[rank], ranks.now[rank], category=HostCategory.OPERATOR)
        ranks.join()
        ranks.kernels(2, 50, "adam")
    return ranks.run()


def test_a_search_for_unused_parameters_that_slows_forward() -> None:
    assert all_codes(searched(3_000, 19))[0] == ("COMM006", [0, 1])


def test_a_search_for_unused_parameters_without_measurable_impact() -> None:
    found = whole(searched(600, 120))
    assert [item.code for item in found.findings if item.kind == "fault"] == []
    (check,) = [item for item in found.checks if item.code == "COMM006"]
    assert check.state == "passed"


def test_ddp_and_compile_compile_every_shape_again() -> None:
    ranks = Ranks()
    for number in range(12):
        ranks.step()
        if number % 3 == 2:
            ranks.event("entire_frame_compile", 300_000)
        forward(ranks, 10, 100)
        ranks.kernels(20, 100)
        ranks.collective(20 * MB)
        ranks.join()
        ranks.kernels(2, 100, "adam")
    assert all_codes(ranks.run())[0] == ("HOST006", [0, 1])
