"""COMM001: gradients that travel when nothing is left to compute."""

from __future__ import annotations

import pytest

from tests.rules.loop import context_of, diagnosed, recoverable_ms
from tests.rules.ranks import COMM, COMPUTE, Ranks
from trace_analyzer.analyses.gradient_sizes import buckets, gradient_sizes
from trace_analyzer.analyses.overlap import hideable
from trace_analyzer.model import Run
from trace_analyzer.rules.exposed_collective import RULE

MB = 1_000_000
LAYER = 32 * 1024 * 1024  # bytes of a layer's gradient, 16,384 blocks of 512 floats
MUL = "void at::native::vectorized_elementwise_kernel<4, AUnaryFunctor<float, MulFunctor>>"


def trained(
    layers: int = 12,
    *,
    bucketed: bool = False,
    by_hand: bool = False,
    gbs: float = 300.0,
    divided: bool = True,
    first: int = 1,
    late_us: float = 0.0,
) -> Run:
    """Return two ranks; the gradient of the first layer, ready last, is `first` times a layer's."""
    ranks = Ranks()
    stream = COMPUTE if by_hand else COMM
    for _ in range(6):
        ranks.step()
        if late_us:
            ranks.silent(late_us, rank=1)
        ranks.kernels(12, 200, "relu")
        sizes = [LAYER] * (layers - 1) + [first * LAYER]
        for size in sizes:
            ranks.kernels(2, 200, "relu")
            if divided:
                ranks.kernels(1, 10, MUL, grid=size // 2048)
            if bucketed:
                ranks.collective(size, gbs)
        if by_hand:
            for size in sizes:
                ranks.collective(size, gbs, stream=stream)
        elif not bucketed:
            ranks.collective(sum(sizes), gbs)
        ranks.join()
        ranks.kernels(1, 500, "adam")
    return ranks.run()


def test_one_bucket_for_all_gradients() -> None:
    diagnosis = diagnosed(RULE, trained())
    (finding,) = diagnosis.findings
    assert "403 MB of gradients are reduced only when backward is through" in finding.title
    # 1.28 ms by the reference; left are 0.14 ms of the last bucket, and, as all kernels are
    # elementwise, 1.5 × 0.1 of the 1.54 ms that 11 buckets take.
    assert finding.recoverable_ms == pytest.approx(1.28 - 0.14 - 0.23, abs=0.1)


def test_reductions_by_hand_after_backward() -> None:
    assert recoverable_ms(diagnosed(RULE, trained(by_hand=True))) > 0.9


def test_buckets_that_overlap_are_well() -> None:
    diagnosis = diagnosed(RULE, trained(bucketed=True))
    assert diagnosis.findings == []
    assert diagnosis.checks[0].state == "passed"


def test_a_large_first_layer_cannot_be_hidden() -> None:
    """Half of the gradients belong to the embedding, which is ready last."""
    diagnosis = diagnosed(RULE, trained(6, bucketed=True, first=5))
    assert diagnosis.findings == []
    assert "what the last bucket takes anyway" in diagnosis.checks[0].reason


def test_slow_links_make_no_reduction_late() -> None:
    assert diagnosed(RULE, trained(bucketed=True, gbs=20.9)).findings == []


def test_a_late_rank_makes_no_reduction_late() -> None:
    assert diagnosed(RULE, trained(bucketed=True, late_us=8_000)).findings == []


def test_tensor_parallelism_reduces_no_gradients() -> None:
    ranks = Ranks()
    for _ in range(6):
        ranks.step()
        for _ in range(12):
            ranks.kernels(4, 100, "relu")
            ranks.collective(LAYER, 300.0, stream=COMPUTE)
        ranks.kernels(1, 500, "adam")
    assert diagnosed(RULE, ranks.run()).findings == []


def test_reductions_between_many_layers() -> None:
    ranks = Ranks()
    for _ in range(6):
        ranks.step()
        for _ in range(48):
            ranks.kernels(4, 100, "relu")
            ranks.collective(LAYER, 300.0, stream=COMPUTE)
    diagnosis = diagnosed(RULE, ranks.run())
    assert diagnosis.checks[0].state == "passed"


def test_what_could_hide_is_told_by_launches() -> None:
    context = context_of(trained(bucketed=True))
    assert context.replay is not None
    found = hideable(context.replay.built, context.replay.base)[0]
    mine = found.after_ns[found.step == 1]
    assert mine == pytest.approx([(11 - k) * 410_000 for k in range(12)], abs=1)
    assert bool(found.used[found.step == 1].all())


def test_sizes_of_gradients_are_read_from_launch_shapes() -> None:
    rank = trained().ranks[0]
    rows = context_of(trained()).study.ranks[0].steps.operation_host_step == 1
    size = gradient_sizes(rank, rows.nonzero()[0], 12 * LAYER)
    assert size is not None
    assert size.tolist() == [LAYER] * 12
    assert gradient_sizes(rank, rows.nonzero()[0], 13 * LAYER) is None
    assert buckets(size) == [LAYER] * 12
    assert buckets(size // 4) == [LAYER, LAYER, LAYER]
