"""Which rank a process of an export is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.readers.nsys_files import Nsys
from trace_analyzer.readers.nsys_payload import Payload
from trace_analyzer.readers.nsys_world import Membership, ProcessFacts, find_world, memberships


def _process(
    key: int,
    *places: tuple[str, int | None, int | None],
    used: tuple[str, ...] = (),
    told: tuple[int, int] | None = None,
) -> ProcessFacts:
    return ProcessFacts(
        key=key,
        told=told,
        memberships=tuple(
            Membership(communicator=name, size=size, rank=rank) for name, size, rank in places
        ),
        used=used or tuple(name for name, _, _ in places),
    )


def test_the_largest_communicator_is_the_world() -> None:
    world = find_world(
        [
            _process(10, ("tp", 2, 0), ("w", 4, 3)),
            _process(20, ("w", 4, 1), ("tp", 2, 1)),
        ],
        {},
    )
    assert (world.basis, world.size, dict(world.ranks)) == ("payload", 4, {10: 3, 20: 1})
    assert world.members == {"tp": (3, 1)}
    assert world.global_rank("tp", 1) == 1
    assert world.global_rank("w", 2) == 2
    assert world.global_rank("tp", 5) is None
    assert world.global_rank("other", 0) is None


@pytest.mark.parametrize(
    "processes",
    [
        # One process without an initialisation in the recording.
        [_process(10, ("w", 2, 1)), _process(20)],
        # Two communicators of two: ranks inside them are not ranks of the job.
        [_process(10, ("a", 2, 0)), _process(20, ("b", 2, 0))],
        [_process(n, (n // 20 * "x", 2, n % 20 // 10)) for n in (10, 20, 30, 40)],
        # A communicator whose beginning was not recorded may be larger.
        [_process(10, ("a", 2, 1), used=("a", "older")), _process(20, ("a", 2, 0))],
        # Size known, rank not (ncclCommInitAll).
        [_process(10, ("w", 2, None))],
    ],
)
def test_doubtful_ranks_are_not_claimed(processes: list[ProcessFacts]) -> None:
    world = find_world(processes, {})
    assert (world.basis, world.size) == ("order", None)
    assert list(world.ranks.values()) == list(range(len(processes)))


@pytest.mark.parametrize(
    ("settings", "basis", "rank", "size"),
    [
        ({"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "16"}, "content", 5, 16),
        ({"RANK": "5", "LOCAL_RANK": "1"}, "content", 5, None),
        ({"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}, "content", 5, None),
        ({"RANK": "5", "WORLD_SIZE": "16"}, "order", 0, None),  # may be the node's number
        ({"RANK": "", "LOCAL_RANK": ""}, "order", 0, None),
        ({"RANK": "-1", "LOCAL_RANK": "0"}, "order", 0, None),
    ],
)
def test_the_environment_of_a_single_process(
    settings: dict[str, str], basis: str, rank: int, size: int | None
) -> None:
    world = find_world([_process(10)], settings)
    assert (world.basis, world.ranks[10], world.size) == (basis, rank, size)


def test_the_environment_of_the_launcher_is_no_rank() -> None:
    world = find_world([_process(10), _process(20)], {"RANK": "5", "LOCAL_RANK": "1"})
    assert world.basis == "order"


def test_each_communicator_once_with_its_rank() -> None:
    payloads = [
        Payload(communicator="a", ranks=4),
        Payload(communicator="a", ranks=4, rank=2),
        Payload(communicator="a", part_bytes=10),
        Payload(ranks=9, rank=1),
    ]
    assert memberships(payloads) == (Membership(communicator="a", size=4, rank=2),)


def test_names_of_mpi_threads(tmp_path: Path) -> None:
    made = Nsys()
    for pid, place in ((10, 3), (20, 1)):
        made.launched(0, 10, 20, pid=pid)
        made.range(0, None, f"MPI Rank {place}", pid=pid, kind=39)
    assert [(rank.rank, rank.rank_basis) for rank in made.read(tmp_path)] == [
        (3, "content"),
        (1, "content"),
    ]


def test_marks_of_our_recorder_say_rank_and_world() -> None:
    world = find_world(
        [
            _process(10, used=("w", "p2p"), told=(1, 2)),
            _process(20, ("tp", 1, 0), used=("tp", "w"), told=(0, 2)),
        ],
        {"RANK": "7", "LOCAL_RANK": "0"},
    )
    assert (world.basis, world.size, dict(world.ranks)) == ("content", 2, {10: 1, 20: 0})
    assert world.sizes == {"tp": 1, "w": 2}
    assert world.members == {"tp": (0,), "w": (0, 1)}
    assert world.global_rank("w", 1) == 1
    assert world.global_rank("p2p", 0) is None


def test_a_report_of_one_rank_does_not_tell_which_communicator_is_the_world() -> None:
    world = find_world([_process(10, used=("w",), told=(3, 4))], {})
    assert (world.basis, world.size, dict(world.ranks)) == ("content", 4, {10: 3})
    assert world.global_rank("w", 0) is None


@pytest.mark.parametrize("told", [(1, 2), None, (0, 3)])
def test_marks_that_contradict_each_other_are_not_believed(told: tuple[int, int] | None) -> None:
    world = find_world([_process(10, told=(1, 2)), _process(20, told=told)], {})
    assert world.basis == "order"
