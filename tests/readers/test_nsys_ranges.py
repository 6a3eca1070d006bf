"""NVTX ranges, operating-system calls and overhead of synthetic exports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.readers.nsys_files import Nsys, global_tid, names_of, values
from trace_analyzer.names import NameTable
from trace_analyzer.readers.nsys_labels import split_labels
from trace_analyzer.schema import NA_INT64
from trace_analyzer.tables import HostCategory

USER, TORCH = HostCategory.ANNOTATION, HostCategory.OPERATOR
DETAILED = (
    "AddBackward0, seq = 10293, op_id = 102680, sizes = [[4, 512, 1]], input_op_ids = [(102678,0)]"
)


@pytest.mark.parametrize(
    ("text", "name", "sequence", "category"),
    [
        ("step 5", "step 5", None, USER),
        ("aten::copy_, op_id = 991065", "aten::copy_", None, TORCH),
        (
            DETAILED,
            "AddBackward0",
            10293,
            TORCH,
        ),
        ("aten::mul, seq = 3, sizes = [[1], []]", "aten::mul", 3, TORCH),
        ("AllToAll4D, seq = 45440, op_id = 991132", "AllToAll4D", 45440, TORCH),
        ("mylib::fused, op_id = 4", "mylib::fused", None, TORCH),
        ("my step, op_id = 4", "my step", None, USER),
        ("nccl:all_to_all, op_id = 991144", "nccl:all_to_all", None, USER),
        ("record_param_comms, op_id = 1", "record_param_comms", None, TORCH),
        ("cub::DeviceRadixSort", "cub::DeviceRadixSort", None, USER),
        ("aten::relu", "aten::relu", None, TORCH),
        (
            "autograd::engine::evaluate_function: MulBackward0, op_id = 9",
            "autograd::engine::evaluate_function: MulBackward0",
            None,
            TORCH,
        ),
        ("load, then seq = maybe", "load, then seq = maybe", None, USER),
        ("f(int, int), seq = 7, op_id = 1", "f(int, int)", 7, TORCH),
        ("", "", None, USER),
    ],
)
def test_texts_of_ranges(
    text: str, name: str, sequence: int | None, category: HostCategory
) -> None:
    names = NameTable()
    labels = split_labels([text, text], names)
    assert [names.texts[position] for position in labels.name.tolist()] == [name, name]
    assert labels.sequence.tolist() == [NA_INT64 if sequence is None else sequence] * 2
    assert labels.category.tolist() == [category, category]


def test_one_name_may_be_operator_and_annotation() -> None:
    names = NameTable()
    labels = split_labels(["lib::op", "lib::op, op_id = 1", "lib::op, seq = 2, op_id = 1"], names)
    assert labels.category.tolist() == [USER, TORCH, TORCH]
    assert names.texts == ["lib::op"]


def test_ranges_marks_and_texts_in_the_table(tmp_path: Path) -> None:
    made = Nsys()
    made.launched(0, 10, 20)
    made.range(0, 100, "outer")
    made.range(0, 100, "ignored", text="inline text", textId=None)
    made.range(0, 50, "inner")
    made.range(30, None, "mark", kind=34)
    made.range(40, 60, "start-end", kind=60, endGlobalTid=global_tid(10, 77))
    made.range(5, None, "a category", kind=33)
    made.range(6, None, "what is this", kind=71)
    rank = made.read_one(tmp_path)
    events = rank.events
    assert names_of(rank, events.name) == ["outer", "inline text", "inner", "mark", "start-end"]
    assert events.end_ns.tolist() == [100, 100, 50, 30, 60]
    assert rank.counts["left_out_nvtx_rows"] == 1
    assert "ignored" not in rank.names


def test_open_ranges_end_with_the_recording(tmp_path: Path) -> None:
    made = Nsys()
    made.launched(0, 10, 200)
    made.range(-40, None, "opened before the capture")
    made.range(50, 260, "closed last")
    made.range(300, None, "opened after everything")
    made.launched(0, 10, 20, pid=20)
    made.range(15, None, "of another process", pid=20)
    first, second = made.read(tmp_path)
    assert first.events.start_ns.tolist() == [-40, 50, 300]
    assert first.events.end_ns.tolist() == [260, 260, 300]
    assert second.events.end_ns.tolist() == [20]
    (warning,) = first.warnings
    assert (warning.code, warning.count) == ("TRC001", 2)


def test_os_calls_and_overhead(tmp_path: Path) -> None:
    made = Nsys()
    made.launched(0, 10, 20)
    timed = {"globalTid": global_tid(10, 12)}
    made.add("OSRT_API", start=1, end=9, nameId=made.text("pthread_cond_wait"), **timed)
    made.add("PROFILER_OVERHEAD", start=2, end=3, nameId=made.text("TLS allocation"), **timed)
    made.add(
        "CUPTI_ACTIVITY_KIND_OVERHEAD",
        start=4,
        end=5,
        nameId=made.text("Lazy function loading (CUDA)"),
        **timed,
    )
    rank = made.read_one(tmp_path)
    assert rank.events.category.tolist() == [
        HostCategory.OS,
        HostCategory.OVERHEAD,
        HostCategory.OVERHEAD,
    ]
    assert names_of(rank, rank.events.name) == [
        "pthread_cond_wait",
        "TLS allocation",
        "Lazy function loading (CUDA)",
    ]


def test_sequence_numbers_pair_forward_and_backward(tmp_path: Path) -> None:
    made = Nsys()
    made.launched(0, 10, 20)
    made.range(0, 5, "aten::mul, seq = 12, op_id = 7")
    made.range(50, 60, "MulBackward0, seq = 12, op_id = 90")
    made.range(70, 80, "step")
    assert values(made.read_one(tmp_path).events.sequence) == [12, 12, None]


def test_an_export_without_ranges(tmp_path: Path) -> None:
    made = Nsys()
    made.launched(0, 10, 20)
    rank = made.read_one(tmp_path)
    assert len(rank.events) == 0
    assert len(rank.collectives) == 0
    assert rank.groups == ()
