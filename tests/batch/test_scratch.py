"""Temporary folders: there for their user, gone after it, however it ended."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from trace_analyzer.batch.scratch import Scratch, sweep

PROGRAM = """
import os, sys
from trace_analyzer.batch.scratch import Scratch
scratch = Scratch()
(scratch.path / "large").write_bytes(b"x" * 1000)
print(scratch.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_a_folder_is_gone_after_its_user() -> None:
    with Scratch() as scratch:
        (scratch.path / "deep").mkdir()
        assert sweep() == 0
        assert scratch.path.is_dir()
    assert not scratch.path.exists()


def test_what_a_killed_process_left_is_swept(temporary: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        assert path.parent == temporary
        assert sweep() == 0
        process.kill()
        process.wait()
        assert path.exists()
        assert sweep() == 1
    assert list(temporary.iterdir()) == []


def test_sweeping_never_takes_a_folder_from_its_user(temporary: Path) -> None:
    done = threading.Event()

    def sweeping() -> None:
        while not done.is_set():
            sweep()

    sweepers = [threading.Thread(target=sweeping) for _ in range(2)]
    for sweeper in sweepers:
        sweeper.start()
    try:
        for _ in range(300):
            with Scratch() as scratch:
                (scratch.path / "mine").write_bytes(b"")
                assert (scratch.path / "mine").exists()
    finally:
        done.set()
        for sweeper in sweepers:
            sweeper.join()
    assert list(temporary.iterdir()) == []
