"""SQLite and Parquet: the same rows as the model, every column documented, derived sums exact."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.export import written
from tests.traces import ROOT, real_trace
from trace_analyzer.analyses.study import Study
from trace_analyzer.assembly import Options, build_report
from trace_analyzer.export import contents, parquet, sqlite, table_declarations
from trace_analyzer.export.export_table import NAME
from trace_analyzer.findings import Report
from trace_analyzer.readers.discovery import open_run
from trace_analyzer.schema import is_na
from trace_analyzer.tables import TABLES, GpuOperations, HostEvents

RUN = ROOT / "tests/data/faultlab/gpt-small-ddp.item-sync_8.kineto"
TABLE_NAMES = [table.name for table in table_declarations.ALL]


@pytest.fixture(scope="module")
def made() -> tuple[Study, Report]:
    return _made(RUN)


def _made(path: Path) -> tuple[Study, Report]:
    study = written.studied(open_run(str(path)))
    return study, build_report(study.run, Options(), studied=study)


@pytest.fixture(scope="module")
def base(made: tuple[Study, Report], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "run.db"
    sqlite.write(path, contents.contents(*made), contents.row_count(made[0]))
    return path


@pytest.fixture(scope="module")
def folder(made: tuple[Study, Report], tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pyarrow")
    path = tmp_path_factory.mktemp("parquet")
    parquet.write(path, contents.contents(*made), contents.row_count(made[0]))
    return path


def query(path: Path, text: str, *values: Any) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(text, values).fetchall()


def column(path: Path, table: str, name: str) -> list[Any]:
    return [row[0] for row in query(path, f"select {name} from {table} order by rank, id")]


def test_every_column_is_documented() -> None:
    for table in table_declarations.ALL:
        assert table.meaning
        assert set(table.key) <= {spec.name for spec in table.columns}
        for spec in table.columns:
            assert spec.meaning
            assert "\n" not in spec.meaning
            suffix = spec.name.rpartition("_")[2]
            assert spec.unit.split(" ")[0] == {"ns": "ns", "ms": "ms", "bytes": "bytes"}.get(
                suffix, spec.unit.split(" ")[0]
            ), spec.name


def test_the_model_s_columns_are_all_there() -> None:
    for table in TABLES:
        ours = {spec.name for spec in table_declarations.MODEL[table].columns}
        theirs = {"process_group" if c.name == "group" else c.name for c in table.columns()}
        assert theirs <= ours, table


def test_sqlite_has_every_row_and_missing_values_are_null(
    made: tuple[Study, Report], base: Path
) -> None:
    ranks = made[0].run.ranks
    for name in ("start_ns", "launch", "stream", "bytes", "collective", "correlation"):
        values = np.concatenate([getattr(rank.operations, name) for rank in ranks])
        expected = [
            None if missing else value
            for value, missing in zip(values.tolist(), is_na(values).tolist(), strict=True)
        ]
        assert column(base, "gpu_operations", name) == expected
    assert None in column(base, "gpu_operations", "bytes")
    texts = [rank.names[code] for rank in ranks for code in rank.events.name]
    found = query(
        base, "select n.text from host_events e join names n on n.id = e.name order by rank, e.id"
    )
    assert [row[0] for row in found] == texts
    occupancy = np.concatenate([rank.configs.occupancy_pct for rank in ranks])
    assert column(base, "launch_configs", "occupancy_pct") == occupancy.tolist()


def test_rows_refer_to_rows(made: tuple[Study, Report], base: Path) -> None:
    (joined,) = query(
        base,
        "select count(*) from gpu_operations o join host_calls c on c.rank = o.rank "
        "and c.id = o.launch where c.correlation = o.correlation",
    )[0]
    linked = sum(int((~is_na(rank.operations.launch)).sum()) for rank in made[0].run.ranks)
    assert joined == linked > 1000
    groups = query(
        base,
        "select distinct g.name, g.size, g.members from collectives c join groups g "
        "on g.rank = c.rank and g.id = c.process_group",
    )
    assert groups == [("0", 2, "[0, 1]")]


def test_steps_add_up_and_agree_with_the_operations(made: tuple[Study, Report], base: Path) -> None:
    rows = query(
        base,
        "select count(*), sum(length_ns - compute_ns - comm_exposed_ns - copy_exposed_ns - idle_ns), "
        "sum(idle_ns - idle_launch_ns - idle_latency_ns - idle_other_ns), "
        "sum(comm_exposed_ns - comm_exposed_transfer_ns - comm_exposed_wait_ns "
        "- comm_exposed_unsplit_ns), sum(steady) from steps",
    )
    steps = sum(len(item.steps) for item in made[0].ranks.values())
    steady = sum(int(item.steady.sum()) for item in made[0].ranks.values())
    assert rows == [(steps, 0, 0, 0, steady)]
    # Waits of a step are those of the collectives that it launched.
    differences = query(
        base,
        "select s.comm_wait_ns - sum(m.wait_ns) from steps s join gpu_operations o "
        "on o.rank = s.rank and o.step = s.step join matched_collectives m "
        "on m.rank = o.rank and m.operation_id = o.id group by s.rank, s.step",
    )
    assert differences == [(0,)] * steps
    for rank in made[1].ranks:
        assert rank.window is not None
        (compute,) = query(base, "select compute_ns from ranks where rank = ?", rank.rank)[0]
        assert compute / 1e6 == rank.window.compute_ms


def test_matched_collectives_end_together_on_the_common_clock(base: Path) -> None:
    spread = query(
        base,
        "select max(end_ns + to_common_ns) - min(end_ns + to_common_ns), count(*) "
        "from matched_collectives join ranks using (rank) group by collective",
    )
    assert len(spread) > 20
    assert {count for _, count in spread} == {2}
    assert sorted(difference for difference, _ in spread)[len(spread) // 2] < 50_000


def test_views_have_words(made: tuple[Study, Report], base: Path) -> None:
    rows = query(
        base,
        "select kind, work, count(*) from operations_in_words group by kind, work order by 1, 2",
    )
    assert [row[:2] for row in rows] == [
        ("KERNEL", "COMM"), ("KERNEL", "COMPUTE"), ("MEMCPY", "COPY"), ("MEMSET", "COPY")
    ]  # fmt: skip
    assert sum(row[2] for row in rows) == sum(len(r.operations) for r in made[0].run.ranks)
    assert query(base, "select min(common_start_ns) from events_in_words")[0][0] >= 1_000_000
    assert query(
        base, "select kind from calls_in_words where name = 'cudaLaunchKernel' limit 1"
    ) == [("LAUNCH",)]


def test_findings_and_warnings_are_those_of_the_report(
    made: tuple[Study, Report], base: Path
) -> None:
    report = made[1]
    assert report.findings
    rows = query(base, "select code, title, recoverable_ms, ranks, evidence from findings")
    for row, finding in zip(rows, report.findings, strict=True):
        assert row[:3] == (finding.code, finding.title, finding.recoverable_ms)
        assert json.loads(row[3]) == finding.ranks
        assert [part["title"] for part in json.loads(row[4])] == [e.title for e in finding.evidence]
    assert query(base, "select code from warnings") == [(w.code,) for w in report.warnings]
    (run,) = query(base, "select value from run where key = 'verdict'")
    assert run == (report.verdict.headline,)


def test_the_schema_explains_itself(base: Path) -> None:
    (text,) = query(base, "select sql from sqlite_master where name = 'gpu_operations'")[0]
    assert "bytes INTEGER, -- bytes: size of a copy or memset" in text
    rows = query(base, "select table_name, count(*) from table_columns group by 1 order by 1")
    assert rows == sorted((t.name, len(t.columns)) for t in table_declarations.ALL)
    for table in TABLE_NAMES:
        names = [row[1] for row in query(base, f"pragma table_info({table})")]
        declared = next(t for t in table_declarations.ALL if t.name == table)
        assert names == [spec.name for spec in declared.columns]


def test_parquet_holds_the_same_rows_as_sqlite(folder: Path, base: Path) -> None:
    from pyarrow import parquet as reader

    assert sorted(path.name for path in folder.iterdir()) == sorted(parquet.file_names())
    for table in table_declarations.ALL:
        rows = reader.read_table(folder / f"{table.name}.parquet")
        columns = [
            f"(select text from names where id = {spec.name})" if spec.dtype == NAME else spec.name
            for spec in table.columns
        ]
        order = ", ".join(table.key)
        expected = query(base, f"select {', '.join(columns)} from {table.name} order by {order}")
        rows = rows.sort_by([(key, "ascending") for key in table.key])
        found = list(
            zip(*(rows.column(spec.name).to_pylist() for spec in table.columns), strict=True)
        )
        assert found == expected, table.name


def test_parquet_says_unit_and_meaning(folder: Path) -> None:
    from pyarrow import parquet as reader

    schema = reader.read_schema(folder / "gpu_operations.parquet")
    assert schema.field("start_ns").metadata[b"unit"] == b"ns"
    assert schema.field("bytes").metadata[b"meaning"] == b"size of a copy or memset"
    assert schema.field("bytes").nullable
    assert not schema.field("start_ns").nullable
    assert schema.metadata[b"key"] == b"rank,id"


def test_progress_counts_rows(made: tuple[Study, Report], tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    rows = contents.row_count(made[0])
    sqlite.write(
        tmp_path / "run.db", contents.contents(*made), rows, lambda *call: told.append(call)
    )
    assert {label for label, _, _ in told} == set(TABLE_NAMES)
    assert all(0 <= done <= total for _, done, total in told)
    assert told[-1][0] == "threads"
    assert told[-1][1] > rows / 2


@pytest.mark.parametrize(
    "relative",
    [
        "h200-ddp-nsys/healthy_payload.sqlite",
        "public/HolisticTraceAnalysis/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
        "public/param/dlrm_kineto",
        "malformed/gpu_missing_stream",
    ],
)
def test_real_recordings_of_all_kinds(relative: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    study, report = _made(real_trace(relative))
    path = tmp_path / "run.db"
    sqlite.write(path, contents.contents(study, report), contents.row_count(study))
    for table, name in ((GpuOperations, "operations"), (HostEvents, "events")):
        (count,) = query(path, f"select count(*) from {table_declarations.MODEL[table].name}")[0]
        assert count == sum(len(getattr(rank, name)) for rank in study.run.ranks)
    assert query(path, "pragma integrity_check") == [("ok",)]
    parquet.write(tmp_path, contents.contents(study, report), contents.row_count(study))
