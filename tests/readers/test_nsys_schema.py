"""Opening exports: what can be wrong with the file, and that nothing is left beside it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.readers.nsys_files import KERNEL, RUNTIME, Nsys, global_pid, values
from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.readers import nsys
from trace_analyzer.readers.nsys_schema import Export
from trace_analyzer.schema import NA_INT64


def _small() -> Nsys:
    made = Nsys()
    made.launched(0, 10, 20)
    made.launched(30, 40, 55)
    return made


def _listing(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_reading_changes_nothing_in_the_folder(tmp_path: Path) -> None:
    path = _small().write(tmp_path / "trace.sqlite")
    before = _listing(tmp_path)
    (rank,) = nsys.read(path)
    assert nsys.sniff(path)
    assert _listing(tmp_path) == before
    assert rank.path == str(path)
    assert nsys.read(path, display="shown.sqlite")[0].path == "shown.sqlite"


@pytest.mark.parametrize("name", ["a?mode=rw.sqlite", "50% #1.sqlite", "ä b.sqlite", "'\".sqlite"])
def test_any_file_name(tmp_path: Path, name: str) -> None:
    path = _small().write(tmp_path / name)
    assert len(nsys.read(path)[0].operations) == 2


def test_a_write_ahead_log_beside_the_file_counts(tmp_path: Path) -> None:
    folder = tmp_path / "original"
    folder.mkdir()
    path = _small().write(folder / "trace.sqlite", wal=True)
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("pragma wal_autocheckpoint=0")
        writer.execute(f"update {KERNEL} set end = 99 where start = 40")
        writer.commit()
        copied = tmp_path / "copied"
        copied.mkdir()
        for file in ("trace.sqlite", "trace.sqlite-wal"):
            shutil.copyfile(folder / file, copied / file)
    before = _listing(copied)
    assert before["trace.sqlite-wal"]
    assert nsys.sniff(copied / "trace.sqlite")
    (rank,) = nsys.read(copied / "trace.sqlite")
    assert rank.operations.end_ns.tolist() == [20, 99]
    assert _listing(copied) == before


def test_a_database_in_write_ahead_mode_without_log(tmp_path: Path) -> None:
    path = _small().write(tmp_path / "trace.sqlite", wal=True)
    before = _listing(tmp_path)
    assert set(before) == {"trace.sqlite"}
    assert nsys.read(path)[0].operations.end_ns.tolist() == [20, 55]
    assert _listing(tmp_path) == before


def test_a_locked_database_is_refused_and_still_known(tmp_path: Path) -> None:
    path = _small().write(tmp_path / "trace.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("begin exclusive")
        with pytest.raises(UnreadableInputError, match=r"another program.*wait until the export"):
            nsys.read(path)
        assert nsys.sniff(path)


def test_a_hot_journal_is_refused(tmp_path: Path) -> None:
    made = _small()
    for number in range(3000):
        made.kernel(1000 + number, 1001 + number)
    folder = tmp_path / "original"
    folder.mkdir()
    path = made.write(folder / "trace.sqlite")
    copied = tmp_path / "copied"
    copied.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("pragma cache_size=1")
        writer.execute("begin")
        writer.execute(f"update {KERNEL} set start = 0")
        for file in ("trace.sqlite", "trace.sqlite-journal"):
            shutil.copyfile(folder / file, copied / file)
        writer.execute("rollback")
    with pytest.raises(UnreadableInputError, match=r"never finished|cannot read it"):
        nsys.read(copied / "trace.sqlite")


def test_a_truncated_database_is_named_damaged(tmp_path: Path) -> None:
    made = Nsys()
    for number in range(5000):
        made.launched(number * 10, number * 10 + 3, number * 10 + 8)
    path = made.write(tmp_path / "trace.sqlite")
    size = path.stat().st_size
    with path.open("r+b") as stream:
        stream.truncate(size // 2)
    with pytest.raises(UnreadableInputError, match=r"the database is damaged.*export .* again"):
        nsys.read(path)
    assert nsys.sniff(path)


def test_overwritten_pages_are_named_damaged(tmp_path: Path) -> None:
    made = Nsys()
    for number in range(5000):
        made.launched(number * 10, number * 10 + 3, number * 10 + 8)
    path = made.write(tmp_path / "trace.sqlite")
    with path.open("r+b") as stream:
        stream.seek(path.stat().st_size // 2)
        stream.write(b"\xa5" * 40_000)
    with pytest.raises(UnreadableInputError, match="damaged"):
        nsys.read(path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file is empty"),
        (b'{"traceEvents": []}', "not an SQLite database"),
        (b"SQLite format 3\0" + b"\xff" * 200, "damaged|cannot read it"),
    ],
)
def test_what_is_no_database(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "trace.sqlite"
    path.write_bytes(content)
    with pytest.raises(UnreadableInputError, match=problem):
        nsys.read(path)
    assert not nsys.sniff(path)


def test_an_absent_file(tmp_path: Path) -> None:
    assert not nsys.sniff(tmp_path / "none.sqlite")
    with pytest.raises(UnreadableInputError, match="no such file"):
        nsys.read(tmp_path / "none.sqlite")
    assert not (tmp_path / "none.sqlite").exists()


@pytest.mark.parametrize(
    "tables",
    [
        ["create table runs (id)"],
        ["create table CUPTI_ACTIVITY_KIND_RUNTIME (id)", "create table StringTable (id)"],
        [],
    ],
    ids=["another", "nvprof", "no table"],
)
def test_other_databases_are_not_taken(tmp_path: Path, tables: list[str]) -> None:
    path = tmp_path / "index.sqlite"
    with closing(sqlite3.connect(path)) as base:
        base.execute("pragma user_version=1")
        for table in tables:
            base.execute(table)
        base.commit()
    assert not nsys.sniff(path)
    with pytest.raises(UnreadableInputError, match="not an export of Nsight Systems"):
        nsys.read(path)


def test_an_export_without_gpu_work_says_so(tmp_path: Path) -> None:
    made = Nsys()
    made.range(0, 10, "step 1")
    with pytest.raises(UnreadableInputError, match=r"holds no CUDA events.*-t cuda,nvtx"):
        made.read(tmp_path)
    made = Nsys()
    made.call(0, 10, "cudaGetDeviceCount_v3020")
    with pytest.raises(UnreadableInputError, match="no GPU work and no kernel launch"):
        nsys.read(made.write(tmp_path / "calls.sqlite"))


def test_a_table_of_that_name_without_its_columns(tmp_path: Path) -> None:
    made = Nsys()
    made.add(KERNEL, something=1)
    with pytest.raises(UnreadableInputError, match=f"{KERNEL} has none of the columns"):
        made.read(tmp_path)


def test_text_in_numeric_columns_is_missing_and_counted(tmp_path: Path) -> None:
    made = _small()
    made.kernel(60, 70, correlation=None, streamId="seven", deviceId=b"\0")
    rank = made.read_one(tmp_path)
    assert values(rank.operations.stream) == [7, 7, None]
    assert values(rank.operations.device) == [0, 0, None]
    assert ("TRC009", 2) in [(warning.code, warning.count) for warning in rank.warnings]


def test_invalid_utf8_is_replaced(tmp_path: Path) -> None:
    path = _small().write(tmp_path / "trace.sqlite")
    with closing(sqlite3.connect(path)) as base:
        base.execute("update StringIds set value = cast(x'67ff6d' as text) where value = 'gemm'")
        base.commit()
    (rank,) = nsys.read(path)
    assert rank.names[rank.operations.name[0]] == "g\N{REPLACEMENT CHARACTER}m"


def test_columns_of_a_table(tmp_path: Path) -> None:
    path = _small().write(tmp_path / "trace.sqlite")
    with Export(path) as export:
        columns = export.integers(RUNTIME, ["start", "none"], row_ids=True)
        assert columns["start"].tolist() == [0, 30]
        assert columns["none"].tolist() == [NA_INT64, NA_INT64]
        assert columns["rowid"].tolist() == [1, 2]
        assert columns["start"].dtype == np.int64
        assert len(export.integers("ABSENT", ["start"])["start"]) == 0
        assert (export.count(RUNTIME), export.count("ABSENT")) == (2, 0)
        assert export.texts(KERNEL, "globalPid", "none") == [(global_pid(10), None)] * 2
        assert export.texts("ABSENT", "x") == []


def test_many_batches_are_joined(tmp_path: Path) -> None:
    made = Nsys()
    for number in range(45_001):
        made.kernel(number, number + 1)
    rank = made.read_one(tmp_path)
    assert rank.operations.start_ns.tolist() == list(range(45_001))
