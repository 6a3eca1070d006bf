"""Any process of a batch killed at any moment: the finished output is that of an undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.batch.archives import (
    Counts,
    batch,
    command,
    contents,
    old,
    rows,
    states,
    write_bundle,
    write_run,
)
from tests.heavy import heavy

MOST_S = 240


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            found += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue  # ended meanwhile
    return found


def _kill(client: subprocess.Popen[bytes], dice: random.Random) -> bool:
    """Kill the client or one of the processes that it started."""
    workers = _children(client.pid)
    victim = client.pid if not workers or dice.random() < 0.4 else dice.choice(workers)
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _disturbed(archive: Path, out: Path, kills: int, scratch: Path) -> None:
    dice = random.Random(20261130)
    begun_s = time.monotonic()
    done = 0
    environment = {**os.environ, "TMPDIR": str(scratch)}
    while done < kills:
        with subprocess.Popen(
            command("batch", archive, "-o", out, "--jobs", "2", "--refresh", "-q"),
            stdout=subprocess.DEVNULL,
            env=environment,
        ) as client:
            while client.poll() is None and done < kills:
                # A start takes 0.4 s, a run as long: every moment of a batch is met.
                time.sleep(dice.random() * 0.7)
                done += client.poll() is None and _kill(client, dice)
                assert time.monotonic() - begun_s < MOST_S
            if done == kills:
                client.kill()
        if client.returncode == 0:  # it had the time to finish: take some of its work away
            for path in dice.sample(sorted(out.glob("runs/*/rows.json.zst")), 2):
                path.unlink()
            (out / "index.db").unlink()


@pytest.mark.parametrize(
    ("kills", "runs"), [(5, 3), pytest.param(50, 8, marks=heavy)], ids=["5", "50"]
)
def test_the_output_is_that_of_an_undisturbed_batch(tmp_path: Path, kills: int, runs: int) -> None:
    archive, out, scratch = tmp_path / "archive", tmp_path / "out", tmp_path / "scratch"
    scratch.mkdir()
    for seed in range(runs):
        write_run(archive / f"run{seed}", seed)
    for seed in (8, 9):
        write_bundle(archive / f"b{seed}", seed, "job", f"v{seed}", f"2026-11-0{seed}T00:00:00Z")
    bad = archive / "bad" / "rank0.pt.trace.json.gz"
    bad.parent.mkdir()
    bad.write_bytes(b"\x1f\x8b no")
    old(archive)
    _disturbed(archive, out, kills, scratch)
    batch(archive, out, env={**os.environ, "TMPDIR": str(scratch)})
    batch(archive, tmp_path / "undisturbed")
    assert {name for name, state in states(out).items() if state == "failed"} == {"bad"}
    assert contents(out) == contents(tmp_path / "undisturbed")
    assert list(scratch.iterdir()) == []  # what killed processes left is gone
    assert batch(archive, out) == Counts(runs + 3, 0, runs + 3, failed=1)


def test_a_process_that_crashes_is_the_fault_of_its_run(tmp_path: Path) -> None:
    archive, out = tmp_path / "archive", tmp_path / "out"
    write_run(archive / "long", 1, world=1, steps=3000)
    old(archive)
    with subprocess.Popen(command("batch", archive, "-o", out, "-q")) as client:
        while not (workers := [pid for pid in _children(client.pid) if _runs(pid)]):
            time.sleep(0.05)
            assert client.poll() is None
        os.kill(workers[0], signal.SIGSEGV)
        assert client.wait(60) == 0
    assert rows(out, "SELECT name, failure, reason FROM runs") == [
        ("long", "crashed", "its process crashed with SIGSEGV")
    ]


@heavy
def test_a_process_that_hangs_is_ended_and_the_rest_goes_on(tmp_path: Path) -> None:
    archive, out = tmp_path / "archive", tmp_path / "out"
    for name in ("a_hangs", "b", "c"):
        write_run(archive / name, ord(name[0]), world=1)
    arguments = ("-o", out, "--jobs", "1", "--time-limit", "10s", "-q")
    with subprocess.Popen(command("batch", archive, *arguments)) as client:
        # Stopped before it has become the child's program, it would stop its parent as well.
        while not (workers := [pid for pid in _children(client.pid) if _runs(pid)]):
            time.sleep(0.01)
            assert client.poll() is None
        os.kill(workers[0], signal.SIGSTOP)
        assert client.wait(120) == 0
    assert states(out) == {"a_hangs": "failed", "b": "done", "c": "done"}


def test_what_a_client_started_ends_with_it(tmp_path: Path) -> None:
    archive, out = tmp_path / "archive", tmp_path / "out"
    for seed in range(2):
        write_run(archive / f"long{seed}", seed, world=1, steps=3000)
    with subprocess.Popen(command("batch", archive, "-o", out, "--jobs", "2", "-q")) as client:
        while len(workers := _children(client.pid)) < 2:
            time.sleep(0.05)
            assert client.poll() is None
        client.kill()
    until_s = time.monotonic() + 30
    while any(Path(f"/proc/{pid}/cmdline").exists() and _runs(pid) for pid in workers):
        assert time.monotonic() < until_s
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return b"batch.child" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@heavy
def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    archive, out = tmp_path / "archive", tmp_path / "out"
    for seed in range(10):
        write_run(archive / f"run{seed:02}", seed, world=1)
    old(archive)
    with subprocess.Popen(
        command("batch", archive, "-o", out, "--jobs", "2"), stderr=subprocess.PIPE, text=True
    ) as client:
        while len(list(out.glob("runs/*/rows.json.zst"))) < 3:
            time.sleep(0.05)
            assert client.poll() is None
        client.send_signal(signal.SIGINT)
        _, said = client.communicate(timeout=60)
    assert client.returncode == 130
    assert said.strip().endswith("Interrupted.")
    done = len(states(out))
    assert 1 <= done < 10
    assert (out / "index.html").exists()
    assert batch(archive, out) == Counts(10, 10 - done, done)
