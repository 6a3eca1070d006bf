"""From what a user types to a Run: what is read, what is said about it, what is refused."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import tarfile
import zipfile
from pathlib import Path

import fsspec
import pytest
import zstandard

from tests.recordings import KERNELS, START_US, Kineto, job, nsys
from tests.traces import real_trace
from trace_analyzer.bundle import BundleFile, Manifest, Role, describe_file, write_manifest
from trace_analyzer.errors import SeveralRunsError, UnreadableInputError
from trace_analyzer.model import DataWarning, Run, Severity, SourceKind
from trace_analyzer.readers.discovery import find_runs, open_files, open_run
from trace_analyzer.readers.workspace import Workspace

SECOND_US = 1_000_000


def codes(run: Run) -> list[str]:
    return [warning.code for warning in run.warnings]


def warning(run: Run, code: str) -> DataWarning:
    (found,) = [item for item in run.warnings if item.code == code]
    return found


def refused(target: Path | str, problem: str) -> UnreadableInputError:
    with pytest.raises(UnreadableInputError, match=problem) as caught:
        open_run(str(target))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(target))
    return caught.value


# --- one run, many shapes -------------------------------------------------------------------


def test_a_folder_of_ranks(tmp_path: Path) -> None:
    folder = job(tmp_path / "gpt", gz=True)
    (folder / "notes.txt").write_text("nothing")
    (folder / ".hidden.json").write_text(Kineto(rank=5).text())
    run = open_run(str(folder))
    assert run.name == "gpt"
    assert [(rank.rank, rank.rank_basis, rank.pid) for rank in run.ranks] == [
        (0, "content", 100),
        (1, "content", 101),
    ]
    assert run.world_size == 2
    assert run.started == "2026-11-29T21:44:58Z"
    assert not run.warnings
    assert not run.missing_ranks
    path = folder / "rank0.pt.trace.json.gz"
    source = run.sources[0]
    assert source.path == run.ranks[0].path == path.name
    assert source.kind is SourceKind.KINETO
    assert source.bytes == path.stat().st_size
    assert source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (source.ranks, source.gpu_operations) == ((0,), 4 * len(KERNELS))


def test_a_single_file_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "something.bin"
    path.write_bytes(
        zstandard.ZstdCompressor().compress(Kineto(rank=3, world_size=4).text().encode())
    )
    run = open_run(str(path))
    assert [rank.rank for rank in run.ranks] == [3]
    assert warning(run, "TRC002").ranks == (0, 1, 2)
    assert warning(run, "TRC002").message == "no recording of ranks 0-2 of 4"
    assert run.missing_ranks == (0, 1, 2)


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.zst"])
def test_an_archive(tmp_path: Path, kind: str) -> None:
    folder = job(tmp_path / "gpt")
    (folder / "steps_rank0.jsonl").write_text(TIMER)
    path = tmp_path / f"gpt.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(folder.iterdir()):
                archive.write(file, f"gpt/{file.name}")
    else:
        plain = tmp_path / "plain.tar"
        with tarfile.open(plain, "w") as tar:
            tar.add(folder, "gpt")
        packed = plain.read_bytes()
        if kind == "tar.gz":
            packed = gzip.compress(packed)
        elif kind == "tar.zst":
            packed = zstandard.ZstdCompressor().compress(packed)
        path.write_bytes(packed)
    with Workspace() as workspace:
        run = open_run(str(path), workspace=workspace)
        assert [rank.rank for rank in run.ranks] == [0, 1]
        assert run.name == "gpt"
        assert run.sources[0].path == "gpt/rank0.pt.trace.json"
        assert run.unprofiled[0].step_ms == (25.0, 26.0)
        temporary = Path(run.sidecars["timer"][0])
        assert temporary.exists()
    assert not temporary.exists()


def test_archives_inside_a_folder(tmp_path: Path) -> None:
    for rank in (0, 1):
        with zipfile.ZipFile(tmp_path / f"node{rank}.zip", "w") as archive:
            archive.writestr("trace.json", Kineto(rank=rank, pid=100 + rank).text())
    with zipfile.ZipFile(tmp_path / "checkpoint.pt", "w") as archive:
        archive.writestr("model/data.pkl", b"weights")
    run = open_run(str(tmp_path))
    assert [rank.path for rank in run.ranks] == ["node0.zip/trace.json", "node1.zip/trace.json"]


def test_a_url(tmp_path: Path) -> None:
    system = fsspec.filesystem("memory")
    system.pipe({f"/gpt/rank{r}.json": Kineto(rank=r, pid=100 + r).text().encode() for r in (0, 1)})
    run = open_run("memory://gpt")
    assert [rank.path for rank in run.ranks] == ["rank0.json", "rank1.json"]
    assert len(open_run("memory://gpt/rank1.json").ranks) == 1
    assert len(open_run(f"file://{job(tmp_path / 'x')}").ranks) == 2
    system.rm("/gpt", recursive=True)


def test_links_to_the_same_file_count_once(tmp_path: Path) -> None:
    folder = job(tmp_path / "gpt")
    (folder / "latest.json").symlink_to(folder / "rank0.pt.trace.json")
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    assert len(open_run(str(folder)).ranks) == 2


# --- ranks ----------------------------------------------------------------------------------


def test_ranks_from_names_where_the_content_does_not_tell(tmp_path: Path) -> None:
    for rank in (0, 1):
        Kineto(rank=None, pid=100 + rank).write(tmp_path / f"worker{rank}.1694.pt.trace.json")
    run = open_run(str(tmp_path))
    assert [(rank.rank, rank.rank_basis, rank.pid) for rank in run.ranks] == [
        (0, "name", 100),
        (1, "name", 101),
    ]
    assert run.world_size is None
    assert warning(run, "TRC011").severity is Severity.NOTE


def test_ranks_from_a_number_that_counts(tmp_path: Path) -> None:
    for rank in (0, 1, 2):
        Kineto(rank=None, pid=103 - rank).write(tmp_path / f"out_{rank}.v2.json")
    run = open_run(str(tmp_path))
    assert [(rank.rank, rank.rank_basis, rank.pid) for rank in run.ranks] == [
        (0, "name", 103),
        (1, "name", 102),
        (2, "name", 101),
    ]


def test_ranks_by_order_are_said_to_be_a_guess(tmp_path: Path) -> None:
    for pid in (100, 101):
        Kineto(rank=None, pid=pid).write(tmp_path / f"host_{pid}.{pid * 7}.pt.trace.json")
    run = open_run(str(tmp_path))
    assert [(rank.rank, rank.rank_basis) for rank in run.ranks] == [(0, "order"), (1, "order")]
    assert warning(run, "TRC011").severity is Severity.WARNING
    assert warning(run, "TRC011").count == 2


def test_the_content_is_believed_over_the_name(tmp_path: Path) -> None:
    Kineto(rank=0, pid=100).write(tmp_path / "rank1.json")
    Kineto(rank=1, pid=101).write(tmp_path / "rank0.json")
    run = open_run(str(tmp_path))
    assert [(rank.rank, rank.path) for rank in run.ranks] == [(0, "rank1.json"), (1, "rank0.json")]
    assert codes(run) == ["TRC011", "TRC011"]


def test_a_hole_in_the_numbering_without_a_world_size(tmp_path: Path) -> None:
    for rank in (0, 2):
        Kineto(rank=None, pid=100 + rank).write(tmp_path / f"rank{rank}.json")
    assert warning(open_run(str(tmp_path)), "TRC002").message == "no recording of rank 1"


def test_asking_for_ranks(tmp_path: Path) -> None:
    folder = job(tmp_path, ranks=4)
    run = open_run(str(folder), ranks=[2, 1])
    assert [rank.rank for rank in run.ranks] == [1, 2]
    assert len(run.sources) == 2
    assert warning(run, "TRC002").severity is Severity.NOTE
    assert warning(run, "TRC002").ranks == (0, 3)
    with pytest.raises(
        UnreadableInputError, match="no recording of rank 7; the run has ranks 0, 1, 2, 3"
    ):
        open_run(str(folder), ranks=[0, 7])


def test_asking_for_a_rank_that_only_order_gives(tmp_path: Path) -> None:
    for pid in (100, 101):
        Kineto(rank=None, pid=pid).write(tmp_path / f"host_{pid}.{pid * 7}.json")
    run = open_run(str(tmp_path), ranks=[1])
    assert [rank.pid for rank in run.ranks] == [101]
    assert [source.path for source in run.sources] == ["host_101.707.json"]


def test_windows_at_different_times_are_said(tmp_path: Path) -> None:
    Kineto(rank=0, pid=100).write(tmp_path / "a.json")
    Kineto(rank=1, pid=101, start_us=START_US + 3000).write(tmp_path / "b.json")
    run = open_run(str(tmp_path))
    assert warning(run, "TRC006").severity is Severity.WARNING
    Kineto(rank=1, pid=101, start_us=START_US + 900_000).write(tmp_path / "b.json")
    run = open_run(str(tmp_path))
    assert warning(run, "TRC006").severity is Severity.ERROR


def test_of_several_windows_the_longest_is_read(tmp_path: Path) -> None:
    for window, steps in enumerate((2, 5, 2)):
        for rank in (0, 1):
            Kineto(
                rank=rank,
                pid=100 + rank,
                steps=steps,
                start_us=START_US + window * 60 * SECOND_US,
                first_step=100 * window,
                sequence=1000 * window,
            ).write(tmp_path / f"iteration_{window}" / f"rank{rank}.json.gz")
    run = open_run(str(tmp_path))
    assert [rank.path for rank in run.ranks] == [
        "iteration_1/rank0.json.gz",
        "iteration_1/rank1.json.gz",
    ]
    found = warning(run, "TRC006")
    assert found.severity is Severity.NOTE
    assert "iteration_0/rank0.json.gz" in found.effect
    assert "iteration_2/rank1.json.gz" in found.effect
    assert len(run.sources) == 2


def test_of_several_windows_the_one_that_all_ranks_have_is_read(tmp_path: Path) -> None:
    job(tmp_path / "w0", steps=2, first_step=0, sequence=0)
    late = Kineto(
        rank=0, steps=50, start_us=START_US + 60 * SECOND_US, first_step=100, sequence=1000
    )
    late.write(tmp_path / "w1" / "rank0.pt.trace.json")
    run = open_run(str(tmp_path))
    assert [rank.path for rank in run.ranks] == [
        "w0/rank0.pt.trace.json",
        "w0/rank1.pt.trace.json",
    ]


# --- several runs ---------------------------------------------------------------------------


def test_several_runs_are_listed_in_one_line(tmp_path: Path) -> None:
    job(tmp_path / "a")
    job(tmp_path / "b", ranks=1, start_us=START_US + 60 * SECOND_US)
    error = refused(tmp_path, "holds 2 runs: a .kineto, 2 ranks., b .kineto, rank 0.")
    assert isinstance(error, SeveralRunsError)
    assert "analyze one of them" in str(error)


def test_a_long_list_is_cut(tmp_path: Path) -> None:
    for number in range(12):
        job(tmp_path / f"run{number:02}", ranks=1, start_us=START_US + number * 60 * SECOND_US)
    assert "and 4 more" in str(refused(tmp_path, "holds 12 runs"))


def test_found_runs_can_be_opened_one_by_one(tmp_path: Path) -> None:
    job(tmp_path / "a")
    job(tmp_path / "b", ranks=1, start_us=START_US + 60 * SECOND_US)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "rank0.pt.trace.json").write_bytes(b"")
    a, b, c = find_runs(str(tmp_path))
    assert [len(open_files(run).ranks) for run in (a, b)] == [2, 1]
    with pytest.raises(UnreadableInputError, match=r"c/rank0\.pt\.trace\.json: the file is empty"):
        open_files(c)


# --- Kineto and nsys ------------------------------------------------------------------------


def test_nsys_of_the_same_job_is_a_cross_check(tmp_path: Path) -> None:
    job(tmp_path)
    nsys(tmp_path / "node0.sqlite")
    run = open_run(str(tmp_path))
    assert [rank.source for rank in run.ranks] == [SourceKind.KINETO] * 2
    assert [rank.source for rank in run.cross_check] == [SourceKind.NSYS] * 2
    assert [source.path for source in run.sources] == [
        "rank0.pt.trace.json",
        "rank1.pt.trace.json",
        "node0.sqlite",
    ]
    assert warning(run, "TRC013").severity is Severity.NOTE


def test_nsys_of_another_job_is_another_run(tmp_path: Path) -> None:
    job(tmp_path)
    nsys(tmp_path / "node0.sqlite", kernels=("conv", "pool"))
    assert isinstance(refused(tmp_path, "whose kernels differ"), SeveralRunsError)


def test_ranks_of_nsys_by_order_and_by_name(tmp_path: Path) -> None:
    run = open_run(str(nsys(tmp_path / "node0.sqlite")))
    assert [(rank.rank, rank.rank_basis, rank.pid) for rank in run.ranks] == [
        (0, "order", 200),
        (1, "order", 201),
    ]
    assert run.started == "2026-11-29T21:36:24Z"
    folder = tmp_path / "per_rank"
    folder.mkdir()
    for rank in (0, 1):
        nsys(folder / f"report_rank{rank}.sqlite", pids=[300 - rank])
    run = open_run(str(folder))
    assert [(rank.rank, rank.rank_basis, rank.pid) for rank in run.ranks] == [
        (0, "name", 300),
        (1, "name", 299),
    ]


def test_nsys_exports_of_two_moments_are_two_runs(tmp_path: Path) -> None:
    nsys(tmp_path / "a.sqlite")
    nsys(tmp_path / "b.sqlite", pids=(300, 301), start_ns=1_795_988_284_000_000_000)
    refused(tmp_path, "holds 2 runs: a.sqlite .nsys, 2 ranks., b.sqlite .nsys, 2 ranks.")


def test_an_nsys_report_beside_its_export_is_not_read(tmp_path: Path) -> None:
    nsys(tmp_path / "node0.sqlite")
    (tmp_path / "node0.nsys-rep").write_bytes(b"report")
    assert len(open_run(str(tmp_path)).ranks) == 2


def test_an_nsys_report_alone_names_the_command_that_exports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "node0.nsys-rep").write_bytes(b"report")
    error = refused(tmp_path / "node0.nsys-rep", "nsys")
    assert "nsys export" in str(error)


def test_nsys_reports_are_exported_by_the_installed_nsys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trace_analyzer.readers import nsys as reader

    folder = tmp_path / "reports"
    folder.mkdir()
    for rank in (0, 1):
        (folder / f"report_rank{rank}.nsys-rep").write_bytes(b"report")

    def export(report: Path, into: Path) -> Path:
        pid = 300 + int(report.stem[-1])
        return nsys(into / f"{report.stem}.sqlite", pids=[pid])

    monkeypatch.setattr(reader, "export_report", export)
    run = open_run(str(folder))
    assert [(rank.rank, rank.rank_basis, rank.pid, rank.path) for rank in run.ranks] == [
        (0, "name", 300, "report_rank0.nsys-rep"),
        (1, "name", 301, "report_rank1.nsys-rep"),
    ]
    assert sorted(path.name for path in folder.iterdir()) == [
        "report_rank0.nsys-rep",
        "report_rank1.nsys-rep",
    ]


# --- bundles --------------------------------------------------------------------------------

TIMER = "\n".join(
    json.dumps(line)
    for line in (
        {"schema_version": 1, "kind": "header", "rank": 0, "clock": "cuda-event"},
        {"kind": "step", "index": 0, "phase": "unprofiled", "step_ms": 25.0},
        {"kind": "step", "index": 1, "phase": "unprofiled", "step_ms": 26.0},
        {"kind": "step", "index": 2, "phase": "warmup", "step_ms": 99.0},
        {"kind": "step", "index": 3, "phase": "profiled", "step_ms": 33.0},
    )
)


def bundle(folder: Path) -> Path:
    folder.mkdir()
    files: list[BundleFile] = []
    for rank in (0, 1):
        # Nothing but the manifest tells these two apart.
        trace = Kineto(rank=None, pid=100, start_us=START_US + rank).write(folder / f"{rank}x.bin")
        files.append(describe_file(folder, trace, Role.KINETO, rank=1 - rank))
    timer = folder / "times.txt"
    timer.write_text(TIMER)
    files.append(describe_file(folder, timer, Role.TIMER, rank=0))
    write_manifest(
        folder,
        Manifest(
            job_name="gpt-7b",
            job_id="7",
            started="2026-11-29T21:44:00Z",
            world_size=2,
            command="torchrun train.py",
            files=tuple(files),
        ),
    )
    return folder


@pytest.mark.parametrize("target", ["bundle", "bundle/bundle.json"])
def test_a_manifest_says_what_is_what(tmp_path: Path, target: str) -> None:
    folder = bundle(tmp_path / "bundle")
    Kineto(rank=0, pid=900).write(folder / "stray.json")
    run = open_run(str(tmp_path / target))
    assert [(rank.rank, rank.rank_basis, rank.path) for rank in run.ranks] == [
        (0, "manifest", "1x.bin"),
        (1, "manifest", "0x.bin"),
    ]
    assert (run.name, run.started, run.command) == (
        "gpt-7b",
        "2026-11-29T21:44:00Z",
        "torchrun train.py",
    )
    assert run.world_size == 2
    assert run.unprofiled[0].step_ms == (25.0, 26.0)
    assert [source.kind.value for source in run.sources] == [
        "kineto",
        "kineto",
        "manifest",
        "timer",
    ]
    assert "stray.json" in warning(run, "TRC011").message


def test_files_that_differ_from_the_manifest_are_said(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "bundle")
    path = folder / "0x.bin"
    path.write_text(path.read_text().replace("relu", "gelu"))
    assert "SHA-256" in warning(open_run(str(folder)), "TRC001").message
    path.write_text(path.read_text() + " ")
    assert "in the manifest" in warning(open_run(str(folder)), "TRC001").message
    path.unlink()
    run = open_run(str(folder))
    assert "absent" in warning(run, "TRC001").message
    assert warning(run, "TRC002").ranks == (1,)


def test_a_manifest_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    folder = job(tmp_path)
    (folder / "bundle.json").write_text('{"schema_version": 1, "files": [{"path": "../x"}]}')
    run = open_run(str(folder))
    assert len(run.ranks) == 2
    assert "outside its folder" in warning(run, "TRC009").message


# --- what cannot be read --------------------------------------------------------------------


def test_one_unreadable_rank_of_many_is_a_warning(tmp_path: Path) -> None:
    folder = job(tmp_path, ranks=3, gz=True)
    whole = (folder / "rank1.pt.trace.json.gz").read_bytes()
    for content in (b"", b"\x1f\x8b garbage", os.urandom(5000), gzip.compress(b"{}")):
        (folder / "rank1.pt.trace.json.gz").write_bytes(content)
        run = open_run(str(folder))
        assert [rank.rank for rank in run.ranks] == [0, 2]
        assert "rank1.pt.trace.json.gz cannot be read" in warning(run, "TRC001").message
        assert warning(run, "TRC002").ranks == (1,)
    (folder / "rank1.pt.trace.json.gz").write_bytes(whole[: len(whole) // 2])
    assert "TRC001" in [item.code for item in open_run(str(folder)).all_warnings()]


def test_every_rank_unreadable_is_an_error(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.pt.trace.json").write_bytes(b"")
    with pytest.raises(UnreadableInputError, match=r"rank0.*the file is empty \(and 1 more"):
        open_run(str(tmp_path))
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.pt.trace.json").write_text('{"traceEvents": []}')
    with pytest.raises(UnreadableInputError, match=r"rank0.*and 1 more files cannot be read"):
        open_run(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("trace.json", b"", "the file is empty"),
        ("trace.bin", bytes(range(256)) * 100, "neither a torch.profiler trace nor"),
        ("trace.txt", b"hello\n", "neither a torch.profiler trace nor"),
        ("trace.json", b'{"a": 1}', "neither a torch.profiler trace nor"),
        ("a.db", b"SQLite format 3\0" + b"\0" * 4096, "an SQLite file, but not"),
        ("a.json.gz", b"\x1f\x8b\x08\0broken", "damaged gzip|neither"),
        ("a.zip", b"PK\x03\x04broken", "damaged archive"),
        ("steps_rank0.jsonl", b"{}", "lies beside traces"),
    ],
)
def test_files_that_are_no_trace(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    (tmp_path / name).write_bytes(content)
    refused(tmp_path / name, problem)


def test_folders_without_traces(tmp_path: Path) -> None:
    refused(tmp_path, "the folder is empty")
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "meta_rank0.json").write_text("{}")
    refused(tmp_path, "none of its 2 files is a trace .1 belong beside one.")
    refused(tmp_path / "nowhere", "no such file or folder")


def test_special_files_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rank0.pt.trace.json")
    refused(tmp_path, "the folder is empty")
    refused(tmp_path / "rank0.pt.trace.json", "not a regular file")


def test_the_columns_cannot_be_written_whoever_read_them(tmp_path: Path) -> None:
    folder = job(tmp_path, ranks=3)
    alone, pooled = open_run(str(folder), jobs=1), open_run(str(folder), jobs=2)
    for one, other in zip(alone.ranks, pooled.ranks, strict=True):
        assert (one.rank, one.path, list(one.names)) == (other.rank, other.path, list(other.names))
        assert (one.operations.start_ns == other.operations.start_ns).all()
        assert not other.operations.start_ns.flags.writeable
        assert not other.events.name.flags.writeable
    assert alone.sources == pooled.sources


def test_a_pool_reports_unreadable_files(tmp_path: Path) -> None:
    folder = job(tmp_path, ranks=3)
    (folder / "rank1.pt.trace.json").write_text('{"traceEvents": []}')
    run = open_run(str(folder), jobs=2)
    assert [rank.rank for rank in run.ranks] == [0, 2]


def test_progress_counts_bytes(tmp_path: Path) -> None:
    folder = job(tmp_path)
    sizes = [path.stat().st_size for path in sorted(folder.iterdir())]
    seen: list[tuple[str, int, int]] = []
    open_run(str(folder), progress=lambda label, done, total: seen.append((label, done, total)))
    assert seen == [
        ("rank0.pt.trace.json", 0, sum(sizes)),
        ("rank0.pt.trace.json", sizes[0], sum(sizes)),
        ("rank1.pt.trace.json", sum(sizes), sum(sizes)),
    ]


# --- the real traces ------------------------------------------------------------------------


def test_the_labelled_run() -> None:
    run = open_run(str(real_trace("h200-ddp/healthy")))
    assert [(rank.rank, rank.pid, len(rank.operations)) for rank in run.ranks] == [
        (0, 2033, run.sources[0].gpu_operations),
        (1, 2034, run.sources[1].gpu_operations),
    ]
    assert run.world_size == 2
    assert not run.warnings
    assert [len(times.step_ms) for times in run.unprofiled] == [12, 12]
    assert sorted(run.unprofiled[0].step_ms)[6] == pytest.approx(25.735, abs=5e-3)
    assert run.environment[0]["NCCL_NVLS_ENABLE"] == "0"
    assert run.environment[1]["version.nccl"] == "2.28.9"
    assert {role: len(paths) for role, paths in run.sidecars.items()} == {
        "flight-recorder": 2,
        "nccl-log": 2,
        "timer": 2,
    }


def test_both_recordings_of_the_real_job(tmp_path: Path) -> None:
    shutil.copytree(real_trace("h200-ddp/healthy"), tmp_path / "torch")
    shutil.copytree(real_trace("h200-ddp-nsys"), tmp_path / "all")
    (tmp_path / "nsys").mkdir()
    shutil.copy(real_trace("h200-ddp-nsys/healthy.sqlite"), tmp_path / "nsys")
    shutil.rmtree(tmp_path / "all", ignore_errors=True)
    run = open_run(str(tmp_path))
    assert [rank.rank for rank in run.cross_check] == [0, 1]
    assert [len(rank.operations) > 3726 for rank in run.cross_check] == [True, True]


def test_eight_ranks_of_the_public_trace() -> None:
    run = open_run(str(real_trace("public/param")))
    assert [rank.rank for rank in run.ranks] == list(range(8))
    assert run.world_size == 8
    assert not run.warnings
