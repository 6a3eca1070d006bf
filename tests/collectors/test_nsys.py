from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.collectors.fake_nsys import PROFILE_2022, make_importer, make_nsys
from trace_analyzer.collectors import nsys_run, nsys_tool
from trace_analyzer.collectors.nsys_tool import Nsys, NsysError
from trace_analyzer.collectors.options import Mode, Options
from trace_analyzer.collectors.scrub import scrub


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


def test_the_command_asks_for_little_and_for_the_window() -> None:
    nsys = Nsys(program=Path("/opt/nsys"))
    vars(nsys)["profile_options"] = frozenset({"--cpuctxsw", "--resolve-symbols"})
    assert nsys.profile_command("/data/node0") == [
        "/opt/nsys",
        "profile",
        "--trace=cuda,nvtx",
        "--sample=none",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--force-overwrite=true",
        "--output=/data/node0",
        "--cpuctxsw=none",
        "--resolve-symbols=false",
    ]


def test_an_old_version_is_not_asked_for_what_it_does_not_know(tmp_path: Path) -> None:
    program = make_nsys(
        tmp_path, version="2022.2.1.31", profile_options=PROFILE_2022, export_options=("--type",)
    )
    nsys = Nsys(program=program)
    assert nsys.version == "2022.2.1.31"
    command = " ".join(nsys.profile_command("x", graph_nodes=True))
    assert "--cpuctxsw" not in command
    assert "--cuda-graph-trace" not in command
    target = nsys.export(tmp_path / "x.nsys-rep", tmp_path / "x.sqlite")
    assert "--include-json" not in str(rows(target, "select text from OPTIONS"))


def test_graph_nodes_only_when_asked(tmp_path: Path) -> None:
    nsys = Nsys(program=make_nsys(tmp_path))
    assert "--cuda-graph-trace=node" in nsys.profile_command("x", graph_nodes=True)
    assert "--cuda-graph-trace=node" not in nsys.profile_command("x")


def test_nsys_is_found_where_it_is_named_or_on_path(tmp_path: Path) -> None:
    program = make_nsys(tmp_path / "bin")
    by_name = {nsys_tool.PROGRAM_VARIABLE: str(program), "PATH": ""}
    assert nsys_tool.find(by_name).program == program
    by_folder = {nsys_tool.PROGRAM_VARIABLE: str(program.parent), "PATH": ""}
    assert nsys_tool.find(by_folder).program == program
    assert nsys_tool.find({"PATH": str(program.parent)}).program == program


def test_a_missing_nsys_is_said_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nsys_tool, "_PLACES", ())
    with pytest.raises(
        NsysError, match=r"neither on PATH nor under /usr/local/cuda.*collect torch"
    ):
        nsys_tool.find({"PATH": str(tmp_path)})
    with pytest.raises(NsysError, match="TRACE_ANALYZER_NSYS=/nowhere: there is no nsys"):
        nsys_tool.find({nsys_tool.PROGRAM_VARIABLE: "/nowhere"})


def test_usual_places_are_searched_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("2023.4.4", "2025.3.1"):
        make_nsys(tmp_path / version / "target-linux-x64")
    monkeypatch.setattr(nsys_tool, "_PLACES", (f"{tmp_path}/*/target-linux-*/nsys",))
    assert "2025.3.1" in str(nsys_tool.find({"PATH": ""}).program)


def test_a_stream_is_imported_with_the_libraries_that_it_needs(tmp_path: Path) -> None:
    program = make_nsys(tmp_path / "target-linux-x64", suffix=".qdstrm")
    importer = make_importer(tmp_path / "host-linux-x64")
    nsys = Nsys(program=program, libraries="/extra", environment={**os.environ})
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "node0.qdstrm").write_text("stream")
    assert nsys_run.collect_reports(nsys, bundle) == []
    assert sorted(path.name for path in bundle.iterdir()) == ["node0.nsys-rep", "node0.sqlite"]
    assert (importer.parent / "path").read_text().startswith(f"/extra:{importer.parent}")
    assert "--include-json=true" in str(rows(bundle / "node0.sqlite", "select text from OPTIONS"))
    assert rows(bundle / "node0.sqlite", "select * from META_DATA_CAPTURE") == []


