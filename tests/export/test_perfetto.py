"""The trace for Perfetto: what a viewer needs, what it shows, and the same numbers read back."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builder import NCCL, RankBuilder, run_of
from tests.export import written
from tests.real_runs import RUNS
from tests.traces import ROOT, real_trace
from tests.worlds import world
from trace_analyzer import rank_facts
from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.export import perfetto
from trace_analyzer.export.text_rows import quoted
from trace_analyzer.findings import Evidence, Finding, Range
from trace_analyzer.model import Device, ProcessGroup, Rank
from trace_analyzer.readers import kineto
from trace_analyzer.readers.discovery import open_run
from trace_analyzer.schema import NA_INT32, NA_INT64, na_of
from trace_analyzer.tables import (
    GpuOperations,
    HostCalls,
    HostCategory,
    OperationKind,
    Synchronizations,
    SyncKind,
)

FAULT_RUNS = (
    "conv-small-ddp.healthy_1.kineto",
    "gpt-small-ddp.late-host_0.6.kineto",
    "gpt-small-fsdp.fine-sharding_1.kineto",
    "gpt-small-single.healthy_1.nsys",
)
GROUP = ProcessGroup(name="7", description="data", backend="nccl", size=2, ranks=(0, 1))


def _rank(number: int, *, late_ns: int = 0) -> Rank:
    """Two steps of a kernel, an all-reduce that is waited for, and a copy."""
    builder = RankBuilder(rank=number, world=2, group=GROUP)
    builder.profiler_steps([0, 1_000_000], 2_000_000)
    for step in range(3):
        at = step * 1_000_000
        builder.event("aten::mm", at + 1_000, at + 9_000, category=HostCategory.OPERATOR)
        builder.operation(
            "gemm", at + 10_000, at + 300_000, launch=(at + 2_000, at + 8_000), grid=64
        )
        builder.operation(
            NCCL,
            at + 300_000 + late_ns,
            at + 600_000,
            launch=(at + 20_000, at + 25_000),
            stream=17,
            grid=24,
            block=544,
            operation="allreduce",
            dtype="Float",
            group=0,
            elements=1 << 20,
            message_bytes=4 << 20,
        )
        builder.operation(
            "Memcpy DtoH (Device -> Pinned)",
            at + 620_000,
            at + 640_000,
            launch=(at + 30_000, at + 35_000),
            kind=OperationKind.MEMCPY,
        )
    return builder.build()


def _pair() -> tuple[Rank, Rank]:
    return (
        replace(_rank(0), clock_base_ns=1_790_000_000_000_000_000, path="a"),
        replace(_rank(1, late_ns=200_000), clock_base_ns=1_790_000_000_000_000_000, path="b"),
    )


# --- read back by our own reader ------------------------------------------------------------


@pytest.mark.parametrize("name", FAULT_RUNS)
def test_recorded_runs_read_back_with_the_same_numbers(name: str, tmp_path: Path) -> None:
    study = written.studied(open_run(str(ROOT / "tests/data/faultlab" / name)))
    again = written.read_back(study, tmp_path)
    assert written.numbers(again) == written.numbers(study)
    for rank, other in zip(study.run.ranks, again.run.ranks, strict=True):
        _same_tables(rank, other)


@pytest.mark.parametrize("relative", RUNS)
def test_real_recordings_read_back_with_the_same_numbers(relative: str, tmp_path: Path) -> None:
    study = written.studied(open_run(str(real_trace(relative))))
    again = written.read_back(study, tmp_path)
    assert written.numbers(again) == written.numbers(study)
    for rank, other in zip(study.run.ranks, again.run.ranks, strict=True):
        _same_tables(rank, other)
    written.check_opens(written.events(tmp_path / "run.json.gz"))


@pytest.mark.parametrize("ranks", [2, 5])
def test_worlds_read_back_with_the_same_numbers(ranks: int, tmp_path: Path) -> None:
    made = world(ranks, 200, offsets_ns=3_000_000, seed=ranks)
    study = written.studied(run_of(*map(_correlated, made.all()[0].values())))
    again = written.read_back(study, tmp_path)
    assert written.numbers(again) == written.numbers(study)
    assert study.cross is not None
    assert again.cross is not None
    assert again.cross.matches.count == study.cross.matches.count == 200
    # Exported on one clock: what is left of the offsets is below what the fit can tell.
    assert max(abs(fit.offset_ns) for fit in study.cross.clocks.values()) > 100_000
    assert all(abs(fit.offset_ns) <= fit.residual_ns for fit in again.cross.clocks.values())


def _correlated(rank: Rank) -> Rank:
    """Return a rank of a world, which links operations and calls by row only, with ids."""
    ids = np.arange(1, len(rank.calls) + 1)
    return replace(
        rank,
        calls=HostCalls.from_columns(
            len(ids),
            **{c.name: getattr(rank.calls, c.name) for c in HostCalls.columns()}
            | {"correlation": ids},
        ),
        operations=GpuOperations.from_columns(
            len(rank.operations),
            **{c.name: getattr(rank.operations, c.name) for c in GpuOperations.columns()}
            | {"correlation": ids[rank.operations.launch]},
        ),
    )


def _same_tables(rank: Rank, other: Rank) -> None:
    for name in ("rank", "source", "pid", "host", "world_size", "groups", "devices", "capture",
                 "versions", "settings", "truncated"):  # fmt: skip
        assert getattr(rank, name) == getattr(other, name), name
    moved: set[int] = set()
    for table in ("operations", "calls", "events", "syncs"):
        one, two = _rows(rank, table), _rows(other, table)
        for name, values in one.items():
            if name in {"start_ns", "end_ns"}:
                moved |= set(np.unique(two[name] - values).tolist())
            else:
                assert np.array_equal(values, two[name]), (table, name)
    assert len(moved) == 1  # one shift for everything


def _rows(rank: Rank, name: str) -> dict[str, Any]:
    """Columns that hold no positions in other tables, in an order that ties do not change."""
    table = getattr(rank, name)
    columns = {
        spec.name: getattr(table, spec.name)
        for spec in table.columns()
        if spec.name not in {"name", "thread", "collective", "launch_config", "launch"}
    }
    if name != "syncs":
        columns["text"] = np.array([rank.names[code] for code in table.name], dtype=object)
    order = np.lexsort([column.astype(str) for column in columns.values()])
    order = order[np.argsort(columns["start_ns"][order], kind="stable")]
    return {key: column[order] for key, column in columns.items()}


def test_exporting_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    study = written.studied(run_of(*_pair()))
    assert b"".join(perfetto.trace(study, ())) == b"".join(perfetto.trace(study, ()))


def test_an_export_exports_again(tmp_path: Path) -> None:
    study = written.studied(run_of(*_pair()))
    again = written.read_back(study, tmp_path)
    third = written.read_back(again, tmp_path)
    assert written.numbers(third) == written.numbers(study)
    assert (
        third.run.ranks[1].threads.process.tolist() == again.run.ranks[1].threads.process.tolist()
    )


def test_blocks_of_any_size_give_the_same_ranks(tmp_path: Path) -> None:
    study = written.studied(run_of(*_pair()))
    path = written.exported(study, tmp_path / "run.json.gz")
    whole = kineto.read_ranks(path)
    assert [rank.rank for rank in whole] == [0, 1]
    for size in (1_000, 5_000, 20_000):
        for one, two in zip(whole, kineto.read_ranks(path, block_bytes=size), strict=True):
            assert one.counts == two.counts
            assert np.array_equal(one.operations.start_ns, two.operations.start_ns)
            assert one.warnings == two.warnings == ()


def test_one_rank_can_be_asked_for(tmp_path: Path) -> None:
    study = written.studied(run_of(*_pair()))
    path = written.exported(study, tmp_path / "run.json.gz")
    run = open_run(str(path), ranks=[1])
    assert [rank.rank for rank in run.ranks] == [1]
    assert len(run.ranks[0].operations) == 9


def test_what_only_exports_can_say_comes_back(tmp_path: Path) -> None:
    """Sizes that elements do not give, several calls in one launch, operating-system calls."""
    rank, peer = _pair()
    table = rank.collectives
    size = np.array([12_345, NA_INT64, 4 << 20], dtype=np.int64)
    calls = np.array([1, 3, 1], dtype=np.int32)
    changed = replace(
        rank,
        collectives=type(table)(
            **{c.name: getattr(table, c.name) for c in table.columns()}
            | {"message_bytes": size, "calls": calls}
        ),
        events=type(rank.events)(
            **{c.name: getattr(rank.events, c.name) for c in rank.events.columns()}
            | {"category": np.full(len(rank.events), HostCategory.OS, dtype=np.int8)}
        ),
        syncs=Synchronizations.from_columns(
            3,
            start_ns=np.array([100, 200, 300]),
            end_ns=np.array([150, 200, 900_000]),
            kind=np.array([SyncKind.EVENT_SYNC, SyncKind.EVENT_RECORD, SyncKind.CONTEXT_SYNC]),
            device=np.array([0, 0, NA_INT64]).astype(np.int16),
            stream=np.array([7, 17, NA_INT64]),
            correlation=np.array([5, 6, 7]),
            event=np.array([11, 12, NA_INT64]),
            record_correlation=np.array([6, NA_INT64, NA_INT64]),
            source_stream=np.array([17, NA_INT64, NA_INT64]),
        ),
        devices=(Device(ordinal=0, name="H200", sm_count=132, bus_id="0:1:0"),),
        settings={"NCCL_DEBUG": "INFO"},
        host="node é",
        truncated=True,
    )
    study = written.studied(run_of(changed, peer))
    path = written.exported(study, tmp_path / "run.json.gz")
    found = kineto.read_ranks(path)[0]
    assert found.collectives.message_bytes.tolist() == size.tolist()
    assert found.collectives.calls.tolist() == calls.tolist()
    assert found.groups == (GROUP,)
    assert set(found.events.category.tolist()) == {HostCategory.OS}
    assert (found.devices, found.settings) == (changed.devices, changed.settings)
    assert (found.host, found.truncated) == ("node é", True)
    for name in ("kind", "stream", "correlation", "event", "record_correlation", "source_stream"):
        assert getattr(found.syncs, name).tolist() == getattr(changed.syncs, name).tolist(), name
    assert (found.syncs.end_ns - found.syncs.start_ns).tolist() == [50, 0, 899_700]


def test_operations_without_device_and_stream_stay_so(tmp_path: Path) -> None:
    rank = _rank(0)
    table = rank.operations
    none = {"device": "int16", "stream": "int64", "correlation": "int64", "launch": "int32"}
    bare = type(table)(
        **{c.name: getattr(table, c.name) for c in table.columns()}
        | {name: np.full(len(table), na_of(kind), dtype=kind) for name, kind in none.items()}
    )
    study = written.studied(run_of(replace(rank, operations=bare)))
    path = written.exported(study, tmp_path / "run.json.gz")
    found = kineto.read(path)
    for name, kind in none.items():
        assert set(getattr(found.operations, name).tolist()) == {na_of(kind)}, name
    written.check_opens(written.events(path))


def test_an_operation_that_no_call_launched_is_not_joined_to_one(tmp_path: Path) -> None:
    rank = _rank(0)
    table = rank.operations
    launch = table.launch.copy()
    launch[3] = NA_INT32
    cut = type(table)(
        **{c.name: getattr(table, c.name) for c in table.columns()} | {"launch": launch}
    )
    study = written.studied(run_of(replace(rank, operations=cut)))
    found = kineto.read(written.exported(study, tmp_path / "run.json.gz"))
    assert (found.operations.launch == NA_INT32).tolist() == (launch == NA_INT32).tolist()


# --- what a viewer gets ---------------------------------------------------------------------


def _document(tmp_path: Path) -> tuple[list[dict[str, Any]], dict[tuple[str, str], list[Any]]]:
    study = written.studied(run_of(*_pair()))
    listed = written.events(written.exported(study, tmp_path / "run.json.gz"))
    written.check_opens(listed)
    return listed, written.tracks(listed)


def test_tracks_of_a_rank(tmp_path: Path) -> None:
    _, tracks = _document(tmp_path)
    assert [name for name in tracks if name[0].startswith("rank 1")] == [
        ("rank 1", "steps"),
        ("rank 1", "partition"),
        ("rank 1", "matched collectives"),
        ("rank 1", "host, thread"),
        ("rank 1", "GPU 0, stream 7"),
        ("rank 1", "GPU 0, stream 17"),
    ]


def test_the_partition_covers_the_window_with_what_the_report_says(tmp_path: Path) -> None:
    study = written.studied(run_of(*_pair()))
    listed = written.events(written.exported(study, tmp_path / "run.json.gz"))
    slices = written.tracks(listed)["rank 0", "partition"]
    parts = {"compute": 0, "exposed comm": 0, "exposed copy": 0, "idle": 0}
    at = None
    for event in slices:
        if event["name"] not in parts:
            continue
        assert at in {None, written.ns(event["ts"])}
        at = written.ns(event["ts"]) + written.ns(event["dur"])
        parts[event["name"]] += written.ns(event["dur"])
    # By hand: kernels 290 µs, all-reduce 300 µs, copies 20 µs, three times.
    assert parts == {
        "compute": 870_000,
        "exposed comm": 900_000,
        "exposed copy": 60_000,
        "idle": 800_000,
    }
    assert study.ranks[0].window.idle_ns.tolist() == [800_000]
    idle = [e for e in slices if e["name"] in {"latency", "other"} or "late" in e["name"]]
    assert sum(written.ns(event["dur"]) for event in idle) == 800_000


def test_waits_and_transfers_of_matched_collectives(tmp_path: Path) -> None:
    _, tracks = _document(tmp_path)
    early = tracks["rank 0", "matched collectives"]
    assert [event["name"] for event in early[:3]] == ["allreduce, data", "wait", "transfer"]
    assert [written.ns(event["dur"]) for event in early[:3]] == [300_000, 200_000, 100_000]
    assert early[0]["args"] == {
        "collective": 0,
        "message_bytes": 4 << 20,
        "wait_ns": 200_000,
        "transfer_ns": 100_000,
        "late_rank": 1,
    }
    late = tracks["rank 1", "matched collectives"]
    assert [event["name"] for event in late[:2]] == ["allreduce, data", "transfer"]
    # The same collective ends at the same time on both ranks.
    ends = [written.ns(e["ts"]) + written.ns(e["dur"]) for e in (early[0], late[0])]
    assert ends[0] == ends[1]


def test_events_keep_what_torch_says_of_them(tmp_path: Path) -> None:
    listed, tracks = _document(tmp_path)
    kernel = tracks["rank 0", "GPU 0, stream 17"][0]
    assert kernel["cat"] == "kernel"
    assert kernel["name"] == NCCL
    assert kernel["args"]["grid"] == [24, 1, 1]
    assert kernel["args"]["block"] == [544, 1, 1]
    assert kernel["args"]["Collective name"] == "allreduce"
    assert kernel["args"]["Message bytes"] == 4 << 20
    assert kernel["args"]["Process Group Ranks"] == "[0, 1]"
    call = next(e for e in tracks["rank 0", "host, thread"] if e["name"] == "cudaLaunchKernel")
    gemm = tracks["rank 0", "GPU 0, stream 7"][0]
    assert call["args"]["correlation"] == gemm["args"]["correlation"]
    leaves = next(e for e in listed if e["ph"] == "s" and e["ts"] == call["ts"])
    reaches = next(e for e in listed if e["ph"] == "f" and e["id"] == leaves["id"])
    assert (reaches["tid"], reaches["ts"]) == (gemm["tid"], gemm["ts"])


def test_findings_are_shown_where_they_are(tmp_path: Path) -> None:
    study = written.studied(run_of(*_pair()))
    ranges = [Range(rank=1, start_ns=5_000, end_ns=90_000, label="late")]
    proof = [Evidence(title="t", columns=[], rows=[], ranges=[Range(rank=0, start_ns=0, end_ns=7)])]
    finding = Finding(
        code="RANK001", name="late-rank-host", kind="fault", status="stable", title="Rank 1 <b> ’",
        severity="high", ranks=[1], recoverable_ms=1.0, recoverable_interval_ms=None,
        ceiling_ms=None, basis="replay", confidence="high", confidence_reason="", caused_by=None,
        proof="", rival="", limits="", evidence=proof, ranges=ranges, actions=[],
    )  # fmt: skip
    listed = written.events(written.exported(study, tmp_path / "run.json.gz", [finding]))
    tracks = written.tracks(listed)
    (mine,) = tracks["rank 1", "findings"]
    (proven,) = tracks["rank 0", "findings"]
    assert mine["name"] == "RANK001 Rank 1 <b> ’: late"
    first = tracks["rank 1", "GPU 0, stream 7"][0]
    assert written.ns(mine["ts"]) - written.ns(first["ts"]) == 5_000
    assert written.ns(mine["dur"]) == 85_000
    assert proven["name"] == "RANK001 Rank 1 <b> ’"


@pytest.mark.parametrize(
    "text", ['"', "\\", "a\nb\x00\x7f\x9b", "é → 中", "😀", "\ud83d", "</script>", "\u2028"]
)
def test_names_survive_in_a_form_that_perfetto_takes(text: str) -> None:
    written_as = quoted(text)
    expected = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert json.loads(written_as) == expected
    # Neither surrogate pairs nor control characters, and beyond ASCII only what has no escape.
    assert not [letter for letter in written_as if letter < " " or "\x7f" <= letter <= "\uffff"]
    assert "\\ud" not in written_as.lower()


def test_a_run_on_unknown_clocks_is_put_together_at_its_windows(tmp_path: Path) -> None:
    one, two = (replace(rank, clock_base_ns=None, collectives=rank.collectives) for rank in _pair())
    builder = RankBuilder(rank=1)
    builder.operation("gemm", 5_000_000_000, 5_000_001_000)
    study = written.studied(run_of(one, builder.build()))
    path = written.exported(study, tmp_path / "run.json.gz")
    starts = [int(rank.events.start_ns.min()) if len(rank.events) else
              int(rank.operations.start_ns.min()) for rank in kineto.read_ranks(path)]  # fmt: skip
    assert starts == [1_000_000, 1_000_000]
    assert b"baseTimeNanoseconds" not in gzip.decompress(path.read_bytes())
    assert two.clock_base_ns is None


# --- files that were changed ----------------------------------------------------------------


def _text(tmp_path: Path) -> bytes:
    study = written.studied(run_of(*_pair()))
    return b"".join(perfetto.trace(study, ()))


def test_a_cut_file_gives_its_ranks_up_to_the_cut(tmp_path: Path) -> None:
    text = _text(tmp_path)
    path = tmp_path / "cut.json"
    path.write_bytes(text[: text.rindex(b'"cat":"kernel"')])
    first, last = kineto.read_ranks(path)
    assert (first.truncated, first.warnings) == (False, ())
    assert last.truncated
    assert [warning.code for warning in last.warnings] == ["TRC001"]
    path.write_bytes(text[: len(text) // 3])
    (only,) = kineto.read_ranks(path)
    assert (only.rank, only.truncated) == (0, True)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (b'"version":1', b'"version":9', "format 9"),
        (b'"version":1', b'"version":"x"', "damaged"),
        (b'"rank":1,"pid"', b'"rank":0,"pid"', "the same"),
    ],
)
def test_ranks_that_cannot_be_told_apart_are_refused(
    tmp_path: Path, old: bytes, new: bytes, problem: str
) -> None:
    path = tmp_path / "changed.json"
    text = _text(tmp_path)
    assert text.count(old) == 1
    path.write_bytes(text.replace(old, new))
    with pytest.raises(UnreadableInputError, match=problem):
        kineto.read_ranks(path)


def test_ranks_that_are_told_too_late_are_refused(tmp_path: Path) -> None:
    document = json.loads(_text(tmp_path))
    facts = document.pop(rank_facts.EXPORT_KEY)
    path = tmp_path / "late.json"
    path.write_text(json.dumps({**document, rank_facts.EXPORT_KEY: facts}))
    with pytest.raises(UnreadableInputError, match="behind its events"):
        kineto.read_ranks(path)


def test_events_in_any_order_go_to_their_ranks(tmp_path: Path) -> None:
    document = json.loads(_text(tmp_path))
    listed = document["traceEvents"]
    document["traceEvents"] = [
        e for pair in zip(listed, reversed(listed), strict=True) for e in pair
    ]
    document["traceEvents"].append({**listed[-20], "ph": "X", "cat": "kernel", "pid": 5, "dur": 1})
    path = tmp_path / "mixed.json"
    path.write_text(json.dumps(document))
    for rank in kineto.read_ranks(path):
        assert len(rank.operations) == 9  # every event stood there twice
    assert any("process 5" in w.message for w in kineto.read_ranks(path)[-1].warnings)


def test_several_ranks_are_refused_where_one_was_expected(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(_text(tmp_path))
    with pytest.raises(UnreadableInputError, match="holds 2 ranks"):
        kineto.read(path)
