"""The cost of nsys, from a timing run and a recorded run; CUDA is stood in for."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

torch = pytest.importorskip("torch")

from trace_analyzer.capture_marks import CALIBRATION_MARK, rank_mark  # noqa: E402
from trace_analyzer.collectors import finish, nsys_calibration  # noqa: E402
from trace_analyzer.collectors.options import Mode, Options, Schedule  # noqa: E402
from trace_analyzer.collectors.recorder import Recorder  # noqa: E402
from trace_analyzer.collectors.rendezvous import Rendezvous  # noqa: E402
from trace_analyzer.readers import calibrations  # noqa: E402

pytestmark = pytest.mark.torch

SHORT = Schedule(skip=1, settle=1, unprofiled=2, warmup=1, active=2, after=0)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What nsys would see: the marks, ranges, and the window."""
    seen: list[str] = []

    def start() -> int:
        seen.append("start")
        return 0

    def stop() -> int:
        seen.append("stop")
        return 0

    cudart = SimpleNamespace(cudaProfilerStart=start, cudaProfilerStop=stop)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: cudart)
    monkeypatch.setattr(torch.cuda.nvtx, "mark", seen.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_start", seen.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_end", lambda handle: None)
    return seen


def run(folder: Path, mode: Mode, **more: Any) -> Recorder:
    rec = Recorder(Options(folder=str(folder), mode=mode, schedule=SHORT, **more))
    rec.begin()
    while not rec.done:
        torch.zeros(2).add_(1.0)
        rec.step()
    return rec


def test_the_loops_run_in_both_runs_and_only_the_second_is_recorded(
    tmp_path: Path, said: list[str]
) -> None:
    assert run(tmp_path, Mode.TIMER).complete
    assert "start" not in said
    (half,) = tmp_path.glob(".calibration*")
    said.clear()
    assert run(tmp_path, Mode.NSYS).complete
    assert not half.exists()
    # The loops lie inside the window, after the last step and behind the mark.
    assert said[:2] == ["start", rank_mark(0, 1)]
    assert said[-1] == "stop"
    at = said.index(CALIBRATION_MARK)
    assert [text for text in said[at:] if text.startswith("step")] == []
    assert said[at + 1 : -1] == ["nvtx_range"] * (len(said) - at - 2)
    document = json.loads((tmp_path / "calibration_rank0.json").read_text())
    schema = files("trace_analyzer.data").joinpath("schemas", "calibration.schema.json")
    jsonschema.validate(document, json.loads(schema.read_text()))
    found = calibrations.read(tmp_path / "calibration_rank0.json")
    assert found.recorder == "nsys"
    cost = found.cost("nvtx_range")
    assert cost is not None
    assert cost.delta_us == pytest.approx(cost.profiled_us - cost.unprofiled_us, abs=1e-3)
    assert cost.delta_interval_us[0] <= cost.delta_us <= cost.delta_interval_us[1]


def test_a_window_by_time_is_as_long_as_the_steps_before_say(
    tmp_path: Path, said: list[str]
) -> None:
    schedule = Schedule(skip=0, settle=2, warmup=1, after=0, sample_seconds=0.2)
    rec = Recorder(Options(folder=str(tmp_path), mode=Mode.NSYS, schedule=schedule))
    drained: list[float] = [90.0, 10.0, 10.0, 10.0, 10.0]  # the first one settles
    rec._timer.drain = lambda **_: [  # type: ignore[method-assign]
        {"phase": "warmup", "step_ms": ms} for ms in drained
    ]
    rec.begin()
    while not rec.done:
        rec.step()
    assert rec.complete
    assert sum(text.startswith("step ") for text in said) == 20


@pytest.mark.parametrize("calibrate", [False, True])
def test_no_rank_stops_nsys_before_all_are_through(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch, calibrate: bool
) -> None:
    run(tmp_path, Mode.TIMER, calibrate=calibrate)
    said.clear()

    def meet(*_: object, **__: object) -> bool:
        said.append("meet")
        return True

    monkeypatch.setattr(Rendezvous, "meet", meet)
    assert run(tmp_path, Mode.NSYS, calibrate=calibrate).complete
    assert "stop" in said
    last_work = max(n for n, text in enumerate(said) if text.startswith(("step", "nvtx")))
    assert "meet" in said[last_work : said.index("stop")]


def test_without_a_timing_run_there_is_nothing_to_compare(tmp_path: Path, said: list[str]) -> None:
    assert run(tmp_path, Mode.NSYS).complete
    assert CALIBRATION_MARK not in said
    assert not (tmp_path / "calibration_rank0.json").exists()


def test_a_calibration_that_fails_leaves_the_recording(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("out of memory")

    run(tmp_path, Mode.TIMER)
    monkeypatch.setattr(nsys_calibration, "measure_recorded", broken)
    assert run(tmp_path, Mode.NSYS).complete
    assert said[-1] == "stop"
    notes = finish.write(tmp_path, started="").notes
    assert "rank 0: no calibration: RuntimeError: out of memory" in notes
    assert not list(tmp_path.glob(".calibration*"))


def test_the_difference_and_its_interval_come_from_both_medians() -> None:
    plain = {"aten_op": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6]}
    recorded = {"aten_op": [3.0, 3.1, 3.2, 3.3, 3.4, 3.5, 9.0], "collective": [5.0]}
    document = nsys_calibration.document(Options(folder=".", mode=Mode.NSYS), 2, plain, recorded)
    (cost,) = document["classes"]
    assert (document["rank"], document["recorder"]) == (2, "nsys")
    assert (cost["unprofiled_us"], cost["profiled_us"], cost["delta_us"]) == (1.3, 3.3, 2.0)
    assert cost["delta_interval_us"] == [3.1 - 1.5, 3.5 - 1.1]
