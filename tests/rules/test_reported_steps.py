"""Symptoms that users reported of one process or all alike, as constructed traces."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rules.loop import Loop, all_codes, context_of, ranks, single
from tests.rules.test_reported_hosts import layers
from tests.rules.test_single_process_data_parallel import process
from trace_analyzer.rules.catalogue import rules
from trace_analyzer.rules.judge import diagnose
from trace_analyzer.tables import HostCategory, OperationKind

OPERATOR = HostCategory.OPERATOR
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
FUSED = "multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor>"


def optimizer(loop: Loop, kernels: int, us: float, host_us: float) -> None:
    """Step an AdamW: `kernels` kernels with `host_us` of operators before each."""

    def update() -> None:
        for _ in range(kernels):
            loop.event("aten::_foreach_mul_", host_us, category=OPERATOR)
            loop.launch("multi_tensor_apply_kernel<BinaryOpScalarFunctor>", us)

    loop.inside("Optimizer.step#AdamW.step", update)


def test_one_process_drives_both_gpus_and_gains_little() -> None:
    assert all_codes(process(together=True, named=True))[0] == ("COMM012", [0])


def test_pauses_of_1300_ms_that_come_back() -> None:
    """A scan of a large heap, when enough objects were made."""
    dice = np.random.default_rng(2)
    when = set(np.cumsum(dice.integers(3, 6, 8)).tolist())

    def body(loop: Loop, number: int) -> None:
        layers(loop)
        if number in when:
            loop.silent(float(dice.uniform(1_250_000, 1_460_000)))

    assert all_codes(single(body, steps=24))[0] == ("HOST003", [0])


def test_eight_processes_share_two_cores() -> None:
    dice = np.random.default_rng(5)

    def body(loop: Loop, _: int) -> None:
        hit = set(dice.choice(40, 6, replace=False).tolist())
        for number in range(40):
            loop.launch(f"gemm {number}", 40, host_us=5_000 if number in hit else 12)

    assert all_codes(ranks(body, world=4))[0] == ("HOST007", [0, 1, 2, 3])


def test_adamw_takes_a_third_of_the_step_after_sharding() -> None:
    """Each operator of the optimizer is dispatched through wrappers that a debugger traces."""

    def body(loop: Loop, _: int) -> None:
        for number in range(80):
            loop.event("aten::linear", 930, category=OPERATOR)
            loop.launch(f"gemm {number}", 1_000)
        optimizer(loop, kernels=24, us=90, host_us=1_500)

    assert all_codes(ranks(body))[0] == ("HOST004", [0, 1])


def test_a_fused_optimizer_gives_back_three_percent() -> None:
    """Optimizer 22 to 8 ms, step 922 to 892 ms: worth saying, and no fault."""

    def body(loop: Loop, _: int) -> None:
        layers(loop, 90, 1_000)
        loop.wait()
        optimizer(loop, kernels=220, us=3, host_us=25)

    found = diagnose(context_of(single(body)), rules())
    assert not [check.reason for check in found.checks if check.state == "error"]
    ((code, kind, gain),) = [
        (item.code, item.kind, item.recoverable_ms)
        for item in found.findings
        if item.code == "HOST004"
    ]
    assert (code, kind) == ("HOST004", "opportunity")
    assert gain is not None
    assert gain < 0.05 * 90


def test_a_fused_optimizer_is_no_chain() -> None:
    def body(loop: Loop, _: int) -> None:
        layers(loop)
        loop.inside("Optimizer.step#AdamW.step", lambda: loop.launches(8, 400, FUSED))

    assert all_codes(single(body)) == []


def test_a_learning_rate_that_is_a_python_number_compiles_every_step_again() -> None:
    def update(loop: Loop) -> None:
        loop.event("entire_frame_compile", 60_000, category=OPERATOR)
        loop.launch("triton_fused_adamw", 400)

    def body(loop: Loop, _: int) -> None:
        layers(loop)
        loop.inside("Optimizer.step#AdamW.step", lambda: update(loop))

    assert all_codes(single(body))[0] == ("HOST006", [0])


def test_cuda_graphs_are_recorded_for_nine_sizes() -> None:
    def body(loop: Loop, number: int) -> None:
        layers(loop, 20)
        if number in (2, 3, 5, 6, 8, 11, 12, 14, 17):
            loop.call("cudaStreamBeginCapture", 10)
            for _ in range(30):
                loop.event("aten::mm", 300, category=OPERATOR)
            loop.call("cudaGraphInstantiate", 5_000)
        layers(loop, 20)

    assert all_codes(single(body, steps=20))[0] == ("HOST006", [0])


@pytest.mark.parametrize("sharded", [False, True])
def test_data_on_a_slow_disk(*, sharded: bool) -> None:
    def body(loop: Loop, _: int) -> None:
        loop.event(LOADER, 15_000)
        loop.copy("Memcpy HtoD (Pinned -> Device)", 20, 1 << 20)
        layers(loop)

    run = ranks(body) if sharded else single(body)
    assert all_codes(run)[0] == ("DATA001", [0, 1] if sharded else [0])


@pytest.mark.parametrize("world", [1, 2])
def test_a_loss_scale_that_is_read_in_every_step(world: int) -> None:
    def check(loop: Loop) -> None:
        loop.launch("multi_tensor_apply_kernel<UnaryOpFunctor non_finite_check>", 60)

        def read() -> None:
            loop.launch("Memcpy DtoH (Device -> Pageable)", 1, kind=OperationKind.MEMCPY, size=4)
            loop.wait()

        loop.inside("aten::item", read, category=OPERATOR)
        loop.inside("Optimizer.step#AdamW.step", lambda: loop.launches(8, 100, FUSED))

    def body(loop: Loop, _: int) -> None:
        layers(loop, 40, 150)
        check(loop)
        for _ in range(30):  # the next batch, and what the queue would have hidden
            loop.event("aten::mul", 60, category=OPERATOR)

    codes = all_codes(single(body) if world == 1 else ranks(body))
    assert codes[0] == ("HOST002", list(range(world)))
