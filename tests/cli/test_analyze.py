"""`analyze` as its user meets it: outputs, options, and every bad input."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result

from tests.recordings import Kineto, job
from tests.traces import TRACES, real_trace
from trace_analyzer.cli import cli
from trace_analyzer.findings import json_schema


def analyze(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["analyze", *map(str, arguments)])


@pytest.fixture
def gpt(tmp_path: Path) -> Path:
    return job(tmp_path / "gpt")


def refused(done: Result, *parts: str) -> None:
    """Check that it ended with one line and exit code 2."""
    assert done.exit_code == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "defect" not in line
    for part in parts:
        assert part in line


def test_the_verdict_is_printed_and_nothing_else(gpt: Path) -> None:
    done = analyze(gpt)
    assert done.exit_code == 0
    assert done.stdout.startswith("gpt")
    assert done.stderr == ""
    assert "\x1b[" not in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_all_outputs_in_files(gpt: Path, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("r.html", "r.json", "r.md")]
    done = analyze(gpt, "--html", paths[0], "--json", paths[1], "--markdown", paths[2])
    assert done.exit_code == 0
    assert done.stdout.startswith("gpt")
    assert done.stderr.splitlines() == [f"Wrote {path}" for path in paths]
    assert paths[0].read_text().lower().startswith("<!doctype html>")
    document = json.loads(paths[1].read_text())
    jsonschema.validate(document, json_schema())
    assert [rank["rank"] for rank in document["ranks"]] == [0, 1]
    assert paths[2].read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["gpt", "r.html", "r.json", "r.md"]
    umask = os.umask(0)
    os.umask(umask)
    assert {p.stat().st_mode & 0o777 for p in paths} == {0o666 & ~umask}


@pytest.mark.parametrize("option", ["--html", "--json", "--markdown"])
def test_an_output_on_stdout_stands_alone(gpt: Path, tmp_path: Path, option: str) -> None:
    path = tmp_path / "report"
    assert analyze(gpt, option, path).exit_code == 0
    done = analyze(gpt, option, "-")
    assert done.exit_code == 0
    assert done.stdout_bytes == path.read_bytes()
    assert done.stderr == ""


def test_the_same_input_gives_the_same_bytes(gpt: Path) -> None:
    assert analyze(gpt, "--json", "-").stdout_bytes == analyze(gpt, "--json", "-").stdout_bytes


def test_quiet(gpt: Path, tmp_path: Path) -> None:
    done = analyze(gpt, "-q", "--json", tmp_path / "r.json")
    assert (done.exit_code, done.stderr) == (0, "")


def test_nothing_is_overwritten_without_force(gpt: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text("precious")
    refused(analyze(gpt, "--json", path), "r.json", "exists already", "--force")
    assert path.read_text() == "precious"
    assert analyze(gpt, "--json", path, "--force").exit_code == 0
    assert json.loads(path.read_text())["schema_version"] == 1


def test_inputs_are_never_overwritten(gpt: Path) -> None:
    trace = gpt / "rank0.pt.trace.json"
    before = trace.read_bytes()
    refused(analyze(gpt, "--json", trace, "--force"), "one of the files that were read")
    refused(analyze(trace, "--json", trace, "--force"), "one of the files that were read")
    assert trace.read_bytes() == before


def test_outputs_that_cannot_be_written(gpt: Path, tmp_path: Path) -> None:
    refused(analyze(gpt, "--json", tmp_path), "is a folder")
    refused(analyze(gpt, "--json", tmp_path / "no" / "r.json"), "no folder")
    refused(analyze(gpt, "--json", "-", "--html", "-"), "--html and --json both write to -")
    same = tmp_path / "same"
    refused(analyze(gpt, "--json", same, "--html", same), "--html and --json both write")
    refused(analyze(tmp_path / "nowhere", "--json", tmp_path / "r.json"), "no such file")
    assert not (tmp_path / "r.json").exists()


def test_a_full_disk_leaves_no_half_report(gpt: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    refused(analyze(gpt, "--json", "/dev/full", "--force"), "/dev/full", "No space left")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--steps", "5"],
        ["--steps", "9:4"],
        ["--steps", ":"],
        ["--ranks", "a"],
        ["--ranks", "3-1"],
        ["--ranks", "0-999999999"],
        ["--ranks", ""],
        ["--unprofiled-step-ms", "-3"],
        ["--unprofiled-step-ms", "nan"],
        ["--unprofiled-step-ms", "fast"],
        ["--fail-on", "sometimes"],
    ],
)
def test_option_values_that_mean_nothing(gpt: Path, arguments: list[str]) -> None:
    done = analyze(gpt, *arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_options_reach_the_analysis(gpt: Path) -> None:
    done = analyze(
        gpt, "--json", "-", "--ranks", "0-1", "--steps", "4:5", "--unprofiled-step-ms", "0.9"
    )
    document = json.loads(done.stdout)
    assert document["tool"]["options"] == {
        "ranks": [0, 1],
        "steps": [4, 5],
        "unprofiled_step_ms": 0.9,
    }
    assert document["steps"]["used"] == [4, 5]
    assert document["steps"]["unprofiled_basis"] == "given"
    one = json.loads(analyze(gpt, "--json", "-", "--ranks", "1").stdout)
    assert [rank["rank"] for rank in one["ranks"]] == [1]
    refused(analyze(gpt, "--ranks", "7"), "no recording of rank 7")


@pytest.mark.parametrize(
    ("settings", "colored"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "0"}, False),
    ],
)
def test_color(
    gpt: Path, settings: dict[str, str], colored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in analyze(gpt).stdout) is colored


def test_a_terminal_without_unicode(gpt: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trace_analyzer", "analyze", str(gpt)],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    assert b"?" not in done.stdout.splitlines()[0]


# --- bad inputs -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.json", b""),
        ("rank0.pt.trace.json.gz", b"\x1f\x8b\x08\0" + b"x" * 100),
        ("random.bin", bytes((i * 7919) % 256 for i in range(5000))),
        ("text.txt", b"just text\n"),
        ("list.json", b"[1, 2, 3]"),
        ("empty_events.json", b'{"traceEvents": []}'),
        ("half.json", b'{"schemaVersion": 1, "traceEvents": [{"ph": '),
        ("data.sqlite", b"SQLite format 3\0" + b"\0" * 84),
        ("a.zip", b"PK\x03\x04" + b"x" * 100),
        ("a.tar.gz", b"\x1f\x8b"),
        ("a.nsys-rep", b"report"),
    ],
)
@pytest.mark.parametrize("as_folder", [False, True])
def test_what_is_no_trace(tmp_path: Path, name: str, content: bytes, as_folder: bool) -> None:
    path = tmp_path / "x" / name
    path.parent.mkdir()
    path.write_bytes(content)
    refused(analyze(path.parent if as_folder else path), str(tmp_path / "x"))


def test_an_archive_with_names_that_leave_it(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo("../evil.json")
        text = Kineto().text().encode()
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text))
    refused(analyze(path), "leaves its folder")
    assert not (tmp_path.parent / "evil.json").exists()


def test_a_zip_bomb(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(9):
            archive.writestr(f"rank{number}.json", b"\0" * (30 << 20))
    refused(analyze(path), "more than 150 times its size")


def test_a_gzip_that_is_one_long_run_of_blanks(tmp_path: Path) -> None:
    path = tmp_path / "rank0.pt.trace.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (60 << 20)))
    refused(analyze(path), "rank0")


def unprivileged(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `analyze` as somebody whom file permissions bind, also when root runs the tests."""
    command = [sys.executable, "-m", "trace_analyzer", "analyze", *map(str, arguments)]
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("root may read everything, and setpriv is absent")
        rights = "-dac_override,-dac_read_search"
        command = [setpriv, f"--bounding-set={rights}", f"--inh-caps={rights}", *command]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_what_may_not_be_read(tmp_path: Path) -> None:
    folder = job(tmp_path / "gpt")
    closed = folder / "rank1.pt.trace.json"
    closed.chmod(0)
    (folder / "deep").mkdir(mode=0)
    done = unprivileged(closed)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {closed}: permission denied")
    assert len(done.stderr.splitlines()) == 1
    done = unprivileged(folder / "deep")
    assert (done.returncode, done.stderr) == (2, f"Error: {folder / 'deep'}: permission denied\n")
    done = unprivileged(folder, "--json", "-")
    assert done.returncode == 0
    messages = [item["message"] for item in json.loads(done.stdout)["warnings"]]
    assert "rank1.pt.trace.json cannot be read: permission denied" in messages
    assert "deep cannot be opened" in messages
    done = unprivileged(folder, "--json", folder / "deep" / "r.json")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    (folder / "deep").chmod(0o700)


