"""Hangs from Flight Recorder dumps: each way to stand still, and what is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.flight_dumps import BASE_NS, Dump, recordings
from tests.traces import real_trace
from trace_analyzer.analyses.hang_facts import Hang, HangKind, HangReport, Reached
from trace_analyzer.analyses.hangs import find_hangs
from trace_analyzer.nccl_facts import FlightEntries, FlightGroup, FlightRecording
from trace_analyzer.readers.flight_recorder import read


def found(tmp_path: Path, *dumps: Dump) -> HangReport:
    return find_hangs(recordings(tmp_path, *dumps))


def only(report: HangReport) -> Hang:
    (hang,) = report.hangs
    return hang


def pair(groups: Mapping[str, Sequence[int] | None] | None = None) -> tuple[Dump, Dump]:
    """Return two ranks that issued three collectives, all ended."""
    made = [Dump(rank=rank, groups=groups or {"0": (0, 1)}) for rank in range(2)]
    for dump in made:
        for size in (8, 16, 24):
            dump.collective(size=size)
    return made[0], made[1]


# --- nothing --------------------------------------------------------------------------------


def test_a_healthy_pair(tmp_path: Path) -> None:
    report = found(tmp_path, *pair())
    assert report.hangs == ()
    assert report.ranks == (0, 1)
    (group,) = report.groups
    assert (group.group, group.description, group.ranks) == ("0", "group 0", (0, 1))
    assert (group.last_recorded, group.last_common, group.last_ended) == ({0: 3, 1: 3}, 3, 3)
    assert (report.last_activity_ns, report.timeout_ms) == (BASE_NS + 3500, 600000)


def test_no_dumps() -> None:
    report = find_hangs([])
    assert (report.hangs, report.groups, report.ranks) == ((), (), ())


def test_empty_dumps(tmp_path: Path) -> None:
    assert found(tmp_path, Dump(rank=0), Dump(rank=1)).hangs == ()


def test_a_dump_taken_later_is_no_hang(tmp_path: Path) -> None:
    a, b = pair()
    a.collective().collective()
    report = found(tmp_path, a, b)
    assert report.hangs == ()
    assert report.groups[0].last_common == 3


def test_retired_without_times_has_ended(tmp_path: Path) -> None:
    a, b = Dump(rank=0), Dump(rank=1)
    for dump in (a, b):
        dump.collective("gloo:all_reduce", state="scheduled", retired=True)
    assert found(tmp_path, a, b).hangs == ()


def test_what_one_stream_has_passed_has_ended(tmp_path: Path) -> None:
    a, b = pair()
    a.entries[1] |= {"state": "started", "retired": False, "time_discovered_completed_ns": None}
    assert found(tmp_path, a, b).hangs == ()


def test_coalesced_calls_end_with_their_marker(tmp_path: Path) -> None:
    a, b = pair()
    for dump in (a, b):
        dump.collective("nccl:all_gather", state="scheduled")
        dump.collective("nccl:all_gather", 16, state="scheduled", counts=False)
        dump.collective("nccl:coalesced", counts=False, input_sizes=[], output_sizes=[])
    assert found(tmp_path, a, b).hangs == ()


def test_sizes_that_may_differ(tmp_path: Path) -> None:
    a, b = pair()
    for rank, dump in enumerate((a, b)):
        dump.collective("nccl:all_to_all", 8, input_sizes=[[8 + rank]], output_sizes=[[9 - rank]])
        dump.collective("nccl:gather", 8, output_sizes=[[8], [8]] if rank == 0 else [])
        dump.collective("nccl:scatter", 8, input_sizes=[[8], [8]] if rank == 0 else [])
        dump.collective("nccl:all_gather_v", 8 + rank)
        dump.collective("nccl:all_gather", 8 + rank, output_sizes=[[17]])
        dump.collective(
            "nccl:barrier", input_sizes=[], output_sizes=[], input_dtypes=[], output_dtypes=[]
        )
    assert found(tmp_path, a, b).hangs == ()


# --- missing --------------------------------------------------------------------------------


def test_a_rank_that_did_not_issue_it(tmp_path: Path) -> None:
    a, b = pair()
    a.collective(size=99, state="started").collective(state="scheduled")
    report = found(tmp_path, a, b)
    hang = only(report)
    assert hang.kind is HangKind.MISSING
    assert (hang.group, hang.operation, hang.sequence) == ("0", "allreduce", 4)
    assert (hang.ranks, hang.present, hang.ended) == ((1,), (0,), ())
    assert hang.reached == (Reached(rank=1, last_sequence=3),)
    assert hang.created_ns == BASE_NS + 4000
    assert hang.later == 1
    assert (report.groups[0].last_common, report.groups[0].last_ended) == (3, 3)


def test_a_rank_that_waits_in_another_group(tmp_path: Path) -> None:
    groups = {"0": (0, 1), "1": (0, 1)}
    a, b = pair(groups)
    a.collective(state="started")
    b.collective("nccl:all_gather", group="1", state="started")
    first, second = found(tmp_path, a, b).hangs
    assert (first.group, first.ranks) == ("0", (1,))
    assert first.reached == (
        Reached(rank=1, last_sequence=3, group="1", operation="allgather", sequence=1),
    )
    assert (second.group, second.operation, second.ranks) == ("1", "allgather", (0,))
    assert second.reached[0].last_sequence is None
    assert second.reached[0].group == "0"


def test_a_rank_that_never_used_the_group(tmp_path: Path) -> None:
    a, b = pair({"0": (0, 1), "1": (0, 1)})
    a.collective(group="1", state="started")
    hang = only(found(tmp_path, a, b))
    assert (hang.group, hang.ranks, hang.sequence) == ("1", (1,), 1)
    assert hang.reached[0].last_sequence is None


def test_entries_that_made_room_for_others_are_not_missing(tmp_path: Path) -> None:
    a, b = Dump(rank=0, groups={"0": (0, 1)}), Dump(rank=1, groups={"0": (0, 1)})
    a.collective(state="started")
    b.skip()  # its status counts it
    assert only(found(tmp_path, a, b)).kind is HangKind.UNFINISHED
    b.status = False  # now nothing is known of it
    hang = only(found(tmp_path, a, b))
    assert (hang.kind, hang.ranks) == (HangKind.UNFINISHED, (0,))


def test_members_without_a_dump_are_named_not_blamed(tmp_path: Path) -> None:
    a, b = pair({"0": (0, 1, 2)})
    for dump in (a, b):
        dump.collective(state="started")
    report = found(tmp_path, a, b)
    hang = only(report)
    assert (hang.kind, hang.ranks, hang.without_dump) == (HangKind.UNFINISHED, (0, 1), (2,))
    assert report.without_dump == (2,)


def test_groups_of_the_same_name_with_other_members_are_apart(tmp_path: Path) -> None:
    dumps = [Dump(rank=rank, groups={"1": (0, 1) if rank < 2 else (2, 3)}) for rank in range(4)]
    for dump in dumps:
        dump.collective(group="1")
    dumps[2].collective(group="1", state="started")
    report = found(tmp_path, *dumps)
    assert [group.ranks for group in report.groups] == [(0, 1), (2, 3)]
    assert only(report).ranks == (3,)


def test_groups_whose_members_no_dump_lists(tmp_path: Path) -> None:
    a, b = pair({"0": None})
    a.collective(state="started")
    c = Dump(rank=2, groups={"0": None})  # never used it: perhaps no member
    hang = only(found(tmp_path, a, b, c))
    assert hang.ranks == (1,)


# --- mismatched -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("title", "size", "changes"),
    [
        ("nccl:all_gather", 8, {}),
        ("nccl:all_reduce", 9, {}),
        ("nccl:all_reduce", 8, {"input_dtypes": ["Half"], "output_dtypes": ["Half"]}),
    ],
)
def test_another_operation_size_or_type(
    tmp_path: Path, title: str, size: int, changes: dict[str, Any]
) -> None:
    dumps = [Dump(rank=rank, groups={"0": (0, 1, 2)}) for rank in range(3)]
    for dump in dumps:
        dump.collective()
    for dump in dumps[:2]:
        dump.collective(state="started").collective(state="scheduled")
    dumps[2].collective(title, size, state="started", **changes).collective(state="scheduled")
    hang = only(found(tmp_path, *dumps))
    assert (hang.kind, hang.sequence, hang.ranks) == (HangKind.MISMATCHED, 2, (2,))
    common, other = hang.variants
    assert (common.operation, common.in_elements, common.dtype) == ("allreduce", 8, "Float")
    assert (common.ranks, other.ranks) == ((0, 1), (2,))
    assert other.in_elements == size
    assert other.dtype == changes.get("input_dtypes", ["Float"])[0]


def test_with_two_ranks_neither_is_blamed(tmp_path: Path) -> None:
    a, b = pair()
    a.collective(size=1, state="started")
    b.collective(size=2, state="started")
    assert only(found(tmp_path, a, b)).ranks == (0, 1)


def test_a_skipped_collective_is_a_mismatch_once(tmp_path: Path) -> None:
    a, b = pair()
    for size in (1, 2, 3):
        a.collective(size=size, state="started")
    for size in (2, 3):
        b.collective(size=size, state="started")
    hang = only(found(tmp_path, a, b))
    assert (hang.kind, hang.sequence, hang.later) == (HangKind.MISMATCHED, 4, 1)


def test_a_mismatch_inside_coalesced_calls(tmp_path: Path) -> None:
    a, b = pair()
    for dump, size in ((a, 16), (b, 17)):
        dump.collective("nccl:all_gather", state="scheduled")
        dump.collective("nccl:all_gather", size, state="scheduled", counts=False)
        dump.collective("nccl:coalesced", state="started", counts=False)
    hang = only(found(tmp_path, a, b))
    assert [(item.in_elements, item.calls) for item in hang.variants] == [(16, 2), (17, 2)]


def test_another_number_of_coalesced_calls(tmp_path: Path) -> None:
    a, b = pair()
    for dump, calls in ((a, 2), (b, 1)):
        for call in range(calls):
            dump.collective("nccl:all_gather", state="scheduled", counts=call == 0)
        dump.collective("nccl:coalesced", state="started", counts=False)
    hang = only(found(tmp_path, a, b))
    assert [item.calls for item in hang.variants] == [2, 1]


def test_an_all_to_all_that_does_not_add_up(tmp_path: Path) -> None:
    a, b = pair()
    a.collective("nccl:all_to_all", 8, state="started", output_sizes=[[9]])
    b.collective("nccl:all_to_all", 8, state="started")
    hang = only(found(tmp_path, a, b))
    assert (hang.kind, hang.operation, hang.ranks) == (HangKind.MISMATCHED, "alltoall", (0, 1))


def test_a_size_that_cannot_be_read_is_no_mismatch(tmp_path: Path) -> None:
    a, b = pair()
    a.collective()
    b.collective(input_sizes=[["?"]])
    assert found(tmp_path, a, b).hangs == ()


# --- unfinished -----------------------------------------------------------------------------


def test_ended_on_one_rank_only(tmp_path: Path) -> None:
    a, b = pair()
    a.collective()
    b.collective(state="started").collective(state="scheduled")
    a.collective(state="scheduled")
    report = found(tmp_path, a, b)
    hang = only(report)
    assert (hang.kind, hang.sequence, hang.ranks) == (HangKind.UNFINISHED, 4, (1,))
    assert (hang.ended, hang.later) == ((0,), 1)
    assert (report.groups[0].last_common, report.groups[0].last_ended) == (5, 3)


def test_unfinished_everywhere(tmp_path: Path) -> None:
    a, b = pair()
    for dump in (a, b):
        dump.collective("nccl:reduce_scatter", state="started")
    hang = only(found(tmp_path, a, b))
    assert (hang.operation, hang.ranks, hang.ended) == ("reducescatter", (0, 1), ())


def test_a_coalesced_marker_that_did_not_end(tmp_path: Path) -> None:
    a, b = pair()
    for dump in (a, b):
        dump.collective("nccl:coalesced", state="started", input_sizes=[], output_sizes=[])
    hang = only(found(tmp_path, a, b))
    assert (hang.kind, hang.operation) == (HangKind.UNFINISHED, "coalesced")


def test_unfinished_first_then_missing(tmp_path: Path) -> None:
    a, b = pair()
    for dump in (a, b):
        dump.collective(state="started")
    a.collective(state="scheduled")
    kinds = [(hang.kind, hang.sequence) for hang in found(tmp_path, a, b).hangs]
    assert kinds == [(HangKind.UNFINISHED, 4), (HangKind.MISSING, 5)]


# --- send and receive -----------------------------------------------------------------------


def test_sends_and_receives_that_ended(tmp_path: Path) -> None:
    a, b = pair()
    a.peer("nccl:send 0->1").peer("nccl:recv 0<-1")
    b.peer("nccl:recv 1<-0").peer("nccl:send 1->0")
    assert found(tmp_path, a, b).hangs == ()


def test_a_receive_without_its_send(tmp_path: Path) -> None:
    groups = {"0": (0, 1), "3": (4, 1)}
    b = Dump(rank=1, groups=groups)
    e = Dump(rank=4, groups=groups)
    for dump in (b, e):
        dump.collective(group="3")
    e.peer("nccl:recv 1<-0", group="3", state="started")  # members in order: 1, 4
    hang = only(found(tmp_path, b, e))
    assert (hang.kind, hang.operation, hang.ranks) == (HangKind.MISSING, "recv", (1,))
    assert (hang.source, hang.destination, hang.present) == (1, 4, (4,))
    assert hang.sequence is None


def test_a_send_and_a_receive_that_wait_for_each_other(tmp_path: Path) -> None:
    a, b = pair()
    a.peer("nccl:send 0->1", state="started").peer("nccl:send 0->1", state="scheduled")
    b.peer("nccl:recv 1<-0", state="started")
    hang = only(found(tmp_path, a, b))
    assert (hang.kind, hang.ranks, hang.later) == (HangKind.UNFINISHED, (0, 1), 1)


def test_a_send_that_ended_in_a_buffer(tmp_path: Path) -> None:
    a, b = pair()
    a.peer("nccl:send 0->1")
    b.peer("nccl:recv 1<-0", state="started")
    hang = only(found(tmp_path, a, b))
    assert (hang.kind, hang.ranks) == (HangKind.UNFINISHED, (1,))


def test_where_a_dump_does_not_reach_back_nobody_is_missing(tmp_path: Path) -> None:
    a, b = pair()
    b.peer("nccl:recv 1<-0", state="started")
    assert only(found(tmp_path, a, b)).kind is HangKind.MISSING
    del a.entries[0]
    hang = only(found(tmp_path, a, b))
    assert (hang.kind, hang.ranks) == (HangKind.UNFINISHED, (1,))


def test_a_batch_of_sends_ends_with_its_marker(tmp_path: Path) -> None:
    a, b = pair()
    a.peer("nccl:send 0->1", state="scheduled").peer(
        "nccl:recv 0<-1", state="scheduled", counts=False
    )
    b.peer("nccl:send 1->0", state="scheduled").peer(
        "nccl:recv 1<-0", state="scheduled", counts=False
    )
    for dump in (a, b):
        dump.peer("nccl:coalesced", counts=False)
    assert found(tmp_path, a, b).hangs == ()
    a.entries[-1] |= {"state": "started", "retired": False, "time_discovered_completed_ns": None}
    report = found(tmp_path, a, b)
    assert [(hang.source, hang.destination, hang.ranks) for hang in report.hangs] == [
        (0, 1, (0,)),
        (1, 0, (0,)),
    ]


def test_peers_that_cannot_be_told_are_counted(tmp_path: Path) -> None:
    a = Dump(rank=5, groups={"7": None})
    a.peer("nccl:send 0->1", group="7", state="started")
    report = found(tmp_path, a)
    assert (report.hangs, report.unplaced) == ((), 1)


# --- several dumps --------------------------------------------------------------------------


def test_the_newest_dump_of_a_rank_counts(tmp_path: Path) -> None:
    a, b = pair()
    old = a.recording(tmp_path)
    for dump in (a, b):
        dump.collective()
    b.collective(state="started")
    a.collective(state="started")
    report = find_hangs([a.recording(tmp_path), old, b.recording(tmp_path)])
    assert only(report).kind is HangKind.UNFINISHED


def test_dumps_of_unknown_ranks_are_left_out(tmp_path: Path) -> None:
    a, b = pair()
    a.collective(state="started")
    nobody = replace(b.recording(tmp_path), rank=None)
    assert find_hangs([a.recording(tmp_path), nobody]).ranks == (0,)


def test_the_first_issued_comes_first(tmp_path: Path) -> None:
    a, b = pair({"0": (0, 1), "1": (0, 1), "2": (0, 1)})
    for group in ("2", "1", "0"):
        a.collective(group=group, state="started")
        b.collective(group=group, state="started")
    assert [hang.group for hang in found(tmp_path, a, b).hangs] == ["2", "1", "0"]


def many(ranks: int, count: int, missing: int) -> list[FlightRecording]:
    """Return dumps of `count` all-reduces, of which one rank did not issue the last."""
    found = []
    for rank in range(ranks):
        rows = count - (rank == missing)
        numbers = np.arange(rows, dtype=np.int64)
        ended = numbers < count - 1
        found.append(
            FlightRecording(
                path="",
                rank=rank,
                version="2.10",
                names=("allreduce", "nccl:all_reduce"),
                groups=(FlightGroup(name="0", ranks=tuple(range(ranks))),),
                entries=FlightEntries.from_columns(
                    rows,
                    record_id=numbers,
                    operation=np.zeros(rows),
                    title=np.ones(rows),
                    group=np.zeros(rows),
                    collective_sequence=numbers + 1,
                    is_p2p=np.zeros(rows),
                    state=np.where(ended, 2, 1),
                    retired=ended,
                    created_ns=numbers,
                    in_elements=np.full(rows, 8),
                ),
                has_status=True,
            )
        )
    return found


def test_a_thousand_ranks() -> None:
    hang = only(find_hangs(many(1024, 100, missing=700)))
    assert (hang.kind, hang.ranks, hang.sequence) == (HangKind.MISSING, (700,), 100)
    assert len(hang.present) == 1023


# --- real dumps -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "run", ["healthy", "item_sync", "nccl_1ch", "slow_cpu_rank", "slow_loader"]
)
def test_real_runs_that_did_not_hang(run: str) -> None:
    report = find_hangs(
        [read(real_trace(f"h200-ddp/{run}/flight_rank{rank}.pkl"), rank) for rank in range(2)]
    )
    assert (report.hangs, report.unplaced, report.without_dump) == ((), 0, ())
    (group,) = report.groups
    assert (group.last_common, group.last_ended) == (358, 358)


def test_a_real_dump_cut_short_is_a_missing_rank() -> None:
    first, second = (
        read(real_trace(f"h200-ddp/healthy/flight_rank{rank}.pkl"), rank) for rank in range(2)
    )
    keep = np.arange(350)
    state = first.entries.state.copy()
    retired = first.entries.retired.copy()
    completed = first.entries.completed_ns.copy()
    state[350:], retired[350:] = 1, 0
    completed[350:] = np.iinfo(np.int64).min
    standing = replace(first.entries, state=state, retired=retired, completed_ns=completed)
    report = find_hangs(
        [replace(first, entries=standing), replace(second, entries=second.entries.take(keep))]
    )
    hang = only(report)
    assert (hang.kind, hang.ranks, hang.sequence, hang.later) == (HangKind.MISSING, (1,), 351, 7)
    assert (report.groups[0].last_common, report.groups[0].last_ended) == (350, 350)
