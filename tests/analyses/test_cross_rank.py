"""Matching, waits, late ranks and clocks in worlds whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.builder import RankBuilder
from tests.traces import real_trace
from tests.worlds import World, prepared, without, world
from trace_analyzer.analyses.alignment import best_shift
from trace_analyzer.analyses.bandwidth import fit_line, group_bandwidths, link_bandwidths
from trace_analyzer.analyses.clock import LEAST_RESIDUAL_NS
from trace_analyzer.analyses.cross_rank import CrossRank, cross_rank
from trace_analyzer.analyses.matching import (
    BY_ALIGNMENT,
    BY_SEQUENCE,
    BY_STEP,
    DISAGREE,
    NOT_ON_ALL,
)
from trace_analyzer.analyses.partition import busy
from trace_analyzer.analyses.study import study
from trace_analyzer.model import ProcessGroup, Rank
from trace_analyzer.readers.discovery import open_run


def compared(ranks: dict[int, Rank]) -> CrossRank:
    ranks, steps = prepared(ranks)
    found = cross_rank(ranks, steps, {number: busy(rank) for number, rank in ranks.items()})
    assert found is not None
    return found


def check_pairs(made: World, found: CrossRank) -> None:
    """Every matched collective has the members of one true collective: equal true transfer order."""
    first = found.matches.first
    for instance in range(found.matches.count):
        part = found.matches.event[first[instance] : first[instance + 1]]
        members = found.events.rank[part].tolist()
        items = set()
        for event, rank in zip(part.tolist(), members, strict=True):
            mine = [i for i in range(len(made.transfer_ns)) if rank in made.members(i)]
            start = found.events.start_ns[event] - made.offset_ns[rank]
            items.add(int(np.argmin(np.abs(made.arrival_ns[rank, mine] - start))))
        assert len({made.message_bytes[i] for i in items}) <= 1


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("ranks", [2, 5])
def test_wait_transfer_and_late_rank(ranks: int, sequence: bool) -> None:
    made = world(ranks, 60, offsets_ns=2_000_000, seed=ranks)
    made.sequence = sequence
    found = compared({number: made.rank(number) for number in range(ranks)})
    assert found.matches.count == 60
    assert set(found.matches.basis.values()) == {BY_SEQUENCE if sequence else BY_STEP}
    assert not found.matches.unmatched
    assert found.matches.complete.all()
    assert np.max(np.abs(found.waits.transfer_ns - made.transfer_ns)) <= found.residual_ns
    wait = made.wait_ns()
    for number in range(ranks):
        mine = found.events.rank[found.matches.event] == number
        assert np.max(np.abs(found.waits.wait_ns[mine] - wait[number])) <= found.residual_ns
    late = np.argmax(made.arrival_ns, axis=0)
    assert not found.undecided.any()
    assert found.waits.late_rank.tolist() == late.tolist()


def test_offsets_are_found_within_the_residual() -> None:
    made = world(6, 100, offsets_ns=50_000_000, seed=3)
    made.jitter_ns = 2_000
    found = compared({number: made.rank(number) for number in range(6)})
    for number, fit in found.clocks.items():
        truth = made.offset_ns[number] - made.offset_ns[0]
        assert abs(fit.offset_ns - truth) <= fit.residual_ns
        assert fit.residual_ns < 60_000


def test_drift_is_found() -> None:
    made = world(3, 2000, late_ns=0, seed=4)
    made.drift = np.array([0.0, 20e-6, -50e-6])
    found = compared({number: made.rank(number) for number in range(3)})
    times = made.arrival_ns[0]
    for number in (1, 2):
        there = times + (times * made.drift[number]).astype(np.int64)
        back = found.clocks[number].to_reference(there)
        assert np.max(np.abs(back - times)) <= 2 * found.clocks[number].residual_ns


def test_an_offset_below_the_residual_is_left_alone() -> None:
    made = world(2, 60, seed=5)
    made.offset_ns = np.array([0, 9_000])
    found = compared({0: made.rank(0), 1: made.rank(1)})
    assert found.clocks[1].offset_ns == 0
    assert found.clocks[1].residual_ns == LEAST_RESIDUAL_NS


def test_lateness_below_the_residual_names_nobody() -> None:
    made = world(3, 60, late_ns=20_000, seed=6)
    found = compared({number: made.rank(number) for number in range(3)})
    assert found.undecided.all()
    assert set(found.late_counts.values()) == {0}


def test_a_dropped_event_costs_its_step_and_pairs_nothing_wrong() -> None:
    made = world(2, 60, seed=7)
    found = compared({0: made.rank(0), 1: without(made.rank(1), [17])})
    assert found.matches.count == 60 - 12
    assert found.matches.unmatched == {(0, DISAGREE): 12, (1, DISAGREE): 11}
    check_pairs(made, found)


def test_windows_that_start_and_end_differently() -> None:
    made = world(2, 60, seed=8)
    found = compared(
        {
            0: made.rank(0, keep=slice(7, 60), marked=False),
            1: made.rank(1, keep=slice(0, 50), marked=False),
        }
    )
    assert found.matches.basis == {0: BY_ALIGNMENT}
    assert found.matches.count == 43
    assert found.matches.unmatched == {(0, NOT_ON_ALL): 10, (1, NOT_ON_ALL): 7}
    check_pairs(made, found)


def test_repeating_windows_without_a_clock_are_not_guessed() -> None:
    made = world(2, 60, seed=9)
    ranks = {
        0: replace(made.rank(0, keep=slice(12, 60), marked=False), clock_base_ns=None),
        1: replace(made.rank(1, keep=slice(0, 48), marked=False), clock_base_ns=None),
    }
    # Both windows are four whole steps: the sequences are equal, though a step apart.
    shorter = {
        0: ranks[0],
        1: replace(made.rank(1, keep=slice(0, 40), marked=False), clock_base_ns=None),
    }
    assert compared(shorter).matches.count == 0


def test_several_groups() -> None:
    groups = [
        ProcessGroup(name="tp0", size=2, ranks=(0, 1)),
        ProcessGroup(name="tp1", size=2, ranks=(2, 3)),
        ProcessGroup(name="dp", size=4, ranks=(0, 1, 2, 3)),
        ProcessGroup(name="odd", size=3, ranks=(0, 2, 3)),
    ]
    made = world(4, 100, groups=groups, offsets_ns=1_000_000, seed=10)
    found = compared({number: made.rank(number) for number in range(4)})
    assert found.matches.count == 100
    late = [max(made.members(i), key=lambda r: int(made.arrival_ns[r, i])) for i in range(100)]
    assert found.waits.late_rank.tolist() == late
    assert {item.operation for item in group_bandwidths(found)} == {"allreduce"}


def test_a_missing_rank_leaves_the_others_compared() -> None:
    made = world(4, 60, late_rank=1, seed=11)
    found = compared({number: made.rank(number) for number in (0, 1, 3)})
    assert found.matches.count == 60
    assert not found.matches.complete.any()
    assert found.late_counts == {0: 0, 1: 60, 3: 0}


def test_lateness_by_step() -> None:
    made = world(2, 50, late_rank=1, late_ns=700_000, seed=12)
    found = compared({0: made.rank(0), 1: made.rank(1)})
    assert set(found.lateness_ns[0].values()) == {0}
    for value in found.lateness_ns[1].values():
        assert abs(value - 700_000) <= found.residual_ns


SEND_RECEIVE = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def test_send_and_receive_are_matched_by_pair() -> None:
    """Rank 0 sends to 1 and then to 2; each receiver has one receive, at its own place in order."""
    group = ProcessGroup(name="0", size=3, ranks=(0, 1, 2))
    builders = [RankBuilder(rank=number, world=3, group=group) for number in range(3)]
    for builder in builders:
        builder.profiler_steps([0, 1_000_000], 2_000_000)
        builder.operation("before", -10, 0)
    for start in (0, 1_000_000):
        sent: list[tuple[RankBuilder, int, int, dict[str, Any]]] = [
            (builders[0], 100_000, 300_000, {"operation": "send", "destination": 1}),
            (builders[0], 310_000, 350_000, {"operation": "send", "destination": 2}),
            (builders[1], 250_000, 300_000, {"operation": "recv", "source": 0}),
            (builders[2], 150_000, 350_000, {"operation": "recv", "source": 0}),
        ]
        for builder, at, end, what in sent:
            builder.operation(
                SEND_RECEIVE,
                start + at,
                start + end,
                launch=(start + at - 5_000, start + at - 4_000),
                stream=17,
                group=0,
                message_bytes=1_000_000,
                **what,
            )
    found = compared({number: builder.build() for number, builder in enumerate(builders)})
    assert found.matches.count == 4
    assert not found.matches.unmatched
    assert [group.pair for group in found.events.groups] == [(0, 1), (0, 2)]
    assert sorted(found.waits.transfer_ns.tolist()) == [40_000, 40_000, 50_000, 50_000]
    links = {(link.source, link.destination): link for link in link_bandwidths(found)}
    assert set(links) == {(0, 1), (0, 2)}
    assert links[0, 1].bandwidth_gbs == pytest.approx(20.0)
    assert links[0, 1].basis == "p2p"


def test_the_root_of_a_broadcast_does_not_set_the_transfer() -> None:
    group = ProcessGroup(name="0", size=3, ranks=(0, 1, 2))
    ranks: dict[int, Rank] = {}
    for number, length in ((0, 20_000), (1, 90_000), (2, 60_000)):
        builder = RankBuilder(rank=number, world=3, group=group)
        builder.profiler_steps([0, 1_000_000], 2_000_000)
        builder.operation("before", -10, 0)
        for start in (0, 1_000_000):
            builder.operation(
                "ncclDevKernel_Broadcast_RING_LL(x)",
                start + 100_000,
                start + 100_000 + length,
                launch=(start + 90_000, start + 91_000),
                stream=17,
                operation="broadcast",
                group=0,
                message_bytes=1_000,
                root=0,
            )
        ranks[number] = builder.build()
    found = compared(ranks)
    assert found.waits.transfer_ns.tolist() == [60_000, 60_000]
    assert found.waits.rooted.all()
    assert not found.waits.guessed.any()
    assert found.waits.late_rank.tolist() == [2, 2]


def test_traces_with_different_bases_share_a_clock() -> None:
    made = world(2, 60, offsets_ns=0, seed=14)
    moved = made.rank(1)
    base = 7_889_238 * 10**9
    shifted = replace(
        moved,
        clock_base_ns=base,
        operations=replace(
            moved.operations,
            start_ns=moved.operations.start_ns - base,
            end_ns=moved.operations.end_ns - base,
        ),
        calls=replace(
            moved.calls,
            start_ns=moved.calls.start_ns - base,
            end_ns=moved.calls.end_ns - base,
        ),
        events=replace(
            moved.events,
            start_ns=moved.events.start_ns - base,
            end_ns=moved.events.end_ns - base,
        ),
    )
    found = compared({0: made.rank(0), 1: shifted})
    assert found.clocks[1].offset_ns == 0
    assert found.matches.count == 60


def test_jittered_ends_stay_within_two_percent_or_the_residual() -> None:
    made = world(8, 200, offsets_ns=3_000_000, seed=15)
    made.jitter_ns = 6_000
    found = compared({number: made.rank(number) for number in range(8)})
    error = np.abs(found.waits.transfer_ns - made.transfer_ns)
    # The residual is a 95th percentile.
    assert np.mean(error <= np.maximum(0.02 * made.transfer_ns, found.residual_ns)) >= 0.95
    late = np.argmax(made.arrival_ns, axis=0)
    decided = ~found.undecided
    assert found.waits.late_rank[decided].tolist() == late[decided].tolist()


def test_shift_needs_all_codes_equal() -> None:
    reference = np.array([1, 2, 3, 4, 5, 6], dtype=np.int64)
    assert best_shift(reference, reference[2:], None, None) == 2
    assert best_shift(reference, np.array([3, 4, 9], dtype=np.int64), None, None) is None
    assert best_shift(reference, np.empty(0, dtype=np.int64), None, None) is None


def test_line_of_latency_and_bandwidth() -> None:
    sizes = np.repeat(np.array([1e3, 1e6, 1e8]), 5)
    found = fit_line(sizes, 20_000 + sizes / 250)
    assert found is not None
    assert found[0] == pytest.approx(20_000)
    assert found[1] == pytest.approx(250)
    assert fit_line(np.array([1e6, 2e6]), np.array([1e4, 2e4])) is None


def test_large_worlds_stay_linear() -> None:
    made = world(64, 200, late_rank=9, offsets_ns=5_000_000, seed=13)
    made.sequence = True
    found = compared({number: made.rank(number) for number in range(64)})
    assert found.matches.count == 200
    assert found.late_counts[9] == 200


def test_eight_ranks_of_dlrm() -> None:
    results = study(open_run(str(real_trace("public/param/dlrm_kineto"))))
    cross = results.cross
    assert cross is not None
    assert cross.matches.count == 8
    assert cross.waits.transfer_ns.sum() == 217_000
    assert round(cross.waits.wait_ns.sum() / 1e6, 1) == 46.8
    assert np.bincount(cross.waits.late_rank, minlength=8).tolist() == [0, 0, 0, 0, 1, 2, 0, 5]


def test_send_and_receive_of_two_h100() -> None:
    results = study(open_run(str(real_trace("public-nsys/nsysai_mfu_2gpu_before.sqlite"))))
    cross = results.cross
    assert cross is not None
    assert round(cross.waits.transfer_ns.sum() / 1e6, 1) == 5.8
    waits = [
        cross.waits.wait_ns[cross.events.rank[cross.matches.event] == rank].sum() / 1e6
        for rank in (0, 1)
    ]
    assert sorted(waits) == pytest.approx([2.43, 11.4], abs=0.05)


@pytest.mark.parametrize(
    ("run", "transfer", "waits", "late"),
    [
        ("healthy", 2.888, (22.664, 0.000), (0, 70)),
        ("slow_cpu_rank", 2.803, (41.763, 0.000), (0, 70)),
        ("slow_loader", 2.926, (0.873, 29.878), (64, 6)),
        ("nccl_1ch", 36.073, (0.021, 0.093), (25, 45)),
        ("item_sync", 2.769, (18.146, 10.351), (28, 42)),
    ],
)
def test_labelled_runs(
    run: str, transfer: float, waits: tuple[float, float], late: tuple[int, int]
) -> None:
    cross = study(open_run(str(real_trace(f"h200-ddp/{run}")))).cross
    assert cross is not None
    assert cross.matches.count == 70
    assert round(cross.waits.transfer_ns.sum() / 5e6, 3) == transfer
    for rank in (0, 1):
        mine = cross.events.rank[cross.matches.event] == rank
        assert round(cross.waits.wait_ns[mine].sum() / 5e6, 3) == waits[rank]
    assert np.bincount(cross.waits.late_rank, minlength=2).tolist() == list(late)
