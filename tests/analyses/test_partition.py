"""The partition, the idle split and the choice of steady steps."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builder import NCCL, RankBuilder
from trace_analyzer.analyses.idle import LATENCY_LIMIT_NS, find_gaps, idle_parts
from trace_analyzer.analyses.partition import busy, partition, partition_window
from trace_analyzer.analyses.steady import outlier_limit_ns, run_step_ns, steady_steps
from trace_analyzer.analyses.steps import DeviceSteps, device_steps
from trace_analyzer.tables import HostCategory, OperationKind

MS = 1_000_000


def test_parts_of_a_window() -> None:
    builder = RankBuilder()
    builder.operation("gemm", 0, 40)
    builder.operation("gemm", 30, 50, stream=8)
    builder.operation(NCCL, 40, 70, stream=9)
    builder.operation("Memcpy HtoD (Pinned -> Device)", 60, 90, kind=OperationKind.MEMCPY, stream=3)
    builder.operation("gemm", 95, 100)
    parts = partition_window(busy(builder.build()), 0, 100)
    assert parts.compute_ns.tolist() == [55]
    assert parts.comm_ns.tolist() == [30]
    assert parts.comm_exposed_ns.tolist() == [20]
    assert parts.copy_exposed_ns.tolist() == [20]
    assert parts.idle_ns.tolist() == [5]


operations = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20), st.sampled_from("cnm")),
    min_size=1,
    max_size=15,
)


@given(operations, st.lists(st.integers(-5, 90), min_size=2, max_size=6, unique=True))
def test_parts_sum_to_the_length_of_every_window(
    items: list[tuple[int, int, str]], cuts: list[int]
) -> None:
    builder = RankBuilder()
    bits = {letter: np.zeros(100, dtype=np.bool_) for letter in "cnm"}
    for start, length, letter in items:
        kind = OperationKind.MEMCPY if letter == "m" else OperationKind.KERNEL
        builder.operation(NCCL if letter == "n" else "k", start, start + length, kind=kind)
        bits[letter][start + 5 : start + length + 5] = True
    edges = np.array(sorted(cuts), dtype=np.int64)
    parts = partition(busy(builder.build()), edges[:-1], edges[1:])
    total = parts.compute_ns + parts.comm_exposed_ns + parts.copy_exposed_ns + parts.idle_ns
    assert np.array_equal(total, edges[1:] - edges[:-1])
    for k, (low, high) in enumerate(zip(edges[:-1] + 5, edges[1:] + 5, strict=True)):
        c, n, m = (bits[letter][low:high] for letter in "cnm")
        assert parts.compute_ns[k] == c.sum()
        assert parts.comm_ns[k] == n.sum()
        assert parts.comm_exposed_ns[k] == (n & ~c).sum()
        assert parts.copy_exposed_ns[k] == (m & ~c & ~n).sum()
        assert parts.idle_ns[k] == (~c & ~n & ~m).sum()


def idle_builder() -> RankBuilder:
    builder = RankBuilder()
    builder.operation("a", 0, 10 * MS, launch=(-5, -1))
    # Launched at 14 ms: 4 ms late, of which 3 ms loading data; starts 5 µs after the call.
    builder.event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 10 * MS, 13 * MS)
    builder.operation("b", 14 * MS + 5_000, 20 * MS, launch=(13 * MS + 500_000, 14 * MS))
    # Launched in time, but starts 2 ms after the previous one ended: waited for something else.
    builder.operation("c", 22 * MS, 25 * MS, launch=(15 * MS, 15 * MS + 1))
    # No launch call in the file.
    builder.operation("d", 26 * MS, 27 * MS)
    builder.call("cudaStreamSynchronize", 27 * MS, 29 * MS)
    builder.operation("e", 30 * MS, 31 * MS, launch=(29 * MS + 900_000, 30 * MS))
    return builder


def test_idle_time_by_cause() -> None:
    rank = idle_builder().build()
    work = busy(rank)
    gaps = find_gaps(rank, work)
    window = (np.array([0], dtype=np.int64), np.array([31 * MS], dtype=np.int64))
    idle = idle_parts(gaps, *window)
    assert idle.launch_ns.tolist() == [4 * MS + 3 * MS]
    assert idle.latency_ns.tolist() == [5_000]
    assert idle.other_ns.tolist() == [2 * MS + 1 * MS]
    assert {name: int(ns[0]) for name, ns in idle.launch_by_host.items() if ns[0]} == {
        "data_loading": 3 * MS,
        "blocking_sync": 2 * MS,
        "operators": 500_000 + 100_000,
        "silent": 500_000 + 900_000,
    }
    total = idle.launch_ns + idle.latency_ns + idle.other_ns
    assert total.tolist() == partition(work, *window).idle_ns.tolist()


def test_latency_ends_at_its_limit() -> None:
    for extra, expected in ((0, LATENCY_LIMIT_NS), (1, 0)):
        builder = RankBuilder()
        builder.operation("a", 0, 10, launch=(-5, -1))
        start = 10 + LATENCY_LIMIT_NS + extra
        builder.operation("b", start, start + 5, launch=(0, 1))
        rank = builder.build()
        gaps = find_gaps(rank, busy(rank))
        assert gaps.latency.total == expected
        assert gaps.other.total == LATENCY_LIMIT_NS + extra - expected


def test_profiler_overhead_counts_before_operators() -> None:
    builder = RankBuilder()
    builder.operation("a", 0, 10, launch=(-5, -1))
    builder.event("aten::mm", 10, 100, category=HostCategory.OPERATOR)
    builder.event("Activity Buffer Request", 20, 60, category=HostCategory.OVERHEAD, thread=3)
    builder.operation("b", 100, 110, launch=(90, 100))
    rank = builder.build()
    gaps = find_gaps(rank, busy(rank))
    one = (np.array([0], dtype=np.int64), np.array([110], dtype=np.int64))
    by_host = idle_parts(gaps, *one).launch_by_host
    assert by_host["profiler_overhead"].tolist() == [40]
    assert by_host["operators"].tolist() == [50]


def steps_with(lengths: list[int], first: int = 0) -> DeviceSteps:
    builder = RankBuilder()
    starts = np.cumsum([0, *lengths]).tolist()
    builder.profiler_steps(starts[:-1], starts[-1], first=first)
    builder.operation("before", -1, 0)
    for start, end in pairwise(starts):
        builder.operation("k", start, end, launch=(start, start + 1))
    found = device_steps(builder.build())
    assert found is not None
    assert found.length_ns.tolist() == lengths
    return found


def test_outliers_need_five_steps_and_ten_percent() -> None:
    assert outlier_limit_ns(np.array([10, 10, 10, 100])) == float("inf")
    assert outlier_limit_ns(np.array([100, 100, 100, 100, 109])) == pytest.approx(110)
    wide = outlier_limit_ns(np.array([80, 90, 100, 110, 120]))
    assert wide == pytest.approx(100 + 5 * 1.4826 * 10)


def test_leading_outliers_are_warm_up() -> None:
    steady = steady_steps({0: steps_with([300, 100, 101, 100, 250, 100])})
    assert steady.used == (1, 2, 3, 5)
    assert [(n, why.split(":")[0]) for n, why in steady.excluded] == [
        (0, "warm-up"),
        (4, "outlier"),
    ]


def test_a_step_counts_on_all_ranks_or_on_none() -> None:
    both = {
        0: steps_with([100, 100, 100, 100, 100], first=3),
        1: steps_with([100, 100, 250, 100, 100, 100], first=2),
    }
    steady = steady_steps(both)
    assert steady.used == (3, 5, 6, 7)
    assert dict(steady.excluded)[2] == "not recorded on every rank"
    assert dict(steady.excluded)[4].endswith("on rank 1")
    assert steady.mask[0].tolist() == [True, False, True, True, True]
    assert run_step_ns(both, steady) == (100, 100)


def test_chosen_steps_replace_the_rules() -> None:
    steady = steady_steps({0: steps_with([300, 100, 101, 100, 250, 100])}, (0, 1))
    assert steady.used == (0, 1)
    assert dict(steady.excluded)[4] == "not asked for"


def test_the_step_of_the_run_is_that_of_the_slowest_rank() -> None:
    steps = {0: steps_with([100, 200, 120]), 1: steps_with([110, 110, 400])}
    median, mean = run_step_ns(steps, steady_steps(steps))
    assert median == 120
    assert mean == pytest.approx(620 / 3)