def test_several_runs(tmp_path: Path) -> None:
    job(tmp_path / "a")
    job(tmp_path / "b", start_us=5_131_900_000_000)
    refused(analyze(tmp_path), "holds 2 runs: a (kineto, 2 ranks), b", "analyze one of them")


def test_one_unreadable_rank_is_a_warning_and_exit_0(tmp_path: Path) -> None:
    folder = job(tmp_path / "gpt", ranks=3)
    (folder / "rank1.pt.trace.json").write_bytes(b"")
    done = analyze(folder, "--json", "-")
    assert done.exit_code == 0
    warnings = json.loads(done.stdout)["warnings"]
    assert {"TRC001", "TRC002"} <= {item["code"] for item in warnings}


MALFORMED = sorted(p.name for p in (TRACES / "malformed").glob("*")) or ["absent"]


@pytest.mark.parametrize("defect", MALFORMED)
def test_every_malformed_trace(defect: str) -> None:
    done = analyze(real_trace(f"malformed/{defect}"), "--json", "-")
    if defect == "empty_events":
        refused(done, "rank0.pt.trace.json", "empty")
        return
    assert done.exit_code == 0
    assert done.stderr == ""
    document = json.loads(done.stdout)
    jsonschema.validate(document, json_schema())
    window = document["ranks"][0]["window"]
    if defect == "cpu_only":
        assert window is None
    elif defect not in {"truncated_json", "zero_ts_dur"}:
        assert window["window_ms"] == pytest.approx(435.587561, abs=1e-9)
        assert window["idle_ms"] == pytest.approx(403.936241, abs=1e-9)
    codes = {item["code"] for item in document["warnings"]}
    if defect not in {"baseline", "bom_utf8", "compact_json"}:
        assert codes - {"TRC002"}
