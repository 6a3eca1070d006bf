"""GPU004: the same kernels take longer on one GPU, or now and then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.rules.loop import Loop, context_of, diagnosed, recoverable_ms, single
from tests.rules.ranks import COMM, Ranks
from tests.rules.recorded import diagnosed_recording
from trace_analyzer.gpu_facts import GpuSamples
from trace_analyzer.model import Run
from trace_analyzer.rules import late_rank_device
from trace_analyzer.rules.judge import diagnose
from trace_analyzer.rules.slow_device import RULE

MB = 1_000_000
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
COPY = "void at::native::vectorized_elementwise_kernel<4, add>"


def trained(mathematics: float, memory: float, *, one_in: int = 1, beside: bool = False) -> Run:
    """Return a run whose last rank's kernels, or one of `one_in`, take longer."""
    ranks = Ranks()
    for _ in range(6):
        ranks.step()
        if beside:  # a kernel on another stream, from the start of the step
            ranks.wait()
            begin = ranks.now[1]
            ranks.now[1] = begin + 5_000
            ranks.builders[1].operation(
                "spin",
                begin + 5_000,
                begin + 5_000_000,
                launch=(begin, begin + 5_000),
                stream=COMM + 1,
            )
        for rank in range(2):
            slow = rank == 1
            for number in range(20):
                hit = slow and number % one_in == 0
                ranks.kernels(1, 200 * (mathematics if hit else 1.0), GEMM, rank)
                ranks.kernels(1, 100 * (memory if hit else 1.0), COPY, rank)
        ranks.collective(8 * MB)
        ranks.join()
        ranks.kernels(1, 500, "adam")
    return ranks.run()


def test_slow_mathematics_and_fast_memory_is_a_low_clock() -> None:
    found = diagnosed(RULE, trained(1.4, 1.02))
    (finding,) = found.findings
    assert finding.kind == "fault"
    assert finding.ranks == [1]
    assert finding.title.endswith("its clock is low.")
    assert recoverable_ms(found) == pytest.approx(20 * 0.2 * 0.4 + 20 * 0.1 * 0.02, abs=0.1)


def test_few_kernels_that_take_many_times_as_long_are_somebody_elses() -> None:
    (finding,) = diagnosed(RULE, trained(8.0, 1.0, one_in=10)).findings
    assert "something else uses the GPU" in finding.title
    assert "pmon" in finding.actions[0]


def test_all_slower_alike_is_neither() -> None:
    (finding,) = diagnosed(RULE, trained(1.3, 1.3)).findings
    assert finding.title.startswith("Rank 1's GPU takes 28 % longer")
    assert "clock" not in finding.title


def test_kernels_of_another_stream_beside_are_named() -> None:
    (finding,) = diagnosed(RULE, trained(1.5, 1.2, beside=True)).findings
    assert "another stream of the same process" in finding.title


def test_the_slow_gpu_explains_the_late_rank() -> None:
    found = diagnose(context_of(trained(1.4, 1.0)), [late_rank_device.RULE, RULE])
    assert [finding.code for finding in found.findings] == ["GPU004", "RANK002"]
    assert found.findings[1].caused_by == "GPU004"


def test_samples_beside_the_run_say_what_the_gpu_did() -> None:
    run = trained(1.4, 1.02)
    count = 10

    def samples(gpu: int, clock: float, limits: int) -> GpuSamples:
        return GpuSamples(
            gpu=gpu,
            time_unix_ns=np.arange(count) * 10_000_000,
            sm_clock_mhz=np.full(count, clock),
            clock_limits=np.full(count, limits),
            power_w=np.full(count, np.nan),
            temperature_c=np.full(count, 87.0),
            foreign_processes=np.zeros(count),
        )

    beside = (samples(0, 1_980.0, 0), samples(1, 1_400.0, 0x40))
    (finding,) = diagnosed(RULE, replace(run, gpu_samples=beside)).findings
    assert "at 1,400 MHz, 87 °C, held down by temperature (hardware)" in finding.proof
    assert finding.evidence[1].rows[0][:3] == [0, 0, 1_980.0]
    assert not finding.limits


def disturbed(factor: float) -> Run:
    """Return a run of one rank in which other kernels of each step are slow."""

    def body(loop: Loop, number: int) -> None:
        for place in range(40):
            loop.launch(GEMM, 100 * (factor if (place + 7 * number) % 8 == 0 else 1.0))

    return single(body)


def test_a_gpu_that_is_shared_now_and_then_is_compared_with_itself() -> None:
    found = diagnosed(RULE, disturbed(5.0))
    (finding,) = found.findings
    assert "times as long as in other steps" in finding.title
    assert recoverable_ms(found) == pytest.approx(5 * 0.4, abs=0.1)


def test_small_differences_are_usual() -> None:
    assert not diagnosed(RULE, disturbed(1.4)).findings
    found = diagnosed(RULE, trained(1.05, 1.05))
    assert not found.findings
    assert found.checks[0].state == "passed"


def test_two_healthy_gpus_under_power_limit_are_left_alone() -> None:
    assert not diagnosed_recording(RULE, "gpt-large-ddp.healthy_1.kineto").findings
