"""When several processes read, and what happens when one of them dies."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.recordings import Kineto
from trace_analyzer.model import SourceKind
from trace_analyzer.readers import loading
from trace_analyzer.readers.grouping import TraceFile
from trace_analyzer.readers.identity import Identity
from trace_analyzer.readers.loading import load


def trace_file(path: Path, size: int | None = None) -> TraceFile:
    return TraceFile(
        path=path,
        name=path.name,
        kind=SourceKind.KINETO,
        bytes=path.stat().st_size if size is None else size,
        identity=Identity(),
    )


@pytest.mark.parametrize(
    ("sizes_mib", "cores", "jobs", "workers"),
    [
        ([1000], 8, None, 1),
        ([10, 10], 8, None, 1),
        ([1000, 10], 8, None, 1),  # the large one takes all the time
        ([200, 200, 200], 8, None, 3),
        ([200] * 16, 4, None, 4),
        ([200] * 16, 1, None, 1),
        ([1, 1], 1, 2, 2),
        ([200] * 3, 8, 1, 1),
    ],
)
def test_how_many_processes_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sizes_mib: list[int],
    cores: int,
    jobs: int | None,
    workers: int,
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"{}")
    monkeypatch.setattr(loading, "_cores", lambda: cores)
    files = [trace_file(path, size << 20) for size in sizes_mib]
    assert loading._workers(files, jobs) == workers


def test_compressed_files_count_for_what_they_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(b"\x1f\x8b\x08\0")
    monkeypatch.setattr(loading, "_cores", lambda: 8)
    assert loading._workers([trace_file(path, 20 << 20)] * 2, None) == 2


class _DyingPool:
    """Reads one file, then its worker is killed."""

    def __init__(self) -> None:
        self.submitted = 0

    def submit(self, function: Any, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.submitted += 1
        if self.submitted == 1:
            future.set_result(function(*arguments))
        else:
            future.set_exception(BrokenProcessPool())
        return future

    def shutdown(self, **_: Any) -> None:
        pass


def test_a_killed_reader_costs_time_and_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = _DyingPool()

    @contextmanager
    def dying(_: int) -> Iterator[_DyingPool]:
        yield pool

    monkeypatch.setattr(loading, "_pool", dying)
    files = [trace_file(Kineto(rank=rank).write(tmp_path / f"{rank}.json")) for rank in range(3)]
    seen: list[int] = []
    loaded = load(files, jobs=2, progress=lambda _, done, __: seen.append(done))
    assert [item.ranks[0].rank for item in loaded] == [0, 1, 2]
    assert pool.submitted == 3
    assert seen[-1] == sum(file.bytes for file in files)
    assert len(seen) == 4


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    path = Kineto().write(tmp_path / "a.json")
    file = trace_file(path)
    path.unlink()
    (loaded,) = load([file])
    assert loaded.ranks == ()
    assert "no such file" in loaded.problem