def test_a_missing_importer_leaves_the_stream_and_says_so(tmp_path: Path) -> None:
    nsys = Nsys(program=make_nsys(tmp_path / "nsys" / "bin"))
    (tmp_path / "node0.qdstrm").write_text("stream")
    (problem,) = nsys_run.collect_reports(nsys, tmp_path)
    assert "there is no QdstrmImporter beside" in problem
    assert (tmp_path / "node0.qdstrm").exists()


def test_missing_libraries_are_named_with_their_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nsys = Nsys(program=make_nsys(tmp_path / "nsys" / "bin"))
    make_importer(tmp_path / "nsys" / "host-linux-x64")
    monkeypatch.setattr(Nsys, "missing_libraries", lambda *_: ["libdw.so.1", "libodd.so"])
    with pytest.raises(
        NsysError, match=r"needs libdw.so.1, libodd.so; install libdw1 libodd.so, or"
    ):
        nsys.import_stream(tmp_path / "node0.qdstrm")


def test_what_ldd_says_is_read(tmp_path: Path) -> None:
    ldd = tmp_path / "ldd"
    ldd.write_text(
        "#!/bin/sh\necho '\tlibdw.so.1 => not found'\necho '\tlibc.so.6 => /lib/libc.so.6 (0x7)'\n"
    )
    ldd.chmod(0o755)
    nsys = Nsys(program=Path("nsys"), environment={"PATH": str(tmp_path)})
    os.environ["PATH"], before = f"{tmp_path}{os.pathsep}{os.environ['PATH']}", os.environ["PATH"]
    try:
        assert nsys.missing_libraries(Path("/x/QdstrmImporter")) == ["libdw.so.1"]
    finally:
        os.environ["PATH"] = before


def test_a_failing_importer_is_quoted(tmp_path: Path) -> None:
    nsys = Nsys(program=make_nsys(tmp_path / "nsys" / "bin"))
    make_importer(tmp_path / "nsys" / "host-linux-x64", works=False)
    with pytest.raises(NsysError, match="QdstrmImporter failed: cannot read the stream"):
        nsys.import_stream(tmp_path / "node0.qdstrm")


def test_an_export_that_fails_says_how_to_do_it_elsewhere(tmp_path: Path) -> None:
    nsys = Nsys(program=make_nsys(tmp_path, export_fails=True))
    (tmp_path / "node0.nsys-rep").write_text("report")
    (problem,) = nsys_run.collect_reports(nsys, tmp_path)
    assert "nsys 2025.3.1.0 cannot export it (Exportation error: Report was created" in problem
    assert "nsys export --type=sqlite --include-json=true node0.nsys-rep" in problem
    assert (tmp_path / "node0.nsys-rep").exists()


def test_no_report_is_no_silence(tmp_path: Path) -> None:
    (problem,) = nsys_run.collect_reports(Nsys(program=make_nsys(tmp_path)), tmp_path)
    assert problem.startswith("nsys left no report: training did not reach the profiled steps")


@pytest.mark.parametrize("profile_code", [0, 77])
def test_the_exit_code_is_the_commands_own(tmp_path: Path, profile_code: int) -> None:
    nsys = Nsys(program=make_nsys(tmp_path / "bin", profile_code=profile_code))
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    options = Options(folder=str(bundle), mode=Mode.NSYS)
    for script, code in (("pass", 0), ("import sys; sys.exit(5)", 5)):
        command = [sys.executable, "-c", script]
        got = nsys_run.run(nsys, command, options, {}, graph_nodes=False, per_rank=False)
        assert got == code
    assert [path.suffix for path in bundle.iterdir()] == [".nsys-rep"]


