"""`trace-analyzer collect`, for real: processes, torch on the CPU, gloo between two ranks."""

from __future__ import annotations

import gzip
import json
import os
import platform
import signal
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.collectors.fake_nsys import make_nsys
from tests.traces import ROOT
from trace_analyzer.bundle import Role, read_manifest
from trace_analyzer.cli import cli
from trace_analyzer.collectors import bootstrap
from trace_analyzer.collectors.local_ranks import free_port, rank_environment
from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.readers.discovery import open_run

SCRIPT = str(Path(__file__).with_name("training_script.py"))
COUNTS = ["--skip", "2", "--unprofiled", "4", "--warmup", "1", "--steps", "3"]


def collect(*arguments: object) -> int:
    """Run the command line in this process and return its exit code."""
    code = cli.main(["collect", *map(str, arguments)], standalone_mode=False)
    return code if isinstance(code, int) else 0


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def validate(document: Any, name: str) -> None:
    text = files("trace_analyzer.data").joinpath("schemas", f"{name}.schema.json").read_text()
    jsonschema.validate(document, json.loads(text))


@pytest.fixture
def needs_torch() -> None:
    pytest.importorskip("torch")


@pytest.mark.torch
def test_two_ranks_of_an_unmodified_script(
    needs_torch: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "bundle"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", SCRIPT]
    command[3:3] = ["--standalone"]
    assert collect("torch", "-o", bundle, *COUNTS, "--", *command) == 0
    printed = capfd.readouterr()
    assert "2 ranks, 2 traces, unprofiled step" in printed.err
    assert "nothing was recorded" not in printed.err
    assert printed.out.count("trained") == 2
    manifest = read_manifest(bundle)
    assert manifest.world_size == 2
    assert manifest.job_name == "training_script"
    validate(json.loads((bundle / "bundle.json").read_text()), "bundle")
    for rank in (0, 1):
        records = lines(bundle / f"steps_rank{rank}.jsonl")
        for record in records:
            validate(record, "steps")
        assert records[-1] == {"kind": "end", "complete": True}
        phases = [record["phase"] for record in records if record["kind"] == "step"]
        assert phases.count("unprofiled") == 8
        assert phases.count("profiled") == 3
        trace = json.loads(gzip.decompress((bundle / f"rank{rank}.pt.trace.json.gz").read_bytes()))
        assert trace["distributedInfo"]["rank"] == rank
        names = [event.get("name", "") for event in trace["traceEvents"]]
        assert sum(name.startswith("ProfilerStep#") for name in names) == 3
        assert names.count("gloo:all_reduce") >= 3
        environment = json.loads((bundle / f"env_rank{rank}.json").read_text())
        validate(environment, "environment")
        assert environment["variables"]["RANK"] == str(rank)
        assert environment["settings"]["ddp.bucket_cap_mb"] == 25.0
        assert environment["settings"]["dataloader.sampler"] == "DistributedSampler"
        calibration = json.loads((bundle / f"calibration_rank{rank}.json").read_text())
        validate(calibration, "calibration")
        assert "collective" in {item["name"] for item in calibration["classes"]}
        assert {(item.role, item.pid) for item in manifest.files if item.rank == rank} >= {
            (Role.KINETO, records[0]["pid"]),
            (Role.TIMER, records[0]["pid"]),
        }
    # The ranks meet before they are profiled.
    begins = [
        next(r["start_unix_ns"] for r in lines(path) if r.get("phase") == "profiled")
        for path in sorted(bundle.glob("steps_rank*.jsonl"))
    ]
    assert abs(begins[0] - begins[1]) < 2e9


@pytest.mark.torch
def test_two_nodes_leave_a_bundle_each_that_are_one_run(needs_torch: None, tmp_path: Path) -> None:
    port = free_port()
    processes = []
    for rank in (0, 1):
        environment = rank_environment(rank, 2, port)
        environment |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        command = [sys.executable, "-m", "trace_analyzer", "collect", "torch", *COUNTS]
        command += ["-o", str(tmp_path / f"node{rank}"), "--no-calibration", "--"]
        processes.append(
            subprocess.Popen(
                [*command, sys.executable, SCRIPT],
                cwd=ROOT,
                env=environment,
                stderr=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                text=True,
            )
        )
    for process in processes:
        _, printed = process.communicate(timeout=120)
        assert process.returncode == 0
        assert "the run has 2 ranks: put the bundles of all its nodes into one folder" in printed
    manifests = [read_manifest(tmp_path / f"node{rank}") for rank in (0, 1)]
    assert manifests[0].job_id == manifests[1].job_id
    run = open_run(str(tmp_path))
    assert [(rank.rank, rank.path) for rank in run.ranks] == [
        (0, "node0/rank0.pt.trace.json.gz"),
        (1, "node1/rank1.pt.trace.json.gz"),
    ]
    assert run.world_size == 2
    assert [len(item.step_ms) for item in run.unprofiled] == [8, 8]


@pytest.mark.torch
def test_the_exit_code_of_a_failing_command_and_what_it_left(
    needs_torch: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = (sys.executable, SCRIPT, "--fail-at", 18)
    assert collect("torch", "-o", tmp_path, *COUNTS, "--no-calibration", "--", *command) == 7
    printed = capfd.readouterr().err
    assert "the loss is nan" in printed
    assert "1 rank, 1 trace" in printed
    assert "the command ended with exit code 7" in printed
    assert "training ended 3 steps before the recording was complete" in printed
    manifest = read_manifest(tmp_path)
    assert manifest.of_role(Role.KINETO)[0].path == "rank0.pt.trace.json.gz"
    assert lines(tmp_path / "steps_rank0.jsonl")[-1] == {"kind": "end", "complete": False}


@pytest.mark.torch
def test_a_trace_that_does_not_fit_on_the_disk_leaves_the_step_times(
    needs_torch: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # A limit on the size of files stands for a full disk: Kineto's trace passes it, nothing else.
    command = ("sh", "-c", 'ulimit -f 64; exec "$0" "$@"', sys.executable, SCRIPT)
    assert collect("torch", "-o", tmp_path, *COUNTS, "--no-calibration", "--", *command) == 0
    printed = capfd.readouterr()
    assert "trained" in printed.out
    assert "is the disk full?" in printed.err
    assert "1 rank, 0 traces, unprofiled step" in printed.err
    records = lines(tmp_path / "steps_rank0.jsonl")
    phases = [record["phase"] for record in records if record["kind"] == "step"]
    assert phases.count("unprofiled") == 8
    assert records[-1]["kind"] == "end"
    assert not list(tmp_path.glob("*.tmp"))
    with pytest.raises(UnreadableInputError, match="a bundle without any trace; record it again"):
        open_run(str(tmp_path))


@pytest.mark.torch
def test_an_interrupt_keeps_what_was_recorded(needs_torch: None, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    command = [sys.executable, "-m", "trace_analyzer", "collect", "torch", "-o", str(bundle)]
    command += [*COUNTS, "--unprofiled", "500", "--", sys.executable, SCRIPT]
    command += ["--steps", "5000", "--seconds", "0.02"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    steps = bundle / "steps_rank0.jsonl"
    deadline = time.monotonic() + 120
    while not (steps.exists() and steps.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "KeyboardInterrupt" in printed  # the script's own end
    assert "before the recording was complete" in printed
    records = lines(steps)
    assert sum(record["kind"] == "step" for record in records) >= 5
    assert read_manifest(bundle).of_role(Role.TIMER)


@pytest.mark.torch
def test_nsys_times_first_and_records_then(
    needs_torch: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TRACE_ANALYZER_NSYS", str(make_nsys(tmp_path / "bin")))
    bundle = tmp_path / "bundle"
    command = (sys.executable, SCRIPT, "--steps", 60)
    assert collect("nsys", "-o", bundle, *COUNTS, "--", *command) == 0
    printed = capfd.readouterr()
    # The timing run is ended when it has timed enough; only the second one reaches its end.
    assert printed.out.count("trained") == 1
    assert "recording complete, training is stopped" in printed.err
    timed = [r["phase"] for r in lines(bundle / "steps_rank0.jsonl") if r["kind"] == "step"]
    assert timed.count("unprofiled") == 8
    traced = [r["phase"] for r in lines(bundle / "steps_rank0_nsys.jsonl") if r["kind"] == "step"]
    assert "unprofiled" not in traced
    assert traced.count("profiled") == 3
    manifest = read_manifest(bundle)
    assert len(manifest.of_role(Role.NSYS)) == 1
    assert manifest.tool_versions["nsys"] == "2025.3.1.0"
    assert not list(bundle.glob("rank*.pt.trace*"))


def test_a_missing_nsys_stops_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACE_ANALYZER_NSYS", str(tmp_path / "nowhere"))
    ran = tmp_path / "ran"
    with pytest.raises(Exception, match="there is no nsys"):
        collect("nsys", "-o", tmp_path / "bundle", "--", "touch", ran)
    assert not ran.exists()
    assert not (tmp_path / "bundle").exists()


FEW_STEPS = """
import torch
weight = torch.zeros(2, requires_grad=True)
optimizer = torch.optim.SGD([weight])
for _ in range(5):
    weight.sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["sh", "-c", "exit 3"], "the command started no Python process that the recorder sees"),
        ([sys.executable, "-I", "-c", "exit(3)"], "the command started no Python process"),
        ([sys.executable, "-c", "exit(3)"], "no process of the command imported torch"),
    ],
)
def test_an_empty_bundle_says_why(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], command: list[str], reason: str
) -> None:
    assert collect("torch", "-o", tmp_path / "b", "--", *command) == 3
    printed = capfd.readouterr().err
    assert f"nothing was recorded: {reason}" in printed
    assert "0 ranks, 0 traces; the command ended with exit code 3" in printed
    assert read_manifest(tmp_path / "b").files == ()


def test_a_python_without_torch_is_told_to_get_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without site-packages there is no torch to be found.
    command = [sys.executable, "-S", "-c", "import sitecustomize; import torch"]
    assert collect("torch", "-o", tmp_path / "b", "--", *command) == 1
    printed = capfd.readouterr().err
    assert "nothing was recorded: the Python of the command has no torch; install it" in printed


@pytest.mark.torch
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import torch", "no optimizer of torch stepped; use trace_analyzer.collectors.record"),
        (FEW_STEPS, "training ended before the recording began; it leaves the first --skip"),
    ],
)
def test_training_that_was_too_short_or_steps_by_itself_is_told(
    needs_torch: None,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    script: str,
    reason: str,
) -> None:
    assert collect("torch", "-o", tmp_path / "b", "--", sys.executable, "-c", script) == 0
    assert f"nothing was recorded: {reason}" in capfd.readouterr().err


def test_the_api_without_torch_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import trace_analyzer.collectors\n"
        "trace_analyzer.collectors.record"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: trace_analyzer.collectors.record needs torch: "
        "pip install 'trace-analyzer[collect]'"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--", "no-such-program"], "no-such-program: no such program; give the training"),
        (["--", "/nowhere/torchrun"], "no such program; it comes with torch: install that"),
        (["--steps", "0", "--", "true"], "active is 0; it must be 1 or more"),
    ],
)
def test_what_cannot_be_run_is_said(tmp_path: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(Exception, match=message):
        collect("torch", "-o", tmp_path / "bundle", *arguments)


def test_a_recording_is_not_replaced_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "steps_rank0.jsonl").write_text("recorded\n")
    with pytest.raises(Exception, match="holds a recording already; choose another folder"):
        collect("torch", "-o", tmp_path, "--", "true")
    assert (tmp_path / "steps_rank0.jsonl").read_text() == "recorded\n"
    assert collect("torch", "-o", tmp_path, "--force", "--", "true") == 0
    assert not (tmp_path / "steps_rank0.jsonl").exists()


def test_two_recordings_do_not_share_a_folder(tmp_path: Path) -> None:
    lock = tmp_path / ".collecting"
    for owner in (f"{platform.node()} {os.getpid()}", "elsewhere 1", ""):
        lock.write_text(owner)
        with pytest.raises(Exception, match="records into it; give each node a folder of its own"):
            collect("torch", "-o", tmp_path, "--force", "--", "true")
        assert lock.read_text() == owner
    dead = subprocess.Popen(["true"])
    dead.wait()
    lock.write_text(f"{platform.node()} {dead.pid}")
    assert collect("torch", "-o", tmp_path, "--", "true") == 0
    assert not lock.exists()


def test_death_by_signal_is_told_as_the_shell_tells_it(tmp_path: Path) -> None:
    assert collect("torch", "-o", tmp_path / "b", "--", "sh", "-c", "kill -9 $$") == 137


def test_the_environment_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert collect("env") == 0
    validate(json.loads(capsys.readouterr().out), "environment")
    target = tmp_path / "env.json"
    assert collect("env", "-o", target) == 0
    validate(json.loads(target.read_text()), "environment")
    with pytest.raises(Exception, match="exists already"):
        collect("env", "-o", target)


def run_python(code: str, *folders: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    here = str(Path(bootstrap.__file__).parent)
    path = os.pathsep.join([here, *map(str, folders)])
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )


def test_the_environments_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('own sitecustomize')\n")
    done = run_python("import sitecustomize; print(sitecustomize.__file__)", tmp_path)
    assert done.stdout.splitlines() == ["own sitecustomize", str(tmp_path / "sitecustomize.py")]
    assert done.stderr == ""


def test_the_hook_waits_for_torch_and_never_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("loaded = True\n")
    options = '{"package_root": ""}'
    done = run_python("print('no torch')", tmp_path, TRACE_ANALYZER_COLLECT=options)
    assert (done.stdout, done.stderr) == ("no torch\n", "")
    done = run_python(
        "import torch; print(torch.loaded, torch.__spec__.name)",
        tmp_path,
        TRACE_ANALYZER_COLLECT=options,
    )
    assert done.stdout == "True torch\n"
    assert done.stderr.startswith("trace-analyzer: this process is not recorded: ")
    assert done.returncode == 0


@pytest.mark.torch
def test_collectors_need_neither_readers_nor_their_packages(needs_torch: None) -> None:
    """A training machine has torch, numpy and click, not what analysing needs."""
    code = """
import sys
for name in ("msgspec", "isal", "zstandard", "pandas", "pyarrow", "sqlite_utils", "jinja2"):
    sys.modules[name] = None
import pkgutil, importlib, trace_analyzer.collectors as c, trace_analyzer.cli.collect
for module in pkgutil.iter_modules(c.__path__):
    if not module.name.endswith("_callback") and module.name not in {"faultlab", "bootstrap", "triton_probe"}:
        importlib.import_module("trace_analyzer.collectors." + module.name)
print("imported", c.record.__name__, c.StepTimer.__name__)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout == "imported record StepTimer\n", done.stderr[-2000:]


def test_the_command_line_does_not_import_torch() -> None:
    code = (
        "import sys; from trace_analyzer.cli import cli; "
        "cli.main(['collect', 'torch', '--help'], standalone_mode=False); "
        "import trace_analyzer.collectors.nsys_run, trace_analyzer.collectors.finish; "
        "print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "False False", done.stderr
