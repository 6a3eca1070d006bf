"""Step timers and environments: what counts, what is left out and said."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from trace_analyzer.bundle import loose_role
from trace_analyzer.readers.sidecars import SidecarFile, Sidecars, read_sidecars

HEADER = {"schema_version": 1, "kind": "header", "rank": 1, "clock": "cuda-event"}


def step(index: int, step_ms: Any, phase: str = "unprofiled") -> dict[str, Any]:
    return {"kind": "step", "index": index, "phase": phase, "step_ms": step_ms, "new_key": 1}


def read(folder: Path, *names: str) -> Sidecars:
    found = []
    for name in names:
        loose = loose_role(name)
        assert loose is not None
        found.append(
            SidecarFile(
                path=folder / name, name=name, role=loose.role, rank=loose.rank, pid=loose.pid
            )
        )
    return read_sidecars(found)


def lines(path: Path, *documents: Any) -> None:
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))


def test_unprofiled_steps_in_order(tmp_path: Path) -> None:
    lines(
        tmp_path / "steps_rank1.jsonl",
        HEADER,
        step(0, 25.5),
        step(1, 90.0, "warmup"),
        step(2, 33.0, "profiled"),
        step(3, 26.5),
        step(4, None),
    )
    found = read(tmp_path, "steps_rank1.jsonl")
    assert found.unprofiled[1].step_ms == (25.5, 26.5)
    assert found.unprofiled[1].basis == "measured"
    assert found.unprofiled[1].path == "steps_rank1.jsonl"
    assert not found.warnings


def test_lines_follow_the_published_schema() -> None:
    text = files("trace_analyzer.data").joinpath("schemas", "steps.schema.json").read_text()
    for document in (HEADER, step(0, 25.5), step(0, None, "warmup")):
        jsonschema.validate(document, json.loads(text))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(step(0, 25.5, "sometimes"), json.loads(text))


def test_lines_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "steps_rank1.jsonl"
    lines(path, HEADER, step(0, 25.5), step(1, -3.0), step(2, "fast"))
    path.write_bytes(path.read_bytes() + b'\xff\xfe\n\n{"kind": "step", "ind')
    found = read(tmp_path, path.name)
    assert found.unprofiled[1].step_ms == (25.5,)
    (warning,) = found.warnings
    assert (warning.code, warning.count, warning.ranks) == ("TRC009", 4, (1,))


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("steps_rank0.jsonl", b"", "no step times"),
        ("steps_rank0.jsonl", b'{"kind": "header", "schema_version": 9}', "schema 9"),
        ("meta_rank0.json", b"{}", "no rank or no plain_ms|no plain_ms"),
        ("meta_rank0.json", b"[1]", "not a JSON object"),
        ("env_rank0.json", b"{", "not JSON"),
        ("env_rank0.json", b'{"schema_version": 3}', "schema 3"),
        ("env_rank0.json", b'{"schema_version": 1, "rank": "zero"}', "no rank"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_warning(
    tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    (tmp_path / name).write_bytes(content)
    found = read(tmp_path, name)
    assert not found.unprofiled
    assert [bool(re.search(problem, item.message)) for item in found.warnings] == [True]
    assert found.paths  # still there for whoever looks


def test_a_missing_file_is_a_warning(tmp_path: Path) -> None:
    found = read(tmp_path, "steps_rank0.jsonl", "env_rank0.json", "nccl_7.log")
    assert [item.code for item in found.warnings] == ["TRC009", "TRC009", "TRC009"]


def test_environment_by_allow_list(tmp_path: Path) -> None:
    document = {
        "schema_version": 1,
        "rank": 0,
        "variables": {
            "NCCL_TOPO_FILE": "/home/me/topo.xml",
            "HF_TOKEN": "hf_secret",
            "HOME": "/home/me",
            "NCCL_DEBUG": 7,
        },
        "versions": {"torch": "2.11.0", "nccl": "2.28.9"},
        "settings": {"bucket_cap_mb": 25, "find_unused_parameters": False, "deep": {"a": 1}},
        "gpus": [{"name": "NVIDIA H200"}],
        "topology": "NV18",
        "later": {"key": "value"},
    }
    text = files("trace_analyzer.data").joinpath("schemas", "environment.schema.json").read_text()
    jsonschema.validate({**document, "variables": {"NCCL_DEBUG": "INFO"}}, json.loads(text))
    (tmp_path / "env_rank0.json").write_text(json.dumps(document))
    found = read(tmp_path, "env_rank0.json")
    assert found.environment == {
        0: {
            "NCCL_DEBUG": "7",
            "NCCL_TOPO_FILE": "topo.xml",
            "version.nccl": "2.28.9",
            "version.torch": "2.11.0",
            "setting.bucket_cap_mb": "25",
            "setting.find_unused_parameters": "false",
        }
    }


def test_meta_files_and_the_timer_that_wins_over_them(tmp_path: Path) -> None:
    meta = {
        "rank": 1,
        "plain_ms": [25.0, 26.0, "x", True],
        "torch": "2.11.0+cu130",
        "gpu": "NVIDIA H200",
        "env": {"NCCL_ALGO": "Ring", "AWS_SECRET_ACCESS_KEY": "x"},
    }
    (tmp_path / "meta_rank1.json").write_text(json.dumps(meta))
    found = read(tmp_path, "meta_rank1.json")
    assert found.unprofiled[1].step_ms == (25.0, 26.0)
    assert found.environment[1] == {
        "NCCL_ALGO": "Ring",
        "gpu": "NVIDIA H200",
        "version.torch": "2.11.0+cu130",
    }
    assert [item.count for item in found.warnings] == [2]
    lines(tmp_path / "steps_rank1.jsonl", HEADER, step(0, 24.0))
    found = read(tmp_path, "steps_rank1.jsonl", "meta_rank1.json")
    assert found.unprofiled[1].step_ms == (24.0,)


def test_the_other_roles_are_kept_as_paths(tmp_path: Path) -> None:
    names = ("nccl_7.log", "flight_rank0.pkl", "gpu0.parquet", "bench_links.json")
    found = read(tmp_path, *names)
    assert found.paths == {
        "bench": (str(tmp_path / "bench_links.json"),),
        "flight-recorder": (str(tmp_path / "flight_rank0.pkl"),),
        "nccl-log": (str(tmp_path / "nccl_7.log"),),
        "sampler": (str(tmp_path / "gpu0.parquet"),),
    }
