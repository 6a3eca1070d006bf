"""Flight Recorder dumps: layouts of all versions, JSON, damage, hostile files."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.flight_dumps import BASE_NS, Dump
from tests.traces import real_trace
from trace_analyzer.bundle import Role, loose_role
from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.nccl_facts import FlightEntries, FlightGroup, FlightRecording, FlightState
from trace_analyzer.readers import flight_recorder
from trace_analyzer.readers.flight_recorder import read
from trace_analyzer.readers.sidecars import SidecarFile, read_sidecars
from trace_analyzer.schema import NA_INT8, NA_INT32, NA_INT64


def write(tmp_path: Path, document: object, *, as_json: bool = False) -> Path:
    path = tmp_path / "flight_rank0.pkl"
    path.write_bytes(
        json.dumps(document).encode() if as_json else pickle.dumps(document, protocol=2)
    )
    return path


def entry(**changes: Any) -> dict[str, Any]:
    """Return one entry of a dump, changed; a value of `...` leaves the key out."""
    (made,) = Dump().collective().entries
    made |= changes
    return {key: value for key, value in made.items() if value is not ...}


def dumped(tmp_path: Path, *entries: object, **document: Any) -> FlightRecording:
    return read(write(tmp_path, {"version": "2.10", "entries": list(entries), **document}), 0)


def row(tmp_path: Path, **changes: Any) -> dict[str, int]:
    recording = dumped(tmp_path, entry(**changes))
    assert len(recording.entries) == 1
    return {
        spec.name: int(getattr(recording.entries, spec.name)[0]) for spec in FlightEntries.columns()
    }


# --- layouts --------------------------------------------------------------------------------


def test_an_entry_of_version_2_10(tmp_path: Path) -> None:
    recording = Dump(rank=1).collective(size=24).recording(tmp_path)
    assert (recording.rank, recording.version, recording.nccl_version) == (1, "2.10", "2.28.9")
    assert recording.groups == (
        FlightGroup(
            name="0",
            description="group 0",
            ranks=(0, 1),
            last_enqueued=1,
            last_started=None,
            last_completed=1,
        ),
    )
    frame = recording.entries.to_pandas().iloc[0]
    assert recording.names[frame["operation"]] == "allreduce"
    assert recording.names[frame["title"]] == "nccl:all_reduce"
    assert recording.names[frame["dtype"]] == "Float"
    assert frame["collective_sequence"] == 1
    assert frame["state"] == FlightState.COMPLETED
    assert frame["created_ns"] == BASE_NS + 1000
    assert frame["completed_ns"] == BASE_NS + 1500
    assert frame.isna()["started_ns"]
    assert (frame["in_elements"], frame["out_elements"]) == (24, 24)
    assert frame["timeout_ms"] == 600000
    assert (recording.malformed, recording.has_status) == (0, True)


def test_json_says_the_same_with_zeros_and_text(tmp_path: Path) -> None:
    document = Dump().collective(state="scheduled").document()
    document["entries"][0]["time_discovered_completed_ns"] = 0
    document["entries"][0]["time_discovered_started_ns"] = 0
    document["pg_status"] = {
        "0": {
            "last_enqueued_collective": "7",
            "last_started_collective": "-1",
            "last_completed_collective": "6",
        }
    }
    recording = read(write(tmp_path, document, as_json=True), 0)
    assert recording.entries.completed_ns[0] == recording.entries.started_ns[0] == NA_INT64
    (group,) = recording.groups
    assert (group.last_enqueued, group.last_started, group.last_completed) == (7, None, 6)
    assert group.description == "group 0"
    assert recording.malformed == 0


def test_version_1_1(tmp_path: Path) -> None:
    document = {
        "version": "1.1",
        "entries": [
            {
                "pg_id": 3,
                "seq_id": 12,
                "profiling_name": "nccl:_all_gather_base",
                "time_created_ns": BASE_NS,
                "duration_ms": 0.25,
                "input_sizes": [[4, 2]],
                "output_sizes": [[8, 2]],
                "state": "started",
                "time_discovered_started_ns": BASE_NS + 5,
                "time_discovered_completed_ns": None,
                "retired": False,
                "frames": [{"name": "f", "filename": "x.py", "line": 3}],
            }
        ],
    }
    recording = read(write(tmp_path, document), 5)
    entries = recording.entries
    assert [group.name for group in recording.groups] == ["3"]
    assert entries.collective_sequence[0] == 12
    assert recording.names[entries.operation[0]] == "allgather"
    assert (entries.in_elements[0], entries.out_elements[0]) == (8, 16)
    assert entries.state[0] == FlightState.STARTED
    assert entries.dtype[0] == NA_INT32
    assert entries.is_p2p[0] == 0
    assert not recording.has_status
    assert recording.malformed == 0


def test_a_list_of_entries_alone(tmp_path: Path) -> None:
    recording = read(write(tmp_path, [entry()]), 0)
    assert (len(recording.entries), recording.version) == (1, "")


@pytest.mark.parametrize(
    ("title", "operation"),
    [
        ("nccl:all_reduce", "allreduce"),
        ("gloo:all_reduce", "allreduce"),
        ("nccl:_all_gather_base", "allgather"),
        ("nccl:all_gather_into_tensor_coalesced", "allgather"),
        ("nccl:ALLGATHER_coalesced", "allgather"),
        ("nccl:_reduce_scatter_base", "reducescatter"),
        ("nccl:reduce_scatter_tensor_coalesced", "reducescatter"),
        ("nccl:reduce_scatter_v", "reducescatter"),
        ("nccl:allreduce_coalesced", "allreduce"),
        ("nccl:all_reduce_barrier", "barrier"),
        ("nccl:_broadcast_oop", "broadcast"),
        ("nccl:_reduce_oop", "reduce"),
        ("nccl:all_to_all", "alltoall"),
        ("nccl:all_to_all_v_single", "alltoall"),
        ("nccl:gather", "gather"),
        ("nccl:coalesced", "coalesced"),
    ],
)
def test_operations(tmp_path: Path, title: str, operation: str) -> None:
    recording = dumped(tmp_path, entry(profiling_name=title))
    assert recording.names[recording.entries.operation[0]] == operation


@pytest.mark.parametrize(
    ("title", "ends"),
    [("nccl:send 0->3", (0, 3)), ("nccl:recv 3<-0", (0, 3)), ("nccl:send", (NA_INT32, NA_INT32))],
)
def test_sends_and_receives(tmp_path: Path, title: str, ends: tuple[int, int]) -> None:
    found = row(tmp_path, profiling_name=title, is_p2p=True)
    assert (found["source"], found["destination"], found["is_p2p"]) == (*ends, 1)


def test_peers_in_the_title_make_an_old_entry_a_send(tmp_path: Path) -> None:
    assert row(tmp_path, profiling_name="nccl:send 0->3", is_p2p=...)["is_p2p"] == 1
    assert row(tmp_path, is_p2p=...)["is_p2p"] == 0


def test_several_tensors_and_types(tmp_path: Path) -> None:
    recording = dumped(
        tmp_path,
        entry(input_sizes=[[2, 3], [], [4]], input_dtypes=["BFloat16", "Float"]),
        entry(input_sizes=[], input_dtypes=[], output_dtypes=[]),
    )
    entries = recording.entries
    assert entries.in_elements.tolist() == [11, NA_INT64]
    assert recording.names[entries.dtype[0]] == "BFloat16+Float"
    assert entries.dtype[1] == NA_INT32


def test_groups_with_and_without_entries(tmp_path: Path) -> None:
    recording = dumped(
        tmp_path,
        entry(process_group=("1", "tp"), pg_id=4),
        pg_config={
            "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
            "1": {"name": "1", "desc": "tp", "ranks": [2, 3]},
        },
        pg_status={"4": {"last_enqueued_collective": 9}},
    )
    tp, everyone = recording.groups
    assert (tp.name, tp.description, tp.ranks, tp.last_enqueued) == ("1", "tp", (2, 3), 9)
    assert (everyone.name, everyone.ranks, everyone.last_enqueued) == ("0", (0, 1, 2, 3), None)


def test_entries_are_put_in_order_of_recording(tmp_path: Path) -> None:
    recording = dumped(tmp_path, entry(record_id=5), entry(record_id=3), entry(record_id=4))
    assert recording.entries.record_id.tolist() == [3, 4, 5]


def test_the_rank_in_the_dump_is_used_where_the_name_tells_none(tmp_path: Path) -> None:
    path = write(tmp_path, {"entries": [], "rank": 6})
    assert (read(path).rank, read(path, 2).rank) == (6, 2)
    assert read(write(tmp_path, {"entries": []})).rank is None


# --- damage ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "column", "value"),
    [
        ({"collective_seq_id": "seven"}, "collective_sequence", NA_INT64),
        ({"collective_seq_id": -4}, "collective_sequence", NA_INT64),
        ({"collective_seq_id": 1 << 70}, "collective_sequence", NA_INT64),
        ({"collective_seq_id": True}, "collective_sequence", NA_INT64),
        ({"time_created_ns": 1.5}, "created_ns", NA_INT64),
        ({"input_sizes": [[1 << 40, 1 << 40]]}, "in_elements", NA_INT64),
        ({"input_sizes": [[-1]]}, "in_elements", NA_INT64),
        ({"input_sizes": [["a"]]}, "in_elements", NA_INT64),
        ({"input_sizes": ["ab"]}, "in_elements", NA_INT64),
        ({"input_sizes": [[1] * 65]}, "in_elements", NA_INT64),
        ({"profiling_name": "nccl:send 0->9999999"}, "destination", NA_INT32),
    ],
)
def test_values_that_cannot_be_are_missing_and_counted(
    tmp_path: Path, changes: dict[str, Any], column: str, value: int
) -> None:
    recording = dumped(tmp_path, entry(**changes), entry())
    assert getattr(recording.entries, column)[0] == value
    assert recording.malformed == 1
    assert len(recording.entries) == 2


def test_unknown_states_and_missing_keys(tmp_path: Path) -> None:
    bare = {"profiling_name": "nccl:barrier"}
    recording = dumped(tmp_path, entry(state="odd"), bare)
    assert recording.entries.state.tolist() == [NA_INT8, NA_INT8]
    assert recording.entries.created_ns[1] == NA_INT64
    assert recording.groups[1].name == ""


def test_entries_that_are_none_are_counted(tmp_path: Path) -> None:
    recording = dumped(tmp_path, 3, None, {"x": 1}, entry(), {"profiling_name": 4})
    assert (len(recording.entries), recording.malformed) == (1, 4)


@pytest.mark.parametrize("ranks", ["[0, 1, ..., 9]", "0-7", [0, -1], 5, "[" + "9" * 4000 + "]"])
def test_members_that_cannot_be_read_are_not_known(tmp_path: Path, ranks: object) -> None:
    recording = dumped(tmp_path, entry(), pg_config={"0": {"name": "0", "ranks": ranks}})
    assert (recording.groups[0].ranks, recording.malformed) == ((), 1)


def refused(path: Path, problem: str) -> None:
    with pytest.raises(UnreadableInputError, match=problem) as caught:
        read(path, 0, display="flight_rank0.pkl")
    assert str(caught.value).startswith("flight_rank0.pkl: ")
    assert "\n" not in str(caught.value)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        raised: Any = exec
        return raised, ("raise SystemExit('executed')",)


def test_a_hostile_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    for place in (Evil(), [Evil()], {"entries": [entry(extra=Evil())]}):
        refused(write(tmp_path, place), "pickle refused: it does more than hold data")


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "flight_rank0.pkl"
    for content, problem in (
        (b"", "the file is empty"),
        (b"\x80\x02}", "pickle refused: it ends in the middle"),
        (b"hello", "neither a pickle nor JSON"),
        (b'{"entries": [', "not JSON"),
        (b"[" * 200_000, "not JSON"),
        (b'{"traceEvents": []}', "no entries of a Flight Recorder"),
        (b"3", "no entries of a Flight Recorder"),
    ):
        path.write_bytes(content)
        refused(path, problem)
    refused(tmp_path / "absent", "no such file")
    monkeypatch.setattr(flight_recorder, "MAX_ENTRIES", 2)
    refused(write(tmp_path, {"entries": [{}] * 3}), "more than 2 entries")
    monkeypatch.setattr(flight_recorder, "MAX_BYTES", 1 << 20)
    path.write_bytes(b"\x80" * ((1 << 20) + 1))
    refused(path, "larger than 1 MiB")


def test_shared_lists_do_not_multiply_the_work(tmp_path: Path) -> None:
    sizes = [[1] * 60] * 100_001
    recording = dumped(tmp_path, *[entry(input_sizes=sizes)] * 1000)
    assert recording.malformed == 1000


def test_a_refused_dump_is_a_warning_of_the_run(tmp_path: Path) -> None:
    good = Dump(rank=1).collective().write(tmp_path / "flight_rank1.pkl")
    bad = write(tmp_path, [Evil()])
    log = tmp_path / "nccl_9.log"
    log.write_text("node0:9:9 [0] NCCL INFO Pattern 4, cross\n")
    found = read_sidecars(
        [
            SidecarFile(path=good, name=good.name, role=Role.FLIGHT_RECORDER, rank=1),
            SidecarFile(path=bad, name=bad.name, role=Role.FLIGHT_RECORDER, rank=0),
            SidecarFile(path=log, name=log.name, role=Role.NCCL_LOG, pid=9),
        ]
    )
    assert [recording.rank for recording in found.flight] == [1]
    assert [log.pid for log in found.nccl_logs] == [9]
    refused_file, cut_line = found.warnings
    assert refused_file.code == cut_line.code == "TRC009"
    assert "flight_rank0.pkl: pickle refused" in refused_file.message
    assert refused_file.ranks == (0,)
    assert (cut_line.message, cut_line.count) == ("nccl_9.log: 1 line cannot be read", 1)


def test_names_that_torch_gives_dumps() -> None:
    for name in ("nccl_trace_rank_3", "comm_lib_trace_rank_3", "flight_rank3.json"):
        found = loose_role(name)
        assert found is not None
        assert (found.role, found.rank) == (Role.FLIGHT_RECORDER, 3)


# --- real dumps -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "run", ["healthy", "item_sync", "nccl_1ch", "slow_cpu_rank", "slow_loader"]
)
def test_real_dumps(run: str) -> None:
    for rank in range(2):
        recording = read(real_trace(f"h200-ddp/{run}/flight_rank{rank}.pkl"), rank)
        entries = recording.entries
        assert (recording.version, recording.nccl_version) == ("2.10", "2.28.9")
        assert recording.malformed == 0
        assert len(entries) == 358
        assert entries.collective_sequence.tolist() == list(range(1, 359))
        assert set(entries.state.tolist()) == {FlightState.COMPLETED}
        assert bool(np.all(entries.started_ns == NA_INT64))
        assert bool(np.all(entries.completed_ns > entries.created_ns))
        names = np.array(recording.names)[entries.operation]
        assert (np.sum(names == "allreduce"), np.sum(names == "broadcast")) == (351, 6)
        assert names[0] == "allgather"
        assert (entries.in_elements[0], entries.out_elements[0]) == (1, 2)
        assert entries.in_elements[-1] == 36967424
        assert recording.groups == (
            FlightGroup(
                name="0",
                description="default_pg",
                ranks=(0, 1),
                last_enqueued=358,
                last_completed=358,
            ),
        )


def test_real_steps_sum_to_the_gradients() -> None:
    """14 messages of fp32 a step, 682.0 MB in all, as the run's description says."""
    recording = read(real_trace("h200-ddp/healthy/flight_rank0.pkl"), 0)
    last_step = recording.entries.in_elements[-14:]
    assert int(last_step.sum()) * 4 == 682_008_576