def test_one_report_a_rank_comes_from_inside_the_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nsys = Nsys(program=make_nsys(tmp_path / "bin"))
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    monkeypatch.setenv("RANK", "3")
    options = Options(folder=str(bundle), mode=Mode.NSYS)
    written = tmp_path / "written"
    command = [sys.executable, "-c", f"open({str(written)!r}, 'a').write('once ')"]
    assert nsys_run.run(nsys, command, options, {}, graph_nodes=False, per_rank=True) == 0
    assert [path.name for path in bundle.iterdir()] == ["rank3.nsys-rep"]
    assert written.read_text() == "once "


def test_private_rows_leave_an_export(tmp_path: Path) -> None:
    path = tmp_path / "node0.sqlite"
    pid, tid = 924 << 24, (924 << 24) | 7
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            f"""
            create table META_DATA_CAPTURE (name text, value text);
            insert into META_DATA_CAPTURE values
                ('PROCESS_0:ENVIRONMENT_VARIABLE', 'AWS_SECRET_ACCESS_KEY=hunter2'),
                ('PROCESS_0:ENVIRONMENT_VARIABLE', 'NCCL_TOPO_FILE="/home/hunter2/topo.xml"'),
                ('PROCESS_0:COMMAND', '/home/hunter2/bin/torchrun'),
                ('PROCESS_0:USER_NAME', 'hunter2'),
                ('PROCESS_0:ARGUMENT_0', '--api-key'),
                ('PROCESS_0:ARGUMENT_1', 'hunter2'),
                ('PROCESS_0:ARGUMENT_2', '--lr=1'),
                ('CUDA_GRAPH_TRACE_OPTIONS:MODE', 'node');
            create table TARGET_INFO_SYSTEM_ENV (name text, nameEnum int, value text);
            insert into TARGET_INFO_SYSTEM_ENV values
                ('DeviceEnvironment', 610, 'TOKEN=hunter2;'), ('NvDriverVersion', 205, '580.1');
            create table PROCESSES (globalPid int, pid int, name text);
            insert into PROCESSES values ({pid}, 924, 'python'), ({31 << 24}, 31, 'hunter2d');
            create table NVTX_EVENTS (globalTid int);
            insert into NVTX_EVENTS values ({tid});
            create table StringIds (id int, value text);
            insert into StringIds values (1, 'stdout'), (2, 'loss 3.1 hunter2'), (3, 'kernel');
            create table ProcessStreams (globalPid int, filenameId int, contentId int);
            insert into ProcessStreams values ({pid}, 1, 2);
            """
        )
        database.commit()
    assert scrub(path) == 5
    assert b"hunter2" not in path.read_bytes()
    assert rows(path, "select value from META_DATA_CAPTURE where name like '%ENV%'") == [
        ('NCCL_TOPO_FILE="topo.xml"',)
    ]
    assert rows(path, "select value from META_DATA_CAPTURE where name like '%ARG%'") == [
        ("--api-key",),
        ("***",),
        ("--lr=1",),
    ]
    assert rows(path, "select name from PROCESSES") == [("python",)]
    assert rows(path, "select value from StringIds where id = 3") == [("kernel",)]
    assert rows(path, "select value from TARGET_INFO_SYSTEM_ENV") == [("580.1",)]


def test_an_export_that_cannot_be_cleaned_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nsys = Nsys(program=make_nsys(tmp_path / "bin"))
    (tmp_path / "node0.nsys-rep").write_text("report")

    def export(self: Nsys, report: Path, target: Path) -> Path:
        target.write_text("no database at all, but long enough to be looked at" * 40)
        return target

    monkeypatch.setattr(Nsys, "export", export)
    (problem,) = nsys_run.collect_reports(nsys, tmp_path)
    assert "cannot be cleaned of private rows" in problem
    assert not (tmp_path / "node0.sqlite").exists()
