"""Symptoms that users reported, as constructed traces: the cause they found comes first."""

from __future__ import annotations

import numpy as np

from tests.rules.loop import Loop, all_codes, ranks, single
from trace_analyzer.tables import HostCategory, OperationKind

OPERATOR = HostCategory.OPERATOR
DTOH = "Memcpy DtoH (Device -> Pinned)"


def layers(loop: Loop, count: int = 40, us: float = 100) -> None:
    for number in range(count):
        loop.launch(f"gemm {number}", us, host_us=12)


def item(loop: Loop) -> None:
    """Read one value, as `.item()` does."""

    def read() -> None:
        loop.launch(DTOH, 1, kind=OperationKind.MEMCPY, size=4)
        loop.wait()

    loop.inside("aten::item", read, category=OPERATOR)


def test_loss_item_in_every_step_shows_40_ms_of_stream_synchronize() -> None:
    def body(loop: Loop, _: int) -> None:
        layers(loop, us=1_000)
        item(loop)
        loop.event("aten::log", 400, category=OPERATOR)
        for _ in range(40):  # Python that the queue would have hidden
            loop.event("aten::mul", 90, category=OPERATOR)

    assert all_codes(single(body))[0] == ("HOST002", [0])


def test_a_value_is_read_for_every_parameter() -> None:
    """A check of gradients for NaN, one `.item()` a parameter."""

    def body(loop: Loop, _: int) -> None:
        layers(loop)
        for _ in range(60):
            loop.event("aten::isnan", 15, category=OPERATOR)
            loop.launch("isnan", 3)
            item(loop)

    assert all_codes(single(body))[0] == ("HOST002", [0])


def test_one_rank_collects_garbage_for_300_ms_and_the_others_wait() -> None:
    dice = np.random.default_rng(3)
    when = [set(dice.choice(20, 3, replace=False).tolist()) for _ in range(2)]

    def body(loop: Loop, number: int) -> None:
        layers(loop)
        if number in when[loop.rank]:
            loop.silent(300_000)

    assert all_codes(ranks(body, steps=20))[0] == ("HOST003", [0, 1])


def test_rank_0_writes_its_log_in_every_iteration() -> None:
    def body(loop: Loop, _: int) -> None:
        layers(loop)
        if loop.rank == 0:
            loop.silent(9_000)

    codes = all_codes(ranks(body))
    assert codes[0] == ("HOST003", [0])


def test_cuda_malloc_retries_in_every_step() -> None:
    def allocate(loop: Loop) -> None:
        loop.wait("cudaFree")
        for _ in range(6):
            loop.call("cudaFree", 300)
        loop.call("cudaMalloc", 900)

    def body(loop: Loop, _: int) -> None:
        layers(loop, 20)
        loop.inside("aten::empty", lambda: allocate(loop), category=OPERATOR)
        layers(loop, 20)

    assert all_codes(ranks(body))[0] == ("MEM001", [0, 1])


def test_rank_0_loads_for_all_and_broadcasts() -> None:
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"

    def body(loop: Loop, _: int) -> None:
        if loop.rank == 0:
            loop.event(name, 12_000)
        loop.copy("Memcpy HtoD (Pinned -> Device)", 20, 1 << 20)
        layers(loop)

    assert all_codes(ranks(body))[0] == ("DATA001", [0])


def test_the_optimizer_dispatches_900_operators() -> None:
    def update(loop: Loop) -> None:
        for _ in range(900):
            loop.event("aten::mul_", 100, category=OPERATOR)
            loop.launch("vectorized_elementwise_kernel", 12, host_us=40)

    def body(loop: Loop, _: int) -> None:
        layers(loop, 40, 500)
        loop.inside("Optimizer.step#AdamW.step", lambda: update(loop))

    assert all_codes(single(body))[0] == ("HOST004", [0])


def test_every_worker_process_sits_on_one_core() -> None:
    dice = np.random.default_rng(5)

    def body(loop: Loop, _: int) -> None:
        hit = set(dice.choice(40, 5, replace=False).tolist())
        for number in range(40):
            loop.silent(4_000 if number in hit and number % 2 else 4)
            loop.launch(
                f"gemm {number}",
                40,
                host_us=4_000 if number in hit and not number % 2 else 12,
            )

    assert all_codes(single(body))[0] == ("HOST007", [0])


def test_scheduled_saves_stop_all_ranks() -> None:
    def body(loop: Loop, number: int) -> None:
        layers(loop)
        if loop.rank == 0 and number % 5 == 3:
            for _ in range(20):
                loop.copy("Memcpy DtoH (Device -> Pageable)", 900, 8_000_000, blocking=True)
            loop.silent(80_000)

    codes = all_codes(ranks(body, steps=16))
    assert codes[0] == ("STEP001", [0])
