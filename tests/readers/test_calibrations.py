"""What the recorder cost, read from the bundle."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from trace_analyzer.bundle import Role
from trace_analyzer.calibration_facts import NSYS, TORCH_PROFILER
from trace_analyzer.errors import UnreadableInputError
from trace_analyzer.readers import calibrations
from trace_analyzer.readers.sidecars import SidecarFile, read_sidecars

DOCUMENT: dict[str, Any] = {
    "schema_version": 1,
    "rank": 1,
    "recorder": "nsys",
    "device": "NVIDIA H200",
    "options": {"record_shapes": False, "with_stack": False},
    "rounds": 9,
    "classes": [
        {
            "name": "runtime_call",
            "calls": 100,
            "unprofiled_us": 1.5,
            "profiled_us": 3.0,
            "delta_us": 1.5,
            "delta_interval_us": [1.25, 1.75],
        }
    ],
}


def write(folder: Path, **changes: Any) -> Path:
    path = folder / "calibration_rank1.json"
    path.write_text(json.dumps({**DOCUMENT, **changes}))
    return path


def test_costs_by_kind_of_call(tmp_path: Path) -> None:
    schema = files("trace_analyzer.data").joinpath("schemas", "calibration.schema.json")
    jsonschema.validate(DOCUMENT, json.loads(schema.read_text()))
    found = calibrations.read(write(tmp_path))
    assert (found.rank, found.recorder, found.rounds) == (1, NSYS, 9)
    assert found.options == {"record_shapes": False, "with_stack": False}
    cost = found.cost("runtime_call")
    assert cost is not None
    assert (cost.delta_us, cost.delta_interval_us) == (1.5, (1.25, 1.75))
    assert cost.cpu_ops_per_call is None
    assert found.cost("collective") is None


def test_older_files_are_of_torch_profiler(tmp_path: Path) -> None:
    path = tmp_path / "calibration_rank1.json"
    document = {key: value for key, value in DOCUMENT.items() if key not in {"recorder", "rank"}}
    path.write_text(json.dumps(document))
    found = calibrations.read(path, 4)
    assert (found.recorder, found.rank) == (TORCH_PROFILER, 4)
    with pytest.raises(UnreadableInputError, match="no rank in it"):
        calibrations.read(path)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"schema_version": 2}, "calibration schema 2 is not 1"),
        ({"recorder": "perf"}, "the recorder perf is unknown"),
        ({"classes": 3}, "Expected `array`"),
        ({"classes": [{**DOCUMENT["classes"][0], "delta_interval_us": [2.0, 1.0]}]}, "are none"),
        ({"classes": [{**DOCUMENT["classes"][0], "unprofiled_us": float("nan")}]}, "are none"),
        (
            {"classes": [{**DOCUMENT["classes"][0], "delta_us": 1e308}]},
            "the times of runtime_call are none",
        ),
        *(
            (
                {"classes": [{**DOCUMENT["classes"][0], name: value}]},
                "the counts of runtime_call are none",
            )
            for name in ("cpu_ops_per_call", "runtime_calls_per_call")
            for value in (float("nan"), -3.0, 1e308)
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_a_warning(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    path = write(tmp_path, **changes)
    with pytest.raises(UnreadableInputError, match=problem):
        calibrations.read(path)
    found = read_sidecars(
        [SidecarFile(path=path, name=path.name, role=Role.CALIBRATION, rank=1, pid=None)]
    )
    assert found.calibration == []
    (warning,) = found.warnings
    assert problem in warning.message
    assert warning.effect == "left out: the calibration file of rank 1"


def test_a_run_has_them_in_order_of_rank(tmp_path: Path) -> None:
    paths = []
    for rank in (1, 0):
        paths.append(tmp_path / f"calibration_rank{rank}.json")
        paths[-1].write_text(json.dumps({**DOCUMENT, "rank": rank}))
    found = read_sidecars(
        [SidecarFile(path=path, name=path.name, role=Role.CALIBRATION) for path in paths]
    )
    assert [item.rank for item in found.calibration] == [0, 1]
    assert set(found.paths) == {"calibration"}
